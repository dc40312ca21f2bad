"""`headrace worker`: answer requests beside a run, on any machine; try whether code can be executed on this one."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import print_styled, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue, load_definitions
from headrace.tables.settings import load_settings
from spark_jobs.exceptions import nearest

if TYPE_CHECKING:
    from headrace_features.synthetic.generated_config import GeneratedSource


@click.command(
    short_help="Answer requests of generated datasets beside a run; check the sandbox.",
    epilog="\b\nExample: headrace worker twin --replicas 4",
)
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="processes")
@click.option("--check", "checks", is_flag=True, help="instead: say whether the sandbox of this machine holds")
def worker(names: tuple[str, ...], replicas: int, checks: bool) -> None:
    """Take tasks of generated datasets and judges (DATASET.JUDGE), of all without NAMES, until stopped by Ctrl-C.

    A run makes the tasks and works on them itself; workers only help, on any machine that reaches the catalogue's
    database and the endpoint. Stopped, a worker waits 20 seconds for what is in flight and gives its tasks back;
    killed, others have them within a minute.

    --check tries whether the code of datasets can be executed here: a line for each check of the sandbox.
    """
    if checks:
        _check()
        return
    if replicas > 1:
        sys.exit(_several(names, replicas))
    sources = _declared()
    for name in names:
        if name not in sources:
            raise CommandError(f"worker {name}: no generated dataset or judge has this name{nearest(name, sources)}")
    if not sources:
        raise CommandError(
            "worker: no dataset is declared with `source: {kind: generated}` or `judged`; none to work for"
        )
    chosen = {name: source for name, source in sources.items() if name in names or not names}
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    say(f"worker for {', '.join(sorted(chosen))}; Ctrl-C stops it")

    async def work() -> None:
        from headrace_features.synthetic.executed.programs import program_executor
        from headrace_features.synthetic.worker import work_for

        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await work_for(lake_catalogue(make=True), chosen, stopping, executor=program_executor)

    asyncio.run(work())


def _declared() -> dict[str, GeneratedSource]:
    """The source (endpoint, model, limits) of every generated dataset and judge of the project, by name."""
    from dagster_project.lake_asset import assets_of
    from headrace_features.synthetic.generated_config import GeneratedSource
    from headrace_features.synthetic.labels.answers import store_name
    from headrace_features.synthetic.labels.rubric import JudgeConfig, source_of
    from spark_jobs.sources.config.source_config import DocumentsConfig

    sources = {}
    for asset in assets_of(load_definitions()):
        dataset, _, table = asset.tables[0].partition(".")
        if isinstance(asset.config, DocumentsConfig) and isinstance(asset.config.source, GeneratedSource):
            sources[asset.config.dataset] = asset.config.source
        elif isinstance(asset.config, JudgeConfig):
            sources[store_name(dataset, table.partition("_")[2])] = source_of(asset.config, dataset)
    return sources


def _several(names: tuple[str, ...], replicas: int) -> int:
    """Run several worker processes, pass signals on to them, and give the highest of their exit statuses."""
    command = [sys.executable, "-m", "dagster_project.cli", "worker", *names]
    workers = [subprocess.Popen(command, start_new_session=True) for _ in range(replicas)]

    def stop(*_: object) -> None:
        for process in workers:
            process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return max(abs(process.wait()) for process in workers)


def _check() -> None:
    """Check the sandbox of this machine: a line for each check, with the mend where it fails."""
    from headrace_features.synthetic.executed.checks import check
    from spark_jobs.lake.files.storage import local_path

    warehouse = local_path(load_settings().warehouse)
    findings = list(check((str(warehouse),) if warehouse is not None else ()))
    for finding in findings:
        mend = f": {finding.harm}; {finding.mend}" if finding.harm else ""
        line = f"{'NOT HELD' if finding.harm else 'held':<9} a program that {finding.what}{mend}"
        print_styled(line, "red" if finding.harm else "green")
    if faults := [finding for finding in findings if finding.harm]:
        raise CommandError(f"code of datasets is not executed here: {len(faults)} of {len(findings)} are not held")
    say("all hold; code of datasets is executed here")
