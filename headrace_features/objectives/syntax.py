"""Nodes of a file's syntax tree that a middle may be: statements, blocks, lists of arguments, expressions.

Runs in the child process that parses code for dependencies (`spark_jobs.code.syntax`), which hangs and crashes for us.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

import numpy as np

from headrace_features.objectives.fim import Nodes
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser

KINDS: Final = ("statement", "block", "arguments", "expression")
_COMMENT: Final = "comment"
_STATEMENTS: Final = ("_statement", "_declaration", "_definition", "_item", "_definitions")
_EXPRESSIONS: Final = ("_expression", "_operator", "_comprehension", "_literal_expression", "_access", "_invocation")
_NAMED: Final = {
    "declaration": "statement",  # C
    "method": "statement",  # Ruby, as the names before `command`
    **dict.fromkeys(("class", "module", "if", "unless", "while", "case", "for", "begin"), "statement"),
    **dict.fromkeys(("command", "pipeline", "variable_assignment"), "statement"),  # of a shell
    **dict.fromkeys(("block", "compound_statement", "statement_block", "class_body", "body_statement"), "block"),
    **dict.fromkeys(("declaration_list", "field_declaration_list", "function_body", "interface_body"), "block"),
    **dict.fromkeys(("do_block", "do_group", "enum_body", "switch_body", "switch_block", "match_block"), "block"),
    **dict.fromkeys(("constructor_body", "template_body"), "block"),
    **dict.fromkeys(("argument_list", "arguments", "value_arguments"), "arguments"),
    **dict.fromkeys(("call", "attribute", "subscript", "list", "dictionary", "set", "tuple", "lambda"), "expression"),
    **dict.fromkeys(("array", "object", "binary", "composite_literal", "func_literal", "await"), "expression"),
    **dict.fromkeys(("arrow_function", "function_call", "table_constructor"), "expression"),
    # parts of statements in spite of their names, and what stands between brackets, which may be no expression
    **dict.fromkeys(("with_item", "case_item", "parenthesized_expression", "format_expression"), ""),
    **dict.fromkeys(("parameter_declaration", "type_parameter_declaration", "jsx_expression", "attribute_item"), ""),
    **dict.fromkeys(("variadic_parameter_declaration", "inner_attribute_item", "enum_body_declarations"), ""),
    **dict.fromkeys(("operator", "test_operator", "empty_statement"), ""),
}


def _kind_of(name: str) -> str:
    """The kind of a type of nodes, or comment; empty for the others."""
    if name in _NAMED:
        return _NAMED[name]
    if name.endswith(_STATEMENTS):
        return "statement"
    if name.endswith("comment"):
        return _COMMENT
    return "expression" if name.endswith(_EXPRESSIONS) else ""


@cache
def _loaded(language: str) -> Any:
    """Parser of a language, and the query that captures nodes by kind."""
    from tree_sitter import Language, Parser, Query

    from spark_jobs.code.syntax.definitions import GRAMMARS

    grammar = GRAMMARS[language]
    loaded = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    types = range(loaded.node_kind_count)
    there = {
        loaded.node_kind_for_id(i) for i in types if loaded.node_kind_is_named(i) and loaded.node_kind_is_visible(i)
    }
    there -= {loaded.node_kind_for_id(i) for i in loaded.supertypes}
    asked = (f"({name}) @{_kind_of(name)}" for name in sorted(map(str, there)) if _kind_of(name))
    return Parser(loaded), Query(loaded, "\n".join(asked))


def read_nodes(language: str, source: bytes) -> bytes:
    """Parse one file, in the child.

    Returns:
        (N, 3) int32 of its nodes without errors: number of the kind, first byte, byte behind the last.
    """
    from tree_sitter import QueryCursor

    parser, query = _loaded(language)
    root = parser.parse(source).root_node
    captures, file = QueryCursor(query).captures(root), (root.start_byte, root.end_byte)
    comments = {node.end_byte: node.start_byte for node in captures.pop(_COMMENT, ())}
    nodes = list[tuple[int, int, int]]()
    for number, kind in enumerate(KINDS):
        for node in captures.get(kind, ()):
            start, end = node.start_byte, node.end_byte
            if (start, end) == file or (root.has_error and node.has_error):  # Ruby has modules within files
                continue
            while end in comments and end > start:  # Python's grammar ends a block behind the comment after it
                end = len(source[: comments[end]].rstrip())
            if end > start:
                nodes.append((number, start, end))
    return np.array(nodes, np.int32).tobytes()


def nodes_of(files: Sequence[tuple[str | None, str]]) -> list[Nodes]:
    """Nodes of files.

    Args:
        files: language and text of each.

    Returns:
        (N, 3) of each: number of the kind, first byte, byte behind the last; or why there are none.
    """
    from spark_jobs.code.syntax.definitions import GRAMMARS

    parsed = [(language, text.encode()) for language, text in files if language in GRAMMARS]
    parser = SyntaxParser(SyntaxLimits(), f"{__name__}:{read_nodes.__name__}")
    answers = iter(parser.definitions(cast(Any, parsed)) if parsed else [])
    return [
        _nodes(next(answers)) if language in GRAMMARS else f"no parser of {language or 'a language not known'}"
        for language, _ in files
    ]


def _nodes(answer: Any) -> Nodes:
    return answer.partition(":")[0] if isinstance(answer, str) else np.frombuffer(answer, np.int32).reshape(-1, 3)
