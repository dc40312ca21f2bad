"""Notebooks become their cells; broken ones are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace_features.formats.notebooks import extract_notebook
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal

CELLS = [
    {"cell_type": "markdown", "source": ["# Title\n", "text"]},
    {"cell_type": "code", "source": "x = 1\n", "outputs": [{"text": "secret output"}]},
    {"cell_type": "raw", "source": "raw"},
    {"cell_type": "code", "source": []},
]
TEXT = "# Title\ntext\n\nx = 1"


def notebook(**facts: Any) -> bytes:
    """A notebook of version 4."""
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": CELLS, **facts}).encode()


def test_cells_become_one_text_of_the_kernels_language(landing: Any, files_config: Any, data: Path) -> None:
    """Both versions, with what different tools say about the kernel; a notebook without code is prose."""
    kernels = {
        "a": ({"language_info": {"name": "python"}}, "Python"),
        "b": ({"kernelspec": {"name": "python3"}}, "Python"),
        "c": ({"kernelspec": {"name": "ir"}}, "R"),
        "d": ({"kernelspec": {"name": "julia-1.9"}}, "Julia"),
        "e": ({"kernelspec": {"language": "C++", "name": "xcpp"}}, "C++"),
        "f": ({}, None),
    }
    for name, (metadata, _) in kernels.items():
        (data / f"{name}.ipynb").write_bytes(notebook(metadata=metadata))
    old = [
        {"cell_type": "heading", "level": 1, "source": ["Title\n", "text"]},
        {"cell_type": "code", "input": ["x = 1"], "language": "python", "outputs": []},
    ]
    (data / "g.ipynb").write_text(json.dumps({"nbformat": 3, "metadata": {"name": ""}, "worksheets": [{"cells": old}]}))
    (data / "h.ipynb").write_bytes(notebook(cells=CELLS[:1]))
    documents, _ = landing.land(files_config())
    assert {row["content"] for row in documents[:-1]} == {TEXT}
    assert [row["language"] for row in documents] == [said for _, said in kernels.values()] + ["Python", None]
    assert [row["kind"] for row in documents] == ["code"] * 7 + ["prose"]
    assert documents[0]["metadata"]["code_cell_count"] == "1"
    assert documents[-1]["media_type"] == "text/markdown"


def test_what_is_no_notebook_is_refused() -> None:
    """Other versions and tools, other JSON, damage, nothing at all."""
    broken = [b"", b"\0", b"{}", b"[]", b'{"nbformat": 2}', notebook()[:-10], notebook(cells=None), notebook(cells=[1])]
    broken += [
        notebook(cells=[{"cell_type": "code"}]),
        notebook(metadata=[1]),
        b'{"paragraphs": [], "name": "zeppelin"}',
    ]
    broken += [b"[" * 100_000, b'{"nbformat": 3}', notebook(cells=[{"cell_type": "code", "source": [1]}])]
    for data in broken:
        found = extract_notebook(data)
        assert isinstance(found, Refusal), data[:50]
        assert found.reason == "corrupt_file", data[:50]
    empty = extract_notebook(notebook(cells=[]))
    assert isinstance(empty, Refusal) and empty.reason == "empty"


@pytest.mark.parametrize("about", [None, {"kernelspec": None}, {"kernelspec": {"language": 5}, "language_info": {}}])
def test_odd_words_about_the_kernel_cost_no_cell(about: Any) -> None:
    """A notebook whose metadata say nothing usable has its text."""
    found = extract_notebook(notebook(metadata=about))
    assert isinstance(found, Extracted) and found.text == TEXT
