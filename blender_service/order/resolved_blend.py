"""The head of a blend: what its config resolves to, namely segments and the chain of updates behind it.

A head is derived from the configs of a blend and its ancestors alone. It is stored beside the config, outside its hash,
so that reading or updating a blend costs one config however long the chain of updates is; a head lost, damaged
or of another version is computed again. Repeated values (pins, runs of reads) are written once, and then by number.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from blender_service.order.epochs import ReadRun
from blender_service.order.segments import Part, Pin, Segment

HEAD_VERSION: Final = 1
COMPRESSION_LEVEL: Final = 1  # of zlib: a sixth of the bytes of plain JSON, for a tenth of the time to make it

Value = TypeVar("Value", bound=Hashable)


class Update(NamedTuple):
    """One blend of a chain.

    Attributes:
        blend_id: its id.
        from_offset: first offset decided by it; 0 for the one without parent.
    """

    blend_id: str
    from_offset: int


class Head(NamedTuple):
    """What a blend resolves to.

    Attributes:
        segments: of all offsets, those decided by ancestors included.
        lineage: from the blend without parent to this one.
    """

    segments: tuple[Segment, ...]
    lineage: tuple[Update, ...]

    @property
    def blend_id(self) -> str:
        """Id of the blend of this head."""
        return self.lineage[-1].blend_id

    @property
    def end(self) -> int | None:
        """Number of rows of the blend, None without end."""
        return self.segments[-1].end if self.segments else 0

    def pins(self) -> dict[str, Pin]:
        """Give the pin of each source; the latest pin of a source covers the rows of its earlier ones."""
        return {part.name: part.pin for segment in self.segments for part in segment.parts}

    def shares_rows_until(self, other: Head) -> int | None:
        """Give the first offset at which two blends may differ: None for the same blend, 0 without a common ancestor.

        A run at offset o of `other` may continue with this blend if the result is at least o: both then hold the same
        rows below o.
        """
        shared = 0
        while shared < min(len(self.lineage), len(other.lineage)) and self.lineage[shared] == other.lineage[shared]:
            shared += 1
        if shared == 0:
            return 0
        changed = [update.from_offset for update in (*self.lineage[shared:], *other.lineage[shared:])]
        return min(changed, default=None)


def encode_head(head: Head) -> bytes:
    """Write a head: the SHA-256 of the rest in hex, a line end, and compressed JSON."""
    pins: _Numbering[Pin] = _Numbering()
    read_runs: _Numbering[tuple[ReadRun, ...]] = _Numbering()
    names: _Numbering[str] = _Numbering()
    segments = [
        [
            segment.origin,
            segment.start,
            segment.end,
            [
                [names.number(part.name), part.weight, part.first_row, part.end_row, read_runs.number(part.read_runs),
                 pins.number(part.pin)]
                for part in segment.parts
            ],
            *([segment.turn_rows] if segment.turn_rows != 1 else []),
        ]
        for segment in head.segments
    ]  # fmt: skip
    text = json.dumps(
        {
            "head_version": HEAD_VERSION,
            "lineage": head.lineage,
            "names": names.values,
            "pins": [_stored(pin) for pin in pins.values],
            "legs": read_runs.values,
            "segments": segments,
        },
        separators=(",", ":"),
    )
    body = zlib.compress(text.encode(), COMPRESSION_LEVEL)
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
    read_runs = [tuple(ReadRun(*read_run) for read_run in chain) for chain in stored["legs"]]
    make_part: Callable[[Any], Part] = Part._make
    segments = tuple(
        Segment(
            origin,
            start,
            end,
            tuple(
                make_part((names[name], weight, first_row, end_row, read_runs[chain], pins[pin]))
                for name, weight, first_row, end_row, chain, pin in parts
            ),
            *turn_rows,
        )
        for origin, start, end, parts, *turn_rows in stored["segments"]
    )
    return Head(segments, tuple(Update(*update) for update in stored["lineage"]))


def _stored(pin: Pin) -> tuple[Any, ...]:
    """Leave out what it has not, as before there were cells, and longer rows."""
    return pin[: 9 if pin[7:] != (None, None) else 7 if pin[5:7] != (None, None) else 5]


class _Numbering(Generic[Value]):
    """Numbers distinct values in the order they come."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """Give the number of a value, a new one if it is new."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number
