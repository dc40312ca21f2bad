"""Print tables and lines in the terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO

import click
from click.core import ParameterSource

from dagster_project.exceptions import CommandError
from spark_jobs.progress import PROGRESS

JSON = click.option("--json", "as_json", is_flag=True, help="print JSON")

_originals: dict[str, TextIO] = {}


@contextmanager
def original_streams() -> Iterator[None]:
    """Let lines go to the original standard output and error while Dagster redirects both.

    While steps run, Dagster redirects them to its compute logs and prints those again through `tail`: a line would come
    late, and the last ones never.
    """
    with ExitStack() as stack:
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            try:
                copy = os.dup(stream.fileno())
            except (io.UnsupportedOperation, OSError):  # not a file, so it cannot be redirected by its descriptor
                continue
            stream.flush()
            opened = os.fdopen(copy, "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
            _originals[name] = stack.enter_context(opened)
            stack.callback(_originals.pop, name)
        yield


def print_plain(text: str) -> None:
    """Print one line as it is."""
    click.echo(text, file=_originals.get("stdout"))


def print_styled(text: str, style: str) -> None:
    """Print one line in a colour, where the terminal supports colours."""
    from rich.console import Console

    Console(file=_originals.get("stdout"), highlight=False, soft_wrap=True).print(text, style=style, markup=False)


class _ProgressHandler(logging.Handler):
    """Prints the message of a record on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        click.echo(self.format(record), file=_originals.get("stderr"), err=True)


@contextmanager
def progress_shown(shown: bool) -> Iterator[None]:
    """Print messages about slow work (Spark starting, jars being fetched, long steps) on standard error, if `shown`."""
    logger, handler = logging.getLogger(PROGRESS), _ProgressHandler()
    if shown:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


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


def print_tables(*tables: Sequence[dict[str, Any]]) -> None:
    """Print tables below each other, an empty line between them; those without rows are left out."""
    for number, rows in enumerate(filter(None, tables)):
        if number:
            click.echo("")
        print_table(rows)


def print_rows(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON or as a table, and `nothing` in place of an empty table."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        click.echo(nothing)


def print_json(value: Any) -> None:
    """Print a value as JSON: a dataclass as an object, what JSON has no form for as text."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def lists_all(name: object, *also: str) -> bool:
    """Whether a command like `dataset show [NAME]` was given no name, so that it lists all.

    Args:
        name: what was given as NAME.
        also: parameters that go without a name, beside `--json`.

    Raises:
        CommandError: an option was given that needs a name, such as `dataset show --card`.
    """
    if name:
        return False
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is ParameterSource.COMMANDLINE and option.name not in ("as_json", *also):
            words = " ".join(context.command_path.split()[-2:])
            raise CommandError(f"{words} {option.opts[0]}: of which one? Give its name; `headrace {words}` lists all")
    return True


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


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
