"""The explorer's pages of opt-outs: all entries with their states, and what one hit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from dagster_project.exceptions import CommandError
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace_features.rights.hits.applying import unfinished_plans
from headrace_features.rights.register.register import Entry, entries_of, read_log

_MOST: Final = 500


def opt_outs(request: PageRequest) -> PageAnswer:
    """Entries by state, those that wait first, the oldest of these first."""
    log = read_log(request.catalogue)
    taken = {row["entry"]: json.loads(row["detail"] or "{}") for row in log if row["act"] == "excision"}
    there, state = entries_of(log), request.query.get("state", "")
    lines = [_line(entry, taken.get(entry.entry)) for entry in there if state in ("", entry.state)]
    lines.sort(key=lambda line: line["state"] != "waiting")
    counts = {
        name: sum(entry.state == name for entry in there) for name in ("waiting", "applied", "refused", "withdrawn")
    }
    return PageAnswer(
        "opt_outs.html", {"entries": lines[:_MOST], "count": len(lines), "counts": counts, "state": state}
    )


def opt_out(request: PageRequest) -> PageAnswer:
    """One entry: what it asks for, its rows in the register, and what it hit, of datasets that the reader may see."""
    log = [row for row in read_log(request.catalogue) if row["entry"] == request.parts["entry"]]
    entry = next(iter(entries_of(log)), None)
    if entry is None:
        raise CommandError(f"no entry {request.parts['entry'][:40]}; headrace rights show names them")
    details = [json.loads(row["detail"]) for row in log if row["act"] == "excision" and row["detail"]]
    begun = unfinished_plans(request.catalogue, [entry]).get(entry.entry)
    hit: dict[str, Any] = details[-1] if details else begun or {}
    seen = [
        document
        for document in hit.get("documents", ())
        if not document.get("dataset") or request.may_read(document["dataset"])
    ]
    request.require(*sorted({f"{document['dataset']}.documents" for document in seen if document.get("dataset")}))
    named = ("leaf", "by", "act", "decision", "reason")
    acts = [{"at": row["at"].isoformat(), **{name: row[name] for name in named}} for row in log]
    shown = {
        "documents": seen[:_MOST],
        "document_count": len(seen),
        "hidden": len(hit.get("documents", ())) - len(seen),
    }
    hits = {name: hit.get(name, []) for name in ("blends", "runs", "models", "by_how")}
    windows = [part for part in hit.get("windows", ()) if request.may_read(part["table"].partition(".")[0])]
    return PageAnswer("opt_out.html", {**_line(entry, None), **shown, **hits, "windows": windows, "rows": acts})


def _line(entry: Entry, taken: dict[str, Any] | None) -> dict[str, Any]:
    asked = entry.opt_out
    values = [value[:12] for value in asked.values] if asked.kind == "author" else list(asked.values)
    return {
        "entry": entry.entry, "kind": asked.kind, "values": values, "asker": asked.asker, "scope": asked.scope,
        "request": asked.request, "evidence": asked.evidence, "at": entry.at.isoformat(), "state": entry.state,
        "hit": None if taken is None else len(taken.get("documents", ())),
    }  # fmt: skip


PAGES: Final = Pages({"/rights": opt_outs, "/rights/{entry}": opt_out}, Path(__file__).parent / "templates")
