"""The sources of a text blend: tables of text, and the blend's tokenizer, named by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import BinaryType, FixedType, ListType, PrimitiveType, StringType

from blender_service.blend.lake_sources import LakeSource, LakeSources, WantedSource, snapshot_of
from blender_service.blend.requests import TextSpec
from blender_service.blend.store import ObjectStore
from blender_service.blend.validation import Findings
from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.order.epochs import epoch_of
from blender_service.order.offsets import read_in_epoch
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import OFFSET_LIMIT, Pin, SourceProgress
from blender_service.tables.conversation_texts import conversation_texts, objective_texts, put_definition
from blender_service.tables.packed_table import load_table
from blender_service.tables.text_documents import (
    SPANS,
    TEMPLATE,
    TOOLS,
    TextColumns,
    TextDocuments,
    are_spans,
    columns_of_pin,
    find_columns,
    names_of,
    row_groups,
    text_files,
)
from blender_service.tables.text_packing import MOST_GROUP_DOCUMENTS, TextRule, dropped
from blender_service.tables.text_table import open_text_rows
from blender_service.tables.unread_documents import UnreadDocuments, put_unread, read_unread, unread_in_epoch
from headrace.tables.exceptions import CellsError
from headrace.tables.window_facts import WindowFacts

MESSAGES: Final = "messages"
READ_IN_PART: Final = "read_in_part"
MOST_WINDOW_TOKENS: Final = 1 << 24
FACTS = ("vocabulary_size", "end_of_document_id", "padding_id")


class TextSources(LakeSources):
    """Looks up tables of text."""

    def __init__(self, catalogue: Catalog, window: WindowFacts, rule: TextRule, objects: ObjectStore) -> None:
        """Look in `catalogue` for sources of rows with these facts, made by this rule."""
        super().__init__(catalogue)
        self._window, self.rule, self._objects, self._groups = window, rule, objects, row_groups()

    def of_length(self, window_tokens: int) -> TextSources:
        """Give the same with rows of another length."""
        if window_tokens == self._window.window_tokens:
            return self
        window = self._window.model_copy(update={"window_tokens": window_tokens})
        return TextSources(self._catalogue, window, self.rule, self._objects)

    def keep(self, unread: UnreadDocuments | None, former: str | None, change: str) -> str | None:
        """Keep what is unread at a change of the length of rows, or what was at the former one; gives the hash."""
        unread = unread or read_unread(self._objects, former)
        return None if unread is None else put_unread(self._objects, unread, change)

    def unread(
        self, source: WantedSource, progress: SourceProgress, order: BlendOrder, findings: Findings
    ) -> UnreadDocuments | None:
        """Give which documents are unread in the epoch that a source is in; None with a mistake.

        Args:
            source: its table.
            progress: how far it was read, in rows of the length of these sources.
            order: of the rows of that length that were read.
            findings: where mistakes go.
        """
        pin = progress.pin
        found = self.find(replace(source, kept_unread=pin.unread), findings)
        if found is None or found.text_rows is None:
            return None
        epoch, rows = epoch_of(progress.read_runs, progress.rows - 1), found.text_rows
        first_of_all = next(run for run in progress.read_runs if not run.base and run.rows is None).epoch
        read = read_in_epoch(order, source.name, OFFSET_LIMIT, epoch, rows.count).astype(np.bool_)
        former = rows.unread if epoch < first_of_all else None
        return unread_in_epoch(rows.pieces(), read, rows.count_of_all, rows.lengths.size, former)

    def find(self, wanted: WantedSource, findings: Findings) -> LakeSource | None:
        """Find the table and the snapshot of a source, and measure its documents; mistakes go to `findings`."""
        where, identifier = wanted.field, wanted.table
        table = self._load(identifier, where, findings)
        if table is None:
            return None
        snapshot = snapshot_of(table, wanted.snapshot)
        if wanted.live:
            findings.mistake(f"{where}.live", "a table of text cannot be followed; leave it out")
            return None
        names = names_of(self.rule)
        try:
            columns = _find(table, snapshot, names, wanted)
            if isinstance(columns, str):
                findings.mistake(f"{where}.table", f"{identifier} has no column {columns}; name it in texts")
            elif (wrong := _wrong_types(columns, self.rule.conversations is not None)) is not None:
                field = MESSAGES if self.rule.conversations and wrong[0] == "text" else wrong[0]
                findings.mistake(f"texts.{field}", f"{identifier}.{names[wrong[0]]} is {wrong[1]}")
            elif snapshot is None:
                lacking = f"snapshot {wanted.snapshot!r}" if wanted.snapshot else "snapshot yet"
                findings.mistake(f"{where}.snapshot", f"{identifier} has no {lacking}")
            else:
                return self._measured(table, snapshot, columns, wanted, findings)
        except (PackedTableError, CellsError) as error:
            findings.mistake(f"{where}.table", str(error))
        return None

    def _measured(
        self,
        table: Table,
        snapshot: Snapshot,
        columns: TextColumns,
        wanted: WantedSource,
        findings: Findings,
    ) -> LakeSource | None:
        """Measure the documents of a table; what they lack goes to `findings`."""
        identifier, where = wanted.table, wanted.field
        templates = set[str]()
        if TEMPLATE in columns.columns:
            files, only = text_files(table, identifier, snapshot), {TEMPLATE: columns.columns[TEMPLATE]}
            named = TextDocuments(identifier, files, table.io, only, table.name_mapping(), self._groups)
            for _, part in named.parts(0, named.count):
                templates.update(part[TEMPLATE].unique().to_pylist())
        if len(templates) > 1:
            findings.mistake(
                "texts.template",
                f"{identifier}.{self.rule.template} is not one for all documents; make a table for each",
            )
            return None
        kept = (self._objects, self._groups, wanted.cells, wanted.kept_unread)
        rows = open_text_rows(table, identifier, snapshot, columns, self._window, self.rule, *kept)
        if not rows.count:
            why = f" ({rows.warning})" if rows.refused else ""
            findings.mistake(
                f"{where}.table", f"{wanted.written} has no document with text that fits{why}; leave it out"
            )
            return None
        uuid, pinned = str(table.metadata.table_uuid), str(snapshot.snapshot_id)
        pin = Pin(identifier, uuid, pinned, rows.count_of_all, f"text {pinned}{columns.note}", wanted.cells)
        left_out = dropped(rows.chosen_lengths, self._window.window_tokens, self.rule.whole) | rows.refused
        if rows.unread is not None:
            pin = pin._replace(unread=wanted.kept_unread, unread_rows=rows.count - rows.count_of_all)
            left_out |= {READ_IN_PART: rows.unread.in_part} if rows.unread.in_part else {}
        template = rows.template or next(iter(templates), None)
        return LakeSource(
            table, self._window, pin, chosen=rows.chosen, dropped=left_out or None, template=template or None,
            text_rows=rows,
        )  # fmt: skip


def _find(table: Table, snapshot: Snapshot | None, names: Mapping[str, str], wanted: WantedSource) -> TextColumns | str:
    """Find columns: those pinned by a parent, else by their names in the named snapshot.

    As in SQL, a tag or the id of a snapshot means the schema of that time, the newest snapshot and a branch that of
    today.
    """
    if snapshot is not None and wanted.kept_generation:
        return columns_of_pin(table, snapshot, names, wanted.kept_generation)
    reference = table.refs().get(wanted.snapshot)
    is_branch = reference is not None and reference.snapshot_ref_type == SnapshotRefType.BRANCH
    return find_columns(table, snapshot, names, not wanted.snapshot or is_branch)


def _wrong_types(columns: TextColumns, are_messages: bool) -> tuple[str, str] | None:
    """The first column of an impossible type, and this type; None where all are right."""
    for name, column in columns.columns.items():
        kind = column.field.field_type
        if name == SPANS and not are_spans(column):
            return name, "no list<struct<start: long, end: long>>"
        is_list = are_messages and isinstance(kind, ListType)
        if name in ("text", TOOLS) and not is_list and not isinstance(kind, StringType):
            return name, f"{kind}, no text; name a column of strings"
        if name in ("doc_id", TEMPLATE) and (
            not isinstance(kind, PrimitiveType) or isinstance(kind, BinaryType | FixedType)
        ):
            return name, f"{kind}; name a column of strings or whole numbers"
    return None


def open_text_sources(catalogue: Catalog, spec: TextSpec, objects: ObjectStore, findings: Findings) -> TextSources:
    """Read the tokenizer, keep its file with the blends, and give the `TextSources` of the request.

    Raises:
        InvalidBlendError: the rule is impossible, or there is no such tokenizer.
    """
    for field, low, high in (("window_tokens", 2, MOST_WINDOW_TOKENS), ("group_documents", 1, MOST_GROUP_DOCUMENTS)):
        if not low <= getattr(spec, field) <= high:
            findings.mistake(f"texts.{field}", f"is {getattr(spec, field)}; give {low} to {high}")
    table = load_table(catalogue, spec.tokenizer) if spec.tokenizer.count(".") == 1 else None
    if table is None or {"file", *FACTS} - {*table.schema().column_names}:
        findings.mistake("texts.tokenizer", f"{spec.tokenizer!r} is no table of a tokenizer; name <corpus>.tokenizer")
    findings.raise_any()
    assert table is not None
    read = table.scan(selected_fields=("file", *FACTS)).to_arrow().to_pylist()
    if len(read) != 1:
        findings.mistake(
            "texts.tokenizer", f"{spec.tokenizer} has {len(read)} rows; it has one once it is materialized"
        )
        findings.raise_any()
    window = WindowFacts(
        window_tokens=spec.window_tokens,
        tokenizer_sha256=_put_tokenizer(objects, read[0]["file"]),
        **{name: read[0][name] for name in FACTS},
    )
    rule = TextRule(
        group_documents=spec.group_documents,
        whole=spec.whole,
        text=spec.text if spec.conversations is None else spec.messages or MESSAGES,
        doc_id=spec.doc_id,
        trainable=spec.trainable or None,
        template=spec.template or None,
        tools=spec.tools or None,
        conversations=_conversations(catalogue, spec, read[0]["file"], window, objects, findings),
        objectives=_objectives(spec, read[0]["file"], window, objects, findings),
    )
    findings.raise_any()
    return TextSources(catalogue, window, rule, objects)


def _put_tokenizer(objects: ObjectStore, file: str) -> str:
    """Keep a tokenizer.json by its hash; gives the hash."""
    sha256 = hashlib.sha256(file.encode()).hexdigest()
    objects.put_if_absent(f"texts/tokenizers/{sha256}", file.encode())
    return sha256


def _conversations(
    catalogue: Catalog, spec: TextSpec, tokenizer: str, window: WindowFacts, objects: ObjectStore, findings: Findings
) -> str | None:
    """Keep the rule that renders messages; its hash, None where the sources are plain text."""
    wrong, why = (SPANS, TEMPLATE), "is of plain text; texts.conversations names a template and masks by it"
    if spec.conversations is None:
        wrong, why = (MESSAGES, TOOLS), "needs texts.conversations, with the template to render by"
    for name in wrong:
        if getattr(spec, name):
            findings.mistake(f"texts.{name}", why)
    try:
        if spec.conversations is not None:
            settings = str(spec.conversations)
            return put_definition(
                objects, conversation_texts().define(catalogue, settings, tokenizer, window, spec.whole)
            )
    except (InvalidBlendError, PackedTableError) as error:
        findings.mistake("texts.conversations", str(error))
    return None


def _objectives(
    spec: TextSpec, tokenizer: str, window: WindowFacts, objects: ObjectStore, findings: Findings
) -> str | None:
    """Keep what documents become in each epoch; its hash, None where they are as they are."""
    if spec.objectives is None:
        return None
    if spec.conversations is not None or spec.trainable:
        findings.mistake("texts.objectives", "is of plain text; leave conversations and trainable out")
        return None
    try:
        definition = objective_texts().define(str(spec.objectives), tokenizer, window, spec.whole)
        return put_definition(objects, definition, "objectives")
    except (InvalidBlendError, PackedTableError) as error:
        findings.mistake("texts.objectives", str(error))
    return None
