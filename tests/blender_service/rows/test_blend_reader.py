"""Rows come back as they were written, in the order of the blend, whatever happens to the table afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.exceptions import (
    InvalidReadError,
    OffsetOutOfRangeError,
    PackedTableError,
    SourceChangedError,
)
from blender_service.rows.blend_reader import BlendReader
from blender_service.server.blender import Blender
from blender_service.tables.block_cache import BlockCache
from blender_service.tables.block_reader import BlockReader
from blender_service.tables.parquet_to_block import decode_blocks
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch, concatenate, decode, encode
from tests.blender_service.packed_tables import PADDING, WINDOW_TOKENS, PackedFixture, Row, create_packed, to_arrow
from tests.tiers import sampled, tries


def rows_of(batch: RowBatch) -> Iterator[Row]:
    """Take a batch apart into rows, segment by segment."""
    at = 0
    for row in range(batch.rows):
        segments = []
        for _ in range(int(batch.segment_counts[row])):
            start, count, place = batch.document_starts[at], batch.segment_token_counts[at], batch.window_starts[at]
            segments.append((batch.doc_ids[at], int(start), int(count), int(place)))
            at += 1
        yield Row(tuple(batch.input_ids[row].tolist()), tuple(segments))


def blend_of(lake: Catalog, *sources: SourceSpec, block_rows: int = 32, group_blocks: int = 3) -> BlendConfig:
    """Create a blend with small blocks."""
    return Blender(lake).create(BlendSpec(sources, seed=17, block_rows=block_rows, group_blocks=group_blocks))


def read_bytes(reader: BlendReader, offset: int, rows: int) -> bytes:
    """Read rows in one batch and give the message's bytes."""
    return encode(concatenate(list(reader.read(offset, rows))))


