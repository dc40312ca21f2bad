"""Policies: how rules are inherited, replaced and set, what is refused in one line, and what the shipped ones say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.policy import Policy, check_signals, signal_columns
from spark_jobs.filters.policy_files import SHIPPED, shipped
from spark_jobs.filters.policy_resolution import resolve

FEW = {"rule": "few", "signal": "word_count", "below": 3}
# What the scorers of headrace give; a policy that is shipped reads nothing else.
_FRACTIONS = (
    *("bullet_line", "ellipsis_line", "alphabetic_word", "duplicate_line", "duplicate_paragraph"),
    *("duplicate_line_character", "duplicate_paragraph_character", "terminal_punctuation_line", "short_line"),
    *("fineweb_duplicate_line_character", "capital", "link", "list_line", "table_line", "log_line", "stack_trace_line"),
    *(f"top_{n}gram_character" for n in (2, 3, 4)),
    *(f"duplicate_{n}gram_character" for n in range(5, 11)),
)
_COUNTS = ("gopher_word", "stop_word", "sentence", "c4_kept_line", "curly_bracket", "lorem_ipsum")
_RATIOS = ("gopher_mean_word_length", "hash_word_ratio", "ellipsis_word_ratio", "newline_word_ratio")
SCORERS = {
    "heuristics": {
        **{f"{name}_fraction": "double" for name in _FRACTIONS},
        **{f"{name}_count": "long" for name in _COUNTS},
        **dict.fromkeys(_RATIOS, "double"),
        "xml_head": "boolean",
    },
    "languages": {"language": "string", "confidence": "double"},
}


def named(policy: Policy) -> list[tuple[str, tuple[str, ...], Any]]:
    """Rules as name, kinds and value."""
    return [(rule.rule, rule.kinds, rule.value) for rule in policy.rules]


def test_a_rule_replaces_the_extended_one_of_its_name_for_its_kinds() -> None:
    """In its place; the other kinds keep theirs. `set` changes one threshold, and `off` takes a rule out."""
    base = {"rules": [FEW, {"rule": "long", "signal": "max_line_length", "above": 9}]}
    policies = {"base": base, "child": {"extends": ["base"], "rules": [{**FEW, "below": 5, "kinds": ["prose"]}]}}
    child = resolve("child", policies.__getitem__)
    assert named(child) == [
        ("few", ("prose",), 5.0),
        ("few", ("code", "markup", "data"), 3.0),
        ("long", (), 9.0),
    ]
    for off in ("off", None, False):  # YAML 1.1 reads `off` as false
        grandchild = resolve({"extends": ["child"], "set": {"code.few": 1, "long": off}}, policies.__getitem__)
        assert named(grandchild) == [
            ("few", ("prose",), 5.0),
            ("few", ("code",), 1.0),
            ("few", ("markup", "data"), 3.0),
        ]
    assert resolve(child, changed={"long": 10}).version.startswith(f"{child.version}+")


def test_equal_rules_of_two_parents_are_one_rule() -> None:
    """Whatever reasons they give; the reason is no part of what decides rows."""
    policies = {"a": {"rules": [{**FEW, "why": "x"}]}, "b": {"rules": [{**FEW, "why": "y"}]}}
    both = resolve({"extends": ["a", "b"]}, policies.__getitem__)
    assert [rule.why for rule in both.rules] == ["x"]
    assert "why" not in both.rules[0].model_dump() and b'"why":"x"' in both.content


def test_the_hash_is_that_of_the_canonical_rules() -> None:
    """The order of fields and the way numbers are written do not show; a threshold does."""
    one = resolve({"name": "p", "version": 1, "rules": [FEW]})
    assert resolve({"rules": [dict(reversed(FEW.items()))], "version": "1", "name": "p"}).content == one.content
    assert json.loads(one.content) == {
        "name": "p",
        "version": "1",
        "rules": [{"rule": "few", "signal": "word_count", "below": 3.0}],
    }
    other = resolve({"name": "p", "version": 1, "rules": [{**FEW, "below": 4}]})
    assert other.content_hash != one.content_hash


def rules(*given: dict[str, Any]) -> dict[str, Any]:
    """A policy that is written in place."""
    return {"rules": list(given)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ruls": []}, "ruls: there is no such field; did you mean 'rules'?"),
        (rules({**FEW, "blow": 1}), "rule few: blow: there is no such field; did you mean 'below'?"),
        (rules({"signal": "word_count", "below": 1}), "rule 0: rule is missing; write it"),
        (rules({"rule": "few", "signal": "word_count"}), "rule few has no condition; write one of below, above, is, "),
        (rules({**FEW, "above": 1}), "rule few has below and above; write one of"),
        (rules({**FEW, "below": "many"}), "rule few: below: Input should be a valid number"),
        (rules({**FEW, "below": True}), "rule few: below: Input should be a valid number"),
        (rules({**FEW, "below": float("nan")}), "rule few: below: Input should be a finite number"),
        (rules({**FEW, "kinds": ["proze"]}), "rule few: kinds.0: Input should be 'code', 'prose'"),
        (rules(FEW, {**FEW, "kinds": ["code"]}), "two rules for code are named few, on word_count and word_count"),
        ({"extends": ["headrace", "short_form"]}, "two rules for prose are named too_few_words"),
        ({"extends": ["goper"]}, "policy goper: headrace brings none of this name; did you mean 'gopher'?"),
        ({"extends": ["gopher@7"]}, "policy gopher@7: there is gopher@1; name that"),
        ({"extends": ["headrace"], "set": {"too_few_words": 1}}, "too_few_words is a rule for prose, code, markup"),
        ({"extends": ["headrace"], "set": {"to_few_words": 1}}, "no rule 'to_few_words'; did you mean 'too_few_words'"),
        ({"extends": ["headrace"], "set": {"too_many_symbols": "x"}}, "set: too_many_symbols: Input should be a valid"),
        (rules({**FEW, "signal": "word_cont"}), "rule few: there is no signal 'word_cont'; did you mean 'word_count'?"),
        (
            rules({**FEW, "signal": "heuristcs.link_fraction"}),
            "there is no scorer 'heuristcs'; did you mean 'heuristics'?",
        ),
        (rules({**FEW, "signal": "generated_marker"}), "below 3.0 on generated_marker, which is string; write is or"),
        (rules({"rule": "few", "signal": "word_count", "is": True}), "which is long; write below or above a number"),
        (rules({"rule": "x", "signal": "word_count", "not_in": ["a"]}), "which is long; write below or above"),
        (rules({"rule": "x", "signal": "metadata.paid", "is": True}), "rule x: metadata holds texts; write is: 'true'"),
        (rules({**FEW, "signal": "signals.word_cont"}), "did you mean 'word_count'?"),
        (rules({"rule": "x", "signal": "heuristics.xml_head", "above": 1}), "is boolean; write is: true or is: false"),
        (rules({**FEW, "languages": ["en", "english"]}), "rule few: languages: 'english' is no language as documents"),
        (rules({"rule": "x", "signal": "languages.language", "not_in": ["German"]}), "rule x: not_in: 'German' is no"),
        (rules({"rule": "x", "signal": "documents.language", "is": "python"}), "nothing would be meant; write Python"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(given: dict[str, Any], said: str) -> None:
    """Fields, rules, signals and thresholds of the wrong kind."""
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        check_signals(resolve(given), signal_columns(SCORERS))
    assert "\n" not in str(error.value)


def test_files_are_read_and_mistakes_in_them_named(tmp_path: Path) -> None:
    """A file extends files beside it; one that is missing, no YAML or extends itself is one line."""
    (tmp_path / "base.yaml").write_text("{name: base, version: 1, rules: [{rule: few, signal: word_count, below: 3}]}")
    (tmp_path / "own.yaml").write_text("{name: own, version: 2, extends: [base.yaml], set: {few: 4}}")
    own = resolve(str(tmp_path / "own.yaml"))
    assert (own.label, named(own)) == ("own@2", [("few", (), 4.0)])
    for text, said in (
        ("{name: x, version: 1, extends: [broken.yaml]}", "extends itself"),
        ("[1]", "it holds a list; write name, version and rules"),
        ("{name: x}", "version is missing"),
        ("{", "broken.yaml, line 1: .*; mend the YAML"),
    ):
        (tmp_path / "broken.yaml").write_text(text)
        with pytest.raises(ConfigError, match=said):
            resolve(str(tmp_path / "broken.yaml"))
    with pytest.raises(ConfigError, match="No such file"):
        resolve(str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize("name", sorted(file.stem for file in SHIPPED.glob("*.yaml")))
def test_every_shipped_threshold_says_where_it_comes_from(name: str) -> None:
    """Each file has the name of its policy, reads signals that scorers give, and gives a reason for every rule."""
    found = resolve(name)
    assert found.name == name and found.rules and all(rule.why for rule in found.rules)
    check_signals(found, signal_columns(SCORERS))


def test_web_en_is_the_union_of_what_it_extends() -> None:
    """Gopher, its repetition filters, C4 and FineWeb, and the language."""
    parts = [rule for name in ("gopher", "gopher_repetition", "c4", "fineweb") for rule in resolve(name).rules]
    assert list(resolve("web_en").rules[: len(parts)]) == parts
    assert [rule.rule for rule in resolve("web_en@1").rules[len(parts) :]] == ["not_english", "english_uncertain"]
    assert set(shipped()) >= {"headrace", "bigcode", "short_form", "technical"}
