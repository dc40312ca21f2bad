"""Conditions of users on rows, `--where`: PyIceberg's grammar, lone boolean columns, elements of lists, parts of texts.

status = 'rejected' and byte_count > 100      as PyIceberg reads it
not kept                                      kept = true, negated
failed.rule in ('too_short', 'too_long')      one element of the list `failed` has such a `rule`
path like '%/test_%.py'                       % stands for anything, _ for one character
content contains 'mill race'                  in upper or lower case
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    IsNull,
    LiteralPredicate,
    Not,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.types import BooleanType, ListType, MapType, PrimitiveType, StringType, StructType

from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.lookups import ElementCondition, TextCondition, with_elements

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_TOKEN = re.compile(r"'(?:[^']|'')*'|[<>=!]+|[(),]|[^\s<>=!(),']+")
Condition = ElementCondition | TextCondition
_PREFIX = re.compile(r"[^%_]*%?")  # of `like`, which PyIceberg knows, so that files without such texts are not read
_EXAMPLE = "status = 'rejected' and byte_count > 100; not kept; failed.rule = 'too_short'"


def parse_condition(
    schema: Schema, where: str, hidden: Collection[str]
) -> tuple[BooleanExpression, dict[str, Condition]]:
    """Parse a condition to PyIceberg's expression, and the conditions on lists and texts by the names they have in it.

    Args:
        schema: of the table.
        where: the condition.
        hidden: columns forbidden in it.

    Raises:
        CommandError: it cannot be parsed, or names a column that does not exist or may not be shown.
    """
    from pyiceberg.expressions.parser import parse
    from pyiceberg.expressions.visitors import bind, extract_field_ids
    from pyparsing import ParseBaseException

    elements: dict[str, Condition] = {}
    try:
        condition = _of_elements(parse(_of_texts(_compared(schema, where), schema, elements)), schema, elements)
        whole = with_elements(schema, elements)
        numbers = extract_field_ids(bind(whole, condition, True))
    except ParseBaseException as error:
        raise CommandError(f'--where {where}: not a condition; write e.g. --where "{_EXAMPLE}"') from error
    except (ValueError, TypeError, NotImplementedError) as error:
        unknown = re.search(r"with name ([\w.]+)", str(error))
        names = [field.name for field in schema.fields]
        what = f"no column {unknown[1]}{did_you_mean(unknown[1], names)}" if unknown else f"{error}; e.g. {_EXAMPLE}"
        raise CommandError(f"--where {where}: {what}") from error
    columns = {(whole.find_column_name(number) or "").split(".")[0] for number in numbers}
    columns |= {element.column for element in elements.values()}
    if refused := sorted(columns & set(hidden)):
        raise CommandError(f"--where {where}: {refused[0]} holds texts, which the declaration of the table hides")
    return condition, elements


def _compared(schema: Schema, where: str) -> str:
    """The text with `= true` behind each boolean column compared with nothing."""
    if _TOKEN.sub("", where).strip():
        return where  # a quote that is never closed: the grammar refuses it
    tokens = ["(", *_TOKEN.findall(where), ")"]
    flags = {field.name for field in schema.fields if isinstance(field.field_type, BooleanType)}
    alone = [
        at
        for at, token in enumerate(tokens)
        if token in flags and tokens[at - 1].lower() in ("(", "and", "or", "not") and _ends(tokens[at + 1])
    ]
    for at in alone:
        tokens[at] += " = true"
    return " ".join(tokens[1:-1]) if alone else where


def _of_texts(where: str, schema: Schema, elements: dict[str, Condition]) -> str:
    """The text with a name in place of each `contains` and `like` that PyIceberg has not; they go into `elements`.

    Raises:
        ValueError: a column is no text.
    """
    tokens = _TOKEN.findall(where)
    out: list[str] = []
    at = 0
    while at < len(tokens):
        column, *behind = tokens[at : at + 4]
        negated = bool(behind) and behind[0].lower() == "not"
        operator, quoted = (*behind[negated : negated + 2], "", "")[:2]
        pattern = quoted[1:-1].replace("''", "'")
        contains = operator.lower() == "contains"
        if not quoted.startswith("'") or not (
            contains or (operator.lower() == "like" and not _PREFIX.fullmatch(pattern))
        ):
            out.append(column)
            at += 1
            continue
        name = f"text_{len(elements)}"
        elements[name] = _text_condition(schema, column, re.escape(pattern) if contains else _like(pattern), contains)
        out += [f"{'not ' if negated else ''}{name} = true"]
        at += 3 + negated
    return " ".join(out) if elements else where


def _like(pattern: str) -> str:
    """A pattern of SQL as a regular expression of the whole text."""
    parts = {"%": ".*", "_": "."}
    return f"(?s)^{''.join(parts.get(character) or re.escape(character) for character in pattern)}$"


def _text_condition(schema: Schema, term: str, pattern: str, ignore_case: bool) -> TextCondition:
    """A condition on a column, a field of a struct, or on elements of a list.

    Raises:
        ValueError: there is no such column, or it is no text.
    """
    column, *path = (name for name in term.split(".") if name != "element")
    kind = schema.find_field(column).field_type
    if isinstance(kind, ListType):
        kind = kind.element_type
    kind = _element_type(term, kind, path)
    if not isinstance(kind, StringType):
        raise ValueError(f"{term} is a {kind}, no text; `contains` and `like` are of texts")
    return TextCondition(column, tuple(path), pattern, ignore_case)


def _ends(token: str) -> bool:
    return token.lower() in (")", "and", "or")


def _of_elements(condition: BooleanExpression, schema: Schema, elements: dict[str, Condition]) -> BooleanExpression:
    """The condition with a name in place of each part about elements of a list; these are noted in `elements`.

    Raises:
        ValueError: a path leads nowhere, or through two lists or a map.
    """
    if isinstance(condition, And | Or):
        return type(condition)(*(_of_elements(side, schema, elements) for side in (condition.left, condition.right)))
    if isinstance(condition, Not):
        return Not(_of_elements(condition.child, schema, elements))
    if not isinstance(condition, UnboundPredicate) or not isinstance(condition.term, Reference):
        return condition
    column, *path = condition.term.name.split(".")
    field = next((top for top in schema.fields if top.name == column), None)
    if isinstance(condition, IsNull | NotNull) and not path:
        return condition
    if field is not None and isinstance(field.field_type, MapType):
        raise ValueError(f"{column} is a map, of which only `is null` can be asked")
    if field is None or not isinstance(field.field_type, ListType):
        return condition
    fields = [name for name in path if name != "element"]
    kind = _element_type(condition.term.name, field.field_type.element_type, fields)
    name = f"element_{len(elements)}"
    elements[name] = ElementCondition(column, tuple(fields), kind, _about(condition))
    return EqualTo(name, True)


def _element_type(path: str, kind: IcebergType, fields: list[str]) -> PrimitiveType:
    """The type of a field of the elements of a list.

    Raises:
        ValueError: there is none, or it is no single value.
    """
    for name in fields:
        there = {part.name: part.field_type for part in kind.fields} if isinstance(kind, StructType) else {}
        if name not in there:
            raise ValueError(f"{path}: the elements of the list have no {name!r}{did_you_mean(name, there)}")
        kind = there[name]
    if isinstance(kind, StructType):
        raise ValueError(f"{path} has the fields {', '.join(part.name for part in kind.fields)}; ask of one of them")
    if not isinstance(kind, PrimitiveType):
        raise ValueError(f"{path} is no single value")
    return kind


def _about(condition: UnboundPredicate) -> UnboundPredicate:
    """The same predicate about the column `value`."""
    if isinstance(condition, LiteralPredicate):
        return type(condition)("value", condition.literal)
    if isinstance(condition, SetPredicate):
        return type(condition)("value", condition.literals)
    return type(condition)("value")
