"""`headrace run NAME --follow`: read a stream, and run the dataset's steps for each sealed increment."""

from __future__ import annotations

from dagster_project.cli.output import say
from dagster_project.cli.run.execution import execute, require_done
from dagster_project.cli.run.step_lines import print_left, print_line
from dagster_project.exceptions import CommandError
from dagster_project.project.declared import dataset_file
from dagster_project.project.loading import load_definitions
from headrace.tables.quarantine import quarantine_of
from headrace.tables.settings import load_settings
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue


def follow_dataset(name: str, once: bool) -> None:
    """Follow the stream of a dataset until Ctrl-C: keep arriving records, and seal them as an increment by size or age.

    Each sealed increment runs the dataset's steps, as `headrace run NAME` does. Records that are kept and not
    sealed yet are sealed by the next run or follow.
    """
    from dagster_project.lake_asset import declared_source
    from spark_jobs.lake.plan.decisions import refuse_around_quarantine
    from spark_jobs.sources.config.source_config import DocumentsConfig
    from spark_jobs.sources.kinds import kind_of

    dataset_file(name)
    graph = load_definitions().resolve_asset_graph()
    sources = (declared_source(graph, f"{space}.documents") for space in (quarantine_of(name), name))
    binding = next(filter(None, sources), None)
    if binding is None or not isinstance(binding.config, DocumentsConfig):
        raise CommandError(f"dataset {name}: it has no source to follow; bring it up to date by `headrace run {name}`")
    kind = kind_of(binding.config.source)
    settings = load_settings()
    catalogue = open_catalogue(settings)
    refuse_around_quarantine(Ledger.fresh(catalogue), binding)

    def seal() -> None:
        lines = execute((name,), None, print_line)
        print_left(lines)
        require_done(lines, f"headrace run {name} --follow")

    objects = ObjectFolder.of(catalogue, binding.namespace)
    count = kind.follow(name, catalogue, objects, seal, once)
    say(f"{count} records kept and sealed. Look: headrace dataset show")
