"""Columns with a value for each token: a batch has the values that the table has at the batch's ordinals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import BooleanType, DoubleType, FloatType, IntegerType, ListType, StringType

from blender_service.blend.requests import SourceSpec
from blender_service.client import BlenderClient
from blender_service.exceptions import InvalidReadError, PackedTableError
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch, concatenate
from tests.blender_service.packed_tables import (
    SCHEMA,
    WINDOW_TOKENS,
    PackedFixture,
    create_packed,
    random_rows,
    to_arrow,
)
from tests.tiers import sampled

BOTH = ("trainable", "log_probability")
TABLE = "rl.packed_rollouts_16"


def append(lake: Catalog, count: int, first: int, columns: dict[str, list[list[Any]]]) -> None:
    """Append random rows with columns of tokens, from an ordinal on."""
    table = lake.load_table(TABLE)
    rows = to_arrow(random_rows(count, first), first, 0, SCHEMA).to_pydict()
    table.append(pa.Table.from_pydict({**rows, **columns}, schema=table.schema().as_arrow()))


@pytest.fixture
def rollouts(lake: Catalog) -> dict[str, np.ndarray[Any, Any]]:
    """A table of 90 rows in two files, with two columns of tokens and one of doubles; the values of the two."""
    table = create_packed(lake, TABLE).table
    with table.update_schema() as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
        change.add_column("log_probability", ListType(101, FloatType(), element_required=True))
        change.add_column("entropy", ListType(102, DoubleType(), element_required=True))
    random = np.random.default_rng(7)
    values = {
        "trainable": random.integers(0, 2, (90, WINDOW_TOKENS)).astype(bool),
        "log_probability": -random.random((90, WINDOW_TOKENS), dtype=np.float32),
    }
    for first, last in ((0, 50), (50, 90)):
        own = {name: of_rows[first:last].tolist() for name, of_rows in values.items()}
        append(lake, last - first, first, {**own, "entropy": [[0.5] * WINDOW_TOKENS] * (last - first)})
    return values


@pytest.fixture(params=["server", "lake:"])
def reader(
    request: pytest.FixtureRequest, client: BlenderClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BlenderClient]:
    """A client of a server, or of the lake in this process."""
    if request.param == "server":
        yield client
        return
    monkeypatch.chdir(tmp_path)
    with BlenderClient("lake:") as connected:
        yield connected


def read(reader: BlenderClient, blend: str, offset: int, rows: int, columns: tuple[str, ...], **how: Any) -> RowBatch:
    """Rows of a blend as one batch."""
    with reader.read(blend, offset, rows, columns=columns, **how) as stream:
        return concatenate([batch for batch in stream if batch.rows])


@sampled()
def test_values_are_those_of_the_table(
    reader: BlenderClient, rollouts: dict[str, np.ndarray[Any, Any]], code: PackedFixture
) -> None:
    """In any order of names, part and epoch; a table without `trainable` is trained on as a whole."""
    blend = reader.create_blend(
        [SourceSpec(TABLE, "2", "rl", max_epochs=0), SourceSpec(code.identifier, "1", "code", max_epochs=0)],
        block_rows=16,
        group_blocks=2,
    )
    plain = read(reader, blend.blend_id, 0, 300, ())
    assert not plain.columns
    found = read(reader, blend.blend_id, 0, 300, ("trainable",))
    for name in ("input_ids", "token_counts", "ordinals", "document_starts", "doc_id_lengths"):
        assert np.array_equal(getattr(plain, name), getattr(found, name))
    of_rl = found.source_names.index("rl")
    for row in range(found.rows):
        if found.sources[row] == of_rl:
            expected = rollouts["trainable"][found.ordinals[row]]
        else:
            expected = np.arange(WINDOW_TOKENS) < found.token_counts[row]
        assert np.array_equal(found.columns["trainable"][row], expected), row
    half = read(reader, blend.blend_id, 7, 120, ("trainable",), part=Slice(12, 1, 2))
    whole = read(reader, blend.blend_id, 7, 120, ("trainable",))
    chosen = np.concatenate([np.arange(step * 12 + 6, step * 12 + 12) for step in range(10)])
    assert np.array_equal(half.columns["trainable"], whole.columns["trainable"][chosen])
    with pytest.raises(InvalidReadError, match=r"source code has no column log_probability .* it has trainable"):
        read(reader, blend.blend_id, 0, 10, ("log_probability",))


def test_two_columns_of_two_types_in_the_order_of_the_request(
    reader: BlenderClient, rollouts: dict[str, np.ndarray[Any, Any]]
) -> None:
    """Blocks without and with columns are kept beside each other; a column of doubles is none of tokens."""
    blend = reader.create_blend([SourceSpec(TABLE, "1", "rl", max_epochs=0)], block_rows=8)
    for names in (BOTH, BOTH[::-1], BOTH[1:], BOTH):
        found = read(reader, blend.blend_id, 80, 40, names, max_batch_rows=7)
        assert tuple(found.columns) == names
        for name in names:
            assert found.columns[name].dtype == rollouts[name].dtype
            assert np.array_equal(found.columns[name], rollouts[name][found.ordinals])
    assert list(reader.prewarm(blend.blend_id, 0, 90, BOTH)) if reader.address != "lake:" else True
    with pytest.raises(InvalidReadError, match="entropy"):
        read(reader, blend.blend_id, 0, 10, ("entropy",))


def test_a_row_without_a_value_for_each_position_is_refused(reader: BlenderClient, lake: Catalog) -> None:
    """Where the column is asked for; without it the rows are served."""
    create_packed(lake, TABLE)
    with lake.load_table(TABLE).update_schema() as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
    append(lake, 3, 0, {"trainable": [[True] * WINDOW_TOKENS, [True], [False] * WINDOW_TOKENS]})
    blend = reader.create_blend([SourceSpec(TABLE, "1", "rl")])
    assert read(reader, blend.blend_id, 0, 3, ()).rows == 3
    with pytest.raises(PackedTableError, match="does not have 16 values of trainable"):
        read(reader, blend.blend_id, 0, 3, ("trainable",))


def test_a_column_of_another_type_is_refused(reader: BlenderClient, lake: Catalog) -> None:
    """Also by the name `trainable`: masks that are numbers would be taken for a whole row otherwise."""
    create_packed(lake, TABLE)
    with lake.load_table(TABLE).update_schema() as change:
        change.add_column("trainable", ListType(100, IntegerType(), element_required=True))
    append(lake, 3, 0, {"trainable": [[1] * WINDOW_TOKENS] * 3})
    blend = reader.create_blend([SourceSpec(TABLE, "1", "rl")])
    with pytest.raises(InvalidReadError, match="source rl has no column trainable with a bool, float or int"):
        read(reader, blend.blend_id, 0, 3, ("trainable",))


def test_files_older_than_the_column_are_trained_on_as_a_whole(reader: BlenderClient, lake: Catalog) -> None:
    """As a table that lacks it; a column of floats, of which nothing says what it would be, is refused there."""
    create_packed(lake, TABLE)
    append(lake, 5, 0, {})
    with lake.load_table(TABLE).update_schema() as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
        change.add_column("advantage", ListType(101, FloatType(), element_required=True))
    append(lake, 5, 5, {"trainable": [[False] * WINDOW_TOKENS] * 5, "advantage": [[0.5] * WINDOW_TOKENS] * 5})
    blend = reader.create_blend([SourceSpec(TABLE, "1", "rl", max_epochs=0)])
    found = read(reader, blend.blend_id, 0, 30, ("trainable",))
    expected = (np.arange(WINDOW_TOKENS) < found.token_counts[:, np.newaxis]) & (found.ordinals < 5)[:, np.newaxis]
    assert np.array_equal(found.columns["trainable"], expected)
    with pytest.raises(PackedTableError, match="values of advantage"):
        read(reader, blend.blend_id, 0, 30, ("advantage",))


def test_batches_of_torch_have_them(
    reader: BlenderClient, rollouts: dict[str, np.ndarray[Any, Any]], recwarn: pytest.WarningsRecorder
) -> None:
    """Under their names, of their types; a state goes on with them under other ranks."""
    torch = pytest.importorskip("torch")
    from blender_service.torch import BlendDataset

    blend = reader.create_blend([SourceSpec(TABLE, "1", "rl", max_epochs=0)], block_rows=8)

    def dataset(**how: Any) -> BlendDataset:
        return BlendDataset(reader.address, blend.blend_id, 8, columns=BOTH, tensors=("input_ids",), **how)

    expected = read(reader, blend.blend_id, 0, 32, BOTH)
    one = dataset()
    first = [batch for _, batch in zip(range(2), one, strict=False)]
    assert (first[0]["trainable"].dtype, first[0]["log_probability"].dtype) == (torch.bool, torch.float32)
    state = one.state_dict()
    halves = [dataset(rank=rank, world_size=2) for rank in range(2)]
    for half in halves:
        half.load_state_dict(state)
    rest = [[batch for _, batch in zip(range(2), half, strict=False)] for half in halves]
    for name in BOTH:
        got = [batch[name] for batch in first] + [rest[rank][step][name] for step in range(2) for rank in range(2)]
        assert np.array_equal(torch.cat(got).numpy(), expected.columns[name])
    with pytest.raises(InvalidReadError, match="has a labels of its own"):
        BlendDataset(reader.address, blend.blend_id, 8, columns=("labels",))


def test_columns_are_those_of_the_table_whatever_files_call_them(
    reader: BlenderClient, rollouts: dict[str, np.ndarray[Any, Any]], lake: Catalog
) -> None:
    """A renamed column is read under its new name, one that was dropped and added again is not the old one."""
    blend = reader.create_blend([SourceSpec(TABLE)]).blend_id
    before = read(reader, blend, 0, 90, BOTH)
    table = lake.load_table(TABLE)
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("log_probability", "lp")
        change.rename_column("input_ids", "ids")
        change.rename_column("segments.element.doc_id", "document")
        change.delete_column("trainable")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
        change.add_column("input_ids", StringType())
    table.refresh()
    after = read(reader, blend, 0, 90, ("lp", "trainable"))
    assert np.array_equal(after.input_ids, before.input_ids)
    assert np.array_equal(after.columns["lp"], before.columns["log_probability"])
    assert not np.array_equal(before.columns["trainable"], rollouts["trainable"] | True)
    tokens = np.arange(WINDOW_TOKENS) < np.asarray(after.token_counts)[:, np.newaxis]
    assert np.array_equal(after.columns["trainable"], tokens)
