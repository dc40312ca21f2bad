"""`headrace blend show BLEND OFFSET`: the rows that a training step saw."""

from __future__ import annotations

import click

from dagster_project.cli.output import print_json, print_table


def print_rows_from(reference: str, offset: int, rows: int, characters: int, as_json: bool) -> None:
    """Print documents, sources, licences and texts of rows of a blend, from an offset on."""
    from blender_service.catalogue import open_catalogue
    from blender_service.server.blender import Blender
    from dagster_project.inspect.documents.blend_rows import inspect_rows
    from dagster_project.restrictions import note_read

    catalogue = open_catalogue()
    blender = Blender(catalogue)
    found = inspect_rows(catalogue, blender, blender.resolve(reference), offset, rows)
    note_read(catalogue, [row.table for row in found])
    if as_json:
        return print_json([row.facts() for row in found])
    for row in found:
        origin = f"{row.table} ordinal {row.ordinal}, epoch {row.epoch}"
        click.echo(f"row {row.offset}: {row.source}, {origin}, {row.token_count} tokens before padding")
        lines = [
            {
                "at": segment.window_start,
                "tokens": segment.token_count,
                "document": segment.doc_id[:12],
                "from token": segment.document_start,
                "licence": segment.licence or "not known",
                "file": " ".join(part for part in (segment.repository, segment.path) if part) or "not known",
                "text": _line(segment.text, characters),
            }
            for segment in row.segments
        ]
        if lines:
            print_table(lines)


def _line(text: str | None, characters: int) -> str:
    """Give the beginning of a text in one line."""
    if text is None:
        return "not known"
    line = text.replace("\n", "\\n")
    return line if not characters or len(line) <= characters else line[:characters] + ".."