def test_every_row_is_the_one_that_was_written(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """Tokens, segments, source and ordinal of each row of a whole blend equal what was appended."""
    config = blend_of(
        lake,
        SourceSpec(code.identifier, "2", name="code"),
        SourceSpec(prose.identifier, "1", name="prose", max_epochs=3, on_exhausted="CONTINUE"),
    )
    reader = Blender(lake).open(config.blend_id)
    written = {"code": code.rows, "prose": prose.rows}
    end = config.order().end
    assert end is not None
    resolved = config.order().resolve(np.arange(end))
    offset = 0
    for batch in reader.read(0, max_batch_rows=64):
        assert batch.offset == offset
        for i, row in enumerate(rows_of(decode(encode(batch)))):
            name = batch.source_names[batch.sources[i]]
            assert row == written[name][batch.ordinals[i]]
            assert batch.token_counts[i] == row.token_count
            assert batch.ordinals[i] == resolved.ordinal[offset + i]
            assert batch.epochs[i] == resolved.epoch[offset + i]
        offset += batch.rows
    assert offset == config.order().end
    assert batch.end_of_blend
    assert batch.rows == 0


@given(offset=st.integers(0, 600), rows=st.integers(1, 100), bound=st.integers(1, 50))
@settings(max_examples=tries(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_read_does_not_depend_on_how_it_is_cut(
    lake: Catalog, code: PackedFixture, offset: int, rows: int, bound: int
) -> None:
    """Any offset and batch size gives the same rows as one large read."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(code.identifier)).blend_id)
    whole = list(rows_of(concatenate(list(reader.read(0, 700)))))
    cut = [row for batch in reader.read(offset, rows, max_batch_rows=bound) for row in rows_of(batch)]
    assert cut == whole[offset : offset + rows]


def test_cache_is_bounded_and_changes_nothing(lake: Catalog, code: PackedFixture) -> None:
    """With room for nothing every row is still right, and once a block was added nobody's blocks are left."""
    config = blend_of(lake, SourceSpec(code.identifier), block_rows=8)
    plenty = Blender(lake).open(config.blend_id)
    blender = Blender(lake, cache_bytes=1)
    assert read_bytes(blender.open(config.blend_id), 0, 200) == read_bytes(plenty, 0, 200)
    blender.open(config.blend_id).gather(300, 1)
    assert len(blender.cache._kept) == 1


def test_a_small_blend_reads_only_the_blocks_it_needs(lake: Catalog, code: PackedFixture) -> None:
    """Eight rows of one group touch at most the rows of that group's blocks, also where files end in the middle."""
    blender = Blender(lake)
    config = blend_of(lake, SourceSpec(code.identifier), block_rows=32, group_blocks=3)
    next(blender.open(config.blend_id).read(0, 8))
    built = [key.end - key.start for key in blender.cache._kept._values]
    assert len(built) == blender.cache.misses
    assert 0 < sum(built) <= 3 * 32


def test_same_bytes_after_append_rewrite_and_expiry(lake: Catalog, code: PackedFixture) -> None:
    """A blend serves its pinned snapshot: appends, a rewrite of all files and snapshot expiry change no byte."""
    config = blend_of(lake, SourceSpec(code.identifier))
    before = read_bytes(Blender(lake).open(config.blend_id), 0, 700)
    code.append(50, seed=9, increment=2)
    assert read_bytes(Blender(lake).open(config.blend_id), 0, 700) == before
    table = code.table
    table.overwrite(to_arrow(code.rows, 0, 0, table.schema()))  # what compaction does: new files, same ordinals
    assert read_bytes(Blender(lake).open(config.blend_id), 0, 700) == before
    table = code.table
    pinned = int(config.sources[0].snapshot_id or 0)
    current = table.current_snapshot()
    assert current is not None
    others = [s.snapshot_id for s in table.snapshots() if s.snapshot_id not in (pinned, current.snapshot_id)]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    assert {s.snapshot_id for s in code.table.snapshots()} == {pinned, current.snapshot_id}
    assert read_bytes(Blender(lake).open(config.blend_id), 0, 700) == before
    newer = blend_of(lake, SourceSpec(code.identifier))
    assert newer.blend_id != config.blend_id
    assert newer.sources[0].rows == 750


def test_expiry_of_a_pinned_snapshot_is_refused_by_its_tag(lake: Catalog, code: PackedFixture) -> None:
    """Maintenance that expires everything old leaves the snapshot of a blend."""
    config = blend_of(lake, SourceSpec(code.identifier))
    code.append(50, seed=9, increment=2)
    pinned = int(config.sources[0].snapshot_id or 0)
    with pytest.raises(ValueError, match=str(pinned)):
        code.table.maintenance.expire_snapshots().by_id(pinned).commit()


def test_a_table_made_again_is_refused(lake: Catalog, code: PackedFixture) -> None:
    """Dropped and created again under the same name is another table."""
    config = blend_of(lake, SourceSpec(code.identifier))
    lake.drop_table(code.identifier)
    with pytest.raises(SourceChangedError, match="does not exist"):
        Blender(lake).open(config.blend_id)
    create_packed(lake, code.identifier).append(700, seed=1)
    with pytest.raises(SourceChangedError, match="made again"):
        Blender(lake).open(config.blend_id)


@sampled()
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headrace.tokenizer-sha256", "0" * 64),
        ("headrace.window-tokens", "32"),
        ("headrace.vocabulary-size", "301"),
        ("headrace.generation", "second"),
    ],
)
def test_changed_properties_are_refused(lake: Catalog, code: PackedFixture, name: str, value: str) -> None:
    """A tokenizer, window, vocabulary or generation that differs from the blend's is refused before any row."""
    config = blend_of(lake, SourceSpec(code.identifier))
    code.table.transaction().set_properties({name: value}).commit_transaction()
    with pytest.raises(SourceChangedError, match=value):
        Blender(lake).open(config.blend_id)


def test_generation_in_the_snapshot_outlives_the_property(lake: Catalog) -> None:
    """A snapshot whose summary says its generation stays servable after the table begins a new one."""
    table = create_packed(lake, "main.packed_summary_16")
    rows = table.append(5, seed=1).rows
    data = to_arrow(rows, 0, 0, table.table.schema())
    table.table.overwrite(data, snapshot_properties={"headrace.generation": "first"})
    config = blend_of(lake, SourceSpec(table.identifier))
    table.table.transaction().set_properties({"headrace.generation": "second"}).commit_transaction()
    assert [row for batch in Blender(lake).open(config.blend_id).read(0, 5) for row in rows_of(batch)]


def damage(table: PackedFixture, column: str, change: dict[int, object]) -> str:
    """Rewrite one value per row number in the table's only file; give the file's name."""
    path = next(iter(table.table.scan().plan_files())).file.file_path
    plain = path.removeprefix("file://")
    data = pq.read_table(plain, partitioning=None)
    values = data[column].to_pylist()
    for row, value in change.items():
        values[row] = value
    index = data.schema.get_field_index(column)
    pq.write_table(
        data.set_column(index, data.schema.field(index), pa.array(values, data.schema.field(index).type)), plain
    )
    return plain


@sampled(2)
@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("ordinal", {40: 41, 41: 40}, "ordinal 40 is not at row"),
        ("ordinal", {7: 0}, "ordinal 7 is not at row"),
        ("input_ids", {99: [5] * 15}, "does not have 16 tokens"),
        ("input_ids", {3: [300] * 16}, "token id 300"),
        ("input_ids", {3: [-1] * 16}, "token id -1"),
    ],
)
def test_files_that_break_the_contract_are_named(
    lake: Catalog, prose: PackedFixture, column: str, change: dict[int, object], message: str
) -> None:
    """A file whose ordinals do not ascend, or whose windows are wrong, is never served, and the message names it."""
    config = blend_of(lake, SourceSpec(prose.identifier))
    path = damage(prose, column, change)
    with pytest.raises(PackedTableError, match=message) as caught:
        list(Blender(lake).open(config.blend_id).read(0))
    assert path in str(caught.value)


