"""The folder of block files: bounded, shared, never half written, and damage never goes unseen."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.exceptions import BlockCacheError, DamagedBlockError, ServerUnavailableError
from blender_service.rows import blend_reader
from blender_service.rows.batch_assembly import BatchMessage
from blender_service.server.blender import Blender
from blender_service.tables.block_cache import QUARANTINE, BlockCache, PinnedBlock
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.random_blocks import key_of, random_block
from tests.waiting import until

FILE_BYTES = 4096 + 2 * 16 * 4


def put(cache: BlockCache, number: int) -> None:
    """Write block `number`, keeping no pin."""
    cache.put(key_of(number), random_block(key_of(number), number))


def messages(framed: Iterator[BatchMessage]) -> list[bytes]:
    """Give the messages of a read."""
    return [one.message for one in framed]


def numbers_in(cache: BlockCache, count: int = 100) -> list[int]:
    """List the blocks that have a file."""
    return [number for number in range(count) if (cache.folder / key_of(number).name).exists()]


def flip(path: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_another_cache_finds_what_one_wrote(tmp_path: Path) -> None:
    """A second process, or the same one after a restart, reads the blocks of the folder and builds none."""
    put(BlockCache(tmp_path), 3)
    cache = BlockCache(tmp_path)
    pin = cache.pin(key_of(3))
    assert pin is not None
    np.testing.assert_array_equal(pin.block.input_ids, random_block(key_of(3), 3).input_ids)
    assert cache.pin(key_of(4)) is None
    assert (cache.events.counts.hits, cache.events.counts.misses) == (1, 0)


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    """With room for eight files the ninth drops the ones used longest ago; a use makes a block young again."""
    cache = BlockCache(tmp_path, max_bytes=8 * FILE_BYTES)
    for number in range(8):
        put(cache, number)
        time.sleep(0.01)
    assert cache.pin(key_of(0)) is not None
    put(cache, 8)
    assert numbers_in(cache) == [0, 3, 4, 5, 6, 7, 8]
    assert cache.byte_count == 7 * FILE_BYTES


def test_what_is_pinned_stays(tmp_path: Path) -> None:
    """A block in use is never deleted, whatever the bound; once it is let go it may be."""
    cache = BlockCache(tmp_path, max_bytes=1)
    held = cache.put(key_of(0), random_block(key_of(0), 0))
    for number in range(1, 5):
        put(cache, number)
    assert 0 in numbers_in(cache)
    assert cache.pin(key_of(0)) is held
    del held
    put(cache, 9)
    assert 0 not in numbers_in(cache)


def test_a_mapped_block_outlives_its_file(tmp_path: Path) -> None:
    """Another process may delete a file that is in use here: the rows stay readable, and it is built again later."""
    cache = BlockCache(tmp_path)
    pin = cache.put(key_of(0), random_block(key_of(0), 0))
    (tmp_path / key_of(0).name).unlink()
    np.testing.assert_array_equal(pin.block.input_ids, random_block(key_of(0), 0).input_ids)
    assert BlockCache(tmp_path).pin(key_of(0)) is None


def test_a_damaged_file_is_put_aside_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After three failed reads the file is in quarantine, the log names it, and the block can be built again."""
    put(BlockCache(tmp_path), 3)
    path = tmp_path / key_of(3).name
    flip(path, 5000 % FILE_BYTES)
    cache = BlockCache(tmp_path)
    assert cache.pin(key_of(3)) is None
    assert "3 attempts" in caplog.text
    assert path.name in caplog.text
    assert [file.name for file in (tmp_path / QUARANTINE).iterdir()] == [path.name]
    assert (cache.events.counts.checksum_failures, cache.events.counts.quarantined) == (3, 1)
    assert cache.pin(key_of(3)) is None
    put(cache, 3)
    assert cache.pin(key_of(3)) is not None


def test_every_flipped_byte_of_a_served_folder_is_found(lake: Catalog, prose: PackedFixture, tmp_path: Path) -> None:
    """Wherever a block's file is damaged, the read that needs it builds it again and goes on."""
    folder = tmp_path / "blocks"
    config = Blender(lake, cache_folder=folder).create(BlendSpec((SourceSpec(prose.identifier),), block_rows=100))
    expected = messages(Blender(lake, cache_folder=folder).open(config.blend_id).read_messages(0))
    (path,) = folder.glob("*.block")
    size = path.stat().st_size
    for at in [*range(0, 160, 7), *range(160, size, 611), size - 1]:
        flip(path, at)
        blender = Blender(lake, cache_folder=folder)
        assert messages(blender.open(config.blend_id).read_messages(0)) == expected
        assert blender.cache.events.counts.quarantined == 1


