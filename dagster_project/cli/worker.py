"""`headrace worker`: answer the requests of generated datasets beside their run, on this or another machine."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys

import click

from dagster_project.cli.declared import complete_names
from dagster_project.cli.project import load_definitions
from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import nearest
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="processes")
def worker(names: tuple[str, ...], replicas: int) -> None:
    """Take tasks of the generated datasets NAMES, of all without names, until stopped by Ctrl-C or SIGTERM.

    A run of the dataset makes the tasks and works on them itself; workers only help, on any machine that reaches the
    catalogue's database and the endpoint. Stopped, a worker waits 20 seconds for what is in flight and gives its tasks
    back; killed, others have them within a minute.
    """
    if replicas > 1:
        sys.exit(_several(names, replicas))
    from dagster_project.lake_asset import assets_of
    from spark_jobs.sources.config.generated_config import GeneratedSource
    from spark_jobs.sources.config.source_config import DocumentsConfig
    from spark_jobs.sources.generated.worker import work_for

    configs = [one.config for one in assets_of(load_definitions())]
    sources = {
        one.dataset: one.source
        for one in configs
        if isinstance(one, DocumentsConfig) and isinstance(one.source, GeneratedSource)
    }
    for name in names:
        if name not in sources:
            raise CommandError(f"worker {name}: no generated dataset is declared so{nearest(name, sources)}")
    if not sources:
        raise CommandError("worker: no dataset is declared with `source: {kind: generated}`; see docs/generated.md")
    chosen = {name: source for name, source in sources.items() if name in names or not names}
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    click.echo(f"worker for {', '.join(sorted(chosen))}; Ctrl-C stops it")

    async def work() -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, stopping.set)
        await work_for(open_catalogue(load_settings()), chosen, stopping)

    asyncio.run(work())


def _several(names: tuple[str, ...], replicas: int) -> int:
    """Run so many workers, hand them the signals that come, and give the worst of their exit statuses."""
    command = [sys.executable, "-m", "dagster_project.cli", "worker", *names]
    workers = [subprocess.Popen(command, start_new_session=True) for _ in range(replicas)]

    def stop(*_: object) -> None:
        for one in workers:
            one.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return max(abs(one.wait()) for one in workers)
