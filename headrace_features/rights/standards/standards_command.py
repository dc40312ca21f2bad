"""`headrace rights croissant` and `headrace rights spdx`: a dataset, corpus or packed table in two standards."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from dagster_project.cli.output import print_raw, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue

OUTPUT = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="a file; by default it is printed"
)


@click.command("croissant", epilog="\b\nExample: headrace rights croissant first --set url=https://mill.example/first")
@click.argument("name")
@click.option("--set", "stated", multiple=True, metavar="PROPERTY=VALUE", help="what only people know, such as url")
@click.option("--sha256", "hashes_files", is_flag=True, help="read each data file for its SHA-256")
@OUTPUT
def croissant(name: str, stated: tuple[str, ...], hashes_files: bool, output: Path | None) -> None:
    """Write the Croissant 1.1 of NAME, a dataset, corpus or packed table (`first.packed_2048`)."""
    from headrace_features.rights.standards.croissant import WANTED
    from headrace_features.rights.standards.croissant import croissant as make
    from headrace_features.rights.standards.described import describe

    pairs = dict(part.partition("=")[::2] for part in stated)
    if bad := next((key for key, value in pairs.items() if not key or not value), None):
        raise CommandError(f"rights croissant: --set {bad}; give PROPERTY=VALUE, such as url=https://mill.example")
    for key in {"creator", "publisher"} & set(pairs):
        pairs[key] = {"@type": "sc:Organization", "name": pairs[key]}  # type: ignore[assignment]
    _write(make(describe(lake_catalogue(), name), pairs, hashes_files), output)
    if missing := [key for key in WANTED if key not in pairs]:
        say(f"only people know {', '.join(missing)}; give them by --set", err=True)


@click.command("spdx", epilog="\b\nExample: headrace rights spdx notes --supplier 'Mill GmbH' --output notes.spdx.json")
@click.argument("name")
@click.option("--supplier", help="who gives it to others")
@OUTPUT
def spdx(name: str, supplier: str | None, output: Path | None) -> None:
    """Write NAME, a dataset, corpus or packed table, in the dataset profile of SPDX 3.0, with documents by licence."""
    from headrace_features.rights.standards.described import describe
    from headrace_features.rights.standards.spdx import spdx as make

    _write(make(describe(lake_catalogue(), name), supplier, datetime.now(UTC)), output)


def _write(document: dict[str, Any], output: Path | None) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        return print_raw(text)
    output.write_text(text, encoding="utf-8")
    say(f"{output}: {len(text):,} characters")