def flip_in_place(path: Path, bit: int) -> None:
    """Change one bit of a file where it lies, so that whoever has it mapped sees it."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[bit // 8] ^= 1 << bit % 8


def test_a_bit_that_flips_while_a_block_is_mapped_changes_no_row(
    lake: Catalog, prose: PackedFixture, tmp_path: Path
) -> None:
    """In header, offsets, counts, texts, digests and ids: every row that is served is right, and the read goes on."""
    folder = tmp_path / "blocks"
    blender = Blender(lake, cache_folder=folder)
    config = blender.create(BlendSpec((SourceSpec(prose.identifier),), block_rows=100))
    reader = blender.open(config.blend_id)
    expected = messages(reader.read_messages(0, max_batch_rows=30))
    (path,) = folder.glob("*.block")
    bits, random = 8 * path.stat().st_size, np.random.default_rng(7)
    for count in (1, 1, 2, 64):  # bits at once, all over the file
        for first in range(0, bits, 2500):
            for bit in random.integers(first, min(bits, first + 2500), count).tolist():
                flip_in_place(path, bit)
            assert messages(reader.read_messages(0, max_batch_rows=30)) == expected
    assert blender.cache.events.counts.quarantined > 100


def test_a_block_that_is_damaged_whenever_it_is_built_ends_the_read(
    lake: Catalog, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory or a disk that damages all that is written is named, instead of building for ever."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(prose.identifier),), block_rows=100))
    pin = BlockCache._touch

    def damaging(self: BlockCache, name: str, held: PinnedBlock) -> PinnedBlock:
        flip_in_place(self.folder / name, 8 * (self.folder / name).stat().st_size - 1)
        return pin(self, name, held)

    monkeypatch.setattr(BlockCache, "_touch", damaging)
    with pytest.raises(DamagedBlockError, match="check memory and disk"):
        list(blender.open(config.blend_id).read_messages(0))


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file where the folder should be, and a folder that vanished, are errors that name it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BlockCacheError, match="file"):
        BlockCache(tmp_path / "file" / "folder")
    cache = BlockCache(tmp_path / "gone")
    cache.folder.rmdir()
    with pytest.raises(BlockCacheError, match="gone"):
        put(cache, 1)


def test_the_folder_of_a_cache_of_its_own_goes_with_it() -> None:
    """Without a folder a temporary one is used, which is removed with the cache."""
    cache = BlockCache()
    folder = cache.folder
    put(cache, 1)
    del cache
    assert not folder.exists()


def test_threads_that_need_one_block_share_it(tmp_path: Path) -> None:
    """Whoever pins or writes a block meanwhile, all read the same rows, and nothing of the writing is left."""
    cache = BlockCache(tmp_path, max_bytes=6 * FILE_BYTES)
    wrong: list[int] = []

    def use(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 20, 60).tolist():
            pin = cache.pin(key_of(number)) or cache.put(key_of(number), random_block(key_of(number), number))
            if not np.array_equal(pin.block.input_ids, random_block(key_of(number), number).input_ids):
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not list(tmp_path.glob(".*"))
    assert len(numbers_in(cache)) <= 6


WRITER = """
import sys
from pathlib import Path
from blender_service.tables.block_cache import BlockCache
from tests.blender_service.random_blocks import key_of, random_block
cache = BlockCache(Path(sys.argv[1]), max_bytes=20 * 4224)
for turn in range(1 << 30):
    key = key_of(turn % 50)
    cache.put(key, random_block(key, turn % 50))
    if turn == 0:
        print("ready", flush=True)
"""


@pytest.mark.nightly
def test_a_killed_writer_leaves_nothing_half(tmp_path: Path) -> None:
    """Two processes write into one folder and are killed at any moment: every file that has a name is whole."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for turn in range(2):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(0.05 + 0.03 * turn)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        cache = BlockCache(tmp_path)
        present = numbers_in(cache)
        assert present
        for number in present:
            pin = cache.pin(key_of(number))
            assert pin is not None
            np.testing.assert_array_equal(pin.block.input_ids, random_block(key_of(number), number).input_ids)


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    """A young temporary file may still be written to; an old one is nobody's."""
    for name, age in ((".young.tmp", 60), (".old.tmp", 7200)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    BlockCache(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [".young.tmp"]


def test_prewarm_leaves_nothing_to_build(lake: Catalog, code: PackedFixture, tmp_path: Path) -> None:
    """After prewarm the rows are served from the folder alone: the data files may be gone."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),), block_rows=32, group_blocks=3))
    expected = messages(Blender(lake).open(config.blend_id).read_messages(100, 400))
    Blender(lake, cache_folder=tmp_path / "blocks").prewarm(config.blend_id, 100, 400)
    for task in code.table.scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()
    reader = Blender(lake, cache_folder=tmp_path / "blocks").open(config.blend_id)
    assert messages(reader.read_messages(100, 400)) == expected


def test_a_store_that_does_not_answer_is_no_damage(
    lake: Catalog, prose: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage that fails once is read at the second attempt; one that goes on failing is named as away, no damage."""
    config = Blender(lake).create(BlendSpec((SourceSpec(prose.identifier),)))
    reader = Blender(lake).open(config.blend_id)
    io = type(reader._pinned[0].table.io)
    new_input = io.new_input
    failures = [1]

    def failing(self: object, location: str) -> object:
        if location.endswith(".parquet") and failures[0]:
            failures[0] -= 1
            raise OSError("the network is down")
        return new_input(self, location)  # type: ignore[arg-type]

    monkeypatch.setattr(io, "new_input", failing)
    assert sum(batch.rows for batch in reader.read(0)) == 100
    failures[0] = 4  # the first is met when the table is indexed
    with pytest.raises(ServerUnavailableError, match=r"does not answer: the network is down"):
        list(Blender(lake).open(config.blend_id).read(0))


def test_later_blocks_are_built_before_they_are_needed(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader dwells on its second row, those of the rows ahead are built in the background, no more."""
    monkeypatch.setattr(blend_reader, "CHUNK_ROWS", 64)
    monkeypatch.setattr(blend_reader, "AHEAD_ROWS", 64)
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=16, group_blocks=2))
    reader = blender.open(config.blend_id)
    number, _ = reader._pinned[0].locate(config.order().resolve(np.arange(128)).ordinal)
    needed, later = set(number[:2].tolist()), set(number[64:128].tolist())
    stream = reader.read_messages(0, max_batch_rows=1)
    next(stream)
    assert blender.cache.events.counts.misses == len(set(number[:1].tolist()))
    next(stream)
    until(lambda: blender.cache.events.counts.misses >= len(needed | later))
    assert blender.cache.events.counts.misses == len(needed | later)
    assert all(reader._pinned[0].is_cached(block) for block in later)
