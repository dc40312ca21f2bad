"""What is taken out of a list: tags on documents, and files of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from dagster_project.exceptions import CommandError
from headrace_features.explore.answers import address, answer, explorer_of, on_form, principal_of
from headrace_features.explore.chosen import chosen_of
from headrace_features.explore.dataset_at import TABLES
from headrace_features.explore.export import FORMATS, exported
from spark_jobs.exceptions import did_you_mean

_MOST_ACTS = 200


def tag(request: Request, fields: Mapping[str, str]) -> Response:
    """Give the chosen documents a tag, or take it off; as for reviews, whoever may read their texts may."""
    explorer, person, dataset = explorer_of(request), principal_of(request), request.path_params["dataset"]
    chosen = chosen_of(explorer, person, dataset, fields)
    if hidden := explorer.hides_text(dataset):
        raise CommandError(hidden)
    why = fields.get("why", "").strip()[:500] or None
    explorer.tags(dataset).note(
        fields.get("act", ""), fields.get("tag", "").strip(), chosen.index.ids(chosen.wanted), person, why
    )
    return RedirectResponse(address(f"/datasets/{dataset}/documents", chosen.query), 303)


def tags(request: Request) -> Response:
    """The tags of a dataset with their counts, and every act on them, which can be undone."""
    explorer, dataset = explorer_of(request), request.path_params["dataset"]
    explorer.reads(principal_of(request), dataset)
    kept = explorer.tags(dataset)
    shown = {"dataset": dataset, "tags": kept.counts(), "acts": kept.batches()[:_MOST_ACTS]}
    return answer(request, "tags.html", shown)


def undo(request: Request, fields: Mapping[str, str]) -> Response:
    """Undo an act, for the documents that it changed."""
    explorer, person, dataset = explorer_of(request), principal_of(request), request.path_params["dataset"]
    explorer.reads(person, dataset)
    if hidden := explorer.hides_text(dataset):
        raise CommandError(hidden)
    at, who, tag_name = (fields.get(name, "") for name in ("at", "who", "tag"))
    explorer.tags(dataset).undo(at, who, tag_name, person)
    return RedirectResponse(f"/datasets/{dataset}/tags", 303)


def export(request: Request, fields: Mapping[str, str]) -> Response:
    """The chosen documents as a zip file with the filter beside them; it is sent while it is made."""
    explorer, person, dataset = explorer_of(request), principal_of(request), request.path_params["dataset"]
    form, now = fields.get("format", "jsonl"), datetime.now(UTC)
    if form not in FORMATS:
        raise CommandError(f"format {form[:40]!r}{did_you_mean(form, FORMATS)}; write one of {', '.join(FORMATS)}")
    chosen = chosen_of(explorer, person, dataset, fields)
    versions = {name: str(version) for name, version in zip(TABLES, chosen.index.version, strict=True) if version}
    ticked = list(chosen.wanted.ids or ()) if chosen.ticked else None
    facts = {
        "dataset": dataset, "filter": {**chosen.query}, "ticked": ticked,
        "versions": versions, "exported_by": person, "exported_at": now.isoformat(), "format": form,
    }  # fmt: skip
    pieces = exported(explorer.catalogue, chosen, explorer.tags(dataset).of, form, facts, now)
    name = f"{dataset}-{now:%Y%m%dT%H%M%SZ}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


PATHS = {
    "/datasets/{dataset}/tags": tags,
    "/datasets/{dataset}/tag": on_form(tag),
    "/datasets/{dataset}/tags/undo": on_form(undo),
    "/datasets/{dataset}/export": on_form(export),
}
POSTED = ("/datasets/{dataset}/tag", "/datasets/{dataset}/tags/undo", "/datasets/{dataset}/export")
