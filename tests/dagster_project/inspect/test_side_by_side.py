"""Two texts beside each other: nothing is lost, nothing is invented, what is left out is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagster_project.inspect.documents.side_by_side import Row, compare, cut_pieces
from dagster_project.printable import printable

texts = st.lists(st.sampled_from("abcdef"), max_size=25).map("\n".join)


@given(texts, texts)
def test_with_all_context_both_texts_can_be_read_from_the_columns(left: str, right: str) -> None:
    """The left column without what is only right is the left text, and so for the right; equal texts show nothing."""
    shown = compare(left, right, 80, context=100, most_rows=None)
    if left == right:
        assert shown.rows == () and shown.changed_count == 0
        return
    assert "\n".join(row.left for row in shown.rows if row.mark != ">") == left
    assert "\n".join(row.right for row in shown.rows if row.mark != "<") == right
    assert all((row.left == row.right) == (row.mark == " ") for row in shown.rows if row.mark in " |")
    assert shown.changed_count == sum(row.mark != " " for row in shown.rows) > 0
    assert (shown.rows_left_out, shown.pieces_not_compared) == (0, 0)


@given(texts, texts, st.integers(0, 3))
def test_gaps_say_how_many_pieces_they_hide(left: str, right: str, context: int) -> None:
    """Rows shown and pieces behind gaps add up to each text."""
    shown = compare(left, right, 80, context=context, most_rows=None)
    if left == right:
        return
    hidden = sum(int(row.left.split()[0]) for row in shown.rows if row.mark == "~")
    assert hidden + sum(row.mark in " |<" for row in shown.rows) == len(left.split("\n"))
    assert hidden + sum(row.mark in " |>" for row in shown.rows) == len(right.split("\n"))


def test_a_change_has_a_little_around_it() -> None:
    """Two lines before and after; the rest is a gap."""
    left = [f"line {number}" for number in range(20)]
    right = [*left[:9], "another", *left[10:], "more"]
    shown = compare("\n".join(left), "\n".join(right), 40)
    assert [row.mark for row in shown.rows] == ["~", " ", " ", "|", " ", " ", "~", " ", " ", ">"]
    assert shown.rows[0] == Row("~", "7 equal", "7 equal")
    assert shown.rows[3] == Row("|", "line 9", "another")
    assert shown.changed_count == 2


def test_long_lines_are_compared_by_sentences() -> None:
    """One line of prose: only the changed sentence is shown as changed."""
    left = "The wheel turns. The river flows! Is the mill old? Yes."
    shown = compare(left, left.replace("flows", "sleeps"), 20)
    assert [row for row in shown.rows if row.mark != " "] == [Row("|", "The river flows!", "The river sleeps!")]
    assert cut_pieces("short. line", 20) == ["short. line"]


def test_what_is_cut_is_counted() -> None:
    """Rows beyond the limit, and pieces beyond what was compared; without a limit nothing is cut."""
    left = "\n".join(f"a {number}" for number in range(3000))
    right = "\n".join(f"b {number}" for number in range(3100))
    shown = compare(left, right, 80)
    assert len(shown.rows) == 40 and shown.changed_count == 2000
    assert shown.rows_left_out == 2000 - 40 and shown.pieces_not_compared == 1100
    whole = compare(left, right, 80, most_rows=None)
    assert len(whole.rows) == whole.changed_count == 3100
    assert (whole.rows_left_out, whole.pieces_not_compared) == (0, 0)


def test_texts_that_differ_only_far_down_are_compared_there() -> None:
    """What both begin with does not count against the limit."""
    left = "\n".join(["same"] * 100_000 + ["left"])
    shown = compare(left, left[: -len("left")] + "right", 80)
    assert shown.rows[-1] == Row("|", "left", "right") and len(shown.rows) == 4


def test_control_characters_cannot_reach_the_terminal() -> None:
    """Escapes, bells, direction marks are written out; text of any script stays."""
    assert printable("a\x1b[31mb\x07\u202ec") == "a\\x1b[31mb\\x07\\u202ec"
    assert printable("\tπ 水 é") == "    π 水 é"
