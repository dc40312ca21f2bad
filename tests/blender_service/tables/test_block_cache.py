"""Decoded blocks in memory: bounded, decoded once for all, never taken for damage when the store or machine fails."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.exceptions import PackedTableError, ServerExhaustedError, ServerUnavailableError
from blender_service.rows import blend_reader, row_limits
from blender_service.rows.batch_assembly import BatchMessage
from blender_service.server.blender import Blender
from blender_service.tables import block_reader, parquet_to_block
from blender_service.tables.block import RowBlock, addresses_of, in_order, take_rows
from blender_service.tables.block_cache import BlockCache
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.random_blocks import key_of, random_block
from tests.tiers import sampled, tries
from tests.waiting import until


def put(cache: BlockCache, *numbers: int, team: str = "") -> None:
    """Put blocks into a cache, as a reader does that decodes them."""
    keys, _ = cache.claim([key_of(number) for number in numbers])
    for _ in cache.decoded(keys, (random_block(key, number) for key, number in zip(keys, numbers, strict=True)), team):
        pass


def kept(cache: BlockCache) -> list[int]:
    """List the blocks that a cache keeps."""
    return [number for number in range(100) if key_of(number) in cache]


def messages(framed: Iterator[BatchMessage]) -> list[bytes]:
    """Give the messages of a read."""
    return [one.message for one in framed]


@given(seed=st.integers(0, 1 << 32), taken=st.lists(st.integers(0, 19), max_size=30), parts=st.integers(1, 4))
@settings(max_examples=tries(60))
def test_rows_that_are_taken_are_the_rows_that_were_there(seed: int, taken: list[int], parts: int) -> None:
    """Against lists, row by row, for any rows in any order and any way to join them."""

    def listed(block: RowBlock, rows: list[int]) -> list[object]:
        own, text = block.segments, block.segments.doc_ids.tobytes()
        columns = (own.document_starts.tolist(), own.token_counts.tolist(), own.window_starts.tolist())
        starts, texts = own.starts.tolist(), own.doc_id_starts.tolist()
        return [
            (own.row_tokens[row], [(text[texts[s] : texts[s + 1]], *(c[s] for c in columns)) for s in range(a, b)])
            for row, a, b in ((row, starts[row], starts[row + 1]) for row in rows)
        ]

    block = random_block(key_of(0)._replace(end=20), seed)
    cuts = np.array_split(np.array(taken, dtype=np.int64), parts)
    blocks = addresses_of([block])
    places = np.array_split(np.arange(len(taken)), parts)
    joined = in_order([take_rows(blocks, np.zeros_like(rows), rows) for rows in cuts], places)
    copied = RowBlock(0, block.input_ids[taken], joined)
    assert listed(copied, list(range(len(taken)))) == listed(block, taken)
    for name, array in block.segments._asdict().items():
        assert getattr(joined, name).dtype == array.dtype, name


def test_the_longest_unused_go_first() -> None:
    """Beyond the bound the blocks go that were used longest ago; a use makes a block young again."""
    size = max(random_block(key_of(number), number).byte_count for number in range(9))
    cache = BlockCache(max_bytes=8 * size)
    put(cache, *range(8))
    assert cache.get(key_of(0)) is not None
    put(cache, *range(8, 12))
    assert 0 in kept(cache) and 1 not in kept(cache)
    assert cache.byte_count == sum(random_block(key_of(n), n).byte_count for n in kept(cache)) <= cache.max_bytes
    assert (cache.hits, cache.misses) == (0, 12)


def test_blocks_of_files_that_are_not_served_are_forgotten() -> None:
    """Those of one path go, with their bytes; the others stay."""
    cache = BlockCache()
    put(cache, 1, 2)
    cache.forget({"another.parquet"})
    assert kept(cache) == [1, 2]
    cache.forget({key_of(1).path})
    assert (kept(cache), cache.byte_count) == ([], 0)


def test_streams_that_need_a_block_at_once_decode_it_once(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight that begin together each gets all rows; what one gives up, or fails at, another can still have."""
    blender = Blender(lake, cache_bytes=1)  # so that no later use hides a second decoding
    config = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=1000))
    expected = messages(Blender(lake).open(config.blend_id).read_messages(0))
    decode, entered, go_on = block_reader.decode_blocks, threading.Semaphore(0), threading.Event()

    def slow(*arguments: object) -> Iterator[RowBlock]:
        entered.release()
        go_on.wait()
        yield from decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(block_reader, "decode_blocks", slow)
    reader = blender.open(config.blend_id)._places.readers[0]
    got: list[RowBlock] = []
    threads = [threading.Thread(target=lambda: got.extend(b for _, b in reader.blocks([1]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    entered.acquire()
    until(lambda: blender.cache.hits >= 7)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(got) == 8 and len(set(map(id, got))) == 1
    assert blender.cache.misses == 1

    monkeypatch.setattr(block_reader, "decode_blocks", decode)
    abandoned = reader.blocks([0, 1, 2])
    next(abandoned)
    abandoned.close()
    assert not blender.cache._claimed
    assert messages(blender.open(config.blend_id).read_messages(0)) == expected


def test_a_decoding_that_fails_is_told_to_all_who_wait_for_it() -> None:
    """The error of the one that decodes is theirs; the next one who asks tries again."""
    cache = BlockCache()
    own, _ = cache.claim([key_of(1), key_of(2)])
    _, others = cache.claim([key_of(1), key_of(2)])

    def failing() -> Iterator[RowBlock]:
        yield random_block(key_of(1), 1)
        raise PackedTableError("damaged")

    with pytest.raises(PackedTableError, match="damaged"):
        list(cache.decoded(own, failing()))
    assert others[key_of(1)].result().rows == 4
    with pytest.raises(PackedTableError, match="damaged"):
        others[key_of(2)].result()
    assert cache.claim([key_of(1), key_of(2)])[0] == [key_of(2)]


def test_prewarm_leaves_nothing_to_build(lake: Catalog, code: PackedFixture) -> None:
    """After prewarm the rows are served from memory alone."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=32, group_blocks=3))
    assert list(blender.prewarm(config.blend_id, 100, 400)) == [(500, False)]
    misses = blender.cache.misses
    assert sum(batch.rows for batch in blender.open(config.blend_id).read(100, 400)) == 400
    assert blender.cache.misses == misses > 0


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 40), st.booleans()), max_size=120))
@settings(max_examples=tries(60))
def test_no_team_pushes_out_what_is_within_the_share_of_another(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever is read, kept or excised: against a list of who owns what, after each step."""
    shares = {"a": 0.5, "b": 0.25}
    cache = BlockCache(max_bytes=10 * random_block(key_of(0), 0).byte_count)
    cache.share_of = lambda team: shares.get(team, 0.0)
    owned: dict[int, str] = {}
    for team, number, excised in steps:
        before, fits = cache.team_bytes(), {name: share * cache.max_bytes for name, share in shares.items()}
        if excised:
            cache.forget({key_of(number).path})
            owned = {one: name for one, name in owned.items() if key_of(one).path != key_of(number).path}
        elif cache.get(key_of(number)) is None:
            put(cache, number, team=team)
            owned[number] = team
            for one in set(owned) - set(kept(cache)) - {number}:
                loser = owned[one]
                assert loser == team or not loser or before[loser] > fits[loser], (one, loser, team)
        owned = {one: name for one, name in owned.items() if one in kept(cache)}
        sizes: Counter[str] = Counter()
        for one, name in owned.items():
            sizes[name] += random_block(key_of(one), one).byte_count
        assert cache.team_bytes() == sizes
        assert cache.byte_count == sizes.total() <= cache.max_bytes


@sampled(3)
@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (OSError("the network is down"), ServerUnavailableError, "does not answer: the network is down"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), ServerUnavailableError, "Input/output error"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ServerExhaustedError, "Too many open files"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ServerExhaustedError, "No space left"),
        (PermissionError("access denied"), ServerUnavailableError, "access denied"),
        (FileNotFoundError("gone"), PackedTableError, "cannot be read: gone; restore the file"),
    ],
)
@pytest.mark.parametrize("call", ["open", "read"])
def test_what_the_store_or_this_machine_lacks_is_no_damage(
    lake: Catalog,
    prose: PackedFixture,
    monkeypatch: pytest.MonkeyPatch,
    fault: OSError,
    kind: type[Exception],
    said: str,
    call: str,
) -> None:
    """What fails once is tried again; what goes on failing is retryable, in a line; only a lost file is damage."""
    monkeypatch.setattr(parquet_to_block, "RETRY_SECONDS", 0)
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(prose.identifier),)))
    io = type(blender.open(config.blend_id)._places.readers[0].table.io)
    new_input, failures = io.new_input, [0]

    class Failing:
        def __init__(self, inner: object) -> None:
            self.inner = inner

        def open(self) -> object:
            self.fail("open")
            return Failing(self.inner.open())  # type: ignore[attr-defined]

        def read(self, size: int = -1) -> object:
            self.fail("read")
            return self.inner.read(size)  # type: ignore[attr-defined]

        def fail(self, now: str) -> None:
            if now == call and failures[0]:
                failures[0] -= 1
                raise fault

        def __getattr__(self, name: str) -> object:
            if name == "read_buffer":  # by which Arrow would pass `read` by
                raise AttributeError
            return getattr(self.inner, name)

    monkeypatch.setattr(
        io, "new_input", lambda own, at: Failing(new_input(own, at)) if at.endswith(".parquet") else new_input(own, at)
    )
    failures[0] = 2
    assert sum(batch.rows for batch in blender.open(config.blend_id).read(0)) == 100
    blender.cache.forget({key.path for key in blender.cache._kept._values})
    failures[0] = 3
    expected = ServerUnavailableError if call == "read" and kind is PackedTableError else kind
    with pytest.raises(expected) as raised:
        list(blender.open(config.blend_id).read(0))
    assert type(raised.value) is expected
    assert ("gone" if expected is not kind else said) in str(raised.value)


