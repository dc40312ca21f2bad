"""Write the SQLite files of an index: documents with their verdicts and signals, and where their texts lie.

Each is written under another name and renamed when it is complete, so a file that can be opened is complete; what a
killed build left is removed by the next.

    NAME.VERSION.rows    rows (n in the order of doc_id), failed (rules of a row)
    NAME.VERSION.texts   texts (t in the order of the files, the row n, file and row there, first words), files
"""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression

from headrace_features.explore.dataset_at import DatasetAt
from spark_jobs.lake.files.wide_values import placed_batches

PREVIEW: Final = 300
NARROW: Final = ("increment", "shard", "path", "repository", "kind", "language", "licence", "byte_count")
INDEXED: Final = ("path", "repository", "kind", "language", "licence", "increment", "kept")
_OWN: Final = ("n", "doc_id", *NARROW, "kept")
_NUMBERS: Final = ("int", "long", "float", "double")
_CHUNK: Final = 50_000  # rows that are Python objects at a time
_TEXTS: Final = 2048  # texts likewise
# Scripts without spaces between words: each character is a word of its own.
_CLOSE: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_APART: Final = re.compile(f"([{_CLOSE}])")
Progress = Callable[[float], None]
BUILDS: Final = threading.BoundedSemaphore(2)  # at a time: the first search begins one for each dataset


def quoted(name: str) -> str:
    """Quote the name of a column for SQL."""
    return '"' + name.replace('"', '""') + '"'


def apart(text: str) -> str:
    """Put spaces around characters of scripts that have none, so that each is a word of the index."""
    return text if text.isascii() else _APART.sub(r" \1 ", text)


