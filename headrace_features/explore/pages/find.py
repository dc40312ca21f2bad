"""The field at the top of every page: a document by its doc_id, the first digits of it or its path, else a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.exceptions import CommandError
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.browser_left import while_asked
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.documents import Places, among
from headrace_features.explore.ranked_search import SHOWN, rank, shown

_MOST: Final = 200
_PAGE: Final = 20  # each excerpt is read from a row group of its own


def find(request: Request) -> Response:
    """The document that is named, a list where there are several; else what has the words, the best first."""
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    words, start = query.get("q", "").strip(), query.get("from", "")
    if not words:
        raise CommandError("say what to find: words, a doc_id, its first 6 or more digits, or a path")
    filters = {name: query[name] for name in ("dataset", *SHOWN) if query.get(name)}
    documents = [] if filters or start else explorer.named(principal, words)
    if documents:
        explorer.reads(principal, *{document.dataset for document in documents})
        if len(documents) == 1 and not request.url.path.endswith(".json"):
            return RedirectResponse(f"/documents/{documents[0].doc_id}", 303)
        facts = [document.facts() for document in documents[:_MOST]]
        return answer(request, "find.html", {"given": words, "count": len(documents), "documents": facts})
    ranking = rank(explorer, principal, query)
    first = int(start) if start.isdecimal() and len(start) < 6 else 0
    hits = ranking.hits[first : first + _PAGE]
    explorer.reads(principal, *{dataset for dataset, _ in hits})
    more = first + _PAGE if first + _PAGE < len(ranking.hits) else None
    values = {
        "words": words, "count": ranking.total, "facets": ranking.facets, "late": ranking.late, "start": first,
        "documents": shown(explorer, hits, words), "_filters": filters,
        "next": address(request.url.path, query, **{"from": more}) if more else None,
        "_here": address(request.url.path, query),
    }  # fmt: skip
    return answer(request, "search.html", values)


def places(explorer: Explorer, principal: str, query: Mapping[str, str], dataset: str, doc_id: str) -> Places:
    """The documents before and after a hit in the ranking; None where there is none."""
    hits, number = rank(explorer, principal, query).hits, explorer.index(dataset).text_number(doc_id)
    before, behind = among(hits, (dataset, number or 0))
    return _doc_id(explorer, before), _doc_id(explorer, behind)


def _doc_id(explorer: Explorer, hit: tuple[str, int] | None) -> str | None:
    return None if hit is None else str(explorer.index(hit[0]).numbered([hit[1]])[hit[1]]["doc_id"])


PATHS = {"/find": while_asked(find)}
