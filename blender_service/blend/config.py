"""The config of a blend: an immutable value, named by the hash of its canonical JSON.

Canonical means: keys sorted, no white space, UTF-8, no floats, 64-bit ids and the seed as decimal strings, fields that
are not set left out (so a field added later changes no id that exists). Two requests for the same sources, whole
weights in the same proportions and the same seed give the same bytes, hence the same id, on every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from blender_service.blend.requests import DEFAULT_BLOCK_ROWS, DEFAULT_GROUP_BLOCKS
from blender_service.exceptions import StoredBlendError
from blender_service.order.interleave import MAX_CYCLE_ROWS
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head, Update
from blender_service.order.segments import Pin, SourceOrder, cut_segments, resolve_segments
from blender_service.tables.text_packing import TextRule
from headrace.tables.window_facts import WindowFacts

ORDER_VERSION: Final = 1
MAX_SOURCES: Final = 4096  # cells of one corpus; the index of a source is a uint16
NAME_PATTERN: Final = r"^[a-z][a-z0-9_.-]{0,127}$"
BLEND_ID: Final = re.compile(r"[0-9a-f]{64}")

Uint64Text = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,19})$")]


class _Frozen(BaseModel):
    """An unchangeable value, without unknown fields and without conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Source(_Frozen):
    """A packed table, at one snapshot or live, with its part in the blend."""

    name: str = Field(pattern=NAME_PATTERN, description="identity of the source inside the blend")
    table: str = Field(description="identifier in the catalogue, namespace.table")
    table_uuid: str = Field(description="UUID of the table; a table that was dropped and made again has another one")
    snapshot_id: Uint64Text | None = Field(None, description="pinned snapshot; none for a live source")
    rows: int | None = Field(None, ge=1, lt=1 << 62, description="rows N at that snapshot; none for a live source")
    generation: str = Field(description="property headrace.generation of the packed table")
    weight: int = Field(ge=1, le=MAX_CYCLE_ROWS, description="weight: rows of this source in one cycle of the blend")
    live: Literal[True] | None = Field(None, description="whether rows appended later are read too, by ordinal")
    max_epochs: int | None = Field(None, ge=0, lt=1 << 31, description="most passes over a pinned source; 0: no limit")
    on_exhausted: Literal["END", "CONTINUE"] | None = Field(
        None, description="what happens at the first slot that a pinned source cannot fill"
    )

    cells: str | None = Field(None, description="choice of cells that its rows are of; none for all rows of the table")
    runs: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the runs of ordinals of a pinned source of cells"
    )
    dropped: dict[str, int] | None = Field(
        None, description="documents of a table of text that no row holds, by the reason; none where all are held"
    )
    template: str | None = Field(None, description="hash of the chat template of all documents of a table of text")
    unread: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="which documents were unread in their epoch when rows got longer"
    )
    unread_rows: int | None = Field(None, ge=0, lt=1 << 62, description="rows of these documents")

    @model_validator(mode="after")
    def _is_pinned_or_live(self) -> Source:
        pinned = (self.snapshot_id, self.rows, self.max_epochs, self.on_exhausted)
        if self.live and any(value is not None for value in pinned):
            raise ValueError("a live source has no snapshot, rows, max_epochs or on_exhausted")
        if not self.live and any(value is None for value in pinned):
            raise ValueError("a pinned source has snapshot_id, rows, max_epochs and on_exhausted")
        if (self.runs is not None) > (self.cells is not None and not self.live):
            raise ValueError("runs belong to a pinned source of cells")
        return self

    @property
    def pin(self) -> Pin:
        """The table and snapshot of its rows."""
        cells = (self.cells, self.runs, self.unread, self.unread_rows)
        return Pin(self.table, self.table_uuid, self.snapshot_id, self.rows, self.generation, *cells)

    @property
    def order(self) -> SourceOrder:
        """The fields deciding the order of rows."""
        return SourceOrder(self.name, self.weight, self.pin, self.max_epochs or 0, self.on_exhausted == "END")


class WindowSpan(_Frozen):
    """Rows of a blend, up to the next span, that have one length and lack the tokens of the same rules."""

    from_offset: Uint64Text = Field(description="first of these rows")
    window_tokens: int = Field(ge=2, description="length of a row")
    leave_off: tuple[str, ...] | None = Field(None, description="rules of masks whose tokens are left off")


