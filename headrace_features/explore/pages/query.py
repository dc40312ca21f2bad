"""SQL over the tables that a reader may see."""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, IcebergType, StringType
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.export import excised
from headrace_features.explore.sql import MOST_ROWS, SECONDS, Seen, run_sql

_FACTS = (
    *("doc_id", "content_sha256", "repository", "path", "kind", "language", "licence", "dataset", "status", "reason"),
    *("rule", "failed", "witness_dataset", "witness_doc_id", "better_dataset", "better_doc_id", "matched"),
)
"""Columns that are no text of a document though they are texts: shown where those are hidden."""


def query(request: Request) -> Response:
    """The field for a query, the tables, and the rows that the query gives."""
    explorer, principal, text = explorer_of(request), principal_of(request), request.query_params.get("q", "").strip()
    spaces = {*explorer.datasets(principal), *explorer.corpus_tables(principal)}
    tables = {space: [table for _, table in explorer.catalogue.list_tables(space)] for space in sorted(spaces)}
    names = [f"{space}.{table}" for space, listed in tables.items() for table in listed]
    shown: dict[str, Any] = {
        "sql": text,
        "tables": tables,
        "answer": None,
        "error": None,
        "most": MOST_ROWS,
        "seconds": SECONDS,
    }

    def table_of(name: str) -> Seen | None:
        table = load_table(explorer.catalogue, name) if name in names else None
        if table is None:
            return None
        explorer.reads(principal, name)
        return table, _hidden(explorer, principal, name, table.schema())

    if text:
        try:
            shown["answer"] = run_sql(text, table_of, names, excised(explorer.catalogue))
        except CommandError as error:
            shown["error"] = str(error)
    return answer(request, "query.html", shown, 400 if shown["error"] else 200)


def _hidden(explorer: Explorer, principal: str, name: str, schema: Schema) -> list[str]:
    """Columns that may hold texts that are not shown: of a corpus, if one dataset hides them; never texts as landed."""
    space, _, table = name.partition(".")
    corpus = next((facts for facts in explorer.corpora(principal) if facts.name == space), None)
    if any(explorer.hides_text(dataset) for dataset in (corpus.datasets if corpus is not None else (space,))):
        numbers = [field.name for field in schema.fields if not _may_hold_text(field.field_type)]
        return [column for column in schema.column_names if column not in (*numbers, *_FACTS)]
    landed = table in ("documents", "raw_texts") and explorer.catalogue.table_exists(f"{space}.raw_texts")
    return ["content"] if landed else []


def _may_hold_text(kind: IcebergType) -> bool:
    return not kind.is_primitive or isinstance(kind, StringType | BinaryType | FixedType)


PATHS = {"/sql": query}
