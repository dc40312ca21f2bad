"""The definitions loaded by Dagster: the assets below `defs`, the lake, and what runs them (`automation`).

One process runs all steps of a run: they share one Spark session, and a JVM per step would cost 20 seconds each.
"""

from __future__ import annotations

import graphlib
import warnings
from pathlib import Path

import dagster as dg

from dagster_project.automation import automated
from dagster_project.deletion.history import KeptHistory, read_kept_history
from dagster_project.exceptions import DefinitionError
from dagster_project.executor import side_by_side
from dagster_project.inspect.lake.alert_thresholds import Thresholds, read_thresholds
from dagster_project.lake_asset import declared_assets
from dagster_project.resources import LakeResource
from dagster_project.restrictions import refuse_forbidden_reads
from headrace.process.interrupts import heed_interrupts
from spark_jobs.exceptions import nearest

_SHOWN_INPUTS = 3
_STUB = "dagster/auto_created_stub_asset"  # how Dagster marks an asset that only a dependency names


def build(
    assets: dg.Definitions,
    lake: LakeResource | None = None,
    thresholds: Thresholds | None = None,
    history: KeptHistory | None = None,
) -> dg.Definitions:
    """The project's definitions with some assets, checked; `lake` may have Spark settings of its own.

    Raises:
        DefinitionError: an input without an asset, tables that read each other, or an input that the reading
            table's visibility does not allow.
    """
    around = dg.Definitions(resources={"lake": lake or LakeResource()}, executor=side_by_side)
    assets = dg.Definitions.merge(assets, around)  # a graph is resolved only with the resources that it needs
    of_project = automated(assets, thresholds or Thresholds(), history or KeptHistory(), lambda: whole)
    whole = dg.Definitions.merge(assets, of_project)
    with warnings.catch_warnings():
        # Dagster makes the sensor of a job with partitions anew, with a parameter of its own that is beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        _require_inputs(whole)
        _refuse_cycles(whole)
        graph = whole.resolve_asset_graph()
        refuse_forbidden_reads(graph)
        for asset in declared_assets(graph, sorted(graph.get_all_asset_keys())):
            asset.follow(graph)
    return whole


def refuse_hidden_modules(folder: Path) -> None:
    """Refuse Python files beside a defs.yaml: Dagster reads the YAML alone and silently ignores them.

    Raises:
        DefinitionError: names the first such file.
    """
    for declared in sorted(folder.glob("**/defs.yaml")):
        for module in sorted(declared.parent.glob("*.py")):
            if module.name != "__init__.py":
                raise DefinitionError(
                    f"{module}: Dagster does not read it beside {declared.name}; move it to a folder of its own"
                )


def load_project(package: Path) -> dg.Definitions:
    """The definitions of a project: the assets declared below `defs`, and what belongs to every project.

    Args:
        package: folder of the project's Python package; pyproject.toml, beside or above it, names the package.

    Raises:
        DefinitionError: a declaration cannot be used.
    """
    heed_interrupts()  # this is a code server's process, or that of one of its runs
    refuse_hidden_modules(package / "defs")
    thresholds, history = read_thresholds(package.absolute()), read_kept_history(package.absolute())
    return build(dg.load_from_defs_folder(path_within_project=package), None, thresholds, history)


@dg.definitions
def definitions() -> dg.Definitions:
    """The assets of headrace's own project, for the demo."""
    return load_project(Path(__file__).parent)


def _require_inputs(definitions: dg.Definitions) -> None:
    """Refuse inputs without an asset: Dagster would turn them into silent external assets.

    Raises:
        DefinitionError: names every such input and the asset reading it.
    """
    specs = list(definitions.resolve_all_asset_specs())
    defined = {spec.key for spec in specs if _STUB not in spec.metadata}
    tables = {".".join(key.path) for key in defined}
    wanted = sorted(
        f"{'.'.join(spec.key.path)} reads {name}"
        for spec in specs
        for dep in spec.deps
        if (name := ".".join(dep.asset_key.path)) not in tables
    )
    if wanted:
        more = f" and {len(wanted) - _SHOWN_INPUTS} more" if len(wanted) > _SHOWN_INPUTS else ""
        near = nearest(wanted[0].rpartition(" ")[2], tables)
        raise DefinitionError(
            f"{'; '.join(wanted[:_SHOWN_INPUTS])}{more}: no asset defines it{near}; declare it, or correct the name"
        )


def _refuse_cycles(definitions: dg.Definitions) -> None:
    """Refuse tables computed from each other: Dagster would list the whole project.

    Raises:
        DefinitionError: names the tables of such a circle in the order of their reading each other.
    """
    reads = {
        spec.key: {dep.asset_key for dep in spec.deps if dep.asset_key != spec.key}
        for spec in definitions.resolve_all_asset_specs()
    }
    try:
        graphlib.TopologicalSorter(reads).prepare()
    except graphlib.CycleError as error:
        circle = [".".join(key.path) for key in reversed(error.args[1])]
        raise DefinitionError(
            f"{circle[0]} reads {', which reads '.join(circle[1:])}: none can be computed first; take one of these "
            "inputs out"
        ) from error
