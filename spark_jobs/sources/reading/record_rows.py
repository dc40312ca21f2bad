"""Rows of the documents of records, a batch at a time: hashes and texts are found for whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.sha256 import sha256_digits
from spark_jobs.arrays import UInt8Array
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.languages import DETECTED, language_named_by
from spark_jobs.sources.licences.expressions import is_recognised
from spark_jobs.sources.licences.names import stated
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.reading.built_in import COLUMN_READERS, READERS
from spark_jobs.sources.reading.rows import READ_ROWS, ReadingRules, Row, of_folders, refused_part
from spark_jobs.sources.records.columns import Records
from spark_jobs.sources.refusals import Reason, Refusal

_ID_DIGITS, _SHARD_DIGITS, _NAME_DIGITS = 32, 16, 16
_MARKS = np.array([value < ord(" ") or chr(value) in '"\\' for value in range(256)])  # that JSON escapes


class DocumentRows(NamedTuple):
    """Documents of READ_ROWS, and what the numbers of their records count."""

    rows: pa.RecordBatch
    unit: str


class Seen:
    """The doc_id at each path of a file so far, both as bytes, the path hashed.

    Of records of a file with one path the first is the document: a file is one state of its records, and which of two
    texts of one state is the newer is not known. On pages all texts of a path are its versions, but for one equal to
    the record before it.
    """

    def __init__(self, has_versions: bool) -> None:
        self.has_versions = has_versions
        self._ids = dict[bytes, bytes]()

    def refusals(self, path_hashes: Sequence[bytes], doc_ids: Sequence[bytes]) -> Iterator[Reason | None]:
        """Why each record is no document; None for documents."""
        for path, doc_id in zip(path_hashes, doc_ids, strict=True):
            if self.has_versions:
                repeats = self._ids.get(path) == doc_id
                self._ids[path] = doc_id
                yield Reason.REPEATED_RECORD if repeats else None
            else:
                earlier = self._ids.setdefault(path, doc_id)
                different = None if earlier is doc_id else Reason.LISTED_TWICE
                yield Reason.REPEATED_RECORD if different and earlier == doc_id else different


def document_rows(
    file: ListedFile, records: Records, keys: Seen, rules: ReadingRules
) -> tuple[DocumentRows, Records, list[Row]]:
    """Make documents of records; gives them, their records, and the arrivals of refused records.

    Args:
        file: as it is listed.
        records: the records.
        keys: those of the file so far; these are added.
        rules: of the dataset.
    """
    content = sha256_of_texts(records.text)
    hashes = digit_strings(content)
    messages = _of_messages(records, rules)
    whole = content if messages is None else messages
    names = pc.coalesce(records.record_id, digit_strings(whole[:, :_NAME_DIGITS]))
    paths = _joined(f"{file.path}#", names)
    of_repository = pc.coalesce(_quoted(records.repository), "null")
    at_path = _joined(of_repository, ",", _quoted(paths))
    digits = sha256_of_texts(_joined(f"[{quoted(rules.dataset)},", at_path, ',"', digit_strings(whole), '"]'))
    digits = digits[:, :_ID_DIGITS]
    doc_ids = digit_strings(digits)
    path_digits = sha256_of_texts(_joined("[", at_path, "]"))[:, :_ID_DIGITS]
    in_shards = sha256_of_texts(pc.coalesce(records.repository, doc_ids))[:, :_SHARD_DIGITS]
    shards = _bytes(in_shards).view(">u8").ravel() % np.uint64(rules.shards)
    licences, metadata = _licences(records.licence), records.metadata
    count = len(records.number)
    columns = {
        "shard": pa.array(shards.astype(np.int32)),
        "doc_id": doc_ids,
        "repository": records.repository,
        "path": paths,
        "kind": records.kind,
        "language": _languages(records, rules.source),
        "licence": licences,
        "content": records.text,
        "encoding": pa.repeat("utf-8", count),
        "content_sha256": hashes,
        "byte_count": pc.binary_length(records.text).cast(pa.int64()),
        "metadata": metadata,
        "status": pa.repeat("landed", count),
        "number": records.number,
    }
    columns |= {
        name: pa.repeat(pa.scalar(getattr(file, name), pa.string()), count)
        for name in ("revision", "media_type", "location")
    }
    columns |= _with_constants(file, columns, records.licence, rules.source)
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in READ_ROWS]
    rows = pa.RecordBatch.from_arrays(arrays, schema=READ_ROWS)

    unit = READERS[file.reader].unit
    reasons = list(
        keys.refusals(_bytes(path_digits).view("V16").ravel().tolist(), _bytes(digits).view("V16").ravel().tolist())
    )
    none = [row for row, reason in enumerate(reasons) if reason is not None]
    refused = list[Row]()
    for row in () if keys.has_versions else none:
        if reasons[row] == Reason.REPEATED_RECORD:
            refusal = Refusal(Reason.REPEATED_RECORD, f"same path and text as an earlier {unit}")
        else:
            record_id = records.record_id[row].as_py()
            key_name = f"id {record_id!r:.100}" if record_id else "hash of the text"
            refusal = Refusal(
                Reason.LISTED_TWICE, f"the {key_name} is that of an earlier {unit}, which has another text"
            )
        where = f"{file.location}#{unit}:{records.number[row].as_py()}"
        refused.append(refused_part(where, refusal, hashes[row].as_py()))
    kept = np.array([reason is None for reason in reasons], np.bool_)
    return DocumentRows(rows.filter(pa.array(kept)) if none else rows, unit), records.only(kept), refused


def _of_messages(records: Records, rules: ReadingRules) -> UInt8Array | None:
    """Hashes of conversations: two with one text, of other roles or tools, are two documents; None of other records."""
    if not getattr(rules.source, "messages_column", None):
        return None
    columns = (pc.coalesce(pc.map_lookup(records.metadata, name, "first"), "") for name in ("messages", "tools"))
    return sha256_of_texts(pc.binary_join_element_wise(records.text, *columns, "\0"))


def each_row(part: Row | DocumentRows) -> Iterator[Row]:
    """The rows one by one, with their `unit` where they are of records."""
    if not isinstance(part, DocumentRows):
        yield part
        return
    for row in part.rows.to_pylist():
        yield row | {"metadata": dict(row["metadata"]), "unit": part.unit}


def sha256_of_texts(texts: pa.Array) -> UInt8Array:
    """(R, 64) lower-case hex digits in ASCII of the SHA-256 of texts, none of them null."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return sha256_digits(np.frombuffer(data or b"", np.uint8), bounds[:-1], bounds[1:])


