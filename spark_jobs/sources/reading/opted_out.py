"""Leave out the documents of a file that people opted out of: each is refused in its place, and facts about it too.

WARC file   record at 81920, of a page under an opt-out   crawl.warc#offset:81920   rejected, opted_out
            the other records                                                       documents
page.html   its one document is under an opt-out          page.html                 rejected, opted_out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.sources.config.permissions import Document, OptOuts
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing_rows import why
from spark_jobs.sources.reading.record_rows import DocumentRows
from spark_jobs.sources.reading.rows import Row, refused_part


def without_opted_out(
    parts: Iterable[Row | DocumentRows], file: ListedFile, opt_outs: OptOuts
) -> Iterator[Row | DocumentRows]:
    """What a file gives, without documents and facts under an opt-out; a file with no other document is refused."""
    landed, first = 0, None
    for part in parts:
        if isinstance(part, DocumentRows):
            refusals = [opt_outs.document(document) for document in _documents(part.rows)]
            for row, refusal in enumerate(refusals):
                if refusal is not None:
                    where = f"{file.location}#{part.unit}:{part.rows['number'][row]}"
                    yield refused_part(where, refusal, part.rows["content_sha256"][row].as_py())
            kept = [refusal is None for refusal in refusals]
            landed += sum(kept)
            first = first or next(filter(None, refusals), None)
            if any(kept):
                yield part if all(kept) else part._replace(rows=part.rows.filter(pa.array(kept)))
        elif part["doc_id"] is not None:
            refusal = opt_outs.document(_document(part))
            first = first or refusal
            landed += refusal is None
            if refusal is None:
                yield part
            elif where := _inside(part, file):
                yield refused_part(f"{file.location}{where}", refusal, part["content_sha256"])
        elif part.get("facts"):
            repository = json.loads(part["facts"])["repository"]
            if opt_outs.file("", repository, None) is None:
                yield part
        elif first is not None and not landed and part.get("status") == "landed":
            yield part | {"status": "rejected"} | why(first)
        else:
            yield part


def _documents(rows: pa.RecordBatch) -> Iterator[Document]:
    columns = (rows[name].to_pylist() for name in Document._fields)
    for doc_id, repository, path, sha256, metadata in zip(*columns, strict=True):
        yield Document(doc_id, repository, path, sha256, dict(metadata))


def _document(row: Row) -> Document:
    return Document(row["doc_id"], row["repository"], row["path"], row["content_sha256"], dict(row["metadata"]))


def _inside(row: Row, file: ListedFile) -> str:
    """Where in its file a document stands: the member of an archive, the record, the part; empty for all of it."""
    if "unit" not in row and "member" not in row:
        return str(row["path"]).removeprefix(file.path)
    member = f"#{row['member']}" if "member" in row else ""
    return f"{member}#{row['unit']}:{row['number']}" if "unit" in row else member
