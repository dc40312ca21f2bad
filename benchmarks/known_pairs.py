"""Known duplicates: read a truth file of labelled pairs, and find their documents in a corpus.

    one pair a line     t1088 t5015                two words, or two fields with a comma or a tab between them
                        a.txt,b.txt
    *.parquet           the first two columns

An identifier is a doc_id, a path as in `members`, or the id of a record: `t1088` for the path `articles.jsonl#t1088`.
It must name one document; identifiers that name none or several are reported, never dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.exceptions import InputError


@dataclass(frozen=True)
class Resolution:
    """The documents that identifiers name in a corpus.

    Attributes:
        doc_ids: string, one for each identifier; null where it does not name exactly one document.
        unknown: identifiers that name none, sorted.
        ambiguous: identifiers that name several, sorted.
    """

    doc_ids: pa.Array
    unknown: tuple[str, ...]
    ambiguous: tuple[str, ...]


def read_truth(file: Path) -> pa.Table:
    """Read the pairs of a truth file, as columns `first` and `second` of strings.

    Raises:
        InputError: the file is missing, has no pair, or a line is no pair; the message names the line.
    """
    if not file.is_file():
        raise InputError(f"truth file {file}: no such file; give one with a pair of identifiers on each line")
    pairs = _from_parquet(file) if file.suffix == ".parquet" else _from_lines(file)
    if not len(pairs):
        raise InputError(f"truth file {file}: it holds no pair; write two identifiers on each line")
    return pairs


def _from_parquet(file: Path) -> pa.Table:
    try:
        found = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"truth file {file}: {str(error).splitlines()[0]}; give a Parquet file") from error
    if found.num_columns < 2:
        raise InputError(f"truth file {file}: it has {found.num_columns} column; two hold the pairs")
    first, second = (pc.cast(found.column(column), pa.string()) for column in (0, 1))
    if first.null_count or second.null_count:
        raise InputError(f"truth file {file}: {first.null_count + second.null_count} identifiers are null; remove them")
    return pa.table({"first": first, "second": second})


def _from_lines(file: Path) -> pa.Table:
    first, second = [], []
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"truth file {file}: byte {error.start} is not UTF-8; write it as UTF-8 text") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        separator = next((sign for sign in "\t," if sign in line), None)
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) != 2 or not all(fields):
            raise InputError(
                f"truth file {file}, line {number}: {line.strip()[:80]!r} is not two identifiers; write two words, or "
                "two fields with a tab between them"
            )
        first.append(fields[0])
        second.append(fields[1])
    return pa.table({"first": pa.array(first, pa.string()), "second": pa.array(second, pa.string())})


def resolve(identifiers: pa.Array, members: pa.Table) -> Resolution:
    """Find the one document that each identifier names.

    Args:
        identifiers: string, each once.
        members: columns `doc_id` and `path` of `members`, one row per document.

    Returns:
        The document of each identifier, tried as doc_id, then as path, then as id of a record.
    """
    doc_ids, paths = (pc.cast(members.column(name), pa.string()).combine_chunks() for name in ("doc_id", "path"))
    records = pc.replace_substring_regex(paths, r"^[^#]*#", "")
    meanings = [doc_ids, paths, pc.if_else(pc.match_substring(paths, "#"), records, pa.scalar(None, pa.string()))]
    found = pa.nulls(len(identifiers), pa.string())
    several = np.zeros(len(identifiers), bool)
    for names in meanings:
        known, many = _named(identifiers, names, doc_ids)
        several |= np.asarray(pc.is_null(found)) & many
        found = pc.if_else(pa.array(several), pa.scalar(None, pa.string()), pc.coalesce(found, known))
    none = np.asarray(pc.is_null(found)) & ~several
    return Resolution(found, _sorted(identifiers, none), _sorted(identifiers, several))


def _named(identifiers: pa.Array, names: pa.Array, doc_ids: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(I,) document with each identifier as name, null unless exactly one has it; (I,) whether several have it."""
    asked = pc.is_in(names, identifiers)
    grouped = (
        pa.table({"name": names.filter(asked), "doc_id": doc_ids.filter(asked)})
        .group_by("name")
        .aggregate([("doc_id", "min"), ("doc_id", "count_distinct")])
    )
    indices = pc.index_in(identifiers, grouped["name"].combine_chunks())
    counts = pc.fill_null(grouped["doc_id_count_distinct"].combine_chunks().take(indices), 0)
    known = pc.if_else(pc.equal(counts, 1), grouped["doc_id_min"].combine_chunks().take(indices), None)
    return known, np.asarray(pc.greater(counts, 1))


def _sorted(identifiers: pa.Array, chosen: np.ndarray) -> tuple[str, ...]:
    return tuple(sorted(identifiers.filter(pa.array(chosen)).to_pylist()))
