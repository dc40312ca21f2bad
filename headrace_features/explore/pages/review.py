"""Judge what a rule removed, one document at a time; the queue is exactly a list of documents, order included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.reviews import DECISIONS, UNDONE, Said, precision, together
from dagster_project.inspect.documents.document_lookup import read_text
from headrace_features.explore.answers import address, answer, explorer_of, on_form, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.documents import beside, wanted_of
from headrace_features.explore.row_index import PAGE, RowIndex
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.texts import WINDOW, lines

_OWN = ("doc", "last")  # what of an address says where in the queue somebody is
_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class _Queue:
    """The documents that failed a rule, in the order of a list, to be judged by one person."""

    explorer: Explorer
    person: str
    dataset: str
    rule: str
    query: dict[str, str]
    index: RowIndex
    wanted: RowQuery

    @property
    def verdicts(self) -> str:
        return f"{self.dataset}.verdicts"

    def said(self) -> dict[str, dict[str, Said]]:
        """What everybody decided of the documents of the queue, by doc_id and person."""
        every = self.explorer.reviews(self.dataset).of_rule(self.verdicts, self.rule)
        if self.wanted.seed:
            inside = {row["doc_id"] for row in self.index.rows(self.wanted, PAGE)}
        else:
            ids = replace(self.wanted, ids=tuple(doc_id for doc_id in every if _is_id(doc_id)), sort="")
            inside = {row["doc_id"] for row in self.index.rows(ids, len(every))}
        return {doc_id: by for doc_id, by in every.items() if doc_id in inside}

    def total(self) -> int:
        """How many documents the queue has."""
        count = self.index.count(self.wanted)
        return min(count, PAGE) if self.wanted.seed else count

    def row(self, doc_id: str) -> dict[str, Any]:
        """A document of the queue.

        Raises:
            CommandError: it is not in the list.
        """
        rows = self.index.rows(replace(self.wanted, ids=(doc_id,), seed=""), 1) if _is_id(doc_id) else []
        if not rows:
            raise CommandError(f"document {doc_id[:40]} is not in this list of {self.dataset}; leave doc out")
        return rows[0]

    def first_open(self, decided: Mapping[str, Any]) -> dict[str, Any] | None:
        """The first document that has no decision yet."""
        wanted = self.wanted
        while rows := self.index.rows(wanted, PAGE):
            if (open_row := next((row for row in rows if row["doc_id"] not in decided), None)) or wanted.seed:
                return open_row
            wanted = replace(wanted, after=(rows[-1]["sort_key"], rows[-1]["doc_id"]))
        return None


def review(request: Request) -> Response:
    """The next document without a decision of this person, or the one that the address names."""
    query = dict(request.query_params)
    queue = _queue(request, query)
    if not queue.rule:
        return _choose(request, queue)
    hidden, decided, total = queue.explorer.hides_text(queue.dataset), queue.said(), queue.total()
    mine = {doc_id: by[queue.person] for doc_id, by in decided.items() if queue.person in by}
    row = queue.row(query["doc"]) if query.get("doc") else queue.first_open(mine)
    done = len(mine) >= total
    values: dict[str, Any] = {
        "dataset": queue.dataset, "rule": queue.rule, "at": str(queue.index.version), "total": total, "hidden": hidden,
        "decided": len(mine), "precision": precision(queue.rule, (mark.decision for mark in mine.values())),
        "row": row and {k: v for k, v in row.items() if k not in ("n", "preview")}, "all_done": done, "said": None,
        "text": None, "failed": [], "mine": None, "last": query.get("last") if query.get("last") in mine else None,
        "everybody": _everybody(queue.rule, decided) if done else None,
        "list": address(_list(queue.dataset), queue.query),
        "_queue": queue.query, "_state": urlencode(queue.query), "_lines": [], "_decisions": DECISIONS,
    }  # fmt: skip
    if row is not None:
        doc_id = row["doc_id"]
        explorer = queue.explorer
        text = None if hidden else read_text(explorer.catalogue, explorer.found(queue.person, doc_id))
        ours = mine.get(doc_id)
        values |= {
            "text": text and text[:WINDOW], "characters": len(text or ""), "failed": queue.index.failed(doc_id),
            "mine": ours and ours._asdict(), "previous": beside(queue.index, queue.wanted, row, False),
            "next": beside(queue.index, queue.wanted, row, True),
            "_lines": [] if text is None else lines(text, (), 0, WINDOW),
        }  # fmt: skip
        if done:
            values["said"] = {person: mark._asdict() for person, mark in decided[doc_id].items()}
    return answer(request, "review.html", values)


def decide(request: Request, fields: Mapping[str, str]) -> Response:
    """Record a decision, and go on to the next document."""
    queue = _queue(request, dict(parse_qsl(fields.get("state", ""))))
    row = queue.row(fields.get("doc_id", ""))
    decision, note = fields.get("decision", ""), fields.get("note", "").strip() or None
    if decision not in (*DECISIONS, UNDONE) or not queue.rule:
        raise CommandError(f"decision {decision[:40]!r}: write one of {', '.join((*DECISIONS, UNDONE))}, and a rule")
    if hidden := queue.explorer.hides_text(queue.dataset):
        raise CommandError(hidden)
    failure = {"doc_id": row["doc_id"], **{name: row[name] for name in ("rule", "value", "threshold")}}
    verdict = Said(decision, note if decision != UNDONE else None)
    queue.explorer.reviews(queue.dataset).decide(queue.verdicts, failure, queue.person, verdict)
    back = decision == UNDONE
    after = None if back else beside(queue.index, queue.wanted, row, True)
    goal = {"doc": row["doc_id"]} if back else {"doc": after, "last": row["doc_id"]}
    return RedirectResponse(address(f"/datasets/{queue.dataset}/review", queue.query, **goal), 303)


def _queue(request: Request, query: Mapping[str, str]) -> _Queue:
    """The queue of an address."""
    explorer, person, dataset = explorer_of(request), principal_of(request), request.path_params["dataset"]
    explorer.reads(person, dataset)
    index = explorer.index(dataset, query.get("at"))
    if not index.wait(_WAIT_SECONDS * explorer.patience):
        raise CommandError(f"{dataset}: its rows are still being read ({index.progress:.0%}); open this again soon")
    if query.get("q"):
        raise CommandError("a search has no queue: it stops at its first hits; take the words out")
    fields = {name: value for name, value in query.items() if name not in (*_OWN, "after")}
    fields["at"] = str(index.version)
    removed, within = explorer.removed(person, query.get("removed", "")), explorer.within(person, dataset, query)
    wanted = wanted_of(fields, index, removed, within)
    return _Queue(explorer, person, dataset, query.get("rule", ""), fields, index, wanted)


def _choose(request: Request, queue: _Queue) -> Response:
    """The page to choose a rule on, of those that documents of the list failed."""
    rules, _ = queue.index.counts(queue.wanted).facet("rule")
    values = {"dataset": queue.dataset, "rules": rules, "_queue": queue.query}
    return answer(request, "review_rules.html", values)


def _everybody(rule: str, decided: Mapping[str, Mapping[str, Said]]) -> dict[str, Any]:
    """What all persons found, for those who are done: figures of each, of all together, where they disagree."""
    persons = sorted({person for by in decided.values() for person in by})
    each = {
        person: precision(rule, (by[person].decision for by in decided.values() if person in by)) for person in persons
    }
    agreed = {doc_id: {mark.decision for mark in by.values()} for doc_id, by in decided.items()}
    return {
        "persons": each, "together": precision(rule, map(together, agreed.values())),
        "disagree": sorted(doc_id for doc_id, every in agreed.items() if len(every) > 1),
    }  # fmt: skip


def _is_id(text: str) -> bool:
    return len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)


def _list(dataset: str) -> str:
    return f"/datasets/{dataset}/documents"


PATHS = {"/datasets/{dataset}/review": review, "/datasets/{dataset}/review/decide": on_form(decide)}
POSTED = ("/datasets/{dataset}/review/decide",)
