"""`headrace mcp`: the explorer's answers as tools for assistants."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.exceptions import CommandError


@click.command()
@click.option("--rules", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="as of headrace serve")
def mcp(rules: Path | None) -> None:
    """Answer an assistant over standard input and output, by the Model Context Protocol; nothing is changed.

    More: docs/explore.md
    """
    try:
        from dagster_project.explore.assistant import serve_tools
    except ImportError as error:
        raise CommandError(f"mcp: {error.name} is not installed; run: pip install 'headrace[explore,mcp]'") from error
    serve_tools(rules)
