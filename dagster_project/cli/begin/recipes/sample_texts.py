"""Texts for samples: short articles with a title, written for headrace under its own licence."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("texts")


class Article(NamedTuple):
    """A title and its paragraphs."""

    title: str
    paragraphs: list[str]


def read_articles(name: str) -> list[Article]:
    """The articles of a file, in order: a line `# TITLE`, then a line for each paragraph."""
    parts = (_FOLDER / name).read_text("utf-8").strip().split("\n\n")
    return [Article(lines[0].removeprefix("# "), lines[1:]) for lines in (part.splitlines() for part in parts)]


def read_files(name: str) -> dict[str, str]:
    """Split a file into texts by path: each begins with a line `=== PATH`."""
    files = {}
    for part in (_FOLDER / name).read_text("utf-8").removeprefix("=== ").split("\n=== "):
        path, _, text = part.partition("\n")
        files[path] = f"{text.rstrip()}\n"
    return files
