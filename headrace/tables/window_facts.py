"""What all windows of a packed table share, and the properties of the table and of each snapshot stating it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from headrace.tables.exceptions import PackedTableError

PROPERTY_OF_FACT: Final = {
    "window_tokens": "headrace.window-tokens",
    "tokenizer_sha256": "headrace.tokenizer-sha256",
    "vocabulary_size": "headrace.vocabulary-size",
    "end_of_document_id": "headrace.end-of-document-id",
    "padding_id": "headrace.padding-id",
}
BEGINNING_PROPERTY: Final = "headrace.beginning-of-document-id"  # of a table whose documents begin with a token
GENERATION_PROPERTY: Final = "headrace.generation"
MASK_RULES: Final = "headrace.mask-rules"  # of a table with `mask_rule`: JSON list of the names of rules 1, 2, ..
EXCISES: Final = "headrace.excises"  # in a summary: the snapshot that documents were excised from
_STATED: Final = (*PROPERTY_OF_FACT.values(), BEGINNING_PROPERTY, GENERATION_PROPERTY, MASK_RULES)


class WindowFacts(BaseModel):
    """Window length, tokenizer and special ids of a packed table; all sources of a blend agree on them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    window_tokens: int = Field(ge=1, description="length L of every row, in tokens")
    tokenizer_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the tokenizer's file")
    vocabulary_size: int = Field(ge=1, le=1 << 31, description="number of token ids; every id is below it")
    end_of_document_id: int = Field(ge=0, description="token that ends a document")
    padding_id: int = Field(ge=0, description="token that fills the end of a window")

    @property
    def token_bytes(self) -> int:
        """Width of a token id on the wire: 2 up to a vocabulary of 65,536, else 4."""
        return 2 if self.vocabulary_size <= 1 << 16 else 4

    @property
    def properties(self) -> dict[str, str]:
        """The properties stating them."""
        return {PROPERTY_OF_FACT[fact]: str(value) for fact, value in self.model_dump().items()}


def read_window_facts(table: Table, identifier: str, snapshot: Snapshot | None = None) -> WindowFacts:
    """Read the facts of a snapshot's windows; those of the table's properties if none is named.

    Raises:
        PackedTableError: a property is missing or wrong.
    """
    properties = properties_at(table, snapshot)
    missing = [name for name in (*PROPERTY_OF_FACT.values(), GENERATION_PROPERTY) if name not in properties]
    if missing:
        raise PackedTableError(
            f"table {identifier}: is not packed, it lacks {', '.join(missing)}; name a packed_<dataset>_<length> table"
        )
    values = {fact: properties[name] for fact, name in PROPERTY_OF_FACT.items()}
    try:
        return WindowFacts.model_validate_strings(values)
    except ValidationError as error:
        first = error.errors()[0]
        fact = str(first["loc"][0])
        raise PackedTableError(
            f"table {identifier}: property {PROPERTY_OF_FACT[fact]} is {values[fact]!r}: {first['msg']}; pack it again"
        ) from error


def properties_at(table: Table, snapshot: Snapshot | None) -> dict[str, str]:
    """The properties of a table as they were when a snapshot was written.

    The snapshot's summary holds the facts of its windows and the generation of the packing; it changes whenever an
    ordinal may mean another row. Where the summary leaves one out, the table's property holds.
    """
    return {**table.properties, **_stated(describing_snapshot(table, snapshot))}


def stamp(table: Table, snapshot: Snapshot) -> dict[str, str]:
    """Facts and generation of a snapshot, for the summary of one made from it; empty where they are lost."""
    described = describing_snapshot(table, snapshot)
    if described is None:
        return {}
    return {GENERATION_PROPERTY: table.properties.get(GENERATION_PROPERTY, ""), **_stated(described)}


def mask_rules(properties: Mapping[str, str]) -> list[str]:
    """The names of the rules 1, 2, .. in a table's column `mask_rule`; none where it has no masks by rule."""
    names: list[str] = json.loads(properties.get(MASK_RULES, "[]"))
    return names


def describing_snapshot(table: Table, snapshot: Snapshot | None) -> Snapshot | None:
    """The snapshot with the facts of another one's rows in its summary; None if it has expired.

    Compaction writes a summary without facts, and so may an excision; their parent then has the same rows' facts.
    """
    while snapshot is not None and snapshot.summary is not None and GENERATION_PROPERTY not in _stated(snapshot):
        upkeep = snapshot.summary.operation == Operation.REPLACE or EXCISES in snapshot.summary.additional_properties
        if not upkeep:
            return snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return snapshot


def _stated(snapshot: Snapshot | None) -> dict[str, str]:
    """The facts of the windows and the generation, as far as a summary holds them."""
    summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return {name: summary[name] for name in _STATED if name in summary}
