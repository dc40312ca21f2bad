"""Tokens of the documents that a run, a blend or a corpus has, by dataset, domain, language and more.

A run read rows of blends; where it went back to a checkpoint, the rows that it read again count once::

    reads of a run    [0, 500) of mix, [400, 900) of mix          count    [0, 400) and [400, 900)

Documents are looked up in the datasets of the lake; those of a dataset that was deleted count as of none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_documents import TableParts, blend_parts, joined_segments, segments_of
from dagster_project.inspect.documents.document_keys import Keys, keys_of, number_keys
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, namespaces_with
from dagster_project.inspect.lake.training_runs import open_register
from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.lookups import read_batches, read_columns

if TYPE_CHECKING:
    from blender_service.server.blender import Blender
    from blender_service.server.run_register import RunRead

_FACTS = ("kind", "language", "licence")
_OF_METADATA = ("url", "model", "fetched")
_NO_KEYS = np.zeros((0, 2), np.uint64)
_ROWS = 1024  # of a blend of texts, read at once


class Rows(NamedTuple):
    """Rows [first, end) of a blend; `end` None for the blend's."""

    blend_id: str
    first: int
    end: int | None


@dataclass(frozen=True)
class Counts:
    """Documents of a summary.

    Attributes:
        subject: what they are of.
        documents: a row for each: dataset, domain, kind, language, licence, model, fetched, increment, `natural`
            (its natural language), `tokens` of its own that were read at least once, and `tokens_read` with repeats.
        unknown_tokens: tokens read of documents that no dataset of the lake has any more.
    """

    subject: str
    documents: pa.Table
    unknown_tokens: int

    @property
    def tokens_read(self) -> int:
        """All tokens that were read, with repeats; the blend's count."""
        return int(pc.sum(self.documents["tokens_read"]).as_py() or 0) + self.unknown_tokens

    def by(self, column: str, *, of: pa.Table | None = None) -> list[tuple[str | None, int, int]]:
        """Documents and tokens by value of a column, the most tokens first; None where it has none."""
        rows = self.documents if of is None else of
        groups = rows.group_by(column).aggregate([([], "count_all"), ("tokens", "sum")])
        ordered = groups.sort_by([("tokens_sum", "descending"), (column, "ascending")]).to_pylist()
        return [(row[column], row["count_all"], row["tokens_sum"]) for row in ordered]

    def of_datasets(self, names: Iterable[str]) -> pa.Table:
        """The documents of some datasets."""
        return self.documents.filter(pc.is_in(self.documents["dataset"], pa.array(list(names), pa.string())))


def run_rows(catalogue: Catalog, blender: Blender, run: str, at: int | None) -> list[Rows]:
    """The rows that a run's model has learnt from, before offset `at` where that is given.

    The last read goes to its end; each one before it to where the next ones of its blend and its updates began.
    """
    by_root: dict[str, list[RunRead]] = {}
    for read in open_register(catalogue).reads(run):
        by_root.setdefault(blender.head(read.blend_id).lineage[0].blend_id, []).append(read)
    rows = []
    for reads in by_root.values():
        low = np.iinfo(np.int64).max if at is None else at
        by_start: dict[tuple[str, int], int] = {}  # the ranks of one start read the same rows
        for read in reads:
            end = read.end if read.consumed is None else read.consumed
            by_start[read.blend_id, read.first] = max(end, by_start.pop((read.blend_id, read.first), 0))
        for (blend_id, first), end in reversed(by_start.items()):
            if first < min(end, low):
                rows.append(Rows(blend_id, first, min(end, int(low))))
            low = min(low, first)
    if not rows:
        before = "" if at is None else f" before row {at}"
        raise CommandError(f"run {run} read nothing{before}, as far as the run register knows")
    return rows[::-1]


def corpus_parts(catalogue: Catalog, corpus: CorpusFacts, table: str | None = None) -> tuple[str, TableParts]:
    """The windows of a packed table of a corpus, each read once; of several tables the first by name."""
    packed = sorted(name for name in corpus.tables if name.startswith("packed_"))
    chosen = table or next(iter(packed), None)
    if chosen not in packed:
        raise CommandError(f"corpus {corpus.name} has no packed table {chosen or ''}; run `headrace run {corpus.name}`")
    identifier, count, segments = corpus.own(chosen), 0, []
    for batch in read_batches(catalogue, identifier, ("segments.element.doc_id", "segments.element.token_count")):
        segments.append(segments_of(batch["segments"], count))
        count += batch.num_rows
    return identifier, TableParts(np.ones(count, np.int64), *joined_segments(segments))


