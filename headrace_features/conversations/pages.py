"""The explorer's pages of conversations: what a template writes of a document, what is trained, lost and added."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pyiceberg.expressions import IsNull, NotNull

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace.tables.catalogue import load_table
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.previewed import conversation_of, preview_of
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.tokens.tokens import RENDERED

_SHOWN: Final = 50
_COLUMNS: Final = ("dataset", "doc_id", "token_count", "left_out")


def corpora(request: PageRequest) -> PageAnswer:
    """The corpora that render conversations, as far as visible to the reader."""
    names = [name for name in namespaces_with(request.catalogue, "tokens") if request.may_read(name)]
    rendered = {name: facts for name in names if (facts := _facts(request, name))}
    return PageAnswer("rendered_corpora.html", {"corpora": rendered})


def corpus(request: PageRequest) -> PageAnswer:
    """Some conversations of a corpus, those of which something was left out first."""
    name = request.parts["corpus"]
    request.require(f"{name}.tokens")
    table, facts = load_table(request.catalogue, f"{name}.tokens"), _facts(request, name)
    if table is None or not facts:
        raise _no_conversations(name)
    lost = first_rows(table, _COLUMNS, _SHOWN, NotNull("left_out"))
    whole = first_rows(table, _COLUMNS, _SHOWN - lost.num_rows, IsNull("left_out"))
    places = Ledger.fresh(request.catalogue).places(f"{name}.tokens").values()
    shown = {"documents": [*lost.to_pylist(), *whole.to_pylist()], "count": sum(place.row_count for place in places)}
    return PageAnswer("rendered.html", {"corpus": name, "facts": facts, **shown})


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
        raise _no_conversations(name)
    config = ConversationsConfig.model_validate(settings)
    shown = preview_of(request.catalogue, name, conversation_of(request.catalogue, document), config, None)
    return PageAnswer("conversation.html", {"corpus": name, "doc_id": document.doc_id, "row": asdict(shown)})


def _no_conversations(corpus: str) -> CommandError:
    return CommandError(f"corpus {corpus} renders no conversations; declare conversations: {{template: NAME@VERSION}}")


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
    Path(__file__).parent / "page_templates",
)
