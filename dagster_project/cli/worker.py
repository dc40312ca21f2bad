"""`headrace worker`: what a machine needs to execute the code of datasets."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dagster_project.cli.output import print_styled
from dagster_project.exceptions import CommandError
from spark_jobs.lake.session.settings import load_settings


@click.command()
@click.option("--check", "checks", is_flag=True, help="attack the sandbox of this machine, and say what holds")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def worker(checks: bool, as_json: bool) -> None:
    """Try whether strangers' code can be executed here: a line for each attack, with the mend where one is not held."""
    from spark_jobs.lake.files.storage import local_path
    from spark_jobs.sources.executed.attacks import check

    if not checks:
        raise CommandError("worker: nothing to do; `headrace worker --check` attacks the sandbox of this machine")
    warehouse = local_path(load_settings().warehouse)
    findings = []
    for finding in check((str(warehouse),) if warehouse is not None else ()):
        findings.append(finding)
        if not as_json:
            mend = f": {finding.harm}; {finding.mend}" if finding.harm else ""
            line = f"{'NOT HELD' if finding.harm else 'held':<9} a program that {finding.what}{mend}"
            print_styled(line, "red" if finding.harm else "green")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    if faults := [finding for finding in findings if finding.harm]:
        raise CommandError(f"code of datasets is not executed here: {len(faults)} of {len(findings)} are not held")
    if not as_json:
        click.echo("all hold; code of datasets is executed here")
