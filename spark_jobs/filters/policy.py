"""Policies: rules over signals as data, so that a threshold is changed, compared and cited without code.

    name: web_strict
    version: 2
    extends: [gopher, fineweb]                       # their rules come first
    set: {prose.too_few_gopher_words: 100}           # another threshold for a rule that is extended, or `off`
    rules:
      - {rule: not_english, signal: languages.language, not_in: [en], kinds: [prose], why: pages in English alone}

A document *fails* a rule where the signal is `below` or `above` the threshold, `is` the value (`is: present`: is there
at all), or is `not_in` the list. A signal that is null, because nothing could be measured, fails no rule. A rule holds
for all `kinds` and `languages` unless it names some. A signal is

    word_count                          a column of the table `signals`
    heuristics.bullet_line_fraction     a column of a scorer's table
    documents.licence                   a column of `documents`
    metadata.KEY                        what the source says of the document; numbers where they are compared

A rule of the same name as an extended one replaces it, for the kinds that it names. *Resolved*, a policy has its rules
alone; their canonical JSON is what step keys and the registry hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_serializer, model_validator

from spark_jobs.exceptions import ConfigError, did_you_mean, nearest
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.sources.config.file_reading import KINDS, Kind
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.language_codes import require_codes
from spark_jobs.text.signals import SIGNALS

SHIPPED: Final = Path(__file__).with_name("policies")
DEFAULT: Final = "headrace"
PRESENT: Final = "present"
LANGUAGES: Final = "languages"
"""The scorer whose column `language` is the language of a document that is no code, where a dataset has it."""
_CONDITIONS: Final = ("below", "above", "is", "not_in")
_NUMBERS: Final = ("int", "long", "float", "double")
_NAME: Final = r"^[a-z][a-z0-9_]{0,40}$"

Columns = Mapping[str, Mapping[str, str]]
"""Type of every column, by table and name."""
Find = Callable[[str], Mapping[str, Any]]
"""Gives what a policy says by its reference: a name, `name@version`, a hash or a path."""


class Rule(BaseModel):
    """One rule; a document fails it by exactly one condition."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, serialize_by_alias=True)

    rule: str = Field(pattern=_NAME, description="name of the fault, such as too_few_words")
    signal: str = Field(min_length=1, description="what is judged: COLUMN of signals, SCORER.COLUMN or metadata.KEY")
    below: float | None = Field(None, strict=True, allow_inf_nan=False, description="documents with less fail")
    above: float | None = Field(None, strict=True, allow_inf_nan=False, description="documents with more fail")
    equals: bool | float | str | None = Field(
        None, alias="is", description="documents with this value fail; `present`: those with any value"
    )
    not_in: tuple[str, ...] | None = Field(None, min_length=1, description="documents with another value fail")
    kinds: tuple[Kind, ...] = Field((), description="kinds of documents that are judged; all where empty")
    languages: tuple[str, ...] = Field((), description="languages of documents that are judged; all where empty")
    why: str = Field("", description="where the threshold comes from")

    @model_validator(mode="after")
    def _one_condition(self) -> Rule:
        """Refuse a rule that nothing or several things decide."""
        if len(given := self.conditions) != 1:
            raise ValueError(
                f"rule {self.rule} has {' and '.join(given) or 'no condition'}; write one of {', '.join(_CONDITIONS)}"
            )
        return self

    @model_validator(mode="after")
    def _codes_of_languages(self) -> Rule:
        """Refuse a language by a word that no document has."""
        named = {"languages": self.languages}
        if self.source in ((LANGUAGES, "language"), (LANGUAGES, "second_language"), ("documents", "language")):
            equals = (self.equals,) if isinstance(self.equals, str) and self.equals != PRESENT else ()
            named |= {"is": equals, "not_in": self.not_in or ()}
        for field, given in named.items():
            try:
                require_codes(given)
            except ValueError as error:
                raise ValueError(f"rule {self.rule}: {field}: {error}") from error
        return self

    @model_serializer(mode="wrap")
    def _plain(self, handler: Callable[[Rule], dict[str, Any]]) -> dict[str, Any]:
        """What decides rows, without what is left out and without `why`."""
        return {k: v for k, v in handler(self).items() if k != "why" and v is not None and v not in ([], ())}

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that are given; one, once a rule is checked."""
        values = (self.below, self.above, self.equals, self.not_in)
        return tuple(name for name, value in zip(_CONDITIONS, values, strict=True) if value is not None)

    @property
    def value(self) -> Any:
        """What the condition compares with."""
        values = (self.below, self.above, self.equals, self.not_in)
        return next((value for value in values if value is not None), None)

    @property
    def threshold(self) -> float | None:
        """The number that values are compared with; None where it is no number."""
        return self.value if isinstance(self.value, float) else None

    @property
    def source(self) -> tuple[str, str]:
        """Table and column (or key of `metadata`) of the signal."""
        return source_of(self.signal)

    @field_validator("signal")
    @classmethod
    def _short(cls, given: str) -> str:
        """`signals.word_count` is `word_count`: one signal has one name."""
        return given.removeprefix(f"{SIGNALS.name}.")

    @property
    def judged_kinds(self) -> tuple[str, ...]:
        """Kinds of documents that the rule holds for."""
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
    """A policy whose rules are all there is: nothing is extended any more."""

    name: str = Field(pattern=_NAME, description="its name")
    version: str = Field(min_length=1, description="changed whenever a rule changes")
    rules: tuple[Rule, ...] = Field((), description="rules, in the order in which failures are listed")

    @property
    def label(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def content(self) -> bytes:
        """Canonical JSON with the reasons: what the registry holds."""
        rules = [{**rule.model_dump(mode="json"), **({"why": rule.why} if rule.why else {})} for rule in self.rules]
        return canonical_json({"name": self.name, "version": self.version, "rules": rules}).encode()

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, 64 hex digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Columns that the rules read, by table; those of `metadata` are keys."""
        found: dict[str, dict[str, None]] = {}
        for table, column in (rule.source for rule in self.rules):
            found.setdefault(table, {})[column] = None
        return {table: tuple(columns) for table, columns in found.items()}

    @property
    def asks_language(self) -> bool:
        """Whether a rule holds for some languages alone."""
        return any(rule.languages for rule in self.rules)


