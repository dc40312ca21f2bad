"""Print tables and lines in the terminal."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

_original_stdouts: list[TextIO] = []


@contextmanager
def original_stdout() -> Iterator[None]:
    """Let `print_styled` write to the original standard output while Dagster redirects it.

    While steps run, Dagster redirects standard output to its compute logs and prints those again through `tail`: a line
    would come late, and the last ones never.
    """
    try:
        copy = os.dup(sys.stdout.fileno())
    except (io.UnsupportedOperation, OSError):  # not a file, so it cannot be redirected by its descriptor
        yield
        return
    with os.fdopen(copy, "w", buffering=1, encoding=sys.stdout.encoding, errors=sys.stdout.errors) as terminal:
        sys.stdout.flush()
        _original_stdouts.append(terminal)
        try:
            yield
        finally:
            _original_stdouts.pop()


def print_styled(text: str, style: str) -> None:
    """Print one line in a colour, where the terminal supports colours."""
    from rich.console import Console

    console = Console(file=_original_stdouts[-1] if _original_stdouts else None, highlight=False, soft_wrap=True)
    console.print(text, style=style, markup=False)


def print_table(rows: Sequence[dict[str, Any]], title: str | None = None) -> None:
    """Print rows of equal keys as a table; numbers are aligned to the right, with separators."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        number = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console(highlight=False).print(table, markup=False)


def print_rows(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON or as a table, and `nothing` in place of an empty table."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows)
    else:
        click.echo(nothing)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    return str(value)
