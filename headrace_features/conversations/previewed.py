"""The preview of a document's conversation: as it landed, with its edits, by the settings of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import FoundDocument, find_document
from dagster_project.project.declared import texts_are_shown
from dagster_project.run_config import bind_config
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.messages.conversation import Conversation, from_json, with_text
from headrace_features.conversations.preview import ConversationPreview, preview
from headrace_features.conversations.registered import template_in
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.tokens.tokenizer import read_tokenizer_file

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def previewed(catalogue: Catalog, declared: Mapping[str, Any], doc: str) -> ConversationPreview:
    """Show a landed document as the template of a corpus would write it now.

    Raises:
        CommandError: the corpus renders no conversations, or the document has none, or it may not be shown.
    """
    name, given = declared["name"], declared.get("conversations")
    if given is None:
        raise CommandError(f"corpus {name} renders nothing; declare conversations: {{template: NAME@VERSION}}")
    document = find_document(catalogue, doc)
    if not texts_are_shown(document.dataset):
        raise CommandError(f"dataset {document.dataset} does not show texts; declare samples: text")
    config = bind_config(ConversationsConfig, f"corpus {name}: conversations", given)
    file = declared.get("tokenizer", {}).get("file")
    return preview_of(catalogue, name, conversation_of(catalogue, document), config, file)


def conversation_of(catalogue: Catalog, document: FoundDocument) -> Conversation:
    """The conversation of a document, with the edits of its text.

    Raises:
        CommandError: it has no messages.
    """
    row = EqualTo("doc_id", document.doc_id)
    landed = read_rows(catalogue, f"{document.dataset}.documents", ("metadata",), row)
    metadata = dict(landed[-1]["metadata"]) if landed else {}
    if "messages" not in metadata:
        raise CommandError(
            f"{document.path} has no messages; declare messages_column in its source, or show another document"
        )
    conversation = from_json(metadata["messages"], metadata.get("tools"))
    edited = read_rows(catalogue, f"{document.dataset}.texts", ("content", "edits"), row)
    return with_text(conversation, edited[-1]["content"], edited[-1]["edits"]) if edited else conversation


def preview_of(
    catalogue: Catalog, corpus: str, conversation: Conversation, config: ConversationsConfig, file: str | None
) -> ConversationPreview:
    """Show a conversation by the settings of a corpus.

    Args:
        catalogue: the lake's.
        corpus: its name.
        conversation: what is shown.
        config: of the corpus.
        file: its declared tokenizer, for a corpus without a tokenizer yet.

    Raises:
        CommandError: there is no tokenizer.
    """
    stored = read_rows(catalogue, f"{corpus}.tokenizer", ("file",), EVERYTHING)
    if not stored and file is None:
        raise CommandError(f"corpus {corpus} has no tokenizer yet; headrace run {corpus}, or name its file")
    file_text = stored[0]["file"] if stored else read_tokenizer_file(str(file))
    return preview(conversation, config, template_in(catalogue, config.template), file_text)
