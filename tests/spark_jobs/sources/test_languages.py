"""The name of a file says its kind, language and media type."""

from __future__ import annotations

import pytest

from spark_jobs.sources.languages import Language, language_of


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/b.py", Language("code", "Python", "text/x-python")),
        ("a/B.PYI", Language("code", "Python", "text/x-python")),
        ("x.pyx", Language("code", "Cython", "text/x-cython")),
        ("x.h", Language("code", "C", "text/x-c")),
        ("Makefile", Language("code", "Makefile", "text/x-makefile")),
        ("a/CMakeLists.txt", Language("code", "CMake", "text/x-cmake")),
        ("x.html", Language("markup", "HTML", "text/html")),
        ("x.json", Language("data", "JSON", "application/json")),
        ("README.md", Language("prose", None, "text/markdown")),
        ("CHANGES.rst", Language("prose", None, "text/x-rst")),
        ("notes.txt", Language("prose", None, "text/plain")),
        ("LICENSE", None),
        ("x.so", None),
        ("py", None),
        ("a.py/x", None),
    ],
)
def test_language_follows_the_name(path: str, language: Language | None) -> None:
    """By whole name first, then by extension in any case of letters; a directory's name says nothing."""
    assert language_of(path) == language
