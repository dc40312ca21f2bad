"""Messages to define and describe blends: plain values to and from `blends.proto`.

The values have the names of the messages' fields, so most of them are converted field by field (`values_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from blender_service.blend.requests import BlendSpec, OnExhausted, UpdateSpec
from headrace.blender.v1 import blends_pb2

ON_EXHAUSTED: Final[Mapping[blends_pb2.OnExhausted, OnExhausted]] = {
    blends_pb2.ON_EXHAUSTED_END: "END",
    blends_pb2.ON_EXHAUSTED_CONTINUE: "CONTINUE",
}


@dataclass(frozen=True)
class BlendSource:
    """One source of a blend, as the server describes it."""

    name: str
    table: str
    table_uuid: str
    snapshot_id: int
    rows: int
    weight: int
    max_epochs: int
    on_exhausted: str
    live: bool = False
    template: str = ""
    cells: str = ""


@dataclass(frozen=True)
class Blend:
    """A blend, as the server describes it.

    Attributes:
        blend_id: SHA-256 of config_json.
        names: bound to its id.
        config_json: everything deciding the order of its rows.
        window_tokens: length of a row.
        tokenizer_sha256: SHA-256 of the tokenizer's file.
        vocabulary_size: number of token ids.
        end_of_document_id: token at a document's end.
        padding_id: token filling the end of a window.
        sources: ascending by name.
        seed: of every permutation.
        end: number of its rows, None without end.
        parent: id of its parent blend, empty if there is none.
        from_offset: first row of its own sources.
        warnings: what to know before training on it, such as names of control tokens as letters in its texts.
        turn_rows: consecutive rows of one source, counted from offset 0.
        length_classes: length of the sequences in rows of sources of one length class, by name of the source.
        windows: (first offset, length of rows from there on) where lengths differ, ascending.
    """

    blend_id: str
    names: tuple[str, ...]
    config_json: str
    window_tokens: int
    tokenizer_sha256: str
    vocabulary_size: int
    end_of_document_id: int
    padding_id: int
    sources: tuple[BlendSource, ...]
    seed: int
    end: int | None
    parent: str = ""
    from_offset: int = 0
    warnings: tuple[str, ...] = ()
    turn_rows: int = 1
    length_classes: Mapping[str, int] = field(default_factory=dict, hash=False)
    windows: tuple[tuple[int, int], ...] = ()

    def at(self, offset: int) -> Blend:
        """Give the same with `window_tokens` as they are at an offset."""
        lengths = [window_tokens for from_offset, window_tokens in self.windows if from_offset <= offset]
        return replace(self, window_tokens=lengths[-1]) if lengths else self

    @property
    def token_bytes(self) -> int:
        """Width of a token id: 2 up to a vocabulary of 65,536, else 4."""
        return 2 if self.vocabulary_size <= 1 << 16 else 4


class Continuation(NamedTuple):
    """The server's proof of a run's right to go on with another blend.

    Attributes:
        from_id: full id of the blend read so far.
        to_id: full id of the blend to go on with.
        offset: first row not read by the run; below it both blends hold the same rows.
        differs_from: first offset where they may differ, None if nowhere.
    """

    from_id: str
    to_id: str
    offset: int
    differs_from: int | None


class Prewarmed(NamedTuple):
    """Rows up to this one are in the server's cache.

    Attributes:
        row: after the last one.
        stopped: whether it stops there though more were asked for: the cache is full, or the rows are not there yet.
    """

    row: int
    stopped: bool


@dataclass(frozen=True)
class SourceDescription:
    """A source of a blend at an offset.

    Attributes:
        name: its identity.
        table: identifier in the catalogue.
        rows: rows read of it.
        tokens: tokens of those rows, padding included.
        expected_rows: rows due to it by its weights.
        share: of all rows read.
        expected_share: of all rows, by the weights.
        epochs: passes done, as a fraction; None for a live source.
        runs_out_at: first offset with a slot it cannot fill, None if there is none.
        active: whether it takes part where the blend goes on from the offset.
        live: whether it is followed as it grows.
        excised_documents: documents taken out of its table, None if that is not known.
        evals: digest of the benchmarks searched for in its table; `off` if its corpus does without; else empty.
        unread_rows: rows of its table that the blend never reads; None for a live source.
    """

    name: str
    table: str
    rows: int
    tokens: int
    expected_rows: float
    share: float
    expected_share: float
    epochs: float | None
    runs_out_at: int | None
    active: bool
    live: bool
    excised_documents: int | None = None
    evals: str = ""
    unread_rows: int | None = None


@dataclass(frozen=True)
class SegmentDescription:
    """Offsets [start, end) with constant weights; end None: without end."""

    start: int
    end: int | None
    weights: dict[str, int]


@dataclass(frozen=True)
class Description:
    """A blend at an offset.

    Attributes:
        offset: rows [0, offset) are described.
        tokens: of those rows, padding included.
        sources: all that take part somewhere, ascending by name.
        segments: of the whole blend.
    """

    offset: int
    tokens: int
    sources: tuple[SourceDescription, ...]
    segments: tuple[SegmentDescription, ...]


@dataclass(frozen=True)
class BlendDescription(Description):
    """A blend, and what it is at an offset, as the server describes them."""

    blend: Blend


def create_request(spec: BlendSpec) -> blends_pb2.CreateBlendRequest:
    """Write the request for a new blend."""
    return blends_pb2.CreateBlendRequest(**_fields(spec))


def update_request(spec: UpdateSpec) -> blends_pb2.UpdateBlendRequest:
    """Write the request to update a blend: the first stage is in the message itself, the others are its schedule."""
    fields = _fields(spec)
    first, *schedule = fields.pop("stages")
    return blends_pb2.UpdateBlendRequest(**fields, **first, schedule=schedule)


def _fields(spec: BlendSpec | UpdateSpec) -> dict[str, Any]:
    """Give the fields of a request by name, those of its sources and stages included."""

    def named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        present = {name: value for name, value in pairs if value is not None}
        if "on_exhausted" in present:
            present["on_exhausted"] = on_exhausted_message(present["on_exhausted"])
        return present

    return asdict(spec, dict_factory=named)


def blend_of(message: blends_pb2.Blend) -> Blend:
    """Read a blend."""
    return Blend(
        blend_id=message.id,
        names=tuple(message.names),
        config_json=message.config_json,
        **values_of(message.window),
        sources=tuple(_source_of(source) for source in message.sources),
        seed=message.seed,
        end=message.end if message.HasField("end") else None,
        parent=message.parent,
        from_offset=message.from_offset,
        warnings=tuple(message.warnings),
        turn_rows=message.turn_rows or 1,  # an older server says nothing
        length_classes=dict(message.length_classes),
        windows=tuple((span.from_offset, span.window_tokens) for span in message.windows),
    )


def continuation_of(message: blends_pb2.Continuation) -> Continuation:
    """Read the proof of a run's right to go on."""
    differs_from = message.differs_from if message.HasField("differs_from") else None
    return Continuation(message.from_id, message.to_id, message.offset, differs_from)


