"""SQL over the tables that a reader may see."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.export import excised
from headrace_features.explore.sql import MOST_ROWS, SECONDS, SqlTable, run_sql

_TEXTS = ("content", "input_ids", "token", "evidence", "example", "text", "reasoning", "answer", "label", "file")
"""Columns with texts of documents (`Table.sampled`), hidden where these are not shown."""


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

    def table_of(name: str) -> SqlTable | None:
        table = load_table(explorer.catalogue, name) if name in names else None
        if table is None:
            return None
        explorer.reads(principal, name)
        return SqlTable(table, _hidden(explorer, principal, name))

    if text:
        try:
            shown["answer"] = run_sql(text, table_of, names, excised(explorer.catalogue))
        except CommandError as error:
            shown["error"] = str(error)
    return answer(request, "query.html", shown, 400 if shown["error"] else 200)


def _hidden(explorer: Explorer, principal: str, name: str) -> list[str]:
    """Columns with texts that may not be shown: of a corpus, if those of one dataset may not; never texts as landed."""
    space, _, table = name.partition(".")
    tables = {listed for _, listed in explorer.catalogue.list_tables(space)}
    corpus = next((facts for facts in explorer.corpora(principal) if facts.name == space), None)
    datasets = corpus.datasets if corpus is not None else (space,)
    if any(explorer.hides_text(dataset) for dataset in datasets):
        return [*_TEXTS]
    return ["content"] if table in ("documents", "raw_texts") and "raw_texts" in tables else []


PATHS = {"/sql": query}
