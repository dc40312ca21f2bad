"""What sites answered, `system.rights_answers`: kept with its time, for who asks later why something was taken or not.

silent        the site answered, and has no such file: all may be taken
said          it has one, or a page spoke for itself; the verdict says what follows for us
unreachable   it could not be asked, so nothing was taken in that run
not_asked     the dataset asked nobody, with the reason
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table

ANSWERS: Final = "system.rights_answers"
State = Literal["said", "silent", "unreachable", "not_asked"]
_KEPT_BYTES = 512_000  # of a body; RFC 9309 (2.5) lets a robots.txt be cut there too

DECLARED = Table(
    name="rights_answers",
    comment="One row for each answer of a site about what may be taken, and for each increment that asked nobody.",
    columns=(
        Column("at!", "timestamptz", "when it came"),
        Column("dataset!", "string", "dataset that asked"),
        Column("site!", "string", "scheme, host and port; empty where nobody was asked"),
        Column("what!", "string", "robots.txt, tdmrep.json, ai.txt, or page: what an answer says of itself"),
        Column("url!", "string", "address that was asked"),
        Column("state!", "string", "said, silent, unreachable or not_asked; docs/operate/rights.md"),
        Column("status", "int", "of HTTP; null where no answer came"),
        Column("sha256", "string", "of the body"),
        Column("body", "binary", "its first 512,000 bytes; of a page none"),
        Column("verdict", "string", "what follows from it for our agent, or the reason for asking nobody"),
    ),
)


def answer_row(
    what: str, url: str, state: State, verdict: str, status: int | None = None, body: bytes | None = None
) -> dict[str, Any]:
    """A row of the table for an answer that came now, without its dataset."""
    parts = urlsplit(url)
    site, sha256 = f"{parts.scheme}://{parts.netloc}" if url else "", None
    if body is not None:
        sha256, body = hashlib.sha256(body).hexdigest(), body[:_KEPT_BYTES]
    row = {"at": datetime.now(UTC), "site": site, "what": what, "url": url, "state": state, "verdict": verdict}
    return {**row, "status": status, "sha256": sha256, "body": body}


def keep_answers(catalogue: Catalog, dataset: str, answers: Sequence[dict[str, Any]], reason: str | None) -> None:
    """Write answers down, and with a reason that a dataset asked nobody; one commit."""
    rows = [*answers, *([] if reason is None else [answer_row("", "", "not_asked", reason)])]
    with catalogue_errors():
        table = ensure_table(catalogue, ANSWERS, DECLARED, {SCOPE_PROPERTY: "rights_answers"})
        schema = table.schema().as_arrow()
        table.append(pa.Table.from_pylist([{**row, "dataset": dataset} for row in rows], schema=schema))
