"""Find a document by its doc_id, the first digits of it, or its path: the field at the top of every page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.exceptions import CommandError
from headrace_features.explore.answers import answer, explorer_of, principal_of

_MOST = 200


def find(request: Request) -> Response:
    """The document that is named, or a list where there are several."""
    explorer, principal, name = explorer_of(request), principal_of(request), request.query_params.get("q", "").strip()
    if not name:
        raise CommandError("say what to find: a doc_id, its first 6 or more digits, or a path")
    documents = explorer.named(principal, name)
    if not documents:
        raise CommandError(
            f"no document here has the doc_id or path {name[:200]}; give all of the path, or 6 digits or more of the "
            "doc_id; words are searched in the list of a dataset"
        )
    explorer.reads(principal, *{document.dataset for document in documents})
    if len(documents) == 1 and not request.url.path.endswith(".json"):
        return RedirectResponse(f"/documents/{documents[0].doc_id}", 303)
    shown = [document.facts() for document in documents[:_MOST]]
    return answer(request, "find.html", {"given": name, "count": len(documents), "documents": shown})


PATHS = {"/find": find}
