"""Load the project for the commands: its folder, Dagster's home beside the lake, the definitions, selections of assets.

A project is a folder in Dagster's own form: its `pyproject.toml` has `[tool.dg.project]`, which names a package with a
module `definitions` and a folder `defs`. The commands take the one that the working directory lies in.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
import tomllib
import uuid
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError, DefinitionError
from headrace.tables.settings import LakeSettings, holds_project, load_settings
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.ledger.process import user_name

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

    from spark_jobs.lake.run.materialize import Lake

_SHIPPED = Path(__file__).parents[1]
_INSTANCE = """\
telemetry:
  enabled: false
# Ends runs whose process died, so that they do not keep their tables from later runs.
run_launcher:
  module: dagster_project.run_process
  class: WatchedRunLauncher
run_monitoring:
  enabled: true
  poll_interval_seconds: 60
  free_slots_after_run_end_seconds: 60
nux:
  enabled: false
# One writer per table at a time, across runs (the lake's lease ensures the same for other programs).
concurrency:
  pools:
    default_limit: 1
    granularity: run
  # Each run has a Spark driver of its own; further ones wait in the queue.
  runs:
    max_concurrent_runs: 2
# A run whose process died is repeated; a step that failed would fail again.
run_retries:
  enabled: true
  max_retries: 2
  retry_on_asset_or_op_failure: false
# How many days looks of schedules and sensors are kept; those that made a run stay.
retention:
  schedule:
    purge_after_days: {skipped: 7, failure: 30}
  sensor:
    purge_after_days: {skipped: 7, failure: 30}
"""
_MISREAD = re.compile(r"\?|%[0-9A-Fa-f]{2}")  # Dagster puts the path into the URL of a database unescaped


@dataclass(frozen=True)
class ProjectFolder:
    """The folder of a project.

    Attributes:
        package: the folder of its Python package, which holds `definitions.py` and `defs`.
    """

    package: Path

    @property
    def module(self) -> str:
        """Name of the package."""
        return self.package.name

    @property
    def location(self) -> str:
        """Name of Dagster's code location, as in workspace.yaml: Dagster keeps schedules, sensors and runs under it."""
        return "headrace" if self.module == "dagster_project" else self.module

    @property
    def defs(self) -> Path:
        """Folder of the declarations."""
        return self.package / "defs"


def project_folder() -> ProjectFolder:
    """The project: `HEADRACE_PROJECT`, else the one around the working directory, else the checkout of headrace itself.

    Raises:
        CommandError: there is none, or its pyproject.toml cannot be used.
    """
    setting = os.environ.get("HEADRACE_PROJECT")
    if setting:
        project = _project_at(Path(setting).expanduser().absolute())
        if project is None:
            raise CommandError(f"HEADRACE_PROJECT: {setting} has no pyproject.toml with [tool.dg.project]; correct it")
        return project
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (project := _project_at(folder)) is not None:
            return project
    if (_SHIPPED.parent / "pyproject.toml").is_file():
        return ProjectFolder(_SHIPPED)
    raise CommandError(f"{here}: no project is here; make one with `headrace init NAME`, or set HEADRACE_PROJECT")