class _Written(ConfigModel):
    """A policy as people write it."""

    name: str | None = Field(None, pattern=_NAME)
    version: str | None = None
    extends: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    changed: dict[str, Any] = Field(default_factory=dict, alias="set")

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, given: Any) -> Any:
        return str(given) if isinstance(given, int) else given


def shipped() -> dict[str, Path]:
    """Files of the policies that headrace brings, by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def find_in_files(reference: str) -> Mapping[str, Any]:
    """What a policy says that headrace brings, or that lies in a file.

    Raises:
        ConfigError: there is none of this name or version, or the file cannot be read.
    """
    if is_file(reference):
        return read_file(Path(reference))
    name, _, version = reference.partition("@")
    files = shipped()
    if name not in files:
        raise ConfigError(f"policy {reference}: headrace brings none of this name{did_you_mean(name, files)}")
    found = read_file(files[name])
    if version not in ("", str(found["version"])):
        raise ConfigError(f"policy {reference}: there is {name}@{found['version']}; name that, or add your own")
    return found


def is_file(reference: str) -> bool:
    """Whether a reference is the path of a file."""
    return reference.endswith((".yaml", ".yml", ".json"))


def located(policy: Any, folder: Path) -> Any:
    """A policy as it is written in a file of a folder, with the paths in it made paths from here."""
    if isinstance(policy, str):
        return str(folder / policy) if is_file(policy) else policy
    extended = policy.get("extends") if isinstance(policy, Mapping) else None
    if not isinstance(extended, list):
        return policy
    return {**policy, "extends": [located(one, folder) for one in extended]}


def read_file(path: Path) -> Mapping[str, Any]:
    """What a file says; paths in its `extends` are made absolute, and its name is the default name.

    Raises:
        ConfigError: it cannot be read, or is no policy.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ConfigError(f"policy {path}{yaml_fault(error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"policy {path}: {reason}; give a YAML file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"policy {path}: it holds a {type(content).__name__}; write name, version and rules")
    for field in ("name", "version"):
        if field not in content:
            raise ConfigError(f"policy {path}: {field} is missing; write it")
    found: Mapping[str, Any] = located(content, path.parent)
    return found


