"""What a user asks for when a blend is created: plain values, so that a client needs neither pydantic nor the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DEFAULT_BLOCK_ROWS = 2048
DEFAULT_GROUP_BLOCKS = 16


@dataclass(frozen=True)
class SourceSpec:
    """A packed table and its part in a blend.

    Attributes:
        table: identifier in the catalogue, namespace.table.
        weight: rows read in proportion to it; a decimal (0.3) or a fraction (1/3), as text.
        name: identity inside the blend; the table's identifier if empty.
        snapshot: id, tag or branch to pin; the current one if empty.
        max_epochs: passes over the table; 0 goes round without end.
        on_exhausted: END the blend at the first slot that this source cannot fill, or CONTINUE without it.
        live: follow the table as it grows; not served by this version, refused.
    """

    table: str
    weight: str = "1"
    name: str = ""
    snapshot: str = ""
    max_epochs: int = 1
    on_exhausted: Literal["END", "CONTINUE"] = "END"
    live: bool = False

    @property
    def label(self) -> str:
        """Its name, or what stands for it."""
        return self.name or self.table


@dataclass(frozen=True)
class BlendSpec:
    """A blend to create.

    Attributes:
        sources: at least one.
        seed: of every permutation, 0 <= seed < 2**64.
        name: a second way to call the blend, bound once; none if empty.
        block_rows: consecutive rows that are read together.
        group_blocks: blocks whose rows are shuffled together.
    """

    sources: tuple[SourceSpec, ...]
    seed: int = 0
    name: str = ""
    block_rows: int = DEFAULT_BLOCK_ROWS
    group_blocks: int = DEFAULT_GROUP_BLOCKS
