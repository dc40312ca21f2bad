"""`headrace.run`: the command, called from Python in the folder of a project."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from dagster_project.cli.run.called import Ran, _lines, _message
from dagster_project.cli.run.step_lines import StepLine
from dagster_project.exceptions import CommandError, RunFailedError
from tests.dagster_project.conftest import WriteDefs

_ROOT = Path(__file__).parents[2]


def test_a_value_tells_what_a_run_did() -> None:
    """Tables computed, unchanged and failed, each failure with its cause."""
    lines = [StepLine(f"notes.t{n}", 3, 0.1, "computed", "") for n in range(2)]
    failed = StepLine("mine.pairs", 0, 0.1, "failed", "no space")
    ran = Ran((*lines, failed, StepLine("mine.removals", 0, 0.0, "left", "mine.pairs failed")), "1 of 4 tables failed")
    assert repr(ran) == "4 tables: 2 computed, 0 unchanged, 1 failed, 1 left\nmine.pairs: no space"
    assert (ran.computed, ran.failed, len(ran)) == (tuple(lines), (failed,), 4)
    assert repr(Ran(())) == "0 tables: 0 computed, 0 unchanged, 0 failed"


def test_what_is_no_run_is_one_line(defs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that there is not, an option in place of a name; of a trace its last line."""
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    for selection, message in ((("nothing_here",), "nothing_here"), (("--watch",), "--watch is no selection")):
        with pytest.raises(CommandError, match=message) as error:
            headrace.run(*selection)
        assert "\n" not in str(error.value)
    assert _message("loading\nheadrace: no disk\nlater\n") == "no disk"
    assert _message("Traceback\n  x\nKeyError: 1") == "KeyError: 1"
    line = b'{"table": "a.b", "rows": 1, "seconds": 0, "status": "computed", "detail": ""}'
    assert list(_lines(io.BytesIO(b"a warning\n" + line))) == [StepLine("a.b", 1, 0, "computed", "")]


@pytest.mark.nightly
def test_a_run_of_a_project(declare: WriteDefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes, then finds nothing to do; a table that fails is an error, or a value where that is asked for."""
    for name in ("DAGSTER_HOME", "HEADRACE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.md").write_text("A text about mills, of some words.")
    dataset = "type: headrace.Dataset\nattributes: {{name: notes, source: {{kind: files, path: {}}}}}\n"
    declare("notes", dataset.format(tmp_path / "source"))
    first, again = headrace.run("notes"), headrace.run("notes")
    assert len(first) == len(first.computed) == len(again.unchanged) > 3 and not first.failed
    assert "notes.texts" in repr(headrace.connect()["notes.texts"]) and repr(headrace.connect()).startswith("lake at ")
    (tmp_path / "source" / "a.md").rename(tmp_path / "a.md")  # a source without files is an error
    with pytest.raises(RunFailedError, match=r"^notes.documents: dataset notes: .*; 1 of 6 tables failed") as error:
        headrace.run("notes")
    assert "\n" not in str(error.value)
    ran = headrace.run("notes", check=False)
    assert ran.failed and ran.error and "1 failed" in repr(ran)


@pytest.mark.nightly
def test_nothing_but_a_run_loads_an_engine() -> None:
    """Neither Dagster nor Spark, Sail, Java or gRPC is there after each function on data in hand, or an opened lake."""
    code = (
        "import sys, headrace\n"
        "headrace.order({'a.py': 'import b', 'b.py': ''})\n"
        "headrace.deduplicate(['a b c', 'a b c']); headrace.filter(['a b c'], policy='fineweb')\n"
        "headrace.pack([[1, 2, 3]], 4); headrace.detect_language('Guten Tag')\n"
        "headrace.find_personal_data('ada@lovelace.org')\n"
        "headrace.extract('<p>Words of a page, and they are many words.')\n"
        "headrace.tokenize, headrace.connect, headrace.run\n"
        "print(sorted({'dagster', 'pyspark', 'pysail', 'py4j', 'grpc', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_ROOT)
    assert done.stdout.strip() == "[]"


def test_names_are_public_ones() -> None:
    """What an editor offers after `headrace.`: no module that it needs itself, no private name."""
    assert dir(headrace) == sorted(headrace.__all__)
