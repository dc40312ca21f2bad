"""`headrace explore`: pages for reading, comparing and deciding."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.addresses import EXPLORER_PORT
from dagster_project.exceptions import CommandError


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on; others need --tokens")
@click.option(
    "--port", default=EXPLORER_PORT, show_default=True, type=click.IntRange(0, 65535), help="0 for any that is free"
)
@click.option("--tokens", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="as of headrace serve")
@click.option("--rules", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="as of headrace serve")
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="host name of a proxy before it")
def explore(host: str, port: int, tokens: Path | None, rules: Path | None, allowed_hosts: tuple[str, ...]) -> None:
    """Open pages on this lake: documents and why they go, duplicates, windows, blends, experiments (Ctrl-C ends it).

    More: docs/explore.md
    """
    try:
        from dagster_project.explore.serving import serve_pages
    except ImportError as error:
        raise CommandError(f"explore: {error.name} is not installed; run: pip install 'headrace[explore]'") from error
    serve_pages(host, port, tokens, rules, allowed_hosts)
