"""A window of a packed table, token by token; a token's source byte; the blends and runs that read the window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import read_text
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.documents.window_reads import reads_of
from dagster_project.inspect.documents.window_tokens import TokenWindow, segment_facts, token_window
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.offset_charts import COLOURS
from headrace_features.explore.texts import Mark, lines, visible

_AROUND: Final = 400  # characters before and behind a traced token
_MOST_WINDOWS: Final = 200
_WHITE: Final = {ord("\n"): '<i class="space">↵</i>\n', ord("\t"): '<i class="space">→</i>\t', 0xA0: "⍽", 0x3000: "□"}


def window(request: Request) -> Response:
    """The tokens of a window, coloured by document; `at` is the snapshot, the newest where it is left out."""
    explorer, query = explorer_of(request), dict(request.query_params)
    opened = _window(request)
    hidden = explorer.hides_text(opened.dataset)
    there = f"/windows/{opened.table}"
    here = f"{there}/{opened.ordinal}"
    shown: dict[str, Any] = {
        "table": opened.table, "dataset": opened.dataset, "snapshot": opened.snapshot_id, "ordinal": opened.ordinal,
        "window_count": opened.window_count, "window_tokens": opened.window_tokens, "token_count": opened.token_count,
        "segments": opened.segments, "hidden": hidden, "specials": opened.specials,
        "input_ids": None if hidden else opened.input_ids, "texts": None if hidden else opened.texts,
        "trainable": opened.trainable, "rules": opened.rules,
        "previous": address(f"{there}/{opened.ordinal - 1}", query) if opened.ordinal else None,
        "next": address(f"{there}/{opened.ordinal + 1}", query) if opened.ordinal + 1 < opened.window_count else None,
        "_parts": [] if hidden else _parts(opened), "_about": address(f"{here}/about", query), "_colours": COLOURS,
    }  # fmt: skip
    return answer(request, "window.html", shown)


def about(request: Request) -> Response:
    """Documents of a window, and the blends that read it: a part of its page that is loaded afterwards."""
    explorer, opened = explorer_of(request), _window(request)
    at = request.query_params.get("at")
    windows = [(opened.table, int(at) if at else None, opened.ordinal)]
    reads = reads_of(explorer.catalogue, explorer.blender(principal_of(request)), windows)
    shown = {"table": opened.table, "ordinal": opened.ordinal, "segments": segment_facts(explorer.catalogue, opened)}
    return answer(request, "window_about.html", {**shown, "reads": reads, "_colours": COLOURS})


def token(request: Request) -> Response:
    """Where one token comes from: document, byte of its text, byte of its source, the text around it."""
    explorer, place = explorer_of(request), request.path_params
    table, ordinal, position = place["table"], place["ordinal"], place["position"]
    principal = principal_of(request)
    hidden = explorer.reads_packed(principal, table)[table]
    traced = TokenTracer(explorer.catalogue, table).trace(ordinal, position)
    around, document = [], None
    if traced.doc_id is not None:
        document = f"/documents/{traced.doc_id}"
        if traced.text_start is not None and not hidden:
            subject = explorer.found(principal, traced.doc_id)
            text = read_text(explorer.catalogue, subject) or ""
            encoded = text.encode(errors="surrogatepass")
            start, end = (len(encoded[:at].decode(errors="ignore")) for at in (traced.text_start, traced.text_end))
            mark = Mark(start, max(end, start + 1), "hit", f"token {traced.token_id}")
            around = lines(text, [mark], max(0, start - _AROUND), end + _AROUND)
            document = address(document, {"from": start})
    shown = {"token": traced.facts(), "hidden": hidden, "document": document, "_around": around}
    return answer(request, "token.html", shown)


def document_reads(request: Request) -> Response:
    """The rows of blends, and the runs, that read a document: a piece of its page that may come late."""
    explorer, principal = explorer_of(request), principal_of(request)
    document = explorer.document(principal, request.path_params["doc_id"])
    windows = {
        (part.table, None if part.snapshot == "head" else int(part.snapshot), part.ordinal)
        for part in explorer.windows_of(principal, document)[:_MOST_WINDOWS]
    }
    reads = reads_of(explorer.catalogue, explorer.blender(principal), windows)
    shown = {"doc_id": document.doc_id, "path": document.path, "windows": len(windows)}
    return answer(request, "document_reads.html", {**shown, "reads": reads})


def _window(request: Request) -> TokenWindow:
    """The window of an address, for somebody who may read it."""
    explorer, principal, place = explorer_of(request), principal_of(request), request.path_params
    at = request.query_params.get("at", "")
    if at and not (at.isdecimal() and len(at) < 20):
        raise CommandError(f"at={at[:40]} is no snapshot; leave it out for the newest")
    explorer.reads_packed(principal, place["table"])
    return token_window(explorer.catalogue, place["table"], place["ordinal"], int(at) if at else None)


def _parts(shown: TokenWindow) -> list[Markup]:
    """The tokens of each segment, then the padding as one mark; each token is a link to its source."""
    texts: Sequence[str] = shown.texts if shown.texts is not None else [f" {number}" for number in shown.input_ids]
    untrained = {at for at, trained in enumerate(shown.trainable or ()) if not trained}
    marked = {"special": set(shown.specials), "untrained": untrained}
    drawn: dict[str, str] = {}
    parts = []
    for segment in shown.segments:
        tokens = []
        for within in range(segment.token_count):
            at = segment.window_start + within
            text = texts[at]
            if text not in drawn:
                drawn[text] = str(visible(text)).translate(_WHITE)  # escaped; what is put in are constants
            kinds = " ".join(name for name, places in marked.items() if at in places)
            marks = f' class="{kinds}"' if kinds else ""
            rule = f", no loss by {escape(shown.rules[at])}" if shown.rules is not None and shown.rules[at] else ""
            tokens.append(
                f'<a href="{shown.ordinal}/{at}" title="position {at}, position_id {within}, id {shown.input_ids[at]}'
                f'{rule}"{marks}>{drawn[text]}</a>'
            )
        parts.append(Markup("".join(tokens)))
    return parts


PATHS = {
    "/windows/{table}/{ordinal:int}": window,
    "/windows/{table}/{ordinal:int}/about": about,
    "/windows/{table}/{ordinal:int}/{position:int}": token,
    "/documents/{doc_id}/reads": document_reads,
}