def yaml_fault(error: Exception) -> str:
    """The end of a message about a file that is not YAML: line, fault and mend."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = f", line {mark.line + 1}" if mark is not None else ""
    said = getattr(error, "problem", None) or getattr(error, "context", None) or " ".join(str(error).split())
    repeated = re.match(r'found duplicate key "(.*?)"', said)
    return f"{line}: {repeated[1]} is there twice; leave one of them" if repeated else f"{line}: {said}; mend the YAML"


def resolve(
    given: str | Mapping[str, Any] | Policy,
    find: Find = find_in_files,
    changed: Mapping[str, Any] | None = None,
    default_name: str = "inline",
    _within: tuple[str, ...] = (),
) -> Policy:
    """The policy behind a reference or behind what is written in place, with all that it extends.

    Args:
        given: name, `name@version`, hash or path; or the policy itself.
        find: gives what a reference stands for.
        changed: further thresholds by rule, as `set` has them; the version then tells them apart.
        default_name: of a policy written in place without a name; its version is then a hash of its rules.

    Raises:
        ConfigError: a name is unknown, a field or a value is refused, or two rules have one name for one kind.
    """
    if isinstance(given, Policy) and not changed:
        return given
    if isinstance(given, str):
        if given in _within:
            raise ConfigError(f"policy {_within[0]} extends itself, by {' -> '.join((*_within, given))}; take one out")
        found = resolve(find(given), find, None, default_name, (*_within, given))
    elif isinstance(given, Policy):
        found = given
    else:
        found = _resolved(given, find, default_name, _within)
    if not changed:
        return found
    rules = _with_values(found.rules, changed, found.label)
    return Policy(name=found.name, version=f"{found.version}+{_digest(rules)}", rules=rules)


def _resolved(given: Mapping[str, Any], find: Find, default_name: str, within: tuple[str, ...]) -> Policy:
    label = str(given.get("name") or default_name)
    try:
        written = _Written.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"policy {label}: {_refused(error, given)}") from error
    _refuse_repeated(written.rules, label)
    rules: list[Rule] = []
    for parent in written.extends:
        there = [rule.model_dump() for rule in rules]  # which leaves out why
        more = resolve(parent, find, None, default_name, within).rules
        rules += [rule for rule in more if rule.model_dump() not in there]
    for own in written.rules:
        rules = _replaced(rules, own)
    _refuse_repeated(rules, label)
    chosen = _with_values(rules, written.changed, label)
    return Policy(name=written.name or default_name, version=written.version or _digest(chosen), rules=chosen)


def _digest(rules: Sequence[Rule]) -> str:
    text = canonical_json([rule.model_dump(mode="json") for rule in rules])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _replaced(rules: Sequence[Rule], own: Rule) -> list[Rule]:
    """The rules with one that takes the place of those of its name, for its kinds."""
    made: list[Rule] = []
    place = None
    for rule in rules:
        left = [kind for kind in rule.judged_kinds if kind not in own.judged_kinds]
        if rule.rule != own.rule or len(left) == len(rule.judged_kinds):
            made.append(rule)
            continue
        place = len(made) if place is None else place
        made += [rule.only(left)] if left else []
    made.insert(len(made) if place is None else place, own)
    return made


def _with_values(rules: Sequence[Rule], changed: Mapping[str, Any], label: str) -> tuple[Rule, ...]:
    """Rules with other thresholds, by `rule` or `kind.rule`; `off` or null takes a rule out."""
    made = list(rules)
    for reference, value in changed.items():
        kind, point, name = str(reference).rpartition(".")
        found = [rule for rule in made if rule.rule == name and (not point or kind in rule.judged_kinds)]
        if not found:
            known = {rule.rule for rule in made} | {f"{one}.{r.rule}" for r in made for one in r.kinds}
            raise ConfigError(f"policy {label}: set: there is no rule {reference!r}{nearest(str(reference), known)}")
        if len(found) > 1:
            kinds = [one for rule in found for one in rule.judged_kinds]
            raise ConfigError(
                f"policy {label}: set: {name} is a rule for {', '.join(kinds)}; write {kinds[0]}.{name} for one of them"
            )
        rule = found[0]
        chosen = rule.only([one for one in rule.judged_kinds if one == kind]) if point else rule
        if value is None or value is False or value == "off":  # which YAML 1.1, of Dagster, reads as false
            at = made.index(rule)
            left = [one for one in rule.judged_kinds if one not in chosen.judged_kinds]
            made[at : at + 1] = [rule.only(left)] if left else []
            continue
        try:
            made = _replaced(made, chosen.with_value(value))
        except ValidationError as error:
            raise ConfigError(
                f"policy {label}: set: {reference}: {error.errors()[0]['msg']} (got {value!r})"
            ) from error
    return tuple(made)


def _refuse_repeated(rules: Sequence[Rule], label: str) -> None:
    """Refuse two rules of one name for one kind, which `failed` could not tell apart."""
    seen: dict[tuple[str, str], Rule] = {}
    for rule in rules:
        for kind in rule.judged_kinds:
            first = seen.setdefault((rule.rule, kind), rule)
            if first is not rule:
                raise ConfigError(
                    f"policy {label}: two rules for {kind} are named {rule.rule}, on {first.signal} and {rule.signal}; "
                    "rename one, or write the one that is meant below rules"
                )


def _refused(error: ValidationError, given: Mapping[str, Any]) -> str:
    """The first value that is refused; of several faults a misspelt field comes first."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    place = list(first["loc"])
    where = ""
    if place[:1] == ["rules"] and len(place) > 1:
        rule = given["rules"][place[1]]
        name = rule.get("rule") if isinstance(rule, Mapping) else None
        where, place = f"rule {name or place[1]}: ", place[2:]
    if first["type"] == "extra_forbidden":
        fields = {info.alias or name for name, info in (Rule if where else _Written).model_fields.items()}
        return f"{where}{place[-1]}: there is no such field{did_you_mean(str(place[-1]), sorted(fields))}"
    if first["type"] == "missing":
        return f"{where}{place[-1]} is missing; write it"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    path = ".".join(str(one) for one in place)
    return f"{where}{path}: {first['msg']} (got {first['input']!r})"


