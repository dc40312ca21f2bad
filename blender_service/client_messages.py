"""What a training job sends and receives, besides rows: read and written by hand, so that it needs no protobuf.

Messages are those of `blends.proto` and `rows.proto`; the tests compare each with the generated classes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from blender_service.framing import FIXED64, Field, bytes_field, number_field, read_fields, varint
from blender_service.slices import Slice
from blender_service.window import ExpectedWindow

_ON_EXHAUSTED: Final = {1: "END", 2: "CONTINUE"}
_SIGN: Final = 1 << 63


@dataclass(frozen=True)
class BlendSource:
    """One source of a blend, as the server tells it."""

    name: str
    table: str
    table_uuid: str
    snapshot_id: int
    rows: int
    weight: int
    max_epochs: int
    on_exhausted: str
    live: bool = False


@dataclass(frozen=True)
class Blend:
    """A blend, as the server tells it.

    Attributes:
        blend_id: SHA-256 of config_json.
        names: under which it is known besides.
        config_json: everything that the order of its rows depends on.
        window_tokens: length of a row.
        tokenizer_sha256: SHA-256 of the tokenizer's file.
        vocabulary_size: number of token ids.
        end_of_document_id: token that ends a document.
        padding_id: token that fills the end of a window.
        sources: ascending by name.
        seed: of every permutation.
        end: number of its rows, None without end.
        parent: id of the blend that it goes on from, empty if there is none.
        from_offset: first row that its own sources decide.
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

    @property
    def token_bytes(self) -> int:
        """Width of a token id: 2 up to a vocabulary of 65,536, else 4."""
        return 2 if self.vocabulary_size <= 1 << 16 else 4


class Continuation(NamedTuple):
    """The server's proof that a run may go on with another blend.

    Attributes:
        from_id: full id of the blend that was read so far.
        to_id: full id of the blend to go on with.
        offset: first row that the run has not read; below it both blends hold the same rows.
        differs_from: first offset where they may differ, None if nowhere.
    """

    from_id: str
    to_id: str
    offset: int
    differs_from: int | None


class ReadRequest(NamedTuple):
    """What a stream is asked for; see `rows.proto`."""

    blend: str
    offset: int
    rows: int = 0
    part: Slice | None = None
    expected: ExpectedWindow | None = None
    max_batch_rows: int = 0
    wait_seconds: float = 0.0

    def encode(self) -> bytes:
        """Write the message `ReadBlendRequest`."""
        fields = [
            bytes_field(1, self.blend.encode()),
            number_field(2, self.offset),
            number_field(3, self.rows),
            number_field(6, self.max_batch_rows),
        ]
        if self.part is not None:
            fields.append(_message_field(4, b"".join(number_field(i, v) for i, v in enumerate(self.part, start=1))))
        if (wanted := self.expected) is not None:
            facts = [
                number_field(1, wanted.window_tokens),
                bytes_field(2, wanted.tokenizer_sha256.encode()),
                number_field(3, wanted.vocabulary_size),
                number_field(4, wanted.token_bytes),
            ]
            fields.append(_message_field(5, b"".join(facts)))
        if self.wait_seconds:
            fields.append(varint(7 << 3 | FIXED64) + struct.pack("<d", self.wait_seconds))
        return b"".join(fields)


def get_request(blend: str) -> bytes:
    """Write the message `GetBlendRequest`."""
    return bytes_field(1, blend.encode())


def continuation_request(from_blend: str, to_blend: str, offset: int) -> bytes:
    """Write the message `ProveContinuationRequest`."""
    return bytes_field(1, from_blend.encode()) + bytes_field(2, to_blend.encode()) + number_field(3, offset)


def continuation_of(content: bytes) -> Continuation:
    """Read the message `Continuation`.

    Raises:
        MalformedMessageError: it breaks off.
    """
    found = _Fields(content)
    differs_from = found.signed(4) if found.has(4) else None
    return Continuation(found.text(1), found.text(2), found.signed(3), differs_from)


def blend_of(content: bytes) -> Blend:
    """Read the message `Blend`.

    Raises:
        MalformedMessageError: it breaks off.
    """
    found = _Fields(content)
    window = _Fields(found.bytes(4))
    return Blend(
        blend_id=found.text(1),
        names=tuple(name.decode() for name in found.all_bytes(2)),
        config_json=found.text(3),
        window_tokens=window.number(1),
        tokenizer_sha256=window.text(2),
        vocabulary_size=window.number(3),
        end_of_document_id=window.number(4),
        padding_id=window.number(5),
        sources=tuple(_source_of(source) for source in found.all_bytes(5)),
        seed=found.number(6),
        end=found.signed(7) if found.has(7) else None,
        parent=found.text(8),
        from_offset=found.signed(9),
    )


def _source_of(content: bytes) -> BlendSource:
    """Read the message `BlendSource`."""
    found = _Fields(content)
    return BlendSource(
        name=found.text(1),
        table=found.text(2),
        table_uuid=found.text(3),
        snapshot_id=found.number(4),
        rows=found.number(5),
        weight=found.number(6),
        max_epochs=found.number(7),
        on_exhausted=_ON_EXHAUSTED.get(found.number(8), ""),
        live=bool(found.number(9)),
    )


def _message_field(field: int, content: bytes) -> bytes:
    """Write a message inside a message; an empty one is still there, unlike an empty text."""
    return bytes_field(field, content) or varint(field << 3 | 2) + b"\0"


class _Fields:
    """The fields of a message by number; what is absent is 0 or empty, as in proto3."""

    def __init__(self, content: bytes) -> None:
        self._values: dict[int, list[Field]] = {}
        for field, value in read_fields(memoryview(content)):
            self._values.setdefault(field, []).append(value)

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return field in self._values

    def all_bytes(self, field: int) -> list[bytes]:
        """Every value of a field of bytes, texts or messages."""
        return [bytes(value) for value in self._values.get(field, ()) if not isinstance(value, int)]

    def bytes(self, field: int) -> bytes:
        """The last value of such a field."""
        return (self.all_bytes(field) or [b""])[-1]

    def text(self, field: int) -> str:
        """The last value of a field of text."""
        return self.bytes(field).decode()

    def number(self, field: int) -> int:
        """The last value of an unsigned number."""
        value = self._values.get(field, [0])[-1]
        return value if isinstance(value, int) else 0

    def signed(self, field: int) -> int:
        """The last value of a signed number."""
        value = self.number(field)
        return value - 2 * _SIGN if value >= _SIGN else value
