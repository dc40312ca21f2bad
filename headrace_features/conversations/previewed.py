"""The preview of a document's conversation, by the declaration of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, EqualTo

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.project.declared import texts_are_shown
from dagster_project.run_config import bind_config
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.conversation import from_json, with_text
from headrace_features.conversations.preview import ConversationPreview, preview
from headrace_features.conversations.registered import template_source
from spark_jobs.lake.files.lookups import read_rows
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
    row = EqualTo("doc_id", document.doc_id)
    landed = read_rows(catalogue, f"{document.dataset}.documents", ("metadata",), row)
    metadata = dict(landed[-1]["metadata"]) if landed else {}
    if "messages" not in metadata:
        raise CommandError(f"{doc} has no messages; declare messages_column in its source, or show another document")
    conversation = from_json(metadata["messages"], metadata.get("tools"))
    edited = read_rows(catalogue, f"{document.dataset}.texts", ("content", "edits"), row)
    if edited:
        conversation = with_text(conversation, edited[-1]["content"], edited[-1]["edits"])
    config = bind_config(ConversationsConfig, f"corpus {name}: conversations", given)
    stored = read_rows(catalogue, f"{name}.tokenizer", ("file",), AlwaysTrue())
    file = declared.get("tokenizer", {}).get("file")
    if not stored and file is None:
        raise CommandError(
            f"corpus {name} has no tokenizer yet; headrace run {name}, or declare tokenizer: {{file: PATH}}"
        )
    file_text = stored[0]["file"] if stored else read_tokenizer_file(str(file))
    return preview(conversation, config, template_source(config.template), file_text)
