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
    waits = False
    for corpus in explorer.corpora_of(principal, subject):
        if "signatures" in corpus.tables:
            explorer.reads(principal, corpus.name, *corpus.datasets)
            one = explorer.computed(_similar_documents, corpus.name, explorer.snapshots(corpus.name), subject.doc_id)
            waits |= one is None
            found[corpus.name] = one
    return answer(request, "similar.html", {"document": subject.facts(), "corpora": found, "_waits": waits})


def _similar_documents(*arguments: Any) -> dict[str, Any]:
    """What `similar_in` gives, where None means that it is still being computed."""
    documents = similar_in(*arguments)
    return {"has_signature": documents is not None, "documents": documents or []}


PATHS = {"/documents/{doc_id}/similar": similar}