def is_close(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return _APART.match(character) is not None


def scores_of(dataset: DatasetAt) -> list[str]:
    """Numeric signals; one whose name is another's or a column's but for the case of letters is left out."""
    taken = {*_OWN}
    scores = []
    for name, kind in dataset.columns("signals").items():
        if kind in _NUMBERS and name.lower() not in taken:
            taken.add(name.lower())
            scores.append(name)
    return scores


def build_rows(dataset: DatasetAt, file: Path, progress: Progress) -> None:
    """Write the rows of a dataset; `progress` is called with the share that was read."""
    scores, total, done = scores_of(dataset), dataset.summed("documents"), 0
    names = ", ".join(map(quoted, _OWN[1:] + tuple(scores)))
    with written(file) as (database, unsorted):
        database.execute("ATTACH ? AS unsorted", [str(unsorted)])
        database.executescript("PRAGMA unsorted.journal_mode = OFF; PRAGMA unsorted.synchronous = OFF")
        kinds = ", ".join(f"{quoted(name)} {_affinity(name)}" for name in (*_OWN[1:], *scores))
        database.execute(f"CREATE TABLE rows (n INTEGER PRIMARY KEY, {kinds})")
        database.execute(f"CREATE TABLE unsorted.rows ({names})")
        failed = "(id, rule TEXT, value REAL, threshold REAL, distance REAL)"
        database.execute(f"CREATE TABLE unsorted.failed {failed}")
        database.execute(f"CREATE TABLE failed {failed.replace('id', 'n INT')}")
        for condition in dataset.parts():
            for chunk in _chunks(part_of(dataset, scores, condition)):
                ids = [bytes.fromhex(doc_id) for doc_id in chunk.column("doc_id").to_pylist()]
                columns = [chunk.column(name).to_pylist() for name in (*_OWN[2:], *scores)]
                marks = ", ".join("?" * (1 + len(columns)))
                database.executemany(f"INSERT INTO unsorted.rows VALUES ({marks})", zip(ids, *columns, strict=True))
                database.executemany("INSERT INTO unsorted.failed VALUES (?, ?, ?, ?, ?)", _failed(chunk, ids))
                done += len(chunk)
                progress(done / max(total, done, 1))
        database.execute(f"INSERT INTO rows ({names}) SELECT {names} FROM unsorted.rows ORDER BY doc_id")
        database.execute("CREATE UNIQUE INDEX by_doc_id ON rows (doc_id)")
        database.execute(
            "INSERT INTO failed SELECT r.n, f.rule, f.value, f.threshold, f.distance "
            "FROM unsorted.failed f JOIN rows r ON r.doc_id = f.id"
        )
        for name in (*INDEXED, "byte_count", *scores):  # SQLite adds the row's n to each
            database.execute(f"CREATE INDEX {quoted(f'by_{name}')} ON rows ({quoted(name)})")
        database.execute("CREATE INDEX by_rule ON failed (rule, distance, n)")
        database.execute("CREATE INDEX failed_of ON failed (n)")
        database.commit()
        database.execute("DETACH unsorted")


def build_texts(dataset: DatasetAt, rows: Path, file: Path, progress: Progress) -> None:
    """Write where the texts of rows are, and their first words."""
    total, at, numbers = dataset.summed("texts"), 0, dict[str, int]()
    with written(file) as (database, _):
        database.execute("ATTACH ? AS of", [f"file:{rows}?mode=ro&immutable=1"])
        database.execute("CREATE TABLE files (file INTEGER PRIMARY KEY, path TEXT)")
        database.execute("CREATE TABLE texts (t INTEGER PRIMARY KEY, n INT, file INT, row INT, preview TEXT)")
        texts = dataset.table("texts")
        for path, row, batch in placed_batches(*texts, ("doc_id", "content"), _TEXTS) if texts is not None else ():
            ids, contents = batch.column("doc_id").to_pylist(), batch.column("content")
            previews = pc.utf8_slice_codeunits(contents, 0, PREVIEW).to_pylist()
            number = numbers.setdefault(path, len(numbers))
            database.executemany(
                "INSERT INTO texts SELECT ?, n, ?, ?, ? FROM of.rows WHERE doc_id = ?",
                (
                    (at + place, number, row + place, preview, bytes.fromhex(doc_id))
                    for place, (doc_id, preview) in enumerate(zip(ids, previews, strict=True))
                ),
            )
            at += len(batch)
            progress(at / max(total, at))
        database.executemany("INSERT INTO files VALUES (?, ?)", ((number, path) for path, number in numbers.items()))
        database.execute("CREATE INDEX by_n ON texts (n)")
        database.commit()
        database.execute("DETACH of")


@contextlib.contextmanager
def complete(file: Path) -> Iterator[Path]:
    """A path to write to, which is renamed to `file` when the block ends without an error."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for left in file.parent.glob("*.tmp"):
        if not Path(f"/proc/{left.name.split('.')[-3]}").exists():
            left.unlink(missing_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb") as whole:  # SQLite does not (`synchronous = OFF`); a name may outlive its bytes
            os.fsync(whole.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def written(file: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """A database that is renamed to `file` when the block ends without an error, and a path for a temporary one."""
    with complete(file) as unfinished:
        unsorted = unfinished.with_name(f"{unfinished.stem}-unsorted.tmp")
        try:
            with contextlib.closing(sqlite3.connect(f"file:{unfinished}", uri=True)) as database:
                database.executescript(
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000"
                )
                yield database, unsorted
        finally:
            unsorted.unlink(missing_ok=True)


def _affinity(name: str) -> str:
    texts = ("path", "repository", "kind", "language", "licence")
    return "BLOB" if name == "doc_id" else "TEXT" if name in texts else "NUM"


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, _CHUNK) for start in range(0, len(table), _CHUNK))


def part_of(
    dataset: DatasetAt, scores: Sequence[str], condition: BooleanExpression, narrow: Sequence[str] = NARROW
) -> pa.Table:
    """Some documents, each with its signals, verdict and failed rules; nulls where a document has none."""
    there = dataset.columns("documents")
    documents = dataset.read("documents", ("doc_id", *(name for name in narrow if name in there)), condition)
    if documents is None:
        return pa.table({name: pa.nulls(0) for name in (*_OWN[1:], "failed", *scores)})
    signals = dataset.read("signals", ("doc_id", *scores), condition)
    documents = _beside(documents, signals, dict.fromkeys(scores, pa.float64()))
    verdicts = dataset.read("verdicts", ("doc_id", "kept", "failed"), condition)
    return _beside(documents, verdicts, {"kept": pa.bool_(), "failed": pa.list_(pa.struct([]))})


def _beside(table: pa.Table, other: pa.Table | None, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Columns of another table beside the rows of one, by doc_id; nulls where it has no such row, or is not there."""
    place = places_of(table.column("doc_id"), other.column("doc_id")) if other else None
    for name, kind in columns.items():
        values = other.column(name).combine_chunks().take(place) if other else pa.nulls(len(table), kind)
        table = table.append_column(name, values)
    return table


def places_of(ids: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    """(N) the place of each doc_id among others, null where it is not there: as `index_in`, in half of its time."""
    keys, there = halves_of(ids), halves_of(others)
    order, ranks = np.argsort(there[0]), np.argsort(keys[0])
    first = there[0][order]
    if not len(first) or (first[1:] == first[:-1]).any():  # two ids with one half are a wonder, or somebody's work
        return pc.index_in(ids, value_set=others.combine_chunks())
    place = np.empty(len(ranks), np.int64)
    place[ranks] = order[np.minimum(np.searchsorted(first, keys[0][ranks]), len(first) - 1)]
    return pa.array(place, mask=(there[:, place] != keys).any(axis=0))


def halves_of(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """(2, N) the halves of doc_ids as numbers, whose order is that of the ids."""
    texts = ids.cast(pa.large_string()).combine_chunks()
    if not len(texts):
        return np.zeros((2, 0), np.uint64)
    first = int(np.frombuffer(texts.buffers()[1], np.int64)[texts.offset])
    digits = memoryview(texts.buffers()[2])[first : first + 32 * len(texts)]
    return np.frombuffer(binascii.unhexlify(digits), ">u8").reshape(-1, 2).T.astype(np.uint64)


def _failed(table: pa.Table, ids: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
    """Failed rules; the distance is the share of the threshold that was missed, 0 where there is no number."""
    lists = table.column("failed").combine_chunks()
    parents = pc.list_parent_indices(lists)
    if not len(parents):
        return iter(())
    rules = pc.list_flatten(lists)
    rule, value, threshold = (pc.struct_field(rules, name) for name in ("rule", "value", "threshold"))
    values, wanted = (np.asarray(array.to_numpy(zero_copy_only=False), np.float64) for array in (value, threshold))
    missed = np.nan_to_num(np.abs(values - wanted) / np.where(wanted == 0, 1, np.abs(wanted)))
    rule_ids = (ids[parent] for parent in parents.to_pylist())
    return zip(rule_ids, rule.to_pylist(), value.to_pylist(), threshold.to_pylist(), missed.tolist(), strict=True)
