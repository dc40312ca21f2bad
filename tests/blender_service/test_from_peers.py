"""Our half of docs/feed/from_peers.md: each line creates a blend, and its rows are those that the page states."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from blender_service.server.blender import Blender
from dagster_project.cli.train.blend import blend
from tests.blender_service.packed_tables import create_packed
from tests.tiers import sampled

_PAGE = (Path(__file__).parents[2] / "docs" / "feed" / "from_peers.md").read_text()
_LINE = re.compile(r"^\| (.+?) \| (.+?) \| `(--source .+?)` \| (.+?) \|$", re.MULTILINE)
LINES = {there.strip(): (options, rows) for there, _, options, rows in _LINE.findall(_PAGE)}
SIZES = {"W": 1000, "C": 100, "M": 10}
_PEERS = ("first_exhausted", "all_exhausted", "without_replacement", "proportion", "choose", "repeat", "weights")
_ENDLESS = 1110


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Catalog) -> Catalog:
    """The lake of the current directory, with the three sources of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    for number, (name, count) in enumerate(SIZES.items()):
        create_packed(lake, f"main.packed_{name.lower()}_16").append(count, seed=number)
    return lake


def rows_of(lake: Catalog, options: str) -> str:
    """The rows of a blend that is created with these options, in the words of the page."""
    words = [
        re.sub(r"^([WCM])(?==|,|$)", lambda t: f"main.packed_{t[1].lower()}_16", word) for word in shlex.split(options)
    ]
    created = CliRunner().invoke(blend, ["create", "mix", *words], catch_exceptions=False)
    assert created.exit_code == 0, created.output
    blender = Blender(lake)
    order = blender.order(blender.resolve("mix"))
    resolved = order.resolve(np.arange(_ENDLESS if order.end is None else order.end))
    by_source = np.bincount(resolved.source, minlength=len(SIZES)).tolist()
    by_name = dict(zip(order.names, by_source, strict=True))
    counts = [by_name[f"main.packed_{name.lower()}_16"] for name in SIZES]
    distinct = len(set(zip(resolved.source.tolist(), resolved.ordinal.tolist(), strict=True)))
    total, never = sum(counts), sum(SIZES.values()) - distinct
    ends = "no end" if order.end is None else f"{total:,}"
    return f"{ends}: {', '.join(f'{count:,}' for count in counts)}; {total - distinct:,}; {never:,}"


@sampled(2)
@pytest.mark.parametrize("there", LINES)
def test_each_line_gives_the_rows_that_it_states(there: str, tables: Catalog) -> None:
    """Rows by source, those that come again, those that never come."""
    options, stated = LINES[there]
    assert rows_of(tables, options) == stated


def test_every_setting_of_the_peers_has_a_line() -> None:
    """And no line is lost to its form."""
    assert len(LINES) == _PAGE.count("`--source ")
    assert all(any(word in there for there in LINES) for word in _PEERS)