class BlendConfig(_Frozen):
    """A blend: its sources, their weights and everything that decides the order of its rows."""

    order_version: Literal[1] = Field(ORDER_VERSION, description="version of the order's algorithm")
    seed: Uint64Text = Field(description="seed of every permutation, 0 <= seed < 2**64")
    block_rows: int = Field(
        DEFAULT_BLOCK_ROWS, ge=1, le=1 << 20, description="consecutive ordinals that are read together"
    )
    group_blocks: int = Field(
        DEFAULT_GROUP_BLOCKS, ge=1, le=1 << 10, description="blocks whose rows are shuffled together"
    )
    window: WindowFacts
    turn_rows: int | None = Field(
        None, ge=2, le=MAX_CYCLE_ROWS, description="consecutive rows of one source; none where sources alternate by row"
    )
    sources: tuple[Source, ...] = Field(min_length=1, max_length=MAX_SOURCES, description="sources, ascending by name")
    windows: tuple[WindowSpan, ...] | None = Field(
        None,
        min_length=1,
        description="lengths of rows, or what they lack, where they differ, ascending; the last is of `window`",
    )
    texts: TextRule | None = Field(None, description="how rows are made of tables of text; none for packed tables")
    evals: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="benchmarks that all sources were searched for when it was made"
    )
    parent: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="id of the blend that this one continues")
    from_offset: Uint64Text | None = Field(None, description="with a parent, first offset served by these sources")

    @model_validator(mode="after")
    def _sources_are_canonical(self) -> BlendConfig:
        names = [source.name for source in self.sources]
        if names != sorted(set(names)):
            raise ValueError("sources must be ascending by name, each name once")
        turn_rows = self.turn_rows or 1
        if sum(source.weight for source in self.sources) * turn_rows > MAX_CYCLE_ROWS:
            raise ValueError(f"weights must sum to at most {MAX_CYCLE_ROWS // turn_rows}")
        if (self.parent is None) != (self.from_offset is None):
            raise ValueError("parent and from_offset belong together")
        if int(self.from_offset or 0) % turn_rows:
            raise ValueError(f"from_offset must be a multiple of {turn_rows}, the rows of a turn")
        return self

    @property
    def spans(self) -> tuple[WindowSpan, ...]:
        """The lengths of rows by their first offset, ascending."""
        return self.windows or (WindowSpan(from_offset="0", window_tokens=self.window.window_tokens),)

    @property
    def window_from(self) -> int:
        """First offset whose rows have the length of `window`."""
        return int(self.spans[-1].from_offset)

    def window_tokens_at(self, offset: int) -> int:
        """Give the length of the row at an offset."""
        return next(span.window_tokens for span in reversed(self.spans) if int(span.from_offset) <= offset)

    def rows_of(self, tokens: int) -> int:
        """Give how many rows have so many tokens, padding included."""
        rows = 0
        for span, later in zip(self.spans, (*self.spans[1:], None), strict=True):
            rows = int(span.from_offset) + -(-tokens // span.window_tokens)
            if later is None or rows <= int(later.from_offset):
                break
            tokens -= (int(later.from_offset) - int(span.from_offset)) * span.window_tokens
        return rows

    def canonical_json(self) -> bytes:
        """Give the bytes hashed to the id."""
        return json.dumps(
            self.model_dump(mode="json", exclude_none=True), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()

    @property
    def blend_id(self) -> str:
        """SHA-256 of the canonical JSON, 64 hex digits."""
        return hashlib.sha256(self.canonical_json()).hexdigest()

    def resolve(self, parent: Head | None = None) -> Head:
        """Resolve the order of the rows; pure arithmetic, reads nothing.

        Args:
            parent: the head of the blend's parent, for a blend with one.

        Raises:
            ExhaustedSourceError: a source ending the blend has no row left at `from_offset`.
        """
        if (parent.blend_id if parent else None) != self.parent:
            raise ValueError(f"blend {self.blend_id}: its parent is {self.parent}, not the blend of the head given")
        from_offset = int(self.from_offset or 0)
        kept = cut_segments(parent.segments, from_offset) if parent else []
        segments = resolve_segments([source.order for source in self.sources], kept, from_offset, self.turn_rows or 1)
        lineage = parent.lineage if parent else ()
        return Head(tuple(segments), (*lineage, Update(self.blend_id, from_offset)))

    def order(self, head: Head | None = None) -> BlendOrder:
        """Give the order of the rows.

        Args:
            head: what the blend resolves to; may be left out for a blend without parent.
        """
        return BlendOrder(int(self.seed), (head or self.resolve()).segments, self.block_rows, self.group_blocks)


def load_config(blend_id: str, content: bytes) -> BlendConfig:
    """Read a stored config and check that it is the one its id names.

    Raises:
        StoredBlendError: the bytes are damaged, or a newer version wrote them.
    """
    if hashlib.sha256(content).hexdigest() != blend_id:
        raise StoredBlendError(f"blend {blend_id}: the stored config does not have that SHA-256; restore the file")
    try:
        return BlendConfig.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoredBlendError(
            f"blend {blend_id}: {where}: {first['msg']}; serve it with the version of headrace that created it"
        ) from error
