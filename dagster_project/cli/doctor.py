"""`headrace doctor`: a line for each thing that a run needs of this machine and the lake, each fault with its mend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import click

from dagster_project.cli.output import print_styled
from dagster_project.cli.project import load_definitions, project_folder, select
from dagster_project.cli.status import run_state
from dagster_project.exceptions import CommandError, DagsterProjectError
from dagster_project.inspect.lake.health import Finding, examine
from spark_jobs.lake.session.settings import load_settings

_STYLES = {"ok": "green", "warning": "yellow", "fault": "red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def doctor(as_json: bool) -> None:
    """Check Java, jars, memory, disk, Spark, catalogue, store, lake, ports, runs, declarations; exit 2 at a fault."""
    found = []
    for finding in _findings():
        found.append(finding)
        if not as_json:
            print_styled(f"{finding.state:<8} {finding.subject:<13} {finding.text}", _STYLES[finding.state])
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    faults = [finding for finding in found if finding.state == "fault"]
    if faults:
        raise CommandError(f"{len(faults)} of {len(found)} are at fault; first {faults[0].subject}: {faults[0].text}")


def _declarations() -> Finding:
    """Whether the project's declarations load."""
    try:
        keys = select(load_definitions(), ())
        return Finding("declarations", "ok", f"{len(keys)} tables in {project_folder().defs}")
    except DagsterProjectError as error:
        return Finding("declarations", "fault", " ".join(str(error).split()))


def _runs() -> Finding:
    """How Dagster's runs are."""
    from dagster_project.inspect.lake.run_health import run_finding

    try:
        return Finding("runs", *run_finding(run_state()))
    except DagsterProjectError as error:
        return Finding("runs", "fault", " ".join(str(error).split()))


def _findings() -> Iterator[Finding]:
    """All findings, each as soon as it is known."""
    yield from examine(load_settings())
    yield _runs()
    yield _declarations()
