"""The sources of a text blend: tables of text, and the tokenizer that the blend names by its hash."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

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
        lacking = [name for name in (self.rule.text, self.rule.doc_id) if name not in table.schema().column_names]
        if lacking:
            findings.mistake(f"{where}.table", f"{identifier} has no column {lacking[0]}; name it in texts")
        elif wanted.live:
            findings.mistake(f"{where}.live", "a table of text cannot be followed; leave it out")
        elif snapshot is None:
            findings.mistake(f"{where}.snapshot", f"{identifier} has no snapshot {wanted.snapshot!r}")
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
                return LakeSource(table, self._window, pin, left_out or None)
            findings.mistake(f"{where}.table", f"{identifier} has no document with text that fits; leave it out")
        return None


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
    rule = TextRule(group_documents=spec.group_documents, whole=spec.whole, text=spec.text, doc_id=spec.doc_id)
    return TextSources(catalogue, window, rule, objects)