def description_of(message: blends_pb2.BlendDescription) -> BlendDescription:
    """Read what a blend has read at an offset."""
    return BlendDescription(
        blend=blend_of(message.blend),
        offset=message.offset,
        tokens=message.tokens,
        sources=tuple(SourceDescription(**values_of(source)) for source in message.sources),
        segments=tuple(
            SegmentDescription(
                segment.start,
                segment.end if segment.HasField("end") else None,
                dict(zip(segment.names, segment.weights, strict=True)),
            )
            for segment in message.segments
        ),
    )


def values_of(message: Message) -> dict[str, Any]:
    """Give the fields of a message by name; None for an unset optional field."""
    return {
        field.name: getattr(message, field.name) if not field.has_presence or message.HasField(field.name) else None
        for field in message.DESCRIPTOR.fields
    }


def on_exhausted_message(text: str | None) -> blends_pb2.OnExhausted:
    """Write what happens at the end of a source as a message; None stays unspecified."""
    return next((value for value, name in ON_EXHAUSTED.items() if name == text), blends_pb2.ON_EXHAUSTED_UNSPECIFIED)


def _source_of(source: blends_pb2.BlendSource) -> BlendSource:
    return BlendSource(**values_of(source) | {"on_exhausted": ON_EXHAUSTED.get(source.on_exhausted, "")})
