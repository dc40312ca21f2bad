"""From an offset on a blend leaves tokens of some rules off its packed rows, such as headers in a cooldown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import BooleanType, FloatType, IntegerType, ListType

from blender_service.blend.requests import BlendSpec, SourceSpec, Stage, UpdateSpec
from blender_service.client import connect
from blender_service.exceptions import InvalidBlendError, InvalidReadError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.wire.row_batch import RowBatch
from dagster_project.cli import run_command
from tests.blender_service.packed_tables import (
    PADDING,
    SCHEMA,
    WINDOW_TOKENS,
    PackedFixture,
    create_packed,
    random_rows,
    to_arrow,
)

Serve = Callable[..., RunningServer]
TABLE = "main.packed_headed_16"
RULES = ["licence_header", "header"]
COLUMNS = ("trainable", "mask_rule", "weight")
FROM = 130


@pytest.fixture
def masks(lake: Catalog, prose: PackedFixture) -> np.ndarray[Any, Any]:
    """A table of 90 rows with random masks by rule, beside one without; the masks."""
    table = create_packed(lake, TABLE).table
    with table.update_schema() as change:
        for number, (name, kind) in enumerate(zip(COLUMNS, (BooleanType(), IntegerType(), FloatType()), strict=True)):
            change.add_column(name, ListType(100 + number, kind, element_required=True))
    table.transaction().set_properties({"headrace.mask-rules": json.dumps(RULES)}).commit_transaction()
    random = np.random.default_rng(3)
    rules = random.choice([0, 0, 0, 1, 2], (90, WINDOW_TOKENS)).astype(np.int32)
    rules[5], rules[6], rules[7] = 2, 0, 1  # all of a row, nothing, all by the other rule
    for row, packed in enumerate(rows := random_rows(90, 0)):
        rules[row, packed.token_count :] = -1
        if row % 3 == 0:  # a segment of a header alone
            _, _, count, first = packed.segments[0]
            rules[row, first : first + count] = 2
    columns = dict(zip(COLUMNS, (rules == 0, rules, rules * 0.5), strict=True))
    landed = to_arrow(rows, 0, 0, SCHEMA).to_pydict()
    written = landed | {name: values.tolist() for name, values in columns.items()}
    named = {"headrace.mask-rules": json.dumps(RULES)}  # as packing states it of a snapshot, beside its generation
    table.append(pa.Table.from_pydict(written, schema=table.schema().as_arrow()), snapshot_properties=named)
    return rules


def plain(batch: RowBatch) -> list[tuple[Any, ...]]:
    """Rows as values: source and ordinal, tokens, segments and columns, without padding."""
    names, rows, segment = np.cumsum([0, *batch.doc_id_lengths.tolist()]), [], 0
    for row, count in enumerate(batch.segment_counts.tolist()):
        end = int(batch.token_counts[row])
        assert set(batch.input_ids[row, end:].tolist()) <= {PADDING}
        segments = [
            (
                batch.doc_id_bytes[names[at] : names[at + 1]].decode(),
                *(
                    int(values[at])
                    for values in (batch.document_starts, batch.segment_token_counts, batch.window_starts)
                ),
            )
            for at in range(segment, segment + count)
        ]
        segment += count
        columns = [values[row, :end].tolist() for values in batch.columns.values()]
        place = batch.source_names[batch.sources[row]], int(batch.ordinals[row]), int(batch.epochs[row])
        rows.append((place, batch.input_ids[row, :end].tolist(), segments, columns))
    return rows


def left_off(row: tuple[Any, ...], of: set[int]) -> tuple[Any, ...]:
    """A row of `plain` with the column mask_rule, without tokens of some rules, by a loop over its tokens."""
    place, ids, segments, columns = row
    kept = [at for at in range(len(ids)) if columns[1][at] not in of]
    made = []
    for name, document_start, count, first in segments:
        there = [at for at in kept if first <= at < first + count]
        if there:
            made.append((name, document_start + there[0] - first, len(there), kept.index(there[0])))
    return place, [ids[at] for at in kept], made, [[values[at] for at in kept] for values in columns]


@pytest.mark.parametrize(("names", "numbers"), [(("header",), {2}), (("licence_header", "header"), {1, 2})])
def test_rows_lack_the_tokens_of_rules_from_an_offset_on(
    lake: Catalog, masks: np.ndarray[Any, Any], prose: PackedFixture, names: tuple[str, ...], numbers: set[int]
) -> None:
    """Rows before are the parent's, also where they are read through the update; the order is the same."""
    blender = Blender(lake)
    spec = BlendSpec((SourceSpec(TABLE, max_epochs=3), SourceSpec(prose.identifier, max_epochs=0)))
    parent = blender.create(spec).blend_id
    child = blender.update(UpdateSpec(parent, (Stage(FROM, leave_off=names),))).blend_id
    back = blender.update(UpdateSpec(child, (Stage(200, leave_off=("none",)),))).blend_id
    both = ("trainable", "mask_rule")
    for blend, offset in ((child, 0), (child, FROM), (child, 151), (back, 0)):
        before = plain(blender.open(parent, offset, both).gather(offset, 260 - offset))
        wanted = [
            left_off(row, numbers) if at >= FROM and (blend == child or at < 200) else row
            for at, row in enumerate(before, start=offset)
        ]
        read = blender.open(blend, offset, both).read(offset, 260 - offset)
        assert [row for batch in read for row in plain(batch)] == wanted
    alone = plain(blender.open(child, FROM).gather(FROM, 100))
    assert [row[:3] for row in alone] == [row[:3] for row in plain(blender.open(child, FROM, both).gather(FROM, 100))]
    blender.prove_continuation(parent, child, FROM)


