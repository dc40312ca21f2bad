"""A planned mix: its cells give what the plan says, at every hundredth of the run, and what cannot be is told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.order.interleave import MAX_CYCLE_ROWS
from blender_service.order.segments import Pin, Segment, SourceOrder, resolve_segments
from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError
from headrace.tables.cells import cell_label, cell_text
from headrace_features.composition.curves import RepeatCurve
from headrace_features.composition.mix_command import mix
from headrace_features.composition.mix_config import MixConfig
from headrace_features.composition.mix_plan import MixPlan, PlannedCell, packed_cells, plan_mix
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake

OLMO = RepeatCurve(drop=0.4, most=7)


def cells_of(rows: Sequence[Sequence[int]]) -> list[PlannedCell]:
    """Cells of topics (rows) and qualities (columns), each with so many windows of some 2,000 tokens."""
    return [
        PlannedCell(
            "main.packed_web_2048", 1, cell_text({"quality": quality, "topic": f"t{topic:02}"}), count, count * 2000 + 7
        )
        for topic, of_topic in enumerate(rows)
        for quality, count in enumerate(of_topic)
    ]


def segments_of(plan: MixPlan) -> list[Segment]:
    """The order that Blender resolves the plan to."""
    read = [cell for cell in plan.cells if cell.weight]
    specs = plan.spec.sources
    return resolve_segments(
        [
            SourceOrder(f"s{at:05}", cell.weight, Pin("", str(at), "1", cell.rows, ""), specs[at].max_epochs or 0, True)
            for at, cell in enumerate(read)
        ]
    )


def differs(plan: MixPlan, segment: Segment, rows: int) -> float:
    """The largest distance of a cell's rows from its exact share, at each hundredth of the run."""
    shares = [plan.planned_rows(cell) for cell in plan.cells if cell.weight]
    worst = 0.0
    for percent in range(101):
        offset = rows * percent // 100
        for count, share in zip(segment.rows_at(offset), shares, strict=True):
            worst = max(worst, abs(float(count - share * offset / plan.rows)))
    return worst


grids = st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=6), min_size=1, max_size=4)
configs = st.sampled_from(
    [
        {"curve": {"quality": {"drop": 0.3, "most": 7}}},
        {"curve": {"quality": {"steps": {0.4: 0, 0.95: 1, 1: 7}}}},
        {"curve": {"quality": {"points": [[0, 0.2], [0.5, 1], [1, 4]]}}},
        {"repeats": {"quality>=0": 1.5}},
        {"shares": {"topic=t00": 1}},
        {"shares": {"topic=t00": 0.2, "topic!=t00": 0.8}, "curve": {"quality": {"drop": 0.3, "most": 7}}},
    ]
)


@given(grids, configs, st.floats(0.2, 3))
def test_counts_of_the_blend_are_those_of_the_plan(grid: list[list[int]], written: dict[str, Any], mean: float) -> None:
    """Within one row for every cell at every hundredth of the run; the tokens are those that were wanted."""
    cells = cells_of(grid)
    assume(len(grid) > 1 or "shares" not in written)
    tokens = round(mean * sum(cell.tokens for cell in cells))
    config = MixConfig.model_validate({**written, "tokens": tokens, "max_repeats": 7})
    try:
        plan = plan_mix(cells, config)
    except CommandError as error:
        assert "raise" in str(error)
        return
    assert sum(cell.wanted * cell.tokens for cell in plan.cells) == pytest.approx(tokens)
    facts = plan.facts()
    assert sum(line["share"] for line in facts) == pytest.approx(1)
    assert {line["cell"] for line in facts if line["lacks_tokens"]} == {
        line["cell"] for line in facts if line["wanted"] > 7 * (1 + 1e-9)
    }
    (segment,) = segments_of(plan)
    assert segment.end is not None
    run = min(plan.rows, segment.end)
    assert run >= plan.rows - len(cells)
    assert differs(plan, segment, run) < 1
    tiny = sum(cell.weight == 1 for cell in plan.cells)  # raised to 1 at the cost of the largest
    lines = {line["cell"]: line for line in facts}
    assert [lines[cell_label(cell.cell)]["repeats"] > 0 for cell in plan.cells] == [
        cell.weight > 0 for cell in plan.cells
    ]
    for cell in plan.cells:
        line = lines[cell_label(cell.cell)]
        assert abs(line["repeats"] * cell.rows - cell.wanted * cell.rows) <= 1.01 + tiny


