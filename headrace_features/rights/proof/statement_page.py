"""The page of a statement: one file without scripts, to read and to print."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jinja2

from dagster_project.printable import printable

_MOST: Final = 500  # rows of a list; a page of thousands is read by nobody, and the JSON has all


def page_of(statement: Mapping[str, Any]) -> str:
    """The page; names and reasons are text of strangers, so they are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shown": lambda text: printable(str(text)),
        "count": lambda number: f"{number:,}",
        "moment": lambda text: f"{datetime.fromisoformat(text):%d %B %Y, %H:%M:%S} UTC",
    }
    return environment.get_template("statement.html").render(most=_MOST, **statement)
