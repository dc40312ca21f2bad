"""Policies: rules over signals as data, so that a threshold is changed, compared and cited without code.

    name: web_strict
    version: 2
    extends: [gopher, fineweb]                       # their rules come first
    set: {prose.too_few_gopher_words: 100}           # another threshold for an extended rule, or `off`
    rules:
      - {rule: not_english, signal: languages.language, not_in: [en], kinds: [prose], why: pages in English alone}

A document *fails* a rule where the signal is `below` or `above` the threshold, `is` the value (`is: present`: is there
at all), or is `not_in` the list. A null signal (nothing could be measured) fails no rule. A rule holds for all `kinds`
and `languages` unless it names some. A signal is

    word_count                          a column of the table `signals`
    heuristics.bullet_line_fraction     a column of a scorer's table
    documents.licence                   a column of `documents`
    metadata.KEY                        what the source says of the document; numbers where they are compared

    tags.name                           the tags set by people in the explorer; fails where one of them `is` it

A rule of the same name as an extended one replaces it, for the kinds named in it. *Resolved*, a policy has its rules
alone; their canonical JSON is what step keys and the registry hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from spark_jobs.exceptions import ConfigError, nearest
from spark_jobs.features import missing
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.sources.config.file_reading import KINDS, Kind
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.language_codes import require_codes
from spark_jobs.text.signals import SIGNALS

PRESENT: Final = "present"
LANGUAGES: Final = "languages"
"""The scorer whose column `language` is the language of a document that is no code, where a dataset has it."""
_CONDITIONS: Final = ("below", "above", "is", "not_in")
_NUMBERS: Final = ("int", "long", "float", "double")
NAME: Final = r"^[a-z][a-z0-9_]{0,40}$"

Columns = Mapping[str, Mapping[str, str]]
"""Type of every column, by table and name."""


class Rule(BaseModel):
    """One rule, with exactly one condition: documents meeting the condition fail the rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, serialize_by_alias=True)

    rule: str = Field(pattern=NAME, description="name of the fault, such as too_few_words")
    signal: str = Field(min_length=1, description="what is judged: COLUMN of signals, SCORER.COLUMN or metadata.KEY")
    below: float | None = Field(
        None, strict=True, allow_inf_nan=False, description="documents with a smaller value fail"
    )
    above: float | None = Field(
        None, strict=True, allow_inf_nan=False, description="documents with a larger value fail"
    )
    equals: bool | float | str | None = Field(
        None, alias="is", description="value with which documents fail; `present`: any value"
    )
    not_in: tuple[str, ...] | None = Field(None, min_length=1, description="documents with other values fail")
    kinds: tuple[Kind, ...] = Field((), description="kinds of documents that are judged; all where empty")
    languages: tuple[str, ...] = Field((), description="languages of documents that are judged; all where empty")
    why: str = Field("", description="where the threshold comes from")

    @model_validator(mode="after")
    def _one_condition(self) -> Rule:
        """Refuse a rule with no condition or with several."""
        if len(stated := self.conditions) != 1:
            raise ValueError(
                f"rule {self.rule} has {' and '.join(stated) or 'no condition'}; write one of {', '.join(_CONDITIONS)}"
            )
        return self

    @model_validator(mode="after")
    def _codes_of_languages(self) -> Rule:
        """Refuse languages other than language codes, such as `english`: no document would match."""
        named = {"languages": self.languages}
        if self.source in ((LANGUAGES, "language"), (LANGUAGES, "second_language"), ("documents", "language")):
            equals = (self.equals,) if isinstance(self.equals, str) and self.equals != PRESENT else ()
            named |= {"is": equals, "not_in": self.not_in or ()}
        for field, codes in named.items():
            try:
                require_codes(codes)
            except ValueError as error:
                raise ValueError(f"rule {self.rule}: {field}: {error}") from error
        return self

    @model_serializer(mode="wrap")
    def _plain(self, handler: Callable[[Rule], dict[str, Any]]) -> dict[str, Any]:
        """Only what decides rows: no unset fields, and no `why`."""
        return {k: v for k, v in handler(self).items() if k != "why" and v is not None and v not in ([], ())}

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of the rule; one, once a rule is checked."""
        values = (self.below, self.above, self.equals, self.not_in)
        return tuple(name for name, value in zip(_CONDITIONS, values, strict=True) if value is not None)

    @property
    def value(self) -> Any:
        """What the condition compares with."""
        values = (self.below, self.above, self.equals, self.not_in)
        return next((value for value in values if value is not None), None)

    @property
    def threshold(self) -> float | None:
        """The number to compare values with; None where it is no number."""
        return self.value if isinstance(self.value, float) else None

    @property
    def source(self) -> tuple[str, str]:
        """Table and column (or key of `metadata`) of the signal."""
        return source_of(self.signal)

    @field_validator("signal")
    @classmethod
    def _short(cls, signal: str) -> str:
        """`signals.word_count` is `word_count`: one signal has one name."""
        return signal.removeprefix(f"{SIGNALS.name}.")

    @property
    def judged_kinds(self) -> tuple[str, ...]:
        """Kinds of documents under the rule."""
        return self.kinds or KINDS

    def only(self, kinds: Iterable[str]) -> Rule:
        """The same rule for some kinds."""
        chosen = tuple(kinds)
        return self.model_copy(update={"kinds": () if set(chosen) == set(KINDS) else chosen})

    def with_value(self, value: Any) -> Rule:
        """The same rule with another threshold."""
        (name,) = self.conditions
        if name == "not_in" and isinstance(value, str):
            value = value.split(",")
        return Rule.model_validate({**self.model_dump(), "why": self.why, name: value})


class Policy(ConfigModel):
    """A resolved policy: all of its rules are in it, and it extends nothing."""

    name: str = Field(pattern=NAME, description="name of the policy")
    version: str = Field(min_length=1, description="version of the policy; change it whenever a rule changes")
    rules: tuple[Rule, ...] = Field((), description="rules, in the order in which failures are listed")

    @property
    def label(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def content(self) -> bytes:
        """Canonical JSON of name, version and rules with their `why`: the form stored in the registry."""
        rules = [{**rule.model_dump(mode="json"), **({"why": rule.why} if rule.why else {})} for rule in self.rules]
        return canonical_json({"name": self.name, "version": self.version, "rules": rules}).encode()

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, 64 hex digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Columns read by the rules, by table; those of `metadata` are keys."""
        columns_by_table: dict[str, dict[str, None]] = {}
        for table, column in (rule.source for rule in self.rules):
            columns_by_table.setdefault(table, {})[column] = None
        return {table: tuple(columns) for table, columns in columns_by_table.items()}

    @property
    def asks_language(self) -> bool:
        """Whether a rule holds for some languages alone."""
        return any(rule.languages for rule in self.rules)


