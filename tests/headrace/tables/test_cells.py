"""A choice of cells is read and written alike, and takes what its conditions say."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables.cells import CellChoice, Condition, Value, cell_text, cell_values, parse_choice, split_table
from headrace.tables.exceptions import CellsError

VALUES = st.one_of(st.none(), st.integers(-3, 25), st.sampled_from((2**63 - 1, -(2**63))), st.text(max_size=6))
NAMES = st.sampled_from(("quality", "topic", "language"))
LEVELS = st.builds(
    lambda name, sign, bound: Condition(name, sign, (bound,)), NAMES, st.sampled_from(("<", "<=", ">", ">=")),
    st.integers(-3, 25),
)  # fmt: skip
LISTS = st.builds(Condition, NAMES, st.sampled_from(("in", "not in")), st.sets(VALUES, min_size=1).map(tuple))
COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def plainly(condition: Condition, value: Value) -> bool:
    """What a condition says of a value, from its definition."""
    if condition.operator == "in":
        return value in condition.values
    if condition.operator == "not in":
        return value not in condition.values
    return isinstance(value, int) and COMPARED[condition.operator](value, condition.values[0])  # type: ignore[arg-type]


@given(st.lists(st.one_of(LEVELS, LISTS), min_size=1, max_size=3), st.dictionaries(NAMES, VALUES))
def test_what_is_written_is_read_again(conditions: list[Condition], cell: dict[str, Value]) -> None:
    """With any texts, and takes the same cells."""
    written = parse_choice(str(CellChoice(tuple(conditions))))
    assert parse_choice(str(written)) == written
    wanted = all(plainly(condition, cell.get(condition.name)) for condition in conditions)
    assert written.takes(cell_text(cell)) == wanted


CONDITIONS = st.lists(st.one_of(LEVELS, LISTS), min_size=1, max_size=3)


@given(CONDITIONS, CONDITIONS)
def test_choices_meet_where_some_cell_is_of_both(mine: list[Condition], other: list[Condition]) -> None:
    """Against all cells of some values; a choice that excludes itself meets none."""
    left, right = CellChoice(tuple(mine)), CellChoice(tuple(other))
    values = {*range(-5, 28), 2**63, 2**63 - 2, 2**63 - 1, -(2**63), None, "some other text"}
    values |= {value for condition in (*mine, *other) for value in condition.values}
    names = {condition.name for condition in (*mine, *other)}
    both = all(
        any(all(one.holds(value) for one in (*mine, *other) if one.name == name) for value in values) for name in names
    )
    assert left.meets(right) == right.meets(left) == both


@given(st.dictionaries(NAMES, VALUES))
def test_a_cell_is_written_and_read(values: dict[str, Value]) -> None:
    """One text for the same values."""
    assert cell_values(cell_text(values)) == values
    assert cell_text(dict(sorted(values.items(), reverse=True))) == cell_text(values)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("quality>=15", "quality>=15"),
        (" topic in (7,3, 3)", "topic in (3, 7)"),
        ("topic = law and quality<3", "quality<3, topic=law"),
        (
            "language != none, language not in (de, 'public health')",
            "language not in (de, 'public health'), language!=none",
        ),
        ("topic='7'", "topic='7'"),
        ("Upper_Case=a", "Upper_Case=a"),
    ],
)
def test_canonical_forms(text: str, canonical: str) -> None:
    """Blanks, order and repeats do not matter."""
    assert str(parse_choice(text)) == canonical
    assert split_table(f"main.packed_web_2048[{text}]") == ("main.packed_web_2048", parse_choice(canonical))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quality",
        "quality>",
        "quality>=high",
        ">=3",
        "quality>=15 topic=3",
        "topic in 3",
        "topic in (3",
        "a='b",
        "a=1,",
    ],
)
def test_what_is_no_choice_is_one_line(text: str) -> None:
    """That says what should stand there."""
    with pytest.raises(CellsError, match=r"quality>=15|compares|quote") as raised:
        parse_choice(text)
    assert "\n" not in str(raised.value)


def test_what_chooses_nothing_is_refused_with_the_nearest() -> None:
    """Names, values, and combinations."""
    cells = [cell_text({"quality": quality, "topic": topic}) for quality in range(20) for topic in ("law", "health")]
    assert len(parse_choice("quality>=15, topic=law").select(cells, "t")) == 5
    for text, wanted in [
        ("qualty>=15", "did you mean quality"),
        ("topic=helth", "did you mean health"),
        ("quality>=20", "quality is 0, 1, 2"),
        ("topic in (law, health), quality>3, quality<3", "together"),
    ]:
        with pytest.raises(CellsError, match=wanted):
            parse_choice(text).select(cells, "t")
    with pytest.raises(CellsError, match="no \\] closes"):
        split_table("main.web[quality>=1")
