"""Tokens and rules as text, and files that change while a server reads them."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blender_service.auth.access_files import (
    RELOAD_SECONDS,
    ReloadingFile,
    bearer_of,
    digest_of,
    parse_rules,
    parse_tokens,
)
from blender_service.exceptions import AccessConfigError

LONG = "a-token-that-is-long-enough"


def test_lines_give_principals_by_digest() -> None:
    """Comments, blank lines and semicolons are understood; a digest in the file stands for its token."""
    text = f"# who\n\ntrainer {LONG}  # of the cluster\nops sha256:{hashlib.sha256(b'another-long-token').hexdigest()}"
    assert parse_tokens("file", text) == {digest_of(LONG): "trainer", digest_of("another-long-token"): "ops"}
    assert parse_tokens("variable", text.replace("\n", ";").split("#", maxsplit=1)[0] + f"a {LONG};b {LONG}2") == {
        digest_of(LONG): "a",
        digest_of(LONG + "2"): "b",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer", "line 1: has 1 words; write PRINCIPAL TOKEN"),
        ("ok " + LONG + "\nsecret-token-first a b", "line 2: has 3 words"),
        ("trainer short-secret", "the token of trainer has 12 characters"),
        (f"one {LONG}\ntwo {LONG}", "line 2: two has the token of one"),
    ],
)
def test_a_wrong_line_is_named_without_its_token(text: str, message: str) -> None:
    """The message names the line and how to mend it, and never holds a token."""
    with pytest.raises(AccessConfigError, match=message) as caught:
        parse_tokens("tokens", text)
    assert "secret" not in str(caught.value)
    assert LONG not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "token"), [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("abc", ""), ("", "")]
)
def test_bearer_is_the_only_scheme(value: str, token: str) -> None:
    """Anything but `Bearer TOKEN` is no token."""
    assert bearer_of(value) == token


RULES = """
[[rule]]
principals = ["trainer", "team-*"]
namespaces = ["main", "python_*"]
[[rule]]
principals = ["ops"]
namespaces = ["*"]
"""


def test_rules_allow_what_one_of_them_allows() -> None:
    """Both sides of a rule must match, and patterns match whole names."""
    rules = parse_rules("rules", RULES)
    assert [rules.allow("trainer", name) for name in ("main", "python_code", "other", "mainx", "python")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert rules.allow("team-7", "main")
    assert rules.allow("ops", "other")
    assert not rules.allow("team", "main")


@given(st.text(max_size=20), st.text(max_size=20))
def test_without_rules_all_is_allowed_and_with_one_nothing_else(principal: str, namespace: str) -> None:
    """No rule allows everybody everything; one rule denies whatever it does not speak of."""
    assert parse_rules("rules", "").allow(principal, namespace)
    only = parse_rules("rules", '[[rule]]\nprincipals = ["nobody-else"]\nnamespaces = ["nothing_else"]')
    assert only.allow(principal, namespace) == ((principal, namespace) == ("nobody-else", "nothing_else"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "is not TOML"),
        ('[[rule]]\nprincipals = []\nnamespaces = ["a"]', "rule.0.principals"),
        ('[[rule]]\nprincipals = ["a"]', "rule.0.namespaces"),
        ('[[rule]]\nprincipals = ["a"]\nnamespaces = ["[!b]*"]', "rule.0.namespaces.0"),
        ("[[rules]]", "rules"),
    ],
)
def test_a_wrong_rule_says_where(text: str, message: str) -> None:
    """The message names the file, the place and the form; a misspelt table is no rule-less file that allows all."""
    with pytest.raises(AccessConfigError, match=rf"access\.toml: .*{message}.*write \[\[rule\]\]|{message}"):
        parse_rules("access.toml", text)


def test_a_changed_file_is_read_again_and_a_wrong_one_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A change is in force after a second; a wrong or missing file leaves the last good one, and the log says so."""
    now = [0.0]
    path = tmp_path / "tokens"
    path.write_text(f"a {LONG}")
    file = ReloadingFile(path, parse_tokens, lambda: now[0])
    assert set(file.get().values()) == {"a"}
    path.write_text(f"bcd {LONG}")
    assert set(file.get().values()) == {"a"}, "looked before its time"
    now[0] += RELOAD_SECONDS
    assert set(file.get().values()) == {"bcd"}
    assert file.generation == 1
    with caplog.at_level(logging.ERROR):
        path.write_text("nonsense")
        now[0] += RELOAD_SECONDS
        assert set(file.get().values()) == {"bcd"}
        path.unlink()
        now[0] += RELOAD_SECONDS
        assert set(file.get().values()) == {"bcd"}
    assert [("stays in force" in record.getMessage()) for record in caplog.records] == [True, True]
    path.write_text("")
    now[0] += RELOAD_SECONDS
    assert not file.get()


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    """A server does not start without the tokens it was told of."""
    with pytest.raises(AccessConfigError, match="No such file"):
        ReloadingFile(tmp_path / "none", parse_tokens)
