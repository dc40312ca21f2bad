"""How much text lies in files of every kind that packs it, against what was written."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.plan.due import Due
from spark_jobs.lake.plan.estimates import read_bytes
from spark_jobs.lake.plan.reads import Read
from spark_jobs.lake.plan.text_bytes import TYPICAL, listed_text_bytes, path_text_bytes
from tests.tiers import sampled

_draw = random.Random(54)
_WORDS = ["".join(_draw.choices("abcdefghijklmnop", k=7)) for _ in range(3000)]
_TEXTS = [" ".join(_draw.choices(_WORDS, k=200)) for _ in range(1500)]
_PLAIN = "\n".join(_TEXTS).encode()


def _parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": _TEXTS}), path, compression="zstd")


def _zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", _PLAIN)


def _zstd(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(_PLAIN)


_WRITERS: dict[str, Callable[[Path], object]] = {
    "a.parquet": _parquet,
    "A.PARQUET": _parquet,
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(_PLAIN)),
    "a.tgz": lambda path: path.write_bytes(gzip.compress(_PLAIN)),
    "a.jsonl.bz2": lambda path: path.write_bytes(bz2.compress(_PLAIN)),
    "a.jsonl.xz": lambda path: path.write_bytes(lzma.compress(_PLAIN)),
    "a.jsonl.zst": _zstd,
    "a.zip": _zipped,
    "a.jsonl": lambda path: path.write_bytes(_PLAIN),
}


def listing(*files: tuple[str, int, bool]) -> pa.Table:
    """A source's listing of locations, sizes, and whether they are unchanged."""
    locations, sizes, unchanged = zip(*files, strict=True)
    columns = {"location": pa.array(locations, pa.string()), "byte_count": pa.array(sizes, pa.int64())}
    return pa.table({**columns, "unchanged": pa.array(unchanged, pa.bool_())})


@sampled(3)
@pytest.mark.parametrize("name", sorted(_WRITERS))
def test_text_is_counted_unpacked(tmp_path: Path, name: str) -> None:
    """Within a twelfth; a file that is unchanged is not read, so it does not count, nor need it be there."""
    _WRITERS[name](tmp_path / name)
    size = (tmp_path / name).stat().st_size
    assert name == "a.jsonl" or size * 1.8 < len(_PLAIN)
    found = listed_text_bytes(listing((str(tmp_path / name), size, False), (str(tmp_path / "gone.gz"), 10**12, True)))
    assert found == pytest.approx(len(_PLAIN), rel=1 / 12)


def test_what_cannot_be_read_here_is_taken_for_typical(tmp_path: Path) -> None:
    """A store, a damaged file, an empty one, a size that nobody knows: the run itself says what is wrong."""
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "empty.zst").write_bytes(b"")
    far = ("s3://bucket/a.parquet", 1000, False)
    assert listed_text_bytes(listing(far)) == 1000 * TYPICAL
    assert listed_text_bytes(listing(far, (str(tmp_path / "damaged.parquet"), 500, False))) == 1500 * TYPICAL
    assert listed_text_bytes(listing((str(tmp_path / "empty.zst"), 0, False))) == 0
    assert listed_text_bytes(listing(("/x/a.txt", 7, False), ("/x/b.gz", 0, False))) == 7
    unknown = listing(("/x/a.txt", 7, False)).set_column(1, "byte_count", pa.array([None], pa.int64()))
    assert listed_text_bytes(unknown) == 0


def test_a_folder_of_parquet_counts_unpacked(tmp_path: Path) -> None:
    """As a step that is bound to files reads it."""
    _parquet(tmp_path / "a.parquet")
    (tmp_path / "b").mkdir()
    _parquet(tmp_path / "b" / "c.parquet")
    assert path_text_bytes(str(tmp_path)) == pytest.approx(2 * len(_PLAIN), rel=1 / 12)
    assert path_text_bytes(str(tmp_path / "a.parquet")) == pytest.approx(len(_PLAIN), rel=1 / 12)
    assert path_text_bytes(str(tmp_path / "nothing")) == 0


@pytest.mark.parametrize(
    ("increment", "exists", "is_planned", "new", "held"),
    [
        (2, False, False, 0, 1_111),  # an earlier step makes what it reads: the source says how much that is
        (1, True, False, 1_111, 1_111),  # all may be computed again
        (None, True, False, 1_111, 1_111),
        (2, False, True, 1_000, 1_111),
        (0, True, True, 1, 1_111),
        (None, False, True, 1_111, 1_111),
    ],
)
def test_a_history_counts_for_what_is_joined_with_it(
    increment: int | None, exists: bool, is_planned: bool, new: int, held: int
) -> None:
    """An increment of 1% reads 1%; three increments of 1, 110 and 1,000 bytes, the numbers of both tables alike."""
    places = {str(number): SimpleNamespace(byte_count=size) for number, size in enumerate((1, 110, 1_000))}
    ledger: Any = SimpleNamespace(places={"a.texts": places}.__getitem__)
    binding: Any = SimpleNamespace(inputs={"texts": "a.texts"}, driving_table=None)
    read = Read("a.texts", 1, dict.fromkeys(places, "v"), {0: 0, 1: 1, 2: 2}, None, labelled=False)
    place = TableSlice.whole() if increment is None else TableSlice.increment(increment)
    reads = {"texts": (read,)} if is_planned else None
    found = read_bytes(ledger, binding, Due(place, increment, "new", exists=exists, reads=reads))
    assert found == (new * TYPICAL, held * TYPICAL)
