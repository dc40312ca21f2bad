"""What commands print is what went in: no markup, emoji or control character of the data does anything."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dagster_project.cli
from dagster_project.cli import output
from dagster_project.inspect.measured import NOT_MEASURED
from dagster_project.printable import printable
from tests.tiers import tries

TRICKS = (
    *("12:100:3", ":smiley:", ":warning: :x:", "[bold]", "[/]", "[red]x[/red]", "\\[b]", "[link=http://a.b]c[/link]"),
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\r",
        "\b",
        "\x00",
        "a\nb",
        "\t",
        "\u202eabc",
        "\u200b",
        "\ufeff",
        "\x85",
        "\udc80",
    ),
    *("\udc80", "水" * 40, "👩‍👩‍👧‍👦", "é", "e\u0301", "{0}", "%s", "\\", "\\n", "None", ""),
)
DATA = st.lists(st.sampled_from(TRICKS) | st.text(max_size=12), max_size=4).map("".join)
WORDS = DATA.map(lambda text: "x" + " ".join(printable(text).split()) + "x")  # so that no cell has blanks at its ends
CLI = Path(dagster_project.cli.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _wide() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "10000")
        yield


def _printed(act: Callable[[], None]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        act()
    return out.getvalue()


@settings(max_examples=tries(400, 60))
@given(title=DATA, names=st.lists(DATA, min_size=1, max_size=3, unique=True), data=st.data())
def test_a_table_shows_what_went_in(title: str, names: list[str], data: st.DataObject) -> None:
    """Title, heads and cells, by every printer of tables: each as it is, what does not print as an escape."""
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, DATA)), min_size=1, max_size=3))
    names = list(rows[0])
    wanted = ["".join(map(printable, names)), *("".join(printable(row[name]) for name in names) for row in rows)]
    printers: dict[str, Callable[[], None]] = {
        "print_table": lambda: output.print_table(rows, title),
        "print_tables": lambda: output.print_tables(rows),
        "print_rows": lambda: output.print_rows(rows, False, "nothing"),
        "print_sides": lambda: output.print_sides(names, [([row[name] for name in names], "red") for row in rows]),
    }
    for printer, act in printers.items():
        said = _printed(act).split("\n")[:-1]
        if printer == "print_table":
            assert said.pop(0) == printable(title)
        assert [_without_blanks(line) for line in said] == [_without_blanks(line) for line in wanted], printer


@settings(max_examples=tries(400, 60))
@given(text=DATA, more=DATA, behind=DATA)
def test_a_line_shows_what_went_in(text: str, more: str, behind: str) -> None:
    """Plain, in a colour, or with words in bold."""
    assert _printed(lambda: output.print_styled(text, "yellow")) == printable(text) + "\n"
    assert _printed(lambda: output.say(text)) == "\n".join(map(printable, text.split("\n"))) + "\n"
    whole = "".join(map(printable, (text, more, behind)))
    assert _printed(lambda: output.print_hit(text, more, behind)) == whole + "\n"


def _without_blanks(text: str) -> str:
    return "".join(text.split())


@given(text=DATA)
def test_nothing_printable_steers_a_terminal(text: str) -> None:
    """Every character prints; what prints already stays as it is."""
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


def test_what_is_not_measured_is_no_number() -> None:
    """None in a column of numbers says so, and stands aligned with them."""
    rows: list[dict[str, Any]] = [{"share": 0.5, "why": "x"}, {"share": None, "why": None}]
    assert _printed(lambda: output.print_table(rows)).splitlines() == [
        "       share  why",
        "        0.50  x  ",
        f"{NOT_MEASURED}  -  ",
    ]


def test_commands_print_by_these_functions_alone() -> None:
    """No command has its own console or echo, so none can read its data as markup."""
    for file in CLI.rglob("*.py"):
        if file.name in ("output.py",):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("rich"), f"{file}:{node.lineno}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("echo", "secho", "style"), f"{file}:{node.lineno}"
            if isinstance(node, ast.Name):
                assert node.id != "print", f"{file}:{node.lineno}"


def test_json_has_no_constant_that_json_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    """A signal that moved away from zero moved infinitely; other programs than Python refuse `Infinity` as a number."""
    output.print_json([{"value": float("inf"), "old": float("nan"), "new": 1.5}])
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [
        {"value": "Infinity", "old": "NaN", "new": 1.5}
    ]
