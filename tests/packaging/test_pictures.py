"""The picture of the lake in the page of the architecture is that of the present code."""

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