def source_of(signal: str) -> tuple[str, str]:
    """Table and column of a signal as rules name it; for `metadata` its key."""
    table, point, column = signal.partition(".")
    return (table, column) if point else (SIGNALS.name, table)


def signal_names(columns: Columns) -> list[str]:
    """What rules call the columns of some tables."""
    return [c if table == SIGNALS.name else f"{table}.{c}" for table, own in columns.items() for c in own]


def signal_columns(tables: Mapping[str, Mapping[str, str]]) -> Columns:
    """Columns that every dataset has, with those of its scorers."""
    documents = {c.name: c.type for c in DOCUMENTS.columns if c.name not in ("content", "metadata", "shard")}
    return {SIGNALS.name: {c.name: c.type for c in SIGNALS.columns}, DOCUMENTS.name: documents, **tables}


def check_signals(policy: Policy, columns: Columns) -> None:
    """Refuse rules on signals that are not there, and thresholds that cannot be compared with them.

    Raises:
        ConfigError: names the first such rule, and the nearest signal.
    """
    known = signal_names(columns)
    for rule in policy.rules:
        table, column = rule.source
        where = f"policy {policy.label}: rule {rule.rule}"
        if table == "metadata":
            if isinstance(rule.equals, bool):
                raise ConfigError(f"{where}: metadata holds texts; write is: '{str(rule.equals).lower()}'")
            continue
        if table not in columns:
            raise ConfigError(
                f"{where} reads {rule.signal}: there is no scorer {table!r}{nearest(table, columns)}; declare it "
                f"(scorers: {{{table}: {{}}}}), or take the rule out (set: {{{rule.rule}: off}})"
            )
        if column not in columns[table]:
            raise ConfigError(f"{where}: there is no signal {rule.signal!r}{nearest(rule.signal, known)}; correct it")
        kind = columns[table][column]
        (condition,) = rule.conditions
        if fits := _wrong_condition(rule, kind):
            raise ConfigError(f"{where}: {condition} {rule.value!r} on {rule.signal}, which is {kind}; {fits}")


def _wrong_condition(rule: Rule, kind: str) -> str:
    """What to write where a condition cannot be asked of a column of a type; empty where it can."""
    (condition,) = rule.conditions
    if rule.equals == PRESENT:
        return ""
    if kind in _NUMBERS:
        number = condition in ("below", "above") or isinstance(rule.equals, float)
        return "" if number else "write below or above a number"
    if kind == "boolean":
        return "" if isinstance(rule.equals, bool) else "write is: true or is: false"
    if kind == "string":
        return "" if condition == "not_in" or isinstance(rule.equals, str) else "write is or not_in with texts"
    return "only numbers, texts and booleans can be judged"