def test_rules_are_those_of_the_snapshot_that_is_served(lake: Catalog, masks: np.ndarray[Any, Any]) -> None:
    """A newer generation of the table may number them otherwise, and lack some."""
    blender = Blender(lake)
    parent = blender.create(BlendSpec((SourceSpec(TABLE, max_epochs=0),))).blend_id
    both = ("trainable", "mask_rule")
    wanted = [left_off(row, {2}) for row in plain(blender.open(parent, FROM, both).gather(FROM, 90))]
    for rules in (["header", "licence_header"], ["blob"]):
        table = lake.load_table(TABLE)
        table.transaction().set_properties({"headrace.mask-rules": json.dumps(rules)}).commit_transaction()
        child = Blender(lake).update(UpdateSpec(parent, (Stage(FROM, leave_off=("header",)),))).blend_id
        assert plain(Blender(lake).open(child, FROM, both).gather(FROM, 90)) == wanted


def test_it_is_served_and_shown(
    lake: Catalog, masks: np.ndarray[Any, Any], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ranks whose steps end there; a step that would have both is refused."""
    monkeypatch.chdir(tmp_path)
    with connect(serve().address) as client:
        blend = client.create_blend([SourceSpec(TABLE, max_epochs=0)], name="warm").blend_id
        run_command(["blend", "update", "warm", "cool", "--at", str(FROM), "--leave-off", "header"])
        parts = [
            [row for batch in client.read("cool", 0, 260, part=(26, rank, 2)) for row in plain(batch)]
            for rank in (0, 1)
        ]
        whole = [row for batch in client.read("cool", 0, 260) for row in plain(batch)]
        assert [row for step in range(10) for part in parts for row in part[13 * step : 13 * step + 13]] == whole
        before = [row for batch in client.read(blend, 0, 260) for row in plain(batch)]
        assert whole[:FROM] == before[:FROM]
        assert sum(len(row[1]) for row in whole[FROM:]) < sum(len(row[1]) for row in before[FROM:])
        with pytest.raises(InvalidReadError, match="16 tokens without header, and a step of 100 rows"):
            next(client.read("cool", 0, part=(100, 0, 1)))


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("heading",), "no table has a rule heading; did you mean header"),
        (("header", "x"), "a rule x; rules are header"),
    ],
)
def test_a_rule_that_is_nowhere_is_refused(
    lake: Catalog, masks: np.ndarray[Any, Any], names: tuple[str, ...], problem: str
) -> None:
    """With the nearest name, and those there are."""
    blender = Blender(lake)
    parent = blender.create(BlendSpec((SourceSpec(TABLE, max_epochs=0),))).blend_id
    with pytest.raises(InvalidBlendError, match=problem):
        blender.update(UpdateSpec(parent, (Stage(FROM, leave_off=names),)))
