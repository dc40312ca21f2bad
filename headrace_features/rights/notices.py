"""What the opt-out register has to say elsewhere: in `headrace status`, and of single documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.documents.findings import TableFinding
from dagster_project.inspect.notices import Notices, Waiting
from headrace.tables.catalogue import load_table
from headrace.tables.rights_root import OPT_OUTS
from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.register.register import entries, entries_of, read_log, register_salt
from spark_jobs.lake.files.lookups import read_rows


def waiting(catalogue: Catalog) -> Waiting | None:
    """Entries that wait, and since when the oldest does; None where nobody ever asked."""
    if load_table(catalogue, OPT_OUTS) is None:
        return None
    since = [entry.at for entry in entries(catalogue) if entry.state == "waiting"]
    return Waiting("opt_outs", "opt-outs", len(since), min(since, default=None), "headrace rights plan")


def findings(catalogue: Catalog, document: FoundDocument) -> Iterator[TableFinding]:
    """Entries that name a document, or that it was taken out for."""
    if load_table(catalogue, OPT_OUTS) is None:
        return
    log = read_log(catalogue)
    there = {entry.entry: entry for entry in entries_of(log)}
    for row in log:
        if row["act"] == "excision" and document.doc_id in (row["detail"] or ""):
            for hit in json.loads(row["detail"])["documents"]:
                if hit["doc_id"] == document.doc_id and (entry := there.pop(row["entry"], None)):
                    sentence = f"taken out on {row['at']:%Y-%m-%d} for entry {entry.entry} ({hit['how']})"
                    yield TableFinding(OPT_OUTS, "taken_out", sentence, {"entry": entry.entry})
    matcher = Matcher.of(there.values(), register_salt(catalogue))
    rows = read_rows(catalogue, f"{document.dataset}.documents", ("metadata",), document.row) if there else []
    facts = document.facts() | {"metadata": dict(rows[0]["metadata"]) if rows else {}}
    for entry_id in dict.fromkeys(matcher.naming(document.dataset, facts)):
        entry = there[entry_id]
        sentence = (
            f"entry {entry_id} of {entry.opt_out.asker} names it by its {entry.opt_out.kind}; it is {entry.state}"
        )
        yield TableFinding(OPT_OUTS, "named", sentence, {"entry": entry_id})


NOTICES: Final = Notices(waiting, findings)
