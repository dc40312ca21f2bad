"""Leave out the documents of a file that people opted out of: each is refused in its place, and facts about it too.

WARC file   record at 81920, of a page under an opt-out   crawl.warc#offset:81920   rejected, opted_out
            the other records                                                       documents
page.html   its one document is under an opt-out          page.html                 rejected, opted_out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from spark_jobs.sources.config.permissions import OptOuts
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing_rows import why
from spark_jobs.sources.reading.record_rows import DocumentRows, each_row
from spark_jobs.sources.reading.rows import Row, refused_part

_COMPARED: Final = ("doc_id", "repository", "path", "content_sha256", "metadata", "number")


def without_opted_out(
    parts: Iterable[Row | DocumentRows], file: ListedFile, opt_outs: OptOuts
) -> Iterator[Row | DocumentRows]:
    """What a file gives, without documents and facts under an opt-out; a file with no other document is refused."""
    landed, first = 0, None
    for part in parts:
        if not isinstance(part, DocumentRows) and part["doc_id"] is None:
            is_landed = part.get("status") == "landed"
            is_fact = bool(part.get("facts"))
            if is_fact and opt_outs.refusal({"repository": json.loads(part["facts"])["repository"]}):
                continue
            yield part | {"status": "rejected"} | why(first) if is_landed and first and not landed else part
            continue
        compared = part._replace(rows=part.rows.select(_COMPARED)) if isinstance(part, DocumentRows) else part
        rows = list(each_row(compared))
        refusals = [opt_outs.refusal(row) for row in rows]
        for row, refusal in zip(rows, refusals, strict=True):
            if refusal is not None and (where := _inside(row, file)):
                yield refused_part(f"{file.location}{where}", refusal, row["content_sha256"])
        kept = [refusal is None for refusal in refusals]
        landed, first = landed + sum(kept), first or next(filter(None, refusals), None)
        if all(kept):
            yield part
        elif any(kept) and isinstance(part, DocumentRows):
            yield part._replace(rows=part.rows.filter(pa.array(kept)))


def _inside(row: Row, file: ListedFile) -> str:
    """Where in its file a document stands: the member of an archive, the record, the part; empty for all of it."""
    if "unit" not in row and "member" not in row:
        return str(row["path"]).removeprefix(file.path)
    member = f"#{row['member']}" if "member" in row else ""
    return f"{member}#{row['unit']}:{row['number']}" if "unit" in row else member
