"""`headrace run --watch`: what makes it run again, what it says of mistakes, how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.cli import run_command
from dagster_project.cli.run import watch as watched
from dagster_project.cli.run.watch import watch
from tests.dagster_project.conftest import WriteDefs

_NOTES = "type: headrace.Dataset\nattributes:\n  name: {name}\n  source: {{kind: files, path: {path}}}\n"


def follow(monkeypatch: pytest.MonkeyPatch, actions: list[Callable[[], object]]) -> Callable[[dg.Definitions], None]:
    """Have each second wait of `watch` do the next action, the last one Ctrl-C; gives a run that computes nothing."""
    steps: Iterator[Callable[[], object]] = iter([one for action in actions for one in (action, lambda: None)])

    def sleep(seconds: float) -> None:
        assert 0 < seconds < 60
        action = next(steps, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(watched, "sleep", sleep)
    return lambda definitions: None


@pytest.mark.usefixtures("lake_env")
def test_it_runs_again_after_a_change_and_once(
    declare: WriteDefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Declarations, code and files; a broken declaration is one line, and what comes during a run is seen after it."""
    source = tmp_path / "texts"
    source.mkdir()
    (source / "one.txt").write_text("a mill")
    declared = declare("notes", _NOTES.format(name="notes", path=source))
    good, code = declared.read_text(), declared.parents[1] / "more" / "facts.py"
    code.parent.mkdir()
    runs: list[set[str]] = []

    def run(definitions: dg.Definitions) -> None:
        runs.append({key.path[0] for key in definitions.resolve_asset_graph().get_all_asset_keys()})
        if len(runs) == 3:
            (source / "three.txt").write_text("came while it ran")

    follow(
        monkeypatch,
        [
            lambda: None,
            lambda: declared.write_text(good.replace("name: notes", "name: pages")),
            lambda: (source / "two.txt").write_text("a race"),  # the third run; the fourth sees three.txt
            lambda: None,
            lambda: declared.write_text("attributes: [\n"),
            lambda: declared.write_text(good),
            lambda: code.write_text("FACT = 1\n"),
            lambda: code.write_text("FACT = 22\n"),
        ],
    )
    watch(run, ())
    names = [next(iter(one - {"lake", "system", "maintenance"})) for one in runs]
    assert names == ["notes", "pages", "pages", "pages", "notes", "notes", "notes"]
    err = capfd.readouterr().err
    assert "expected the node content" in err or "mend the YAML" in err
    assert err.count("watching declarations and sources; Ctrl-C ends it") == 8
    assert "Traceback" not in err


@pytest.mark.usefixtures("lake_env")
def test_an_error_of_a_run_does_not_end_it(
    declare: WriteDefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What failed to land is tried again when something else has changed, not for ever; the source's error is told."""
    source = tmp_path / "texts"
    source.mkdir()
    (source / "one.txt").write_text("a mill")
    declare("notes", _NOTES.format(name="notes", path=source))
    runs: list[int] = []

    def fail(definitions: dg.Definitions) -> None:
        runs.append(1)
        raise OSError(5, "no good", "somewhere")

    follow(monkeypatch, [lambda: None, lambda: source.rename(tmp_path / "away"), lambda: None])
    watch(fail, ("notes",))
    assert len(runs) == 1
    err = capfd.readouterr().err
    assert err.count("headrace: somewhere: no good") == 1 and err.count(str(source)) == 1


def test_watch_goes_with_a_selection_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Runs of a part, trials and plans end by themselves."""
    for other in (["--partition", "2024"], ["--dry-run"], ["--follow"], ["--last"]):
        assert run_command(["run", "notes", "--watch", *other]) == 2
        assert "--" in capfd.readouterr().err
