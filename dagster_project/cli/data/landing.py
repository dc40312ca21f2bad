"""What lands: `headrace run NAME --follow` reads a stream, `headrace dataset archive` moves old bytes away."""

from __future__ import annotations

import time

import click

from dagster_project.cli.declared import complete_names, dataset_file
from dagster_project.cli.project import lake_catalogue, load_definitions
from dagster_project.exceptions import CommandError
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings

_DAY_SECONDS = 86_400


@click.command("archive")
@click.argument("name", shell_complete=complete_names)
@click.option("--to", "cold", help="folder, or a URI such as s3://bucket/cold; by default that of freeze_after")
@click.option("--days", type=click.FloatRange(min=0), help="age from which kept bytes move; by default of freeze_after")
@click.option("--thaw", is_flag=True, help="move all cold bytes back instead")
def archive(name: str, cold: str | None, days: float | None, thaw: bool) -> None:
    """Move the kept bytes of NAME that landed so many days ago to a cold folder; they are read from there as before.

    For datasets with `landing: copy`. Each copy is compared with its hash before the first one is removed. What
    `freeze_after` declares is done by headrace maintain, too.
    """
    dataset_file(name)
    from dagster_project.lake_asset import assets_of, keeping_by_dataset

    keeping = keeping_by_dataset(assets_of(load_definitions()))  # they resolve what YAML says: {{ project_root }}
    declared = keeping[name].freezing
    if declared is not None:
        cold, days = cold or declared.to, declared.days if days is None else days
    catalogue = lake_catalogue()
    folders = [ObjectFolder.of(catalogue, space) for space in (name, quarantine_of(name))]
    try:
        if thaw:
            click.echo(f"moved {sum(folder.thaw() for folder in folders):,} objects back to the warehouse")
            return
        if cold is None or days is None:
            raise CommandError(
                f"dataset archive {name}: give --to and --days, or declare `freeze_after: {{days: .., to: ..}}`"
            )
        moved = sum(folder.freeze(cold, time.time() - days * _DAY_SECONDS) for folder in folders)
    except OSError as error:
        raise CommandError(f"dataset archive {name}: {error}") from error
    click.echo(f"moved {moved:,} objects to {cold.rstrip('/')}/{name}")


def follow_dataset(name: str, once: bool) -> None:
    """Follow a dataset whose source is a stream: keep what comes, and seal it by size or age, until Ctrl-C.

    Each sealed increment runs the dataset's steps, as `headrace run NAME` does. What was kept and not sealed is sealed
    by the next run or the next follow.
    """
    from dagster_project.cli.execution import execute, require_done
    from dagster_project.cli.step_lines import print_left, print_line
    from dagster_project.lake_asset import declared_source
    from spark_jobs.lake.files.objects import ObjectFolder
    from spark_jobs.lake.run.decisions import refuse_around_quarantine
    from spark_jobs.lake.session.session import start_session
    from spark_jobs.sources.api.streams import follow, follower_state, session_settings
    from spark_jobs.sources.config.source_config import DocumentsConfig
    from spark_jobs.sources.config.stream_config import StreamSource

    dataset_file(name)
    graph = load_definitions().resolve_asset_graph()
    sources = (declared_source(graph, f"{space}.documents") for space in (quarantine_of(name), name))
    binding = next(filter(None, sources), None)
    config = binding.config if binding is not None else None
    if binding is None or not isinstance(config, DocumentsConfig) or not isinstance(config.source, StreamSource):
        raise CommandError(f"dataset {name}: its source is no stream; bring it up to date by `headrace run {name}`")
    settings = load_settings()
    catalogue = open_catalogue(settings)
    refuse_around_quarantine(Ledger.fresh(catalogue), binding)
    spark = start_session(settings, extra=session_settings(config.source, settings))

    def seal() -> None:
        lines = execute((name,), None, print_line)
        print_left(lines)
        require_done(lines, f"headrace run {name} --follow")

    objects = ObjectFolder.of(catalogue, binding.namespace)
    count = follow(name, config.source, catalogue, objects, spark, seal, follower_state(name), once)
    click.echo(f"{count} records kept and sealed. Look: headrace dataset show")
