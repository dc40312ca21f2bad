"""Documents similar to one, by the signatures of each corpus that holds it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.similar import similar_in


def similar(request: Request) -> Response:
    """The most similar documents of each corpus, with the estimated and the exact similarity."""
    explorer, principal = explorer_of(request), principal_of(request)
    subject = explorer.document(principal, request.path_params["doc_id"])
    found: dict[str, Any] = {}
    for corpus in explorer.corpora_of(principal, subject):
        if "signatures" in corpus.tables:
            explorer.reads(principal, corpus.name, *corpus.datasets)
            key = (corpus.name, explorer.snapshots(corpus.name), subject.doc_id)
            found[corpus.name] = explorer.computed(similar_in, *key)  # None while it is being computed
    return answer(request, "similar.html", {"document": subject.facts(), "corpora": found})


PATHS = {"/documents/{doc_id}/similar": similar}