class DocumentTokens(NamedTuple):
    """Documents that were read: (D, 2) keys, (D,) tokens read at least once, (D,) tokens read, with repeats."""

    keys: Keys
    tokens: Int64Array
    tokens_read: Int64Array


def blend_counts(catalogue: Catalog, blender: Blender, subject: str, rows: Sequence[Rows]) -> Counts:
    """Count the documents in rows of blends; rows that are made of texts are read, of packed tables the segments."""
    of_texts = [read for read in rows if blender.config(read.blend_id).texts is not None]
    packed = [read for read in rows if read not in of_texts]
    parts = [part for read in packed for part in blend_parts(blender, read.blend_id, read.end, read.first)]
    return count(catalogue, subject, [in_windows(parts), *(in_rows(blender, read) for read in of_texts)])


def in_windows(parts: Iterable[TableParts]) -> DocumentTokens:
    """The documents in windows of packed tables."""
    by_table: dict[tuple[str, str], list[TableParts]] = {}
    for part in parts:
        by_table.setdefault(part.table, []).append(part)
    tables = [_together(same) for same in by_table.values()]
    numbers, first = number_keys(np.concatenate([_NO_KEYS, *(table.keys for table in tables)]))
    keys = np.concatenate([_NO_KEYS, *(table.keys for table in tables)])[first]
    tokens_read, tokens = np.zeros((2, first.size), np.int64)
    start = 0
    for table in tables:
        document, of_table = numbers[start : start + len(table.keys)], np.zeros(first.size, np.int64)
        start += len(table.keys)
        np.add.at(tokens_read, document, table.tokens * table.reads[table.window])
        np.add.at(of_table, document, table.tokens * (table.reads[table.window] > 0))
        tokens = np.maximum(tokens, of_table)  # packed in several lengths, a document has its tokens once
    return DocumentTokens(keys, tokens, tokens_read)


def in_rows(blender: Blender, rows: Rows) -> DocumentTokens:
    """The documents in rows that are made of texts, which are read for it; each epoch cuts documents anew."""
    end = blender.head(rows.blend_id).end if rows.end is None else rows.end
    if end is None:
        raise CommandError(f"blend {rows.blend_id[:12]} has no end; say up to which row with --at OFFSET")
    keys, epochs, tokens = [_NO_KEYS], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    reader, at = blender.open(rows.blend_id, rows.first), rows.first
    while at < end:
        before = at
        for batch in reader.read(at, min(_ROWS, end - at), wait_seconds=1):
            keys.append(keys_of(pa.array(batch.doc_ids, pa.string())))
            epochs.append(np.repeat(batch.epochs, batch.segment_counts))
            tokens.append(np.asarray(batch.segment_token_counts, np.int64))
            at += batch.rows
        if at == before:
            raise CommandError(f"blend {rows.blend_id[:12]} has no row {at} yet; give an offset up to that")
    every, epoch, count_of = np.concatenate(keys), np.concatenate(epochs).astype(np.int64), np.concatenate(tokens)
    numbers, first = number_keys(every)
    by_epoch = np.zeros((first.size, int(epoch.max(initial=0)) + 1), np.int64)
    np.add.at(by_epoch, (numbers, epoch), count_of)
    return DocumentTokens(every[first], by_epoch.max(axis=1), by_epoch.sum(axis=1))


def count(catalogue: Catalog, subject: str, read: Sequence[DocumentTokens]) -> Counts:
    """Look documents that were read up in the datasets of the lake."""
    every = np.concatenate([_NO_KEYS, *(part.keys for part in read)])
    numbers, first = number_keys(every)
    tokens_read, tokens = np.zeros((2, first.size), np.int64)
    np.add.at(tokens_read, numbers, np.concatenate([part.tokens_read for part in read]))
    np.maximum.at(tokens, numbers, np.concatenate([part.tokens for part in read]))
    was_read = tokens_read > 0
    keys, tokens_read, tokens = every[first][was_read], tokens_read[was_read], tokens[was_read]
    tables = list(_looked_up(catalogue, keys, tokens, tokens_read))
    documents = pa.concat_tables(tables) if tables else _EMPTY
    looked_up = int(pc.sum(documents["tokens_read"]).as_py() or 0)
    return Counts(subject, documents, int(tokens_read.sum()) - looked_up)


