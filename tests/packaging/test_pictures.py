"""The picture of the lake in the page of the architecture is that of the present code."""

import re
from pathlib import Path

from docs.pictures import lake, with_picture

_PAGE = Path(__file__).parents[2] / "docs" / "extend" / "architecture.md"


def test_the_page_has_the_present_picture() -> None:
    """Else: `python -m docs.pictures`, as `make docs` does."""
    text = _PAGE.read_text("utf-8")
    assert lake() in text
    assert with_picture(text) == text


def test_the_picture_names_what_blender_reads() -> None:
    """Packed tables and what guards them are marked; what no other side reads is not."""
    words = lake().split()
    assert {"[packed_notes_2048]", "[system.excisions]", "[system.visibility]"} <= set(words)
    assert {"documents", "removals", "system.materializations"} <= set(words)


def test_pages_named_by_the_code_are_there() -> None:
    """A message that leads to a page that moved leads nowhere; those of docs/reference are made with the site."""
    root = _PAGE.parents[2]
    folders = ("headrace", "headrace_features", "spark_jobs", "dagster_project", "blender_service", "setup", "examples")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    named = {page for file in files for page in re.findall(r"docs/[\w/.-]+\.md", file.read_text("utf-8"))}
    missing = [page for page in sorted(named) if not page.startswith("docs/reference/") and not (root / page).exists()]
    assert named and not missing
