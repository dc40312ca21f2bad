"""The resolved head of a blend: its segments, and the updates that led to it.

A head is derived from the configs of a blend and its ancestors alone. It is stored beside the config, outside its hash,
so that reading or updating a blend costs one config however long the chain of updates is; a head that is lost, damaged
or of another version is computed again. Shared values (pins, legs) are written once and referred to by number.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from blender_service.order.epochs import Leg
from blender_service.order.segments import Part, Pin, Segment

HEAD_VERSION: Final = 1
PACKING: Final = 1  # of zlib's levels: a sixth of the bytes for a tenth of the time

Value = TypeVar("Value", bound=Hashable)


class Update(NamedTuple):
    """One blend of a chain.

    Attributes:
        blend_id: its id.
        from_offset: first offset that it decides; 0 for the one without parent.
    """

    blend_id: str
    from_offset: int


class Head(NamedTuple):
    """What a blend resolves to.

    Attributes:
        segments: of all offsets, those that ancestors decided included.
        lineage: from the blend without parent to this one.
    """

    segments: tuple[Segment, ...]
    lineage: tuple[Update, ...]

    @property
    def blend_id(self) -> str:
        """Whose head it is."""
        return self.lineage[-1].blend_id

    @property
    def end(self) -> int | None:
        """Number of rows of the blend, None without end."""
        return self.segments[-1].end if self.segments else 0

    def pins(self) -> dict[str, Pin]:
        """Say where the rows of each source are; the latest pin of a source covers its earlier ones."""
        return {part.name: part.pin for segment in self.segments for part in segment.parts}

    def shares_rows_until(self, other: Head) -> int | None:
        """Give the first offset at which two blends may differ; None if one is the other, 0 if they are strangers.

        A run that stands at offset o of `other` may go on with this blend if the result is at least o: what it has read
        is then what this blend holds there, row for row.
        """
        shared = 0
        while shared < min(len(self.lineage), len(other.lineage)) and self.lineage[shared] == other.lineage[shared]:
            shared += 1
        if shared == 0:
            return 0
        changed = [update.from_offset for update in (*self.lineage[shared:], *other.lineage[shared:])]
        return min(changed, default=None)


def encode_head(head: Head) -> bytes:
    """Write a head as the SHA-256 of what follows, a line end, and packed JSON."""
    pins: _Table[Pin] = _Table()
    legs: _Table[tuple[Leg, ...]] = _Table()
    names: _Table[str] = _Table()
    segments = [
        [
            segment.origin,
            segment.start,
            segment.end,
            [
                [names.number(part.name), part.weight, part.first_row, part.end_row, legs.number(part.legs),
                 pins.number(part.pin)]
                for part in segment.parts
            ],
        ]
        for segment in head.segments
    ]  # fmt: skip
    text = json.dumps(
        {
            "head_version": HEAD_VERSION,
            "lineage": head.lineage,
            "names": names.values,
            "pins": pins.values,
            "legs": legs.values,
            "segments": segments,
        },
        separators=(",", ":"),
    )
    body = zlib.compress(text.encode(), PACKING)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def decode_head(blend_id: str, content: bytes) -> Head | None:
    """Read a head; None if it is damaged, of another version, or of another blend, so that it is computed again."""
    digest, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    stored: dict[str, Any] = json.loads(zlib.decompress(body))
    if stored["head_version"] != HEAD_VERSION or stored["lineage"][-1][0] != blend_id:
        return None
    names = stored["names"]
    pins = [Pin(*pin) for pin in stored["pins"]]
    legs = [tuple(Leg(*leg) for leg in chain) for chain in stored["legs"]]
    make_part: Callable[[Any], Part] = Part._make
    segments = tuple(
        Segment(
            origin,
            start,
            end,
            tuple(
                make_part((names[name], weight, first_row, end_row, legs[chain], pins[pin]))
                for name, weight, first_row, end_row, chain, pin in parts
            ),
        )
        for origin, start, end, parts in stored["segments"]
    )
    return Head(segments, tuple(Update(*update) for update in stored["lineage"]))


class _Table(Generic[Value]):
    """Distinct values in the order they came, each with its number."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """Give the number of a value, a new one if it is new."""
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found
