"""`headrace doctor`: a line for each thing that a run needs of this machine and the lake, each fault with its mend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from dagster_project.cli.output import JSON, print_json, print_styled
from dagster_project.cli.run.status import run_state
from dagster_project.exceptions import CommandError, DagsterProjectError
from dagster_project.inspect.lake.health import HealthFinding, examine
from dagster_project.project.loading import lake_catalogue, load_definitions, project_folder, select
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import load_settings

_STYLES = {"ok": "green", "warning": "yellow", "fault": "red"}


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check Java, jars, memory, disk, Spark, catalogue, store, lake, ports, runs, declarations; exit 2 at a fault."""
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not as_json:
            print_styled(f"{finding.state:<8} {finding.subject:<13} {finding.text}", _STYLES[finding.state])
    if as_json:
        print_json(findings)
    faults = [finding for finding in findings if finding.state == "fault"]
    if faults:
        raise CommandError(
            f"{len(faults)} of {len(findings)} are at fault; first {faults[0].subject}: {faults[0].text}"
        )


def _declarations() -> HealthFinding:
    """Whether the project's declarations load, and whether a run of all tables would accept them."""
    from blender_service.auth.visibility import recorded_visibility
    from dagster_project.mistakes import refuse_mistakes
    from spark_jobs.lake.ledger.ledger import Ledger

    try:
        definitions = load_definitions()
        keys = select(definitions, ())
        with contextlib.suppress(CatalogueError):  # another finding reports a catalogue that cannot be opened
            catalogue = lake_catalogue(required=False)
            graph = definitions.resolve_asset_graph()
            refuse_mistakes(graph, keys, Ledger.fresh(catalogue), recorded_visibility(catalogue))
        return HealthFinding("declarations", "ok", f"{len(keys)} tables in {project_folder().defs}")
    except DagsterProjectError as error:
        return HealthFinding("declarations", "fault", " ".join(str(error).split()))


def _runs() -> HealthFinding:
    """Whether runs of Dagster are dead, and whether dead ones would be ended."""
    from dagster_project.inspect.lake.run_health import run_finding

    try:
        return HealthFinding("runs", *run_finding(run_state()))
    except DagsterProjectError as error:
        return HealthFinding("runs", "fault", " ".join(str(error).split()))


def _findings() -> Iterator[HealthFinding]:
    """All findings, each as soon as it is known."""
    yield from examine(load_settings())
    yield _runs()
    yield _declarations()
