"""Resolve a policy: carry out its `extends` and `set`, so that only rules are left.

extends: [gopher]                            all rules of `gopher`
set: {prose.too_few_gopher_words: 100}       then this one has another threshold for prose, and the old one for code
rules: [..]                                  a rule of the same name replaces one of `gopher`, for its own kinds
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field, ValidationError, field_validator

from spark_jobs.exceptions import ConfigError, did_you_mean, nearest
from spark_jobs.filters.policy import NAME, Policy, Rule
from spark_jobs.filters.policy_files import Find, find_in_files
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.ledger.step_key import canonical_json

DEFAULT: Final = "headrace"


class _Written(ConfigModel):
    """A policy as people write it."""

    name: str | None = Field(None, pattern=NAME)
    version: str | None = None
    extends: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    changed: dict[str, Any] = Field(default_factory=dict, alias="set")

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value


def resolve(
    policy: str | Mapping[str, Any] | Policy,
    find: Find = find_in_files,
    changed: Mapping[str, Any] | None = None,
    default_name: str = "inline",
    _within: tuple[str, ...] = (),
) -> Policy:
    """Resolve a policy, named or written out, together with the policies extended by it.

    Args:
        policy: name, `name@version`, hash or path; or the policy itself.
        find: looks a reference up.
        changed: further thresholds by rule, in the form of `set`; a hash of the rules is then added to the version.
        default_name: for a policy written out without a name; its version is then a hash of its rules.

    Raises:
        ConfigError: a name is unknown, a field or a value is refused, or two rules have one name for one kind.
    """
    if isinstance(policy, Policy) and not changed:
        return policy
    if isinstance(policy, str):
        if policy in _within:
            raise ConfigError(f"policy {_within[0]} extends itself, by {' -> '.join((*_within, policy))}; take one out")
        resolved = resolve(find(policy), find, None, default_name, (*_within, policy))
    elif isinstance(policy, Policy):
        resolved = policy
    else:
        resolved = _resolved(policy, find, default_name, _within)
    if not changed:
        return resolved
    rules = _with_values(resolved.rules, changed, resolved.label)
    return Policy(name=resolved.name, version=f"{resolved.version}+{_digest(rules)}", rules=rules)


def _resolved(policy: Mapping[str, Any], find: Find, default_name: str, within: tuple[str, ...]) -> Policy:
    label = str(policy.get("name") or default_name)
    try:
        written = _Written.model_validate(policy)
    except ValidationError as error:
        raise ConfigError(f"policy {label}: {_refused(error, policy)}") from error
    _refuse_repeated(written.rules, label)
    rules: list[Rule] = []
    for parent in written.extends:
        earlier = [rule.model_dump() for rule in rules]  # the dump leaves out `why`
        more = resolve(parent, find, None, default_name, within).rules
        rules += [rule for rule in more if rule.model_dump() not in earlier]
    for rule in written.rules:
        rules = _replaced(rules, rule, [rule])
    _refuse_repeated(rules, label)
    chosen = _with_values(rules, written.changed, label)
    return Policy(name=written.name or default_name, version=written.version or _digest(chosen), rules=chosen)


def _digest(rules: Sequence[Rule]) -> str:
    text = canonical_json([rule.model_dump(mode="json") for rule in rules])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _replaced(rules: Sequence[Rule], old: Rule, new: Sequence[Rule]) -> list[Rule]:
    """Put new rules where rules of the old one's name stood, for the old one's kinds; at the end where none did."""
    merged: list[Rule] = []
    position = None
    for rule in rules:
        left = [kind for kind in rule.judged_kinds if kind not in old.judged_kinds]
        if rule.rule != old.rule or len(left) == len(rule.judged_kinds):
            merged.append(rule)
            continue
        position = len(merged) if position is None else position
        merged += [rule.only(left)] if left else []
    position = len(merged) if position is None else position
    return [*merged[:position], *new, *merged[position:]]


def _with_values(rules: Sequence[Rule], changed: Mapping[str, Any], label: str) -> tuple[Rule, ...]:
    """Rules with the thresholds of `set`, by `rule` or `kind.rule`; `off` or null takes a rule out."""
    new_rules = list(rules)
    for reference, value in changed.items():
        kind, point, name = str(reference).rpartition(".")
        named_rules = [rule for rule in new_rules if rule.rule == name and (not point or kind in rule.judged_kinds)]
        if not named_rules:
            names = {rule.rule for rule in new_rules} | {
                f"{kind_name}.{r.rule}" for r in new_rules for kind_name in r.kinds
            }
            raise ConfigError(f"policy {label}: set: there is no rule {reference!r}{nearest(str(reference), names)}")
        if len(named_rules) > 1:
            kinds = [kind_of_rule for rule in named_rules for kind_of_rule in rule.judged_kinds]
            raise ConfigError(
                f"policy {label}: set: {name} is a rule for {', '.join(kinds)}; write {kinds[0]}.{name} for one of them"
            )
        rule = named_rules[0]
        chosen = (
            rule.only([kind_of_rule for kind_of_rule in rule.judged_kinds if kind_of_rule == kind]) if point else rule
        )
        if value is None or value is False or value == "off":  # which YAML 1.1, of Dagster, reads as false
            new_rules = _replaced(new_rules, chosen, [])
            continue
        try:
            new_rules = _replaced(new_rules, chosen, [chosen.with_value(value)])
        except ValidationError as error:
            raise ConfigError(
                f"policy {label}: set: {reference}: {error.errors()[0]['msg']} (got {value!r})"
            ) from error
    return tuple(new_rules)


def _refuse_repeated(rules: Sequence[Rule], label: str) -> None:
    """Refuse two rules of one name for one kind: the column `failed` of verdicts has only the name."""
    rules_by_kind: dict[tuple[str, str], Rule] = {}
    for rule in rules:
        for kind in rule.judged_kinds:
            first = rules_by_kind.setdefault((rule.rule, kind), rule)
            if first is not rule:
                raise ConfigError(
                    f"policy {label}: two rules for {kind} are named {rule.rule}, on {first.signal} and {rule.signal}; "
                    "rename one, or write the one that is meant below rules"
                )


def _refused(error: ValidationError, policy: Mapping[str, Any]) -> str:
    """The message about the first fault of a policy; a misspelt field comes before all others."""
    first = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    place = list(first["loc"])
    where = ""
    if place[:1] == ["rules"] and len(place) > 1:
        rule = policy["rules"][place[1]]
        name = rule.get("rule") if isinstance(rule, Mapping) else None
        where, place = f"rule {name or place[1]}: ", place[2:]
    if first["type"] == "extra_forbidden":
        fields = {info.alias or name for name, info in (Rule if where else _Written).model_fields.items()}
        return f"{where}{place[-1]}: there is no such field{did_you_mean(str(place[-1]), sorted(fields))}"
    if first["type"] == "missing":
        return f"{where}{place[-1]} is missing; write it"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    path = ".".join(str(step) for step in place)
    return f"{where}{path}: {first['msg']} (got {first['input']!r})"
