"""The sources of a text blend: tables of text, and the tokenizer that the blend names by its hash."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, ListType, LongType, StructType

from blender_service.blend.lake_sources import LakeSource, LakeSources, WantedSource, snapshot_of
from blender_service.blend.requests import TextSpec
from blender_service.blend.store import ObjectStore
from blender_service.blend.validation import Findings
from blender_service.exceptions import PackedTableError
from blender_service.order.segments import Pin
from blender_service.tables.packed_table import WindowFacts, load_table
from blender_service.tables.text_packing import MOST_GROUP_DOCUMENTS, TextRule, dropped
from blender_service.tables.text_table import Documents, TextRows, put_tokenizer, row_groups, text_files

FACTS = ("vocabulary_size", "end_of_document_id", "padding_id")


class TextSources(LakeSources):
    """Looks up tables of text."""

    def __init__(self, catalogue: Catalog, window: WindowFacts, rule: TextRule, objects: ObjectStore) -> None:
        """Look in `catalogue` for sources of rows with these facts, made by this rule."""
        super().__init__(catalogue)
        self._window, self.rule, self._objects, self._groups = window, rule, objects, row_groups()

    def find(self, wanted: WantedSource, findings: Findings) -> LakeSource | None:
        """Find the table and the snapshot of a source, and measure its documents; mistakes go to `findings`."""
        where, identifier = wanted.field, wanted.table
        table = self._load(identifier, where, findings)
        if table is None:
            return None
        snapshot = snapshot_of(table, wanted.snapshot)
        wanted_columns = (self.rule.text, self.rule.doc_id, self.rule.trainable, self.rule.template)
        lacking = [name for name in wanted_columns if name and name not in table.schema().column_names]
        if lacking:
            findings.mistake(f"{where}.table", f"{identifier} has no column {lacking[0]}; name it in texts")
        elif self.rule.trainable and not _are_spans(table, self.rule.trainable):
            findings.mistake(
                "texts.trainable", f"{identifier}.{self.rule.trainable} is no list<struct<start: long, end: long>>"
            )
        elif wanted.live:
            findings.mistake(f"{where}.live", "a table of text cannot be followed; leave it out")
        elif snapshot is None:
            findings.mistake(f"{where}.snapshot", f"{identifier} has no snapshot {wanted.snapshot!r}")
        elif len(templates := _templates(table, snapshot, self.rule.template)) > 1:
            findings.mistake(
                "texts.template",
                f"{identifier}.{self.rule.template} is not one for all documents; make a table for each",
            )
        else:
            try:
                documents = Documents(
                    identifier, text_files(table, identifier, snapshot), table.io, self.rule, self._groups
                )
                rows = TextRows(identifier, snapshot.snapshot_id, documents, self._window, self.rule, self._objects)
            except PackedTableError as error:
                findings.mistake(f"{where}.table", str(error))
                return None
            if rows.count:
                uuid, pinned = str(table.metadata.table_uuid), str(snapshot.snapshot_id)
                pin = Pin(identifier, uuid, pinned, rows.count, f"text {pinned}")
                left_out = dropped(rows.lengths, self._window.window_tokens, self.rule.whole)
                template = next(iter(templates), None) or None
                return LakeSource(table, self._window, pin, left_out or None, template)
            findings.mistake(f"{where}.table", f"{identifier} has no document with text that fits; leave it out")
        return None


def _are_spans(table: Table, name: str) -> bool:
    """Whether a column is a list of structs with the whole numbers `start` and `end`."""
    kind = table.schema().find_field(name).field_type
    of = kind.element_type if isinstance(kind, ListType) else None
    types = {one.name: one.field_type for one in of.fields} if isinstance(of, StructType) else {}
    return all(isinstance(types.get(field), IntegerType | LongType) for field in ("start", "end"))


def _templates(table: Table, snapshot: Snapshot, name: str | None) -> list[str]:
    """The different values of the column of the chat template, "" for null; none where no column is named."""
    if name is None:
        return []
    batches = table.scan(selected_fields=(name,), snapshot_id=snapshot.snapshot_id).to_arrow_batch_reader()
    return list({str(one or "") for batch in batches for one in batch.column(0).unique().to_pylist()})


def open_text_sources(catalogue: Catalog, spec: TextSpec, objects: ObjectStore, findings: Findings) -> TextSources:
    """Read the tokenizer, keep its file with the blends, and give the `TextSources` of the request.

    Raises:
        InvalidBlendError: the rule is impossible, or there is no such tokenizer.
    """
    for field, low, high in (("window_tokens", 2, 1 << 24), ("group_documents", 1, MOST_GROUP_DOCUMENTS)):
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
        tokenizer_sha256=put_tokenizer(objects, read[0]["file"]),
        **{name: read[0][name] for name in FACTS},
    )
    rule = TextRule(
        group_documents=spec.group_documents,
        whole=spec.whole,
        text=spec.text,
        doc_id=spec.doc_id,
        trainable=spec.trainable or None,
        template=spec.template or None,
    )
    return TextSources(catalogue, window, rule, objects)
