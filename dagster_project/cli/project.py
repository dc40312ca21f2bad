"""Load the project for the commands: Dagster's home beside the lake, the definitions, the selection of assets."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dagster_project.exceptions import CommandError, DefinitionError
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    import dagster as dg

DEFS = Path(__file__).parents[1] / "defs"
_INSTANCE = """\
telemetry:
  enabled: false
nux:
  enabled: false
# One writer per table at a time, across runs (the lake's lease ensures the same for other programs).
concurrency:
  pools:
    default_limit: 1
    granularity: run
"""


def dagster_home() -> Path:
    """Folder of the Dagster instance, `DAGSTER_HOME` or beside the lake; created where it is missing.

    Raises:
        CommandError: the folder is not writable.
    """
    given = os.environ.get("DAGSTER_HOME")
    home = Path(given) if given else load_settings().home / "dagster"
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        raise CommandError(f"{home}: may not be written by this user; set DAGSTER_HOME to a folder of your own")
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(_INSTANCE)
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def load_definitions() -> dg.Definitions:
    """The project's definitions.

    Raises:
        DefinitionError: YAML or code below `defs` cannot be loaded; the message names the file.
    """
    from dagster_project.cli.diagnosis import explain, repeated_name
    from dagster_project.definitions import definitions

    if repeated := repeated_name(DEFS):
        raise DefinitionError(repeated)
    try:
        loaded: dg.Definitions = definitions.load_fn()  # type: ignore[attr-defined]
    except Exception as error:  # a user's YAML or module may raise anything; `--debug` shows the trace
        raise DefinitionError(explain(error, DEFS)) from error
    return loaded


def select(definitions: dg.Definitions, words: Iterable[str]) -> list[dg.AssetKey]:
    """Asset keys of a selection: nothing (all), names of datasets or corpora, tables, or Dagster's own syntax.

    A table of a step that writes several selects all tables of the step, since the step writes all of them.

    Raises:
        CommandError: a word selects nothing; the message suggests the nearest name.
    """
    import dagster as dg

    graph = definitions.resolve_asset_graph()
    keys = {key for key in graph.get_all_asset_keys() if key in graph.materializable_asset_keys}
    chosen: set[dg.AssetKey] = set()
    for word in words:
        as_key = dg.AssetKey(word.replace(".", "/").split("/"))
        if as_key in keys:
            chosen.add(as_key)
        elif any(key.path[0] == word for key in keys):
            chosen |= {key for key in keys if key.path[0] == word}
        else:
            chosen |= _by_syntax(definitions, word, keys)
    wanted = {key for one in chosen for key in graph.get(one).execution_set_asset_keys} if chosen else keys
    return [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level) if key in wanted]


def _by_syntax(definitions: dg.Definitions, word: str, keys: set[dg.AssetKey]) -> set[dg.AssetKey]:
    import dagster as dg

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # `group:` is beta; the pinned version has it
            found = set(dg.AssetSelection.from_string(word).resolve(definitions.resolve_asset_graph())) & keys
    except (dg.DagsterError, ValueError):
        found = set()
    if not found:
        space, _, table = re.sub(r"^\w+:", "", word).replace("/", ".").partition(".")
        tables = sorted(".".join(key.path) for key in keys if table and key.path[0] == space)
        nearest = (
            did_you_mean(f"{space}.{table}", tables)
            if tables
            else did_you_mean(space, sorted({key.path[0] for key in keys}))
        )
        raise CommandError(f"selection {word!r} names no dataset, corpus or table{nearest}")
    return found
