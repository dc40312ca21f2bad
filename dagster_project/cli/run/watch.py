"""`headrace run --watch`: run again when declarations, code or sources change, in one process with a lasting engine.

    defs/, definitions.py     a file that came, went or has another size or time; code of the project is imported again
    sources                   what the next run would land is not what the last one was to land

What changes while a run is under way is seen after it. A source fetched from far away is asked by runs alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Self

from dagster_project.cli.output import say
from dagster_project.project.loading import lake_catalogue, load_definitions, project_folder, select
from spark_jobs.exceptions import SparkJobsError

if TYPE_CHECKING:
    import dagster as dg

    from spark_jobs.lake.plan.binding import Binding

_LEAST_SECONDS = 0.5  # between two looks
_SHARE = 20  # a look takes at most one part in so many of the time
_Files = dict[Path, tuple[int, int]]  # size and time of change


def watch(run: Callable[[dg.Definitions], None], words: Sequence[str]) -> None:
    """Run, and again after each change, until Ctrl-C; what fails is said, and the next change is waited for.

    Args:
        run: runs the selection, of the definitions passed to it.
        words: the selection; its sources are looked at.
    """
    from dagster_project.cli import tell_error

    while True:
        declared, sources = declared_files(), _Sources()
        try:
            definitions = load_definitions()
            sources = _Sources.of(definitions, words)
            run(definitions)
        except Exception as error:  # noqa: BLE001 - of any kind, as of a command; a change may mend it
            tell_error(error)
        say("watching declarations and sources; Ctrl-C ends it", err=True)
        try:
            if _wait(declared, sources):
                _forget_modules()
        except KeyboardInterrupt:
            return


def declared_files() -> _Files:
    """The declaring files of a project's tables: its package, and what lies beside it in Dagster's form."""
    folder = project_folder()
    root = folder.defs if _is_ours() else folder.package
    files = [path for path in root.rglob("*") if "__pycache__" not in path.parts]
    files += [base / "pyproject.toml" for base in folder.package.parents[:2]]
    return {path: (stat.st_size, stat.st_mtime_ns) for path in files if (stat := _stat(path)) is not None}


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if path.is_file() else None
    except OSError:  # an editor moves and removes files while it writes
        return None


def _is_ours() -> bool:
    """Whether the project is the checkout of headrace itself, with this program as its package."""
    return project_folder().module == __name__.partition(".")[0]


def _wait(declared: _Files, sources: _Sources) -> bool:
    """Return once something changed and stays as it is for a moment; whether it was a declaration."""
    while True:
        now = declared_files()
        if now != declared:
            before = declared
            while now != before:
                sleep(_LEAST_SECONDS)
                before, now = now, declared_files()
            return True
        started = monotonic()
        if sources.have_changed():
            return False
        sleep(max(_LEAST_SECONDS, _SHARE * (monotonic() - started)))


class _Sources:
    """What the next run would land of some sources, by the step key of that.

    What was due before the last run is noted: that it was not landed then is no reason to try again.
    """

    def __init__(self, bindings: Sequence[Binding] = ()) -> None:
        self._bindings = bindings
        self._told: set[str] = set()
        self._due_before = self._due()

    @classmethod
    def of(cls, definitions: dg.Definitions, words: Sequence[str]) -> Self:
        """Those of a selection, read where they lie."""
        from dagster_project.lake_asset import declared_assets

        chosen = declared_assets(definitions.resolve_asset_graph(), select(definitions, words))
        sources = [asset.source for asset in chosen if asset.source is not None]
        return cls([source for source in sources if not getattr(source.config, "is_fetched", False)])

    def have_changed(self) -> bool:
        """Whether something else is due than before the last run."""
        return not self._due() <= self._due_before

    def _due(self) -> set[str]:
        """Step keys of what sources have to land; an unreadable one has nothing, and this is said once."""
        from spark_jobs.lake.ledger.ledger import Ledger
        from spark_jobs.lake.plan.plan import tasks

        keys = set()
        for binding in self._bindings:
            try:
                keys |= {task.key for task in tasks(Ledger.fresh(lake_catalogue()), binding)}
            except SparkJobsError as error:
                if (reason := " ".join(str(error).split())) not in self._told:
                    self._told.add(reason)
                    say(reason, err=True)
        return keys


def _forget_modules() -> None:
    """Have the code of the project imported again, as it is now."""
    package = project_folder().module
    changed = (f"{package}.defs", f"{package}.definitions") if _is_ours() else (package,)
    for name in list(sys.modules):
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in changed):
            del sys.modules[name]
    importlib.invalidate_caches()