def test_a_plan_of_olmo_3_over_480_cells() -> None:
    """24 topics of unequal shares, 20 qualities each, 15 million rows: weights are those of the procedure, rounded."""
    chance = np.random.default_rng(3)
    cells = cells_of(
        [[int(base * at) for at in chance.uniform(0.8, 1.2, 20)] for base in chance.uniform(2_000, 60_000, 24)]
    )
    shares = {f"topic=t{topic:02}": float(share) for topic, share in enumerate(chance.dirichlet(np.full(24, 8)))}
    total = sum(cell.tokens for cell in cells)
    config = MixConfig(curve={"quality": OLMO}, shares=shares, tokens=round(1.2 * total), max_repeats=7)
    plan = plan_mix(cells, config)
    assert plan.rows > 10**7
    for topic in range(24):
        mine = plan.cells[20 * topic : 20 * topic + 20]
        wanted = 1.2 * total * shares[f"topic=t{topic:02}"] / sum(shares.values())
        procedure = OLMO.repeats(np.array([cell.tokens for cell in mine]), wanted)
        assert [cell.wanted for cell in mine] == pytest.approx(procedure.tolist(), rel=1e-6, abs=1e-9)
        for cell in mine:
            if cell.wanted:
                exact = cell.wanted * cell.rows / plan.rows * MAX_CYCLE_ROWS
                assert cell.weight == max(1, cell.weight) and abs(cell.weight - max(exact, 1)) <= 1
    (segment,) = segments_of(plan)
    assert segment.end is not None and segment.end > plan.rows * 0.9999
    assert differs(plan, segment, min(plan.rows, segment.end)) < 1


def test_documents_without_a_value_are_read_as_the_curve_says() -> None:
    """`none`: never by default, and told; with `none: 2` twice, and the others give the rest."""
    cells = [PlannedCell("main.packed_a_16", 1, cell_text({"quality": value}), 100, 1000) for value in (None, 0, 1)]
    plan = plan_mix(cells, MixConfig(curve={"quality": RepeatCurve(steps={1: 3})}))
    assert [cell.wanted for cell in plan.cells] == [0, 3, 3]
    twice = RepeatCurve(drop=0, most=7, none=2)
    plan = plan_mix(cells, MixConfig(curve={"quality": twice}, tokens=6000))
    assert plan.cells[0].wanted == pytest.approx(2)
    assert sum(cell.wanted for cell in plan.cells) == pytest.approx(6)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"curve": {"qualty": {"steps": {1: 1}}}}, "not by qualty; did you mean .quality"),
        ({"curve": {"topic": {"steps": {1: 1}}}}, "texts, which are in no order"),
        ({"repeats": {"quality>=9": 1}}, "quality is 0, 1"),
        ({"repeats": {"quality>=1": 1, "topic=t00": 2}}, "let each cell be in one"),
        ({"repeats": {"quality>=0": 0}, "tokens": "1K"}, "nothing is read"),
        ({"repeats": {"quality>=0": 0.0001}}, "raise tokens, or choose fewer cells"),
        ({"shares": {"topic=t01x": 1}, "tokens": "1K"}, "did you mean t01"),
    ],
)
def test_what_cannot_be_planned_is_one_line(written: dict[str, Any], problem: str) -> None:
    """With the nearest name."""
    with pytest.raises(CommandError, match=problem):
        plan_mix(cells_of([[5, 6], [7, 8]]), MixConfig.model_validate(written))


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackedFixture:
    """A corpus of five qualities of two topics, in two increments."""
    monkeypatch.chdir(tmp_path)
    table = create_packed(open_lake(tmp_path / "warehouse"), "main.packed_web_16", cells=True)
    cells = [cell_text({"quality": quality, "topic": topic}) for quality in range(5) for topic in ("fish", "law")]
    return table.append_cells(1, 0, dict.fromkeys(cells, 12)).append_cells(2, 1, dict.fromkeys(cells[2:], 5))


def run(*words: str) -> str:
    """What `headrace mix` prints."""
    result = CliRunner().invoke(mix, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_plan_becomes_a_blend(web: PackedFixture, tmp_path: Path) -> None:
    """Printed before; the blend has the printed id, its rows are counted by reading them, to the planned row."""
    (tmp_path / "curve.yaml").write_text(yaml.safe_dump({"steps": {0.5: 0, 1: 2.5}}))
    words = ("plan", "main", "--curve", "quality:curve.yaml")
    planned = json.loads(run(*words, "--json"))
    blender = Blender(web.catalogue)
    assert blender.list_ids() == []
    made = run(*words, "--create", "best")
    assert "cells are never read" in made and f"train for {planned['rows']} rows" in made
    blend_id = Blender(web.catalogue).resolve("best")
    assert blend_id == planned["id"]
    reads = Counter[str]()
    for batch in blender.open(blend_id).read(0, planned["rows"]):
        reads.update(web.cells[ordinal] for ordinal in batch.ordinals.tolist())
    facts = {(line["cell"]): line for line in planned["cells"]}
    assert sum(reads.values()) == planned["rows"]
    for cell in dict.fromkeys(web.cells):
        quality, topic = json.loads(cell).values()
        line = facts[f"quality={quality}, topic={topic}"]
        assert line["windows"] == web.cells.count(cell)
        assert line["unique_tokens"] == sum(
            row.token_count for row, of in zip(web.rows, web.cells, strict=True) if of == cell
        )
        assert abs(reads[cell] - line["repeats"] * line["windows"]) <= 1


def test_a_file_says_it_all_and_options_count_first(web: PackedFixture, tmp_path: Path) -> None:
    """Shares of topics, a curve inside of each; --tokens in place of the file's."""
    written = {
        "shares": {"topic=law": 3, "topic=fish": 1},
        "curve": {"quality": {"drop": 0.2, "most": 6}},
        "tokens": "1K",
    }
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(written))
    planned = json.loads(run("plan", "main", "mix.yaml", "--tokens", "2.5K", "--json"))
    assert planned["planned_tokens"] == pytest.approx(2500, rel=0.03)
    law = sum(line["planned_tokens"] for line in planned["cells"] if "law" in line["cell"])
    assert law / planned["planned_tokens"] == pytest.approx(0.75, abs=0.02)
    assert any("the blend ends" in line for line in planned["endings"])


