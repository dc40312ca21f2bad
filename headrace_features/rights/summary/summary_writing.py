"""The public summary as Markdown, Word document and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagster_project.exceptions import CommandError
from headrace_features.rights.summary.summary_fields import Summary, Value

_TITLE = "Public summary of training content"
_LAW = "Article 53(1)(d) of Regulation (EU) 2024/1689."


def write(summary: Summary, file: Path) -> None:
    """Write a file in the format of its name: .md, .docx or .json.

    Raises:
        CommandError: it has another ending, or python-docx is not there.
    """
    if file.suffix == ".json":
        file.write_text(json.dumps(summary.facts(), ensure_ascii=False, indent=2) + "\n", "utf-8")
    elif file.suffix == ".md":
        file.write_text(markdown(summary), "utf-8")
    elif file.suffix == ".docx":
        _write_docx(summary, file)
    else:
        raise CommandError(f"rights summary: {file} ends in none of .md, .docx and .json")


def markdown(summary: Summary) -> str:
    """The summary in Markdown, tables where a field has rows."""
    return "\n\n".join(_markdown_parts(summary)) + "\n"


def _markdown_parts(summary: Summary) -> Iterator[str]:
    yield f"# {_TITLE}"
    yield f"Of {summary.subject}; version {summary.version or 'not stated'}. {_LAW}"
    for part in summary.parts:
        yield f"## {part.number} {part.title}"
        for value in part.values:
            if isinstance(value.value, str):
                yield f"**{value.label}:** {_text(value)}"
            else:
                yield f"**{value.label}:**"
                yield _markdown_table(value.value)
    if summary.missing:
        yield "## Missing"
        yield "\n".join(f"- {line}" for line in summary.missing)


def _text(value: Value) -> str:
    return f"MISSING; state {value.value}" if value.origin == "missing" else str(value.value)


def _markdown_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "none"
    head = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(_cell(row.get(name)).replace("|", "\\|") for name in head) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())


def _write_docx(summary: Summary, file: Path) -> None:
    try:
        from docx import Document
    except ImportError as error:
        raise CommandError(f"rights summary: {file.name} needs python-docx; pip install 'headrace[rights]'") from error
    document = Document()
    document.add_heading(_TITLE, 0)
    document.add_paragraph(f"Of {summary.subject}; version {summary.version or 'not stated'}.")
    document.add_paragraph(_LAW)
    for part in summary.parts:
        document.add_heading(f"{part.number} {part.title}", 1)
        for value in part.values:
            paragraph = document.add_paragraph()
            paragraph.add_run(f"{value.label}: ").bold = True
            if isinstance(value.value, str):
                paragraph.add_run(_printable(_text(value))).italic = value.origin == "missing"
            elif value.value:
                _add_table(document, value.value)
            else:
                paragraph.add_run("none")
    if summary.missing:
        document.add_heading("Missing", 1)
        for line in summary.missing:
            document.add_paragraph(_printable(line), style="List Bullet")
    document.save(str(file))


def _add_table(document: Any, rows: list[dict[str, Any]]) -> None:
    head = list(dict.fromkeys(name for row in rows for name in row))
    table = document.add_table(len(rows) + 1, len(head), style="Light Grid Accent 1")
    lines = [head, *([_cell(row.get(name)) for name in head] for row in rows)]
    # python-docx looks a cell up by walking through all of a table; its list of them is walked once.
    for cell, text in zip(table._cells, (text for line in lines for text in line), strict=True):
        cell.text = _printable(text)


def _printable(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(letter for letter in text if letter >= " " or letter in "\t\n")
