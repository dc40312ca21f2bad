"""`headrace template` and `headrace corpus preview`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagster_project.cli import run_command
from headrace.tables.settings import settings_at
from tests.headrace_features.conversations.chat_templates import TEMPLATES


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake without tables."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return tmp_path


def test_templates_are_entered_and_shown(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name and version mean one template; by default the version is of its hash."""
    file = lake / "chat.jinja"
    file.write_text(TEMPLATES["chatml"])
    assert run_command(["template", "add", "chatml", "--from", str(file), "--version", "1"]) == 0
    assert run_command(["template", "add", "other", "--from", str(file)]) == 0
    assert "conversations: {template: chatml@1}" in capsys.readouterr().out
    assert run_command(["template", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["template"].partition("@")[0] for row in shown] == ["chatml", "other"]
    assert len({row["hash"] for row in shown}) == 1
    assert run_command(["template", "show", "chatml@1"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == TEMPLATES["chatml"].rstrip("\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["template", "add", "a"], "give --from FILE.jinja or --package PACKAGE:NAME"),
        (["template", "add", "a", "--package", "nobody:chat"], "no package 'nobody' is installed"),
        (["template", "show", "chatml@9"], "template chatml@9 is not in the registry"),
        (["corpus", "preview", "main", "--conversation", "x"], "main"),
    ],
)
def test_mistakes_are_told_in_a_line(
    lake: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What, and the mend."""
    assert run_command(words) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_template_is_not_entered(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a text without messages nor one that is no Jinja."""
    for source, message in (("hello", "never reads `messages`"), ("{% if %}{{ messages }}", "no Jinja")):
        (lake / "bad.jinja").write_text(source)
        assert run_command(["template", "add", "bad", "--from", str(lake / "bad.jinja")]) == 2
        assert message in capsys.readouterr().err