def _project_at(folder: Path) -> ProjectFolder | None:
    """The project whose pyproject.toml lies in a folder; None where none does."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return None
    try:
        module = tomllib.loads(file.read_text()).get("tool", {}).get("dg", {}).get("project", {}).get("root_module")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {error}; mend the file") from error
    if not isinstance(module, str):
        return None
    package = next((base / module for base in (folder, folder / "src") if (base / module).is_dir()), None)
    if package is None:
        raise CommandError(f"{file}: tool.dg.project.root_module: there is no folder {module} beside it; correct it")
    return ProjectFolder(package)


def dagster_home(make: bool = True) -> Path:
    """Folder of the Dagster instance, `DAGSTER_HOME` or beside the lake; created where it is missing, unless told not.

    Where the folder is there, `DAGSTER_HOME` names it from then on, for `DagsterInstance.get` knows no other place.

    Raises:
        CommandError: the folder is not writable, or has a character in its path that Dagster misreads.
    """
    setting = os.environ.get("DAGSTER_HOME")
    home = Path(setting) if setting else load_settings().home / "dagster"
    home = home.absolute()
    if (odd := _MISREAD.search(str(home))) is not None:
        raise CommandError(
            f"{home}: Dagster's database cannot lie below a folder named with {odd[0]!r}; set DAGSTER_HOME to another"
        )
    if not make:
        if home.is_dir():
            os.environ["DAGSTER_HOME"] = str(home)
        return home
    home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        raise CommandError(f"{home}: may not be written by this user; set DAGSTER_HOME to a folder of your own")
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(_INSTANCE)
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def lake_catalogue(make: bool = False, required: bool = True) -> Catalog:
    """The catalogue of the lake of this user's settings; before the first run of a project one without tables.

    Args:
        make: whether a lake that is not there is made, for a command that writes to it.
        required: whether it is refused where neither a lake is nor a project that may have one.

    Raises:
        CommandError: see above; nothing was made.
    """
    from spark_jobs.lake.session.catalogue import open_catalogue, open_to_read

    settings = load_settings()
    if make:
        return open_catalogue(settings)
    if required:
        require_lake_or_project(settings)
    return open_to_read(settings)


def require_lake_or_project(settings: LakeSettings) -> None:
    """Refuse a place where neither a lake is nor a project, whose first run would make one.

    Raises:
        CommandError: names what was looked for.
    """
    here = Path.cwd()
    in_project = os.environ.get("HEADRACE_PROJECT") or any(map(holds_project, (here, *here.parents)))
    if not (settings.is_there or in_project):
        raise CommandError(
            f"{here}: no lake is here ({settings.database} is not there), and no project is here; make one with "
            "`headrace init NAME`, or set HEADRACE_PROJECT"
        )


def open_lake(run_id: str | None = None) -> Lake:
    """The lake of this user's settings, for one command; Spark starts when it is first needed.

    Args:
        run_id: noted in the ledger as the writer; None for a new id.
    """
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.materialize import Lake
    from spark_jobs.lake.session.catalogue import open_to_read
    from spark_jobs.lake.session.session import start_session

    settings = load_settings()
    require_lake_or_project(settings)
    catalogue = open_to_read(settings)
    session = functools.cache(lambda: start_session(settings))
    return Lake(catalogue, Ledger(catalogue), session, run_id or uuid.uuid4().hex)


def run_id_of(command: str) -> str:
    """An id for the ledger's rows of a command: `headrace COMMAND by USER, UNIQUE`."""
    return f"headrace {command} by {user_name()}, {uuid.uuid4().hex}"


def load_definitions() -> dg.Definitions:
    """The project's definitions.

    Raises:
        DefinitionError: YAML or code below `defs` cannot be loaded; the message names the file.
    """
    from dagster_project.dagster_core import without_schemas
    from dagster_project.project.diagnosis import explain, repeated

    folder = project_folder()
    if mistake := repeated(folder.defs):
        raise DefinitionError(mistake)
    if str(folder.package.parent) not in sys.path:
        sys.path.insert(0, str(folder.package.parent))
    try:
        definitions: Any = importlib.import_module(f"{folder.module}.definitions").definitions
        with without_schemas():
            loaded: dg.Definitions = definitions.load_fn()
    except Exception as error:  # a user's YAML or module may raise anything; `--debug` shows the trace
        raise DefinitionError(explain(error, folder.defs)) from error
    return loaded


def select(definitions: dg.Definitions, words: Iterable[str]) -> list[dg.AssetKey]:
    """Asset keys of a selection: nothing (all tables), names of datasets, corpora or experiments, or Dagster's syntax.

    A table of a step that writes several selects all tables of the step, since the step writes all of them.

    Raises:
        CommandError: a word selects nothing; the message suggests the nearest name.
    """
    import dagster as dg

    from dagster_project.asset_options import APART
    from headrace.tables.quarantine import quarantine_of

    graph = definitions.resolve_asset_graph()
    keys = {key for key in graph.get_all_asset_keys() if key in graph.materializable_asset_keys}
    tables = {key for key in keys if APART not in graph.get(key).tags}
    chosen: set[dg.AssetKey] = set()
    for word in words:
        as_key = dg.AssetKey(word.replace(".", "/").split("/"))
        if as_key in keys:
            chosen.add(as_key)
        elif any(key.path[0] == word for key in keys):
            chosen |= {key for key in keys if key.path[0] in (word, quarantine_of(word))}
        else:
            chosen |= _by_syntax(definitions, word, keys)
    wanted = {key for asset in chosen for key in graph.get(asset).execution_set_asset_keys} if chosen else tables
    return [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level) if key in wanted]


def _by_syntax(definitions: dg.Definitions, word: str, keys: set[dg.AssetKey]) -> set[dg.AssetKey]:
    import dagster as dg

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # `group:` is beta; the pinned version has it
            chosen = set(dg.AssetSelection.from_string(word).resolve(definitions.resolve_asset_graph())) & keys
    except (dg.DagsterError, ValueError):
        chosen = set()
    if not chosen:
        space, _, table = re.sub(r"^\w+:", "", word).replace("/", ".").partition(".")
        tables = sorted(".".join(key.path) for key in keys if table and key.path[0] == space)
        nearest = (
            did_you_mean(f"{space}.{table}", tables)
            if tables
            else did_you_mean(space, sorted({key.path[0] for key in keys}))
        )
        raise CommandError(f"selection {word!r} names no dataset, corpus or table{nearest}")
    return chosen