def source_of(signal: str) -> tuple[str, str]:
    """Table and column of a signal as rules name it; for `metadata` its key."""
    table, point, column = signal.partition(".")
    return (table, column) if point else (SIGNALS.name, table)


def signal_names(columns: Columns) -> list[str]:
    """The signals for rules to name, of some tables: `word_count` of `signals`, `heuristics.word_count` of others."""
    return [c if table == SIGNALS.name else f"{table}.{c}" for table, names in columns.items() for c in names]


def signal_columns(tables: Mapping[str, Mapping[str, str]]) -> Columns:
    """Columns of every dataset, with those of its scorers."""
    documents = {c.name: c.type for c in DOCUMENTS.columns if c.name not in ("content", "metadata", "shard")}
    return {SIGNALS.name: {c.name: c.type for c in SIGNALS.columns}, DOCUMENTS.name: documents, **tables}


def check_signals(policy: Policy, columns: Columns) -> None:
    """Refuse rules on missing signals, and thresholds not comparable with them.

    Raises:
        ConfigError: names the first such rule, and the nearest signal.
    """
    signals = signal_names(columns)
    for rule in policy.rules:
        table, column = rule.source
        where = f"policy {policy.label}: rule {rule.rule}"
        if table == "metadata":
            if isinstance(rule.equals, bool):
                raise ConfigError(f"{where}: metadata holds texts; write is: '{str(rule.equals).lower()}'")
            continue
        if table not in columns:
            if feature := missing("scorers").get(table):
                raise ConfigError(
                    f"{where} reads {rule.signal}: the scorer {table!r} is of the feature {feature}, which is not "
                    f"installed here; install headrace whole, or take the rule out (set: {{{rule.rule}: off}})"
                )
            raise ConfigError(
                f"{where} reads {rule.signal}: there is no scorer {table!r}{nearest(table, columns)}; declare it "
                f"(scorers: {{{table}: {{}}}}), or take the rule out (set: {{{rule.rule}: off}})"
            )
        if column not in columns[table]:
            raise ConfigError(f"{where}: there is no signal {rule.signal!r}{nearest(rule.signal, signals)}; correct it")
        kind = columns[table][column]
        (condition,) = rule.conditions
        if fits := _wrong_condition(rule, kind):
            raise ConfigError(f"{where}: {condition} {rule.value!r} on {rule.signal}, which is {kind}; {fits}")


def _wrong_condition(rule: Rule, kind: str) -> str:
    """What to write where a condition cannot be asked of a column of a type; empty where it can."""
    (condition,) = rule.conditions
    if rule.equals == PRESENT:
        return ""
    if kind.startswith("list<string"):
        return "" if isinstance(rule.equals, str) else "write is with a text that the list may hold"
    if kind in _NUMBERS:
        number = condition in ("below", "above") or isinstance(rule.equals, float)
        return "" if number else "write below or above a number"
    if kind == "boolean":
        return "" if isinstance(rule.equals, bool) else "write is: true or is: false"
    if kind == "string":
        return "" if condition == "not_in" or isinstance(rule.equals, str) else "write is or not_in with texts"
    return "only numbers, texts and booleans can be judged"