def digit_strings(digits: UInt8Array) -> pa.Array:
    """Digits of (R, D) as R strings."""
    count, width = digits.shape
    offsets, data = np.arange(0, (count + 1) * width, width, dtype=np.int32), np.ascontiguousarray(digits)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def _bytes(digits: UInt8Array) -> UInt8Array:
    """The bytes of (R, 2 B) hex digits, as (R, B)."""
    values = np.where(digits > ord("9"), digits - (ord("a") - 10), digits - ord("0"))
    return (values[:, ::2] << 4 | values[:, 1::2]).astype(np.uint8, copy=False)


def _joined(*texts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "")


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON has them without escapes for characters beyond ASCII; nulls as they are."""
    data = texts.buffers()[2]
    if data is not None and _MARKS[np.frombuffer(data, np.uint8)].any():
        return pa.array([None if text is None else quoted(text) for text in texts.to_pylist()], pa.string())
    return _joined('"', texts, '"')


def _licences(stated_as: pa.Array) -> pa.Array:
    """Licences as tables have them."""
    coded = stated_as.dictionary_encode()
    return pa.array(map(stated, coded.dictionary.to_pylist()), pa.string()).take(coded.indices)


def _with_constants(
    file: ListedFile, columns: dict[str, pa.Array], stated_as: pa.Array, source: Any
) -> dict[str, pa.Array]:
    """Columns of documents that the file's folders and content, or licences that nobody knows, change.

    Args:
        file: as it is listed.
        columns: of the documents.
        stated_as: their licences as the records state them.
        source: as it is declared.
    """
    has_folders = isinstance(source, FileReading) and file.reader not in COLUMN_READERS
    of_file, language = of_folders(file, source) if has_folders else ({}, {})
    if file.detected:
        of_file[DETECTED] = file.detected
    unknown = {licence for licence in columns["licence"].unique().to_pylist() if licence and not is_recognised(licence)}
    changed = dict[str, pa.Array]()
    if language:
        changed["language"] = pa.repeat(pa.scalar(language["language"], pa.string()), len(stated_as))
    if of_file or unknown:
        values = zip(
            *(columns[name].to_pylist() for name in ("licence", "metadata")), stated_as.to_pylist(), strict=True
        )
        maps = (
            {**of_file, **({"licence": licence_stated} if licence in unknown else {}), **dict(metadata)}
            for licence, metadata, licence_stated in values
        )
        changed["metadata"] = pa.array([list(metadata.items()) for metadata in maps], columns["metadata"].type)
    return changed


def _languages(records: Records, source: Any) -> pa.Array:
    """Languages by the column of their names; without one, of code, markup and data, by the id as a path."""
    of_prose = pc.equal(records.kind, "prose")
    if pc.all(of_prose).as_py() or (isinstance(source, FileReading) and source.language_column is not None):
        return records.language
    languages = records.language.to_pylist()
    for row in np.flatnonzero(~of_prose.to_numpy(zero_copy_only=False)).tolist():
        path = records.record_id[row].as_py() or ""
        language = language_named_by(path, records.text[row].as_py().encode())
        languages[row] = language and language.name
    return pa.array(languages, pa.string())