def test_a_server_without_file_handles_says_so_and_goes_on_later(lake: Catalog, prose: PackedFixture) -> None:
    """With the limit of open files reached, as it really is, no file is called damaged; with handles again it reads."""
    config = Blender(lake).create(BlendSpec((SourceSpec(prose.identifier),)))
    reader = Blender(lake).open(config.blend_id)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(ServerExhaustedError, match="Too many open files; raise that limit"):
            list(reader.read(0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sum(batch.rows for batch in reader.read(0)) == 100


def test_later_blocks_are_built_before_they_are_needed(
    lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader dwells on its second row, those of the rows ahead are built in the background, no more."""
    monkeypatch.setattr(row_limits, "CHUNK_ROWS", 64)
    monkeypatch.setattr(row_limits, "FIRST_CHUNK_ROWS", 64)
    monkeypatch.setattr(blend_reader, "FIRST_CHUNK_ROWS", 64)
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=16, group_blocks=2))
    reader = blender.open(config.blend_id)
    number, _ = reader._places.readers[0].locate(config.order().resolve(np.arange(128)).ordinal)
    needed, later = set(number[:3].tolist()), set(number[64:128].tolist())
    stream = reader.read_messages(0, max_batch_rows=1, bounds=lambda: row_limits.Bounds(rows_ahead=64))
    next(stream)
    assert blender.cache.misses == len(set(number[:1].tolist()))
    next(stream)
    until(lambda: blender.cache.misses >= len(needed | later))
    assert blender.cache.misses == len(needed | later)
    assert all(reader._places.readers[0].is_cached(block) for block in later)


def test_fetching_ahead_outlives_any_error(lake: Catalog, code: PackedFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody thought of, in the thread that builds ahead, ends neither the thread nor a stream."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(code.identifier),), block_rows=16))
    reader = blender.open(config.blend_id)._places.readers[0]
    fetcher, build, failures = blender._shared.fetcher, reader.build, [1]

    def failing(numbers: set[int]) -> None:
        if failures[0]:
            failures[0] -= 1
            raise ZeroDivisionError
        build(numbers)

    monkeypatch.setattr(reader, "build", failing)
    fetcher.request(reader, [0])
    until(lambda: failures[0] == 0)
    fetcher.request(reader, [1])
    until(lambda: reader.is_cached(1))
