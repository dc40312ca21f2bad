"""Print tables and lines in the terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import NOT_MEASURED
from dagster_project.printable import printable, printable_lines
from spark_jobs.progress import PROGRESS

if TYPE_CHECKING:
    from rich.console import Console

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


def say(text: str = "", err: bool = False) -> None:
    """Print lines as they are; unprintable characters, such as those steering a terminal, as escapes.

    All that commands print but the texts of documents (`print_raw`) goes through here or through a table, since names,
    paths and reasons are data written by strangers.
    """
    click.echo(printable_lines(text), file=_originals.get("stderr" if err else "stdout"), err=err)


def print_raw(text: str) -> None:
    """Print a text as it is for a file or another program; on a terminal unprintable characters are escapes."""
    is_seen = sys.stdout.isatty()
    click.echo(printable_lines(text) if is_seen else text, nl=False, color=not is_seen)  # `color`: no escape is dropped


def print_styled(text: str, style: str) -> None:
    """Print one line in a colour, where the terminal supports colours."""
    _console(soft_wrap=True).print(printable(text), style=style)


def print_hit(before: str, words: str, behind: str) -> None:
    """Print one line with some words of it in bold, where the terminal supports that."""
    from rich.text import Text

    parts = Text.assemble(printable(before), (printable(words), "bold"), printable(behind))
    _console(soft_wrap=True).print(parts)


class _ProgressHandler(logging.Handler):
    """Prints the message of a record on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        say(self.format(record), err=True)


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
    """Print rows of equal keys as a table, none as nothing; numbers are aligned to the right, with separators.

    None is `not measured` in a column of numbers, `-` elsewhere.
    """
    from rich.table import Table

    if title is not None:
        print_styled(title, "italic")
    table = Table(box=None, pad_edge=False, header_style="bold")
    texts = []
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        is_number = all(value is None or isinstance(value, int | float) for value in values)
        table.add_column(printable(name), justify="right" if is_number else "left", overflow="fold")
        nothing = NOT_MEASURED if is_number else "-"
        texts.append([nothing if value is None else printable(_text(value)) for value in values])
    for cells in zip(*texts, strict=True):
        table.add_row(*cells)
    if rows:
        _console().print(table)


def print_sides(titles: Sequence[str], rows: Iterable[tuple[Sequence[str], str]]) -> None:
    """Print rows of texts beside each other in columns of equal width, each row in a style; no title, a narrow one."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title in titles:
        table.add_column(printable(title), ratio=1 if title else None, overflow="fold")
    for texts, style in rows:
        table.add_row(*(Text(printable(text), style=style) for text in texts))
    _console().print(table)


def terminal_columns() -> int:
    """How many characters a line of the terminal has."""
    return _console().width


def _console(soft_wrap: bool = False) -> Console:
    """Where to print: no markup and no name of an emoji is read in what is printed, for that is data."""
    from rich.console import Console

    return Console(file=_originals.get("stdout"), highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap)


def print_tables(*tables: Sequence[dict[str, Any]]) -> None:
    """Print tables below each other, an empty line between them; those without rows are left out."""
    for number, rows in enumerate(filter(None, tables)):
        if number:
            say()
        print_table(rows)


def print_rows(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON or as a table, and `nothing` in place of an empty table."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        say(nothing)


def print_json(value: Any) -> None:
    """Print a value as JSON: a dataclass as an object, what JSON has no form for, as `Infinity`, as text."""
    plain = json.loads(json.dumps(value, default=_plain), parse_constant=str)
    say(json.dumps(plain, indent=2))


def lists_all(name: object, *also: str) -> bool:
    """Whether a command like `dataset show [NAME]` was given no name, so that it lists all.

    Args:
        name: what was given as NAME.
        also: parameters without a name, beside `--json`.

    Raises:
        CommandError: an option needs a name, such as `dataset show --card`.
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
