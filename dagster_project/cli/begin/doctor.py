"""`headrace doctor`: a line for each need of a run of this machine and the lake, each fault with its mend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from dagster_project.cli.output import JSON, print_json, print_styled
from dagster_project.cli.run.status import run_state
from dagster_project.exceptions import CommandError, DagsterProjectError
from dagster_project.inspect.lake.health import HealthFinding, examine
from dagster_project.lake_asset import assets_of
from dagster_project.project.loading import lake_catalogue, load_definitions, project_folder, select
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import load_settings
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.importing import import_faults
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.kinds import kind_of

_STYLES = {"ok": "green", "warning": "yellow", "fault": "red"}


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check Java, jars, memory, disk, Spark, catalogue, lake, ports, runs, declarations, packages: 2 at a fault."""
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


def _packages() -> Iterator[HealthFinding]:
    """Whether what the declared sources need can be imported: each package is, in another process."""
    needed, unlisted = dict[str, str](), list[str]()  # extras by package
    for asset in assets_of(load_definitions()):
        if isinstance(asset.config, DocumentsConfig):
            try:
                of_source = kind_of(asset.config.source).packages()
            except (SparkJobsError, OSError) as error:
                unlisted.append(" ".join(f"{asset.namespace}: {error}".split()))
                continue
            needed |= {package: extra for extra, packages in of_source.items() for package in packages}
    faults = import_faults(needed)
    for fault in faults:
        mend = fault.mend or f"pip install 'headrace[{needed[fault.package]}]'"
        yield HealthFinding("packages", "fault", f"{fault.package}: {fault.text}; run: {mend}")
    for text in unlisted:
        yield HealthFinding("packages", "warning", f"what it needs is not known, {text}")
    if needed and not faults:
        yield HealthFinding("packages", "ok", f"{', '.join(sorted(needed))} can be imported, as sources need them")


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
    declarations = _declarations()
    yield declarations
    if declarations.state == "ok":
        yield from _packages()
