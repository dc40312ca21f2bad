"""`headrace explore`, pages for reading, comparing and deciding; `headrace mcp`, the same answers for assistants."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.addresses import EXPLORER_PORT
from dagster_project.exceptions import CommandError

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
_RULES = click.option("--rules", type=_FILE, help="as of headrace serve")


@click.command(
    short_help="Open pages on this lake: documents, why they go, windows, blends.",
    epilog="\b\nExample: headrace explore --port 4141",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on; others need --tokens")
@click.option(
    "--port", default=EXPLORER_PORT, show_default=True, type=click.IntRange(0, 65535), help="0 for any that is free"
)
@click.option("--tokens", type=_FILE, help="as of headrace serve")
@_RULES
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="host name of a proxy before it")
def explore(host: str, port: int, tokens: Path | None, rules: Path | None, allowed_hosts: tuple[str, ...]) -> None:
    """Open pages on this lake: documents and why they go, duplicates, windows, blends, experiments (Ctrl-C ends it).

    More: docs/operate/explore.md
    """
    try:
        from headrace_features.explore.serving import serve_pages
    except ImportError as error:
        raise _not_installed("explore", error, "explore") from error
    serve_pages(host, port, tokens, rules, allowed_hosts)


@click.command(
    short_help="Answer assistants on this lake, over standard input and output.",
    epilog="\b\nExample: headrace mcp",
)
@_RULES
def mcp(rules: Path | None) -> None:
    """Answer an assistant over standard input and output, by the Model Context Protocol; nothing is changed.

    More: docs/operate/explore.md
    """
    try:
        from headrace_features.explore.assistant import serve_tools
    except ImportError as error:
        raise _not_installed("mcp", error, "explore,mcp") from error
    serve_tools(rules)


def _not_installed(command: str, error: ImportError, extras: str) -> CommandError:
    return CommandError(f"{command}: {error.name} is not installed; run: pip install 'headrace[{extras}]'")
