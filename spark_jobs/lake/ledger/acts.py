"""The table `system.audit`: acts of people and policies, on record for later questions.

    read      rows of a namespace that is not public were shown
    release   an increment of a quarantined dataset goes on
    refuse    it does not, until it is released
    delete    a dataset, or an increment of one, was deleted
    excise    documents were taken out of packed tables
    tag       a person gave documents a tag, each a row
    untag     it was taken off again

Releases and refusals are also what `lake.run.decisions` reads: the newest of an increment counts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from spark_jobs.credentials import shown_words
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.process import user_name
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table
from spark_jobs.lake.session.tidiness import tidy

AUDIT_TABLE = "system.audit"
EXCISE = "excise"
AUDIT = Table(
    name="audit",
    comment="One row per act that somebody may ask about later: looks at restricted rows, releases, deletions.",
    columns=(
        Column("at!", "timestamptz", "time of the act"),
        Column("who!", "string", "user of the operating system; of a release by rules, `policy`"),
        Column("act!", "string", "read, release, refuse, delete, excise, tag or untag"),
        Column("subject!", "string", "object of the act: namespaces or tables, joined by commas, or a dataset"),
        Column("how!", "string", "the command line"),
        Column("increment", "int", "the increment that was decided about; null for the whole"),
        Column("version", "string", "data version of its documents, for which alone the decision holds"),
        Column("why", "string", "the reason that was given, or what the rules found"),
        Column("doc_id", "string", "the document that was tagged"),
        Column("tag", "string", "its tag"),
    ),
)


def note_act(
    catalogue: Catalog,
    act: str,
    subject: str,
    *,
    why: str | None = None,
    increment: int | None = None,
    version: str | None = None,
    who: str | None = None,
    now: datetime | None = None,
) -> None:
    """Write a row of `system.audit`.

    Raises:
        CatalogueError: the row cannot be written; then the act must not happen.
    """
    note_acts(catalogue, act, subject, {"increment": [increment], "version": [version]}, why=why, who=who, now=now)


def note_acts(
    catalogue: Catalog,
    act: str,
    subject: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    why: str | None = None,
    who: str | None = None,
    now: datetime | None = None,
) -> None:
    """Write N rows of `system.audit` in one commit: (N) values of each of some columns, the others alike.

    Raises:
        CatalogueError: they cannot be written; then the act must not happen.
    """
    alike = {
        "at": now or datetime.now(UTC),
        "who": who or user_name(),
        "act": act,
        "subject": subject,
        "how": " ".join(["headrace", *shown_words(sys.argv[1:])]),
        "why": why,
    }
    count = len(next(iter(columns.values())))
    with catalogue_errors():
        table = ensure_table(catalogue, AUDIT_TABLE, AUDIT, {SCOPE_PROPERTY: "audit"})
        schema = table.schema().as_arrow()
        values = (
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.repeat(pa.scalar(alike.get(field.name), field.type), count)
            for field in schema
        )
        table.append(pa.table(list(values), schema=schema))
        tidy(catalogue, table)
