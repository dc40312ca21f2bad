"""The tree of commands: every leaf has an example that it accepts, few, and no option given twice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dagster_project.cli import headrace, run_command
from dagster_project.cli.train.blend_syntax import parse_change, parse_source, parse_stage
from dagster_project.exceptions import CommandError

Said = pytest.CaptureFixture[str]
_ROOT = Path(__file__).parents[2]
MOST_LEAVES = 70  # twelve of them are of `rights`, whose lists, proofs and forms have a name each


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands that do something, with the words that call them."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*words, name))


LEAVES = dict(leaves(headrace))
EXAMPLES = {  # arguments of each command in the example of its help
    " ".join(words): (command.epilog or "").partition(f"Example: headrace {' '.join(words)}")[2].strip()
    for words, command in LEAVES.items()
}


def test_there_are_few_leaves_and_one_word_removes() -> None:
    """`delete` alone removes, `show` alone lists; `doc excise` takes a text out of what was packed."""
    assert len(LEAVES) <= MOST_LEAVES
    verbs = {words[-1] for words in LEAVES}
    assert verbs.isdisjoint(["remove", "drop", "retire", "freeze", "refreeze", "list", "compare"])


def test_every_leaf_has_an_example_that_it_accepts(capfd: Said) -> None:
    """Its help ends with the example; all its options exist, and no argument is missing or too much."""
    for words, command in LEAVES.items():
        context = click.Context(command, info_name=words[-1])
        given, rest, _ = command.make_parser(context).parse_args(shlex.split(EXAMPLES[" ".join(words)]))
        missing = [one.name for one in command.params if one.required and given.get(one.name or "") in (None, ())]
        assert not rest and not missing, f"{words}: {rest} {missing}"
        assert run_command([*words, "--help"]) == 0
        shown = capfd.readouterr().out
        assert shown.startswith(f"Usage: headrace {' '.join(words)} "), shown
        assert shown.rstrip().endswith(f"Example: headrace {' '.join(words)} {EXAMPLES[' '.join(words)]}".rstrip())


@pytest.mark.parametrize("options", [["--card"], ["--card", "--epsilon", "1"]])
def test_what_is_of_one_asks_which(options: list[str], defs: Path, lake_env: Path, capfd: Said) -> None:
    """Where a command lists all, options of one are refused before the lake is read."""
    assert run_command(["dataset", "show", *options]) == 2
    assert capfd.readouterr().err.startswith("headrace: dataset show --")
    assert run_command(["table", "show", "notes", "--rows", "3"]) == 2
    assert "table show --rows: of which one?" in capfd.readouterr().err


def _given(option: click.Option, number: int) -> list[str]:
    """Words that give an option a value, another one for each number."""
    if option.is_flag:
        return [(option.opts, option.secondary_opts)[number % 2][0]]
    kind = option.type
    value = kind.choices[number % len(kind.choices)] if isinstance(kind, click.Choice) else str(number + 2)
    if isinstance(kind, click.DateTime):
        value = f"2026-11-0{number + 1}"
    if isinstance(kind, click.Path):
        value = str(_ROOT)
    return [option.opts[0], value]


SINGLE = [
    (words, option)
    for words, command in LEAVES.items()
    for option in command.params
    if isinstance(option, click.Option)
    and not option.multiple
    and not option.count
    and (not option.is_flag or option.secondary_opts)
]


@pytest.mark.parametrize(("words", "option"), SINGLE, ids=[f"{' '.join(w)} {o.opts[0]}" for w, o in SINGLE])
def test_no_option_keeps_the_last_of_two_values(words: tuple[str, ...], option: click.Option, capfd: Said) -> None:
    """An option that takes one value refuses a second one, in every command."""
    command = LEAVES[words]
    refuse = click.Context(command, info_name=words[-1])
    with pytest.raises(click.UsageError, match="is given twice"):
        command.make_parser(refuse).parse_args([*_given(option, 0), *_given(option, 1)])
    completing = click.Context(command, info_name=words[-1], resilient_parsing=True)
    command.make_parser(completing).parse_args([*_given(option, 0), *_given(option, 1)])


KEYED = [
    (words, option)
    for words, command in LEAVES.items()
    for option in command.params
    if isinstance(option, click.Option) and option.multiple and re.fullmatch("[A-Z]+=[A-Z]+", option.metavar or "")
]


@pytest.mark.parametrize(("words", "option"), KEYED, ids=[f"{' '.join(w)} {o.opts[0]}" for w, o in KEYED])
def test_no_key_keeps_the_last_of_two_values(words: tuple[str, ...], option: click.Option) -> None:
    """KEY=VALUE may be repeated with other keys alone."""
    command = LEAVES[words]
    context = click.Context(command, info_name=words[-1])
    given, _, _ = command.make_parser(context).parse_args([option.opts[0], "a=1", option.opts[0], "b=1"])
    assert given[option.name or ""] == ["a=1", "b=1"]
    with pytest.raises(click.UsageError, match=r"a=\.\.: is given twice"):
        command.make_parser(context).parse_args([option.opts[0], "a=1", option.opts[0], "a=2"])


@pytest.mark.parametrize(
    "cells", ["q >= 1, t in (a, 'b c')", "t='a, ]', q=1", "t='[', s='it''s ]['", "q>=1", "t='x [ y', q=2"]
)
def test_cells_in_changes_and_stages(cells: str) -> None:
    """Blanks, commas and brackets of cells do not end a change."""
    table = f"main.packed_web_2048[{cells}]"
    change = f"new=2,table={table},max_epochs=3"
    assert parse_source(f"{table}=2,name=new").table == parse_change(change).table == table
    stage = parse_stage(f"1000:  {change}  old=1 -gone ")
    assert [one.name for one in stage.changes] == ["new", "old", "gone"]
    assert stage.changes[0] == parse_change(change) and stage.changes[0].max_epochs == 3


@pytest.mark.parametrize(
    "text",
    ["t=1,max_epochs=1,max_epochs=2", "t=1,live,live", "n,live,pinned", "t,name=a,name=a", "t,snapshot=1,snapshot=2"],
)
def test_no_setting_of_a_blend_keeps_the_last_of_two_values(text: str) -> None:
    """Of sources and changes."""
    for parse in (parse_source, parse_change):
        with pytest.raises(CommandError, match="is given twice"):
            parse(text)
