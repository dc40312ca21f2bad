"""Texts that show, by their ids, for what an encoder takes each character: letter, number, white space or another.

They are encoded with the vocabularies of `revealing`, which hide no split between words.

    structure     every text of up to four characters out of a representative of each class, and every ASCII character
                  in each of the contexts below: all ways that classes can follow one another
    runs          64 neighbouring code points between two characters of the class that they should have: aXYZ..a,
                  1XYZ..1 or ??XYZ..??. Where the reference does not split it, each of its
                  characters is of that class: in the known splittings no other stays in a word with both its neighbours
    contexts      where it does split, every code point of the run is probed alone. `?X's` is the one that shows most:
                  after a letter or a number 's is a word, after others ' belongs to what is before

Which class a code point should have is asked of this Python's tables; a wrong guess costs time and nothing else.
"""

from __future__ import annotations

import itertools
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

REPRESENTATIVES: Final = "as1?' \n\r\té²\u00a0—"
_LONGEST: Final = 4
_RUN_LENGTH: Final = 64
_TELLING: Final = "?X's 0"
_CONTEXTS: Final = (
    *("X", "aXa", "1X1", "??X??", "XX", " X", "  X", "  Xa", "X a", "X  a", "\nX", "X\n", " X\n", "X's 0", _TELLING),
    *("a'Xa", "a'rXa", "a'Xea", "a'lXa", "a'Xla", "a'vXa", "a1X1a", "1X11"),
)
_BESIDE: Final = {"L": ("a", "a"), "N": ("1", "1")}
_OTHERS: Final = ("??", "??")
_ASCII: Final = 128


@dataclass(frozen=True)
class Run:
    """Neighbouring code points that should be of one class, between characters that are.

    Attributes:
        first: lowest code point.
        last: highest code point.
        text: all of them, in order, with their neighbours.
    """

    first: int
    last: int
    text: str

    @property
    def joined_length(self) -> int:
        """Tokens of the text under `revealing.boundaries` where nothing is split."""
        return len(self.text.encode()) - (self.last - self.first + 2)


def structure_probes() -> list[str]:
    """Texts in which classes follow one another in all ways, ASCII characters in all contexts."""
    ways = itertools.chain.from_iterable(
        itertools.product(REPRESENTATIVES, repeat=length) for length in range(1, _LONGEST + 1)
    )
    contexts = (probe for number in range(_ASCII) for probe in character_probes(chr(number)))
    return list(dict.fromkeys(["", *("".join(way) for way in ways), *contexts]))


def character_probes(character: str) -> list[str]:
    """A character in every context."""
    return [context.replace("X", character) for context in _CONTEXTS]


def telling_probe(character: str) -> str:
    """A character in the context that shows most."""
    return _TELLING.replace("X", character)


def line_ends() -> list[tuple[str, str]]:
    """What stands before and after a cut at a line end: a visible character, the line feed | a visible character."""
    ways = [*map("".join, itertools.product(REPRESENTATIVES, repeat=2)), *REPRESENTATIVES]
    before = [way + "\n" for way in ways if not way[-1].isspace()]
    after = [way for way in ways if not way[0].isspace()]
    return list(itertools.product(before, after))


def code_point_runs() -> Iterator[Run]:
    """Runs that hold every code point beyond ASCII once, surrogates left out."""
    for beside, group in itertools.chain(
        itertools.groupby(range(_ASCII, 0xD800), key=_beside),
        itertools.groupby(range(0xE000, sys.maxunicode + 1), key=_beside),
    ):
        for run in _batched(group):
            first, last = run[0], run[-1]
            yield Run(first, last, "".join((beside[0], *map(chr, run), beside[1])))


def _batched(numbers: Iterator[int]) -> Iterator[tuple[int, ...]]:
    """Tuples of a run's length, the last one shorter."""
    while run := tuple(itertools.islice(numbers, _RUN_LENGTH)):
        yield run


def _beside(number: int) -> tuple[str, str]:
    """Characters of the class that a code point should have."""
    return _BESIDE.get(unicodedata.category(chr(number))[0], _OTHERS)
