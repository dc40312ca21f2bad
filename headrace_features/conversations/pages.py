"""The explorer's pages of conversations: what a template writes of a document, what is trained, lost and added."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.lake.control_names import RENDERED
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace.tables.catalogue import load_table
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.previewed import conversation_of, preview_of
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger

_SHOWN: Final = 50


def corpora(request: PageRequest) -> PageAnswer:
    """The corpora that render conversations, as far as visible to the reader."""
    names = [name for name in namespaces_with(request.catalogue, "tokens") if request.may_read(name)]
    rendered = {name: facts for name in names if (facts := _facts(request, name))}
    return PageAnswer("rendered_corpora.html", {"corpora": rendered})


def corpus(request: PageRequest) -> PageAnswer:
    """Some conversations of a corpus, those of which something was left out first."""
    name = request.parts["corpus"]
    request.require(f"{name}.tokens")
    columns = ("dataset", "doc_id", "token_count", "left_out")
    rows = read_columns(request.catalogue, f"{name}.tokens", columns)
    if rows is None or not (facts := _facts(request, name)):
        raise CommandError(f"corpus {name} renders no conversations; declare conversations: {{template: NAME@VERSION}}")
    lost = rows.sort_by([("left_out", "ascending"), ("doc_id", "ascending")])  # null comes last
    shown = lost.slice(0, _SHOWN).to_pylist()
    return PageAnswer("rendered.html", {"corpus": name, "facts": facts, "documents": shown, "count": rows.num_rows})


def conversation(request: PageRequest) -> PageAnswer:
    """One conversation as the model sees it."""
    name, doc = request.parts["corpus"], request.parts["document"]
    request.require(f"{name}.tokens")
    document = find_document(request.catalogue, doc)
    request.require(f"{document.dataset}.documents")
    if hidden := request.hides_text(document.dataset):
        raise CommandError(f"{doc}: {hidden}")
    places = list(Ledger.fresh(request.catalogue).places(f"{name}.tokens").values())
    settings = json.loads(places[-1].config) if places else {}
    if "template" not in settings:
        raise CommandError(f"corpus {name} renders no conversations; declare conversations: {{template: NAME@VERSION}}")
    shown = preview_of(request.catalogue, name, conversation_of(request.catalogue, document), _config(settings), None)
    return PageAnswer("conversation.html", {"corpus": name, "doc_id": document.doc_id, "row": asdict(shown)})


def _config(settings: dict[str, Any]) -> ConversationsConfig:
    """The settings of a step in the ledger."""
    return ConversationsConfig.model_validate(settings)


def _facts(request: PageRequest, corpus: str) -> str:
    """How a corpus renders conversations; empty where it does not."""
    table = load_table(request.catalogue, f"{corpus}.tokens")
    return "" if table is None else table.properties.get(RENDERED, "")


PAGES: Final = Pages(
    {
        "/conversations": corpora,
        "/conversations/{corpus}": corpus,
        "/conversations/{corpus}/{document}": conversation,
    },
    Path(__file__).parent / "templates",
)
