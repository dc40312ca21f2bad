"""A document as the model sees it under the objectives of a corpus: its rows, cut in three or whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.project.declared import texts_are_shown
from dagster_project.run_config import bind_config
from headrace_features.objectives.config import ObjectivesConfig, names_in
from headrace_features.objectives.layout import Header, LayoutEncoder, Span
from headrace_features.objectives.masks.headings import headed
from headrace_features.objectives.tokens import ObjectivesTask, TextDocument, document_rows, task_of
from spark_jobs.corpus_stages import cut_texts_of
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.tokens.hf_tokenizer import load_reference

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class ObjectivesPreview:
    """What becomes of a document.

    Attributes:
        rows: form, cut, tokens of each, and its text, names of sentinels in it.
        fell_back: why lines cut a row, where its syntax was to; None where it did.
    """

    rows: list[dict[str, Any]]
    fell_back: str | None

    def lines(self) -> Iterator[str]:
        """What a terminal shows."""
        for number, row in enumerate(self.rows, start=1):
            by = f" by {row['cut']}" if row["cut"] != "none" else ""
            yield f"-- row {number}: {row['form']}{by}, {row['tokens']:,} tokens"
            yield row["text"]
        yield from (f"cut by lines: {reason}" for reason in [self.fell_back] if reason)


def previewed(catalogue: Catalog, declared: Mapping[str, Any], doc: str) -> ObjectivesPreview:
    """Show a document as the objectives of a corpus lay it out.

    Raises:
        CommandError: it may not be shown, or is no text yet; or the corpus has no tokenizer.
    """
    name, document = declared["name"], find_document(catalogue, doc)
    if not texts_are_shown(document.dataset):
        raise CommandError(f"dataset {document.dataset} does not show texts; declare samples: text")
    tables = filter(None, (cut_texts_of(catalogue, name), f"{document.dataset}.texts"))
    found = (read_rows(catalogue, table, ("kind", "language", "content"), document.row) for table in tables)
    text = next((rows[0] for rows in found if rows), None)
    columns = ("file", "sha256", "vocabulary_size", "end_of_document_id")
    tokenizer = read_rows(catalogue, f"{name}.tokenizer", columns, EVERYTHING)
    if text is None or not tokenizer:
        raise CommandError(f"corpus {name} has no tokenizer yet, or {document.path} no text; headrace run {name}")
    most = min(declared.get("window_tokens", [2048]))
    given = {"kinds": declared["objectives"], "max_tokens": most, "use_fast_encoder": False}
    task = task_of(bind_config(ObjectivesConfig, f"corpus {name}: objectives", given), tokenizer[0], None)
    shown = TextDocument(document.doc_id, text["kind"], text["language"], text["content"])
    template = task.config.of_kind(shown.kind).header
    if template is not None and shown.text:
        there = {*require_table(catalogue, f"{document.dataset}.documents").schema().column_names}
        about = ("metadata", *(name for name in names_in(template) if name in there))
        (row,) = read_rows(catalogue, f"{document.dataset}.documents", about, document.row)
        encoder = LayoutEncoder(task.file_text, task.certificate, task.config.batch_characters)
        (header,) = headed([(shown.doc_id, template, {**dict(row["metadata"]), **row})], encoder, most)
        shown = shown._replace(headed=header)
    return preview_of(shown, task)


def preview_of(document: TextDocument, task: ObjectivesTask) -> ObjectivesPreview:
    """Show a document."""
    names = load_reference(task.file_text).id_to_token
    encoder = LayoutEncoder(task.file_text, task.certificate, task.config.batch_characters)
    (made,) = document_rows([document], encoder, task)
    bounds = [*made.row_starts, len(made.ids)]
    rows, begin = [], 0
    for laid, end in zip(made.laid, bounds, strict=True):
        pieces = (
            document.text[slice(*piece)] if isinstance(piece, Span) else piece.text if isinstance(piece, Header)
            else str(names(piece.token)) for piece in laid.layout
        )  # fmt: skip
        rows.append({"form": laid.form, "cut": laid.cut, "tokens": end - begin, "text": "".join(pieces)})
        begin = end
    return ObjectivesPreview(rows, next((laid.fell_back for laid in made.laid if laid.fell_back), None))
