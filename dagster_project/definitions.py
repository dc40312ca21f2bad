"""The definitions that Dagster loads: the assets below `defs`, the lake, the job `everything`.

One process runs all steps of a run: they share one Spark session, and a JVM per step would cost 20 seconds each.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from dagster_project.exceptions import DefinitionError
from dagster_project.resources import LakeResource
from dagster_project.table_asset import require_inputs


def build(assets: dg.Definitions, lake: LakeResource | None = None) -> dg.Definitions:
    """The project's definitions with some assets, checked; `lake` may have Spark settings of its own.

    Raises:
        DefinitionError: an input that no asset defines.
    """
    around = dg.Definitions(
        jobs=[
            dg.define_asset_job(
                "everything",
                selection=dg.AssetSelection.all(),
                description="Brings every table up to date; what has not changed is left.",
            )
        ],
        resources={"lake": lake or LakeResource()},
        executor=dg.in_process_executor,
    )
    whole = dg.Definitions.merge(assets, around)
    require_inputs(whole)
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


@dg.definitions
def definitions() -> dg.Definitions:
    """The assets declared below `defs`."""
    root = Path(__file__).parent
    refuse_hidden_modules(root / "defs")
    return build(dg.load_from_defs_folder(path_within_project=root))
