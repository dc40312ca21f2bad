"""Docstrings and descriptions: the prose in Python distributions, as Python itself finds it."""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib

import numpy
import packaging.metadata
import pytest

from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.repositories import modules


def module_docstring(text: str) -> str | Refusal:
    """The docstring of a module's text."""
    found = modules.module_docstring("docstring", text.encode(), None)
    return found.text if isinstance(found, Extracted) else found


def long_description(metadata: str) -> tuple[str, str | None] | Refusal:
    """The long description in metadata, and its media type."""
    found = modules.long_description("description", metadata.encode(), None)
    return (found.text, (found.columns or {})["media_type"]) if isinstance(found, Extracted) else found


@pytest.mark.parametrize(
    ("text", "docstring"),
    [
        ('"""One line."""\nx = 1\n', "One line."),
        ("#!/usr/bin/python\n# comment\n\n'''First.\n\n    Indented.\n    '''\n", "First.\n\nIndented."),
        ('"""Before\r\n   two."""\r\nimport os\r\n', "Before\ntwo."),
        ("'one ' 'two'\n", "one two"),
        ("('in ' +\n 'brackets')", None),
        ("('in '\n 'brackets')\n", "in brackets"),
        ('"with semicolon"; x = 1\n', "with semicolon"),
        ('r"""\\d raw"""', "\\d raw"),
        ('"""broken code follows"""\ndef f(:\n', "broken code follows"),
        ('"an invalid \\d escape"\n', "an invalid \\d escape"),
        ('"""separators \x0c \x1c \u2028 stay"""\n', "separators \x0c \x1c \u2028 stay"),
        ('f"""formatted {1}"""\n', None),
        ('b"""bytes"""\n', None),
        ('"a" % 1\n', None),
        ('x = 1\n"""late"""\n', None),
        ('"""   """\n', None),
        ("", None),
        ("# only a comment", None),
    ],
)
def test_docstring_is_the_first_statement_if_it_is_a_string(text: str, docstring: str | None) -> None:
    """Golden cases; no string, or one that says nothing, is no docstring."""
    found = module_docstring(text)
    if docstring is None:
        assert isinstance(found, Refusal) and found.reason == Reason.NO_DOCSTRING
    else:
        assert found == docstring


@pytest.mark.parametrize("text", ['"""never closed', "(" * 500 + "'deep'" + ")" * 500, "'''a''' 'b\n", '("a"\n'])
def test_a_first_statement_that_is_no_python_is_refused(text: str) -> None:
    """Broken or absurdly nested openings are refused, not raised."""
    found = module_docstring(text)
    assert isinstance(found, Refusal) and found.reason in (Reason.SYNTAX_ERROR, Reason.NO_DOCSTRING)


def test_half_a_character_in_a_docstring_is_refused() -> None:
    """An escape can make a lone surrogate, which no encoding can hold."""
    found = module_docstring('"""\\ud800"""')
    assert isinstance(found, Refusal) and found.reason == Reason.UNDECODABLE


def test_docstrings_are_those_that_the_parser_finds() -> None:
    """Against ast over real modules: the same docstrings, and none else."""
    root = pathlib.Path(numpy.__file__).parent / "lib"
    compared = 0
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        expected = ast.get_docstring(ast.parse(text)) or None
        found = module_docstring(text)
        assert (None if isinstance(found, Refusal) else found) == (expected if expected and expected.strip() else None)
        compared += expected is not None
    assert compared > 20


def test_description_is_the_body_of_the_metadata() -> None:
    """With its media type, parameters left out; an older header is unfolded; reStructuredText where nothing is said."""
    head = "Metadata-Version: 2.1\nName: x\nVersion: 1\n"
    body = "Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM\n\n# Größe\n\ntext\n"
    assert long_description(head + body) == ("# Größe\n\ntext\n", "text/markdown")
    folded = head + "Description: First.\n        |\n        |  Second.\n"
    assert long_description(folded) == ("First.\n\n  Second.", "text/x-rst")
    for without in (head, head + "\n\n", head + "Description: UNKNOWN\n", ""):
        assert isinstance(found := long_description(without), Refusal) and found.reason == Reason.EMPTY


def test_description_of_a_real_distribution_is_what_packaging_reads() -> None:
    """Against packaging.metadata, which reads the same file in its own way."""
    metadata = importlib.metadata.distribution("rich").read_text("METADATA")
    assert metadata is not None
    read, _ = packaging.metadata.parse_email(metadata)
    assert len(read["description"]) > 1000
    assert long_description(metadata) == (read["description"], "text/markdown")