def test_a_missing_file_is_named(lake: Catalog, prose: PackedFixture) -> None:
    """A data file that is gone gives one line with its name."""
    config = blend_of(lake, SourceSpec(prose.identifier))
    path = next(iter(prose.table.scan().plan_files())).file.file_path
    Path(path.removeprefix("file://")).unlink()
    with pytest.raises(PackedTableError, match=r"\.parquet cannot be read"):
        list(Blender(lake).open(config.blend_id).read(0))


@pytest.mark.nightly
def test_no_bit_that_flips_in_a_data_file_changes_a_row(
    lake: Catalog, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, their headers and the footer: what is read is right, or an error that names the file."""
    monkeypatch.setattr("blender_service.tables.parquet_to_block.RETRY_SECONDS", 0)
    path = next(iter(prose.table.scan().plan_files())).file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(), path, write_page_checksum=True, row_group_size=40, store_schema=False)
    blender = Blender(lake)
    reader = blender.open(blend_of(lake, SourceSpec(prose.identifier)).blend_id)._places.readers[0]
    table, run = reader.table, reader.table.runs[0]

    def decoded() -> list[list[object]]:
        (block,) = decode_blocks(table, run, [(run.start, run.end)])
        return [array.tolist() for array in (block.input_ids, *block.segments)]

    expected, whole = decoded(), Path(path).read_bytes()
    random, found = np.random.default_rng(11), 0
    for bits in (1, 1, 1, 3):
        for start in range(0, 8 * len(whole), 1100):
            damaged = bytearray(whole)
            for bit in random.integers(start, min(8 * len(whole), start + 1100), bits).tolist():
                damaged[bit // 8] ^= 1 << bit % 8
            Path(path).write_bytes(damaged)
            try:
                assert decoded() == expected
            except PackedTableError as error:
                assert path in str(error)
                found += 1
    assert found > 100


def test_a_blend_of_files_without_page_checksums_says_so(
    lake: Catalog, prose: PackedFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is made and when a server first opens it; a table with checksums is not spoken of."""
    path = next(iter(prose.table.scan().plan_files())).file.file_path.removeprefix("file://")
    config = blend_of(lake, SourceSpec(prose.identifier))
    assert "main.packed_prose_16 has files whose Parquet pages have no checksums" in caplog.text
    caplog.clear()
    Blender(lake).open(config.blend_id)
    assert "no checksums" in caplog.text
    caplog.clear()
    pq.write_table(pq.ParquetFile(path).read(), path, write_page_checksum=True)
    Blender(lake).open(config.blend_id)
    assert "no checksums" not in caplog.text


def test_offsets_outside_the_blend_are_refused(lake: Catalog, prose: PackedFixture) -> None:
    """Valid rows are [0, end): a read at the end is empty, beyond it an error that names the end."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(prose.identifier)).blend_id)
    (last,) = reader.read(100)
    assert (last.offset, last.rows, last.end_of_blend) == (100, 0, True)
    assert sum(batch.rows for batch in reader.read(90, 50)) == 10
    with pytest.raises(OffsetOutOfRangeError, match="beyond its end 100"):
        reader.read(101)
    with pytest.raises(OffsetOutOfRangeError, match="2\\*\\*62"):
        reader.read(1 << 62)
    with pytest.raises(InvalidReadError, match="below 0"):
        reader.read(-1)


@given(step=st.integers(1, 12), world=st.integers(1, 12), offset=st.integers(0, 100))
@settings(max_examples=tries(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_of_all_ranks_tile_every_whole_step(
    lake: Catalog, prose: PackedFixture, step: int, world: int, offset: int
) -> None:
    """Ranks together read each row of the whole steps once, and all make the same number of steps."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(prose.identifier)).blend_id)
    covered: list[int] = []
    if world > step:
        with pytest.raises(InvalidReadError, match="leaves some"):
            reader.read(offset, part=Slice(step, 0, world, True))
        return
    for rank in range(world):
        batches = list(reader.read(offset, part=Slice(step, rank, world, True)))
        assert batches[-1].end_of_blend
        covered += [batch.offset + i for batch in batches for i in range(batch.rows)]
    assert sorted(covered) == list(range(offset, offset + (100 - offset) // step * step))


def test_impossible_slices_are_refused(lake: Catalog, prose: PackedFixture) -> None:
    """A rank outside the world, uneven parts without leave, and half steps are errors before any row."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(prose.identifier)).blend_id)
    for part in (Slice(8, 2, 2), Slice(8, -1, 2), Slice(8, 0, 0), Slice(7, 0, 2), Slice(0, 0, 1)):
        with pytest.raises(InvalidReadError):
            reader.read(0, part=part)
    with pytest.raises(InvalidReadError, match="whole steps"):
        reader.read(0, 12, part=Slice(8))


def test_concatenate_and_tail_undo_each_other(lake: Catalog, code: PackedFixture) -> None:
    """Cutting a batch anywhere and joining the rest gives its rows, segments included."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(code.identifier)).blend_id)
    whole = reader.gather(5, 40)
    for first in (0, 1, 17, 39):
        assert list(rows_of(whole.tail(first))) == list(rows_of(whole))[first:]
        joined = concatenate([reader.gather(5, max(1, first)), whole.tail(max(1, first))])
        assert list(rows_of(joined)) == list(rows_of(whole))


def test_blocks_shrink_where_rows_are_long(lake: Catalog, code: PackedFixture) -> None:
    """A block never exceeds 16 MiB of tokens, however many rows the blend asks for."""
    reader = Blender(lake).open(blend_of(lake, SourceSpec(code.identifier)).blend_id)
    table = reader._places.readers[0].table
    long_rows = table._replace(window=table.window.model_copy(update={"window_tokens": 1 << 20}))
    assert BlockReader(long_rows, 2048, BlockCache()).block_rows == 8


def test_an_excised_snapshot_is_served_from_its_successor(lake: Catalog) -> None:
    """Rows keep their offsets, an excised document comes back as padding, later increments stay out of the blend."""
    table = create_packed(lake, "main.packed_excised_16").append(5, seed=1)
    config = blend_of(lake, SourceSpec(table.identifier))
    before = [row for batch in Blender(lake).open(config.blend_id).read(0, 5) for row in rows_of(batch)]
    pinned = table.table.current_snapshot()
    assert pinned is not None
    gone = 2
    table.rows[gone] = Row((PADDING,) * WINDOW_TOKENS, ())
    table.table.overwrite(to_arrow(table.rows, 0, 0, table.table.schema()))
    table.append(3, seed=2, increment=1)
    successor = table.table.current_snapshot()
    assert successor is not None
    mapping = json.dumps({str(pinned.snapshot_id): str(successor.snapshot_id)})
    table.table.transaction().set_properties({"headrace.successors": mapping}).commit_transaction()
    after = [row for batch in Blender(lake).open(config.blend_id).read(0, 5) for row in rows_of(batch)]
    assert len(after) == len(before) == 5
    changed = [number for number in range(5) if after[number] != before[number]]
    assert len(changed) == 1
    assert after[changed[0]].input_ids == (PADDING,) * WINDOW_TOKENS
    assert after[changed[0]].segments == ()
    again = blend_of(lake, SourceSpec(table.identifier, snapshot=str(pinned.snapshot_id)))
    assert again.sources[0].snapshot_id == str(successor.snapshot_id), "nobody pins what was revoked"