def _together(parts: list[TableParts]) -> TableParts:
    """The windows of one table, read in several ranges of rows: each once, with its reads in all of them."""
    reads = np.zeros(max(part.reads.size for part in parts), np.int64)
    is_there, chosen = np.zeros(reads.size, np.bool_), []
    for part in parts:
        reads[: part.reads.size] += part.reads
        chosen.append(~is_there[part.window])
        is_there[part.window] = True
    window, keys, tokens = (
        np.concatenate([getattr(part, name)[rows] for part, rows in zip(parts, chosen, strict=True)])
        for name in ("window", "keys", "tokens")
    )
    return TableParts(reads, window, keys, tokens)


def _looked_up(catalogue: Catalog, keys: Keys, tokens: Int64Array, tokens_read: Int64Array) -> Iterator[pa.Table]:
    """The rows of each dataset's documents that are among some, with their tokens."""
    taken = np.zeros(len(keys), np.bool_)
    for dataset in namespaces_with(catalogue, "documents"):
        rows = read_columns(catalogue, f"{dataset}.documents", ("increment", "doc_id", *_FACTS, "path", "metadata"))
        if rows is None:
            continue
        numbers, _ = number_keys(np.concatenate([keys, keys_of(rows["doc_id"])]))
        numbers = numbers[len(keys) :].astype(np.int64)
        at = np.flatnonzero(numbers < len(keys))
        at = at[~taken[numbers[at]]]
        taken[numbers[at]] = True
        yield _with_facts(catalogue, dataset, rows.take(at), tokens[numbers[at]], tokens_read[numbers[at]])


def _with_facts(
    catalogue: Catalog, dataset: str, rows: pa.Table, tokens: Int64Array, tokens_read: Int64Array
) -> pa.Table:
    """Columns of `_EMPTY` for documents of one dataset."""
    metadata = rows["metadata"].combine_chunks()
    key = metadata.type.key_type  # PyIceberg gives long or short strings, by how a file was written
    stated = {name: pc.map_lookup(metadata, pa.scalar(name, key), "first").cast(pa.string()) for name in _OF_METADATA}
    spoken = read_columns(catalogue, f"{dataset}.languages", ("doc_id", "language"))
    natural = pa.nulls(rows.num_rows, pa.string())
    if spoken is not None:
        at = pc.index_in(rows["doc_id"].combine_chunks(), spoken["doc_id"].combine_chunks().cast(rows["doc_id"].type))
        natural = pc.take(spoken["language"].combine_chunks(), at)
    columns = {
        "dataset": pa.array([dataset] * rows.num_rows, pa.string()), "increment": rows["increment"],
        **{name: rows[name] for name in _FACTS},
        "domain": domains(pc.coalesce(stated["url"], rows["path"].combine_chunks().cast(pa.string()))),
        "model": stated["model"], "fetched": stated["fetched"], "natural": natural,
        "tokens": pa.array(tokens), "tokens_read": pa.array(tokens_read),
    }  # fmt: skip
    return pa.table([pc.cast(columns[field.name], field.type) for field in _EMPTY.schema], _EMPTY.schema)


def domains(urls: pa.Array) -> pa.Array:
    """The host of each address of the web, in lower case without `www.`; null of what is none."""
    encoded = urls.dictionary_encode()
    hosts = pa.array([_host(url) for url in encoded.dictionary.to_pylist()], pa.string())
    return pc.take(hosts, encoded.indices)


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").removeprefix("www.") or None if parts.scheme in ("http", "https") else None
    except ValueError:  # no address, as paths may be
        return None


_EMPTY = pa.schema(
    {
        **dict.fromkeys(("dataset", *_FACTS, "natural", "domain", "model", "fetched"), pa.string()),
        "increment": pa.int32(), **dict.fromkeys(("tokens", "tokens_read"), pa.int64()),
    }
).empty_table()  # fmt: skip
