"""Make the asset `blends/<name>_prewarmed`: a blend's rows in the caches of servers, before a training reads them.

It has no automation of its own and no part in a run of everything (no server is needed there): a schedule beginning a
training runs it first.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.asset_options import APART
from spark_jobs.progress import tell

if TYPE_CHECKING:
    from dagster_project.assets.blends import BlendDeclaration

PREWARMED = "prewarmed"  # their group
_TELL_SECONDS = 5.0


def prewarm_server(address: str, blend: str, offset: int, rows: int, columns: Sequence[str] = ()) -> str:
    """Have one server read rows into its cache; logs its progress every few seconds.

    Returns:
        What was done, in one line.

    Raises:
        BlenderError: there is no such blend, or the server does not answer.
    """
    from blender_service.blend.definition_messages import Prewarmed
    from blender_service.client.blender_client import connect

    done = Prewarmed(offset, stopped=False)
    told_at = began = time.monotonic()
    with connect(address) as client:
        for done in client.prewarm(blend, offset, rows, columns):
            if time.monotonic() - told_at >= _TELL_SECONDS:
                told_at = time.monotonic()
                tell(f"{address}: rows {offset:,} to {done.row:,} of {blend} are in its cache")
    why = ": its cache is full, or the blend has no more yet" if done.stopped else ""
    seconds = time.monotonic() - began
    return f"{address}: rows {offset:,} to {done.row:,} of {blend} are in its cache ({seconds:.1f} s){why}"


def prewarmed_asset(declared: BlendDeclaration) -> dg.AssetsDefinition:
    """Make the asset of a blend with `prewarm`."""
    assert declared.prewarm is not None
    wanted = declared.prewarm

    def compute(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        from blender_service.exceptions import BlenderError
        from blender_service.server.blender import Blender
        from dagster_project.assets.blends import latest_name

        try:
            name = latest_name(Blender(context.resources.lake.open(context.run.run_id).catalogue), declared.name)
            wish = (name, wanted.offset, wanted.rows, wanted.columns)
            lines = [prewarm_server(server, *wish) for server in wanted.servers]
        except BlenderError as error:
            raise dg.Failure(f"blend {declared.name}: prewarm: {error}") from error
        yield dg.MaterializeResult(
            metadata={
                "called": name,
                "servers": dg.MetadataValue.md("\n".join(f"- {line}" for line in lines)),
                "detail": f"{len(lines)} servers hold rows of {name}",
            }
        )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    compute.__annotations__["context"] = dg.AssetExecutionContext
    decorate = dg.multi_asset(
        name=f"{PREWARMED}__{declared.name}",
        specs=[
            dg.AssetSpec(
                ["blends", f"{declared.name}_{PREWARMED}"],
                deps=[dg.AssetDep(dg.AssetKey(["blends", declared.name]))],
                description="Rows of the newest blend of this declaration in the caches of servers.",
                group_name=PREWARMED,
                tags={APART: "true"},
                code_version=hashlib.sha256(wanted.model_dump_json().encode()).hexdigest()[:12],
            )
        ],
        required_resource_keys={"lake"},
    )
    return decorate(compute)
