"""Where the explorer and Dagster run: noted while they do, and nothing of a process that is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagster_project.addresses import DAGSTER, EXPLORER, EXPLORER_VARIABLE, address_of, announced, document_page
from dagster_project.metadata import _explorer_page


def test_an_address_is_known_while_its_process_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, not after, not from a note that a killed process left, and not of the other one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    assert document_page("ab") == ""
    with announced(EXPLORER, "http://127.0.0.1:4141/"):
        assert document_page("ab") == "http://127.0.0.1:4141/documents/ab"
        assert address_of(DAGSTER) == ""
        (note,) = tmp_path.rglob("explorer.json")
        left = note.read_text()
    assert document_page("ab") == ""
    killed = json.loads(left)
    killed["process"]["start"] += 1
    for content in (json.dumps(killed), "{", "[]", "{}"):
        note.write_text(content)
        assert document_page("ab") == ""


def test_asset_pages_lead_to_the_explorer_that_was_started_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """`headrace ui --explore` tells the definitions where it is."""
    assert _explorer_page("notes.texts") == {}
    monkeypatch.setenv(EXPLORER_VARIABLE, "http://127.0.0.1:4141")
    assert _explorer_page("notes.texts")["explorer"].value == "http://127.0.0.1:4141/go/notes"
