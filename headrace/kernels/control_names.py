"""Names of a tokenizer's control tokens in texts, which are letters there: `<|im_end|>` is five tokens or so, not one.

Texts are encoded without special tokens, so that nobody's document ends another one. Where a conversation was written
out with its template that is not what was meant, so the names are counted and told, never passed over in silence.

Which names: of the file's added tokens those that are special, and those that look like it (`<|..|>`, `<a_name>`,
`[NAME]`). A name that is no special token becomes its token also inside a text; that is told as well.

Names are searched together, in one pass over the bytes (Aho and Corasick 1975, "Efficient String Matching").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_LOOKS_LIKE_ONE: Final = re.compile(r"<[|｜].*[|｜]>|</?\w+_\w+/?>|\[/?[A-Z][A-Z0-9_]*\]", re.DOTALL)
_SHOWN: Final = 5


class ControlName(NamedTuple):
    """A name of a control token.

    Attributes:
        name: as texts have it.
        is_letters: whether a text with the name gets other tokens than this one.
    """

    name: str
    is_letters: bool


def control_names(file_text: str, encode: Callable[[str], Sequence[int]]) -> tuple[ControlName, ...]:
    """Find the names of a tokenizer's control tokens.

    Args:
        file_text: text of a tokenizer.json.
        encode: gives the ids of a text, as documents are encoded.
    """
    added = json.loads(file_text).get("added_tokens") or []
    chosen = {
        token["content"]: int(token["id"])
        for token in added
        if token["content"] and (token.get("special") or _LOOKS_LIKE_ONE.fullmatch(token["content"]))
    }
    return tuple(ControlName(name, chosen[name] not in encode(name)) for name in sorted(chosen))


class HeldName(NamedTuple):
    """A name of a control token in texts, and in how many."""

    name: str
    is_letters: bool
    texts: int


class NameFinder:
    """Finds names in texts."""

    def __init__(self, names: Sequence[ControlName]) -> None:
        """Look for these names."""
        self.names = tuple(names)
        self._machine = _machine([name.name.encode() for name in names])

    def find(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Say which texts hold which names.

        Args:
            data: UTF-8 of D texts.
            offsets: (D + 1,) where each begins.

        Returns:
            (H,) numbers of texts, ascending, and (H,) numbers of names; each pair once.
        """
        if not self.names:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        from headrace.kernels.name_search import find_names  # Numba takes half a second to load

        room = offsets.size
        while True:
            texts, names = np.empty((2, room), np.int64)
            count = find_names(data, offsets, *self._machine, np.full(len(self.names), -1), texts, names)
            if count <= room:
                return texts[:count], names[:count]
            room = count


def held(names: Sequence[ControlName], counts: Sequence[int]) -> list[HeldName]:
    """Give the names in any text, letters first, then the most frequent.

    Args:
        names: of the tokenizer.
        counts: (N,) texts with each.
    """
    held_names = [HeldName(*name, int(count)) for name, count in zip(names, counts, strict=True) if count]
    return sorted(held_names, key=lambda held_name: (not held_name.is_letters, -held_name.texts, held_name.name))


def told(names: Sequence[HeldName], total: int, noun: str = "rows") -> str:
    """Say which names of control tokens texts hold, as `held` gives them; empty where they hold none.

    Args:
        names: that are held.
        total: number of texts.
        noun: for texts.
    """
    lines = [
        f"`{_printable(name.name)}` in {name.texts:,} of {total:,} {noun}: "
        f"it is {'letters' if name.is_letters else 'its token'} here"
        for name in names[:_SHOWN]
    ]
    return "; ".join([*lines, *([f"{len(names) - _SHOWN} more names"] if len(names) > _SHOWN else [])])


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in name)


def _machine(names: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Make the automaton of Aho and Corasick.

    Returns:
        (S, 256) state after a byte; (S,) the state itself, or its longest proper suffix, that ends a name, else 0; (S,)
        the next such suffix; (S,) name ending at a state, else -1.
    """
    children: list[dict[int, int]] = [{}]
    ends = [-1]
    for number, name in enumerate(names):
        state = 0
        for byte in name:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                ends.append(-1)
            state = children[state][byte]
        ends[state] = number
    after = np.zeros((len(children), 256), dtype=np.int32)
    fail, first, following = ([0] * len(children) for _ in range(3))
    waiting = [0]
    for state in waiting:  # breadth first, so that the shorter suffixes are done
        if state:
            following[state] = first[fail[state]]
            first[state] = state if ends[state] >= 0 else following[state]
            after[state] = after[fail[state]]
        for byte, child in children[state].items():
            fail[child] = int(after[state, byte]) if state else 0
            after[state, byte] = child
            waiting.append(child)
    return after, np.array(first, np.int32), np.array(following, np.int32), np.array(ends, np.int32)
