"""What a process of Sail leaves behind when it ends in the middle of a table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.exceptions import StepMemoryError
from spark_jobs.lake.engine import choice as choice_module
from spark_jobs.lake.engine.choice import CAREFUL, Choice, Needs, choice
from spark_jobs.lake.ledger.attempts import attempt, forget_attempts, unmanaged
from spark_jobs.lake.plan import foreseen
from spark_jobs.lake.plan.foreseen import another_way, engine_needs

_DIES = """
import os, signal, sys
from types import SimpleNamespace
from spark_jobs.lake.engine import choice
from spark_jobs.lake.ledger.attempts import attempt
choice._chosen.append(choice.Choice("sail", ""))
with attempt(SimpleNamespace(properties={"warehouse": sys.argv[1]}), "main.pairs"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


_CUT = '{"process": {}, "failed": false, "began": "", "tried": ["sail"]}'


@pytest.fixture(autouse=True)
def sail(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process runs Sail."""
    monkeypatch.delenv("HEADRACE_ENGINE", raising=False)
    monkeypatch.setattr(choice_module, "_chosen", [Choice("sail", "")])


def take(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let this process run another engine."""
    monkeypatch.setattr(choice_module, "_chosen", [Choice(way.split()[-1], "", careful=way == CAREFUL)])


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    """A catalogue, of which the warehouse alone counts here."""
    return SimpleNamespace(properties={"warehouse": str(tmp_path)})


def test_a_process_that_was_killed_is_told_of_until_its_table_is_computed(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever killed it; other tables, and what another engine fails at, change nothing."""
    done = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], check=False)
    assert done.returncode == -9
    found = unmanaged(lake, ["main.bags", "main.pairs"])
    assert found is not None and not found.failed
    assert str(found) == f"a process that computed main.pairs on Sail since {found.began} ended without a word"
    assert unmanaged(lake, ["main.bags"]) is None
    take(monkeypatch, "spark")
    with pytest.raises(ValueError, match="of Spark"), attempt(lake, "main.pairs"):
        raise ValueError("of Spark")
    assert unmanaged(lake, ["main.pairs"]) == found
    with attempt(lake, "main.pairs"):
        pass
    assert unmanaged(lake, ["main.pairs"]) is None


def test_too_little_memory_is_told_of_and_other_ends_are_not(lake: Any) -> None:
    """An error, an interrupt and an end in order leave nothing; nor does a table that is under way."""
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), attempt(lake, "main.pairs"):
            assert unmanaged(lake, ["main.pairs"]) is None
            raise error
        assert unmanaged(lake, ["main.pairs"]) is None
    with pytest.raises(StepMemoryError), attempt(lake, "main.pairs"):
        raise StepMemoryError("main.pairs: too little")
    assert str(unmanaged(lake, ["main.pairs"])) == "main.pairs needs more memory than Sail may take here"
    forget_attempts()  # of this process no table is under way, so the note stays
    assert unmanaged(lake, ["main.pairs"]) is not None
    with attempt(lake, "main.pairs"):
        forget_attempts()
    assert unmanaged(lake, ["main.pairs"]) is None


def test_each_way_is_tried_once_and_the_last_is_kept(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sail, Spark, Sail with more care; where Spark has no Java or too little memory, it is left out."""
    for fits, java, ways in (
        (True, True, ("sail", "spark", CAREFUL)),
        (False, True, ("sail", CAREFUL)),
        (True, False, ("sail", CAREFUL)),
    ):
        monkeypatch.setattr(foreseen, "spark_fits", lambda fits=fits: fits)
        monkeypatch.setattr(foreseen, "has_spark", lambda java=java: java)
        for way, following in zip(ways, (*ways[1:], ""), strict=True):
            take(monkeypatch, way)
            with pytest.raises(StepMemoryError), attempt(lake, "main.pairs"):
                raise StepMemoryError("main.pairs: too little")
            found = unmanaged(lake, ["main.pairs"])
            assert found is not None and another_way(found) == following
            assert found.failed
        assert engine_needs([], lake).instead == "" and not engine_needs([], lake).full
        take(monkeypatch, CAREFUL)
        with attempt(lake, "main.pairs"):
            pass


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", _CUT])
def test_a_note_that_was_cut_off_is_none(lake: Any, tmp_path: Path, text: str) -> None:
    """The end that it tells of may have come while it was written."""
    (tmp_path / "logs" / "under-way").mkdir(parents=True)
    (tmp_path / "logs" / "under-way" / "main.pairs.json").write_text(text)
    assert unmanaged(lake, ["main.pairs"]) is None


def test_of_a_process_elsewhere_nothing_is_known_so_it_counts_as_gone(lake: Any, tmp_path: Path) -> None:
    """A container that is started again has another scope."""
    with attempt(lake, "main.pairs"):
        (file,) = (tmp_path / "logs" / "under-way").iterdir()
        facts = json.loads(file.read_text())
        file.write_text(json.dumps(facts | {"process": facts["process"] | {"scope": "another"}}))
        assert unmanaged(lake, ["main.pairs"]) is not None


def test_the_next_run_takes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark where Java is there; else, and where Sail is named, Sail with more care."""
    monkeypatch.setattr(choice_module, "_chosen", [])
    monkeypatch.setattr(choice_module, "missing_sail", lambda: "")
    monkeypatch.delenv("HEADRACE_SPARK_MASTER", raising=False)
    died = Needs(1, unmanaged="x died", instead="spark")
    assert choice("/lake", lambda: died) == Choice("spark", "x died", 0, False)
    careful = choice("/lake", lambda: died._replace(instead="careful sail"))
    assert careful == Choice("sail", "x died", 0, True)
    assert str(careful) == "engine: Sail, in this process, in half of its pool and one step at a time (x died)"
    full = choice("/lake", lambda: Needs(1, unmanaged="x needs more", instead="careful sail", full=True))
    assert str(full) == "engine: Sail, in this process, in twice its pool and one step at a time (x needs more)"
    monkeypatch.setenv("HEADRACE_ENGINE", "sail")
    named = Choice("sail", "HEADRACE_ENGINE=sail; x died", 0, True)
    assert choice("/lake", lambda: died) == named