def test_cells_of_any_text_are_sources_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of cells keep letters and digits alone, those of C, C++ and C# would be one; each is found again."""
    monkeypatch.chdir(tmp_path)
    table = create_packed(open_lake(tmp_path / "warehouse"), "main.packed_code_16", cells=True)
    texts = ["C", "C++", "C#", "c", "none", None, "a b", "a-b", "it's [so]", "public, health", "é" * 200, "x" * 200]
    table.append_cells(1, 0, {cell_text({"language": text}): 3 for text in texts})
    (tmp_path / "mix.yaml").write_text("repeats: {language!=nowhere: 2}")
    run("plan", "main", "mix.yaml", "--create", "all")
    planned = json.loads(run("plan", "main", "mix.yaml", "--json"))
    config = Blender(table.catalogue).config(planned["id"])
    assert len(config.sources) == len(texts)
    assert {source.name for source in config.sources} >= {
        f"main.packed_code_16.language-is-{name}" for name in ("c", "a-b")
    }  # fmt: skip
    reads = Counter[str]()
    for batch in Blender(table.catalogue).open(planned["id"]).read(0):
        reads.update(table.cells[ordinal] for ordinal in batch.ordinals.tolist())
    assert reads == {cell_text({"language": text}): 6 for text in texts}


def test_too_many_repeats_are_refused_with_what_is_lacking(web: PackedFixture, tmp_path: Path) -> None:
    """The cells are printed with the tokens that they lack; nothing is made."""
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump({"repeats": {"quality=4": 8, "quality<4": 1}}))
    result = CliRunner().invoke(mix, ["plan", "main", "mix.yaml", "--create", "much"])
    assert isinstance(result.exception, CommandError)
    assert "2 cells would be read more than 7 times" in str(result.exception)
    assert "quality=4, topic=law" in result.output and "quality=3" not in result.output
    assert Blender(web.catalogue).list_ids() == []
    run("plan", "main", "mix.yaml", "--max-repeats", "8", "--create", "much")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("plan", "main"), "curve or repeats, or shares"),
        (("plan", "nowhere", "--curve", "quality:c.yaml"), "no packed table with cells"),
        (("plan", "main", "--curve", "quality"), "write DIMENSION:FILE"),
        (("plan", "main", "--curve", "quality:c.yaml", "--tokens", "some"), "tokens"),
        (("plan", "main", "--curve", "quality:c.yaml", "--table", "packed_wob_16"), "did you mean 'packed_web_16'"),
        (("plan", "main", "--curve", "quality:most.yaml"), "need tokens"),
    ],
)
def test_mistakes_are_one_line(web: PackedFixture, tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    """Of options and files."""
    (tmp_path / "c.yaml").write_text("steps: {1: 1}")
    (tmp_path / "most.yaml").write_text("{drop: 0.4, most: 7}")
    result = CliRunner().invoke(mix, words)
    assert isinstance(result.exception, CommandError), result.output
    assert problem in str(result.exception) and "\n" not in str(result.exception)


def test_cells_in_windows_of_two_lengths_need_a_table(web: PackedFixture, tmp_path: Path) -> None:
    """A mix of both is no blend."""
    catalogue: Catalog = web.catalogue
    other = create_packed(catalogue, "main.packed_web_32", cells=True)
    other.append_cells(1, 0, {cell_text({"quality": 1, "topic": "law"}): 3})
    with pytest.raises(CommandError, match="windows of 16, 32 tokens; name a --table"):
        packed_cells(catalogue, "main", None)
    assert {cell.table for cell in packed_cells(catalogue, "main", "main.packed_web_32")} == {"main.packed_web_32"}
