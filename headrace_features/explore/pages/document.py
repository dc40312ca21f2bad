"""One document: its text part by part with marks, what every step said of it, its duplicates and windows."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import FoundDocument, read_text
from dagster_project.inspect.documents.document_story import Story, tell_story
from dagster_project.inspect.documents.search import spans_of
from dagster_project.inspect.documents.shown_text import placed_edits
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages import documents, find
from headrace_features.explore.texts import WINDOW, Mark, lines
from spark_jobs.lake.files.lookups import read_rows

_MOST_MARKS = 20_000
_MOST_HITS = 1_000_000
_MOST_WINDOWS = 200


def document(request: Request) -> Response:
    """The page of a document; `from` is the first character shown, `q` words to mark."""
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    subject = explorer.document(principal, request.path_params["doc_id"])
    story = tell_story(explorer.catalogue, subject, explorer.corpora_of(principal, subject))
    hidden = explorer.hides_text(subject.dataset)
    text = None if hidden else read_text(explorer.catalogue, subject)
    marks = [] if text is None else [*_edits(explorer.catalogue, subject, text), *_masks(story)]
    hits = spans_of(text or "", query.get("q", ""), _MOST_HITS)
    before, behind = _beside(explorer, principal, subject, query.get("list", ""))
    windows = explorer.windows_of(principal, subject)[:_MOST_WINDOWS]
    off = set(query.get("off", "").split(",")) - {""}
    kinds = sorted({*(mark.kind for mark in marks), *(["hit"] if hits else [])})
    size, start = len(text or ""), _start(query.get("from", ""))
    start = min(start, max(0, size - 1)) // WINDOW * WINDOW
    starts, ends = [first for first, _ in hits], [last for _, last in hits]
    shown_hits = slice(bisect.bisect_right(ends, start), bisect.bisect_left(starts, start + WINDOW))
    marks += [Mark(first, last, "hit") for first, last in hits[shown_hits]]
    on = [mark for mark in marks if mark.kind not in off]
    shown = {
        "document": subject.facts(),
        "findings": story.findings,
        "witnesses": story.witnesses,
        "windows": windows,
        "hidden": hidden,
        "characters": size,
        "start": start,
        "end": min(size, start + WINDOW),
        "hits": len(hits),
        "all_hits": len(hits) < _MOST_HITS,
        "kinds": kinds,
        "text": None if text is None else text[start : start + WINDOW],
        "before": before,
        "behind": behind,
        "_switches": [_switch(request.url.path, query, kind, off) for kind in kinds],
        "_lines": [] if text is None else lines(text, on, start, start + WINDOW),
        "_places": _places(request.url.path, query, starts, start),
    }
    return answer(request, "document.html", shown)


def _beside(explorer: Explorer, principal: str, subject: FoundDocument, place: str) -> documents.Places:
    """The documents before and after one in the list whose address it was opened with."""
    path, _, fields = place.partition("?")
    query = dict(parse_qsl(fields))
    with contextlib.suppress(CommandError):  # a list that is no more, or of a reader who may see more
        if path == "/find":
            return find.places(explorer, principal, query, subject.dataset, subject.doc_id)
        if path == f"/datasets/{subject.dataset}/documents":
            return documents.places(explorer, principal, subject.dataset, query, subject.doc_id)
    return None, None


def raw(request: Request) -> Response:
    """The text as plain text, to be kept as a file."""
    explorer, principal = explorer_of(request), principal_of(request)
    subject = explorer.document(principal, request.path_params["doc_id"])
    if hidden := explorer.hides_text(subject.dataset):
        return Response(hidden + "\n", 403, media_type="text/plain")
    text = read_text(explorer.catalogue, subject) or ""
    headers = {"Content-Disposition": f'attachment; filename="{subject.doc_id}.txt"'}
    return Response(text.encode("utf-8", "replace"), headers=headers, media_type="text/plain; charset=utf-8")


def _edits(catalogue: Any, subject: Any, text: str) -> Iterator[Mark]:
    """What was replaced, where it stands in the text."""
    rows = read_rows(catalogue, f"{subject.dataset}.texts", ("edits",), subject.row)
    edits: Sequence[Mapping[str, Any]] = rows[0]["edits"] if rows else ()
    encoded, at_byte, at = text.encode(errors="surrogatepass"), 0, 0
    for edit, start in placed_edits(edits[:_MOST_MARKS]):
        if start < at_byte:
            continue
        length = edit["replacement_length"]
        at += len(encoded[at_byte:start].decode(errors="replace"))
        width = len(encoded[start : start + length].decode(errors="replace"))
        at_byte = start
        note = f"{edit['rule']}: {edit['end'] - edit['start']} bytes of the source became {length}"
        yield Mark(at, at + max(width, 1), "edit", note)


def _masks(story: Story) -> Iterator[Mark]:
    """What corpora take no loss on, with the rule."""
    for finding in story.findings:
        for span in finding.facts.get("masked", ())[:_MOST_MARKS]:
            yield Mark(span["start"], span["end"], "mask", f"{finding.table}: no loss, by {span['rule']}")


def _switch(path: str, query: Mapping[str, str], kind: str, off: set[str]) -> tuple[str, bool, str]:
    """A switch for a kind of marks: its name, whether they are shown, and the address that switches them."""
    without = sorted(off ^ {kind})
    return kind, kind not in off, address(path, query, off=",".join(without) or None)


def _start(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def _places(path: str, query: Mapping[str, str], places: Sequence[int], start: int) -> dict[str, str | None]:
    """Addresses of the parts of the text before and after this one, and of the next part with a hit."""
    first, last = (bisect.bisect_left(places, edge) for edge in (start, start + WINDOW))
    return {
        "before": address(path, query, **{"from": max(0, start - WINDOW)}) if start else None,
        "behind": address(path, query, **{"from": start + WINDOW}),
        "next_hit": address(path, query, **{"from": places[last]}) if last < len(places) else None,
        "previous_hit": address(path, query, **{"from": places[first - 1]}) if first else None,
    }


PATHS = {"/documents/{doc_id}": document, "/documents/{doc_id}/text": raw}
