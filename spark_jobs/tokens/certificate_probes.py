"""Probes: texts, and tokenizers to encode them with, to reveal the class an encoder gives to each character.

A class is a set of characters not told apart by the pattern of the tokenizer. The texts:

    structure     every text of up to four characters out of representatives of each class, longer ones drawn of them,
                  and every ASCII character in each of the contexts below: all ways that classes can follow one another
    blocks        64 neighbouring code points of one category of Unicode between characters of each kind: aXYZ..a,
                  AXYZ..A, 1XYZ..1, ??XYZ..??. Where encoders split all of these alike, they have put each code point
                  into one class: a character of any other is split from, or joined with, its neighbours in one of them
    names         of added tokens: each in contexts, whole and cut short, two with common characters, random rows
    contexts      where they do not, every code point of the block is probed alone, and so is one whose other case is
                  ASCII, since a pattern may ignore the case. The context `?X's` shows most differences: after a letter
                  or a number 's is a word, after others ' ends the word before

The category of a code point comes from this Python's tables; a wrong one costs time and nothing else.

Ids show where a text was split into words only if the vocabulary has a token across the split, and a real vocabulary
has few such tokens of rare characters. So two encoders can agree on all ids of short texts and still give a character
different classes. Two vocabularies, used with the pre-tokenizer of the real tokenizer, show every split:

    whole words    every substring of a probe is a token, and a word that is a token becomes it: one id is one word
                   "a1?"  ->  a  1  ?      or a1  ?       or  a  1?
    boundaries     the last byte of a character and the first byte of the next are merged, unless they were split
                   "aéé"  ->  a+C3  A9+C3  A9     or, with a split after the first é,  a+C3  A9  C3  A9

The first needs a token for every substring, which is possible for ASCII; the second covers all 1.1 million code points.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.threads import made_once
from spark_jobs.tokens.fast.pre_tokenization import BYTE_NAMES, atoms, token_name

_USUAL: Final = "as1?' \n\r\té²\u00a0—"
_CANDIDATES: Final = "A/$<É中かʰǅ\u0301٣Ⅷ€+\u200b\x00한ไaé"
_MOST_TEXTS: Final = 120_000  # of `structure_probes`: 18 representatives, four in a row
_LONGEST: Final = 4
_DRAWN: Final = (2000, 7)  # texts, and characters of each: every substring of them becomes a token
_BLOCK: Final = 4096
_BLOCK_LENGTH: Final = 64
_FIRST_CONTEXT: Final = "?X's 0"
_NAME_CONTEXTS: Final = ("X", "aX", "Xa", " X ", "XX", "\nX\n", "a\nX\nb", "1X1", "?X's")
_NAME_ROWS: Final = 512
_MOST_OVERLAPS: Final = 8
_CONTEXTS: Final = (
    *("X", "aXa", "1X1", "??X??", "XX", " X", "  X", "  Xa", "X a", "X  a", "\nX", "X\n", " X\n", "X's 0"),
    _FIRST_CONTEXT,
    *("a'Xa", "a'rXa", "a'Xea", "a'lXa", "a'Xla", "a'vXa", "a1X1a", "1X11"),
    *("AXA", "aXA", "AXa", "XA", "AXX", "中X中", "?Xa", "X/\n"),
)
_SIDES: Final = (("a", "a"), ("A", "A"), ("1", "1"), ("??", "??"), ("中", "中"))
_UNASSIGNED_SIDES: Final = (("a", "a"), ("??", "??"))  # what is no letter, number, mark or space differs from all there
_ASCII: Final = 128
_SCRIPTS: Final = "".join(map(chr, (*range(0x80, 0xD800, 61), *range(0xE000, 0x20000, 61))))


@dataclass(frozen=True)
class CodePointBlock:
    """Neighbouring code points of one category; `texts` have them between two characters of each kind."""

    first: int
    last: int
    texts: tuple[str, ...]


def representatives(pre_tokenizer: Mapping[str, Any]) -> str:
    """One character of ASCII, where there is one, and one beyond of each class told apart by a pre-tokenizer.

    Raises:
        UnknownSplittingError: it is not made of known parts.
    """
    from tokenizers import Regex, pre_tokenizers

    splits = [pre_tokenizers.Split(Regex(atom), "removed") for atom in atoms(pre_tokenizer)]
    chosen: dict[tuple[bool, ...], str] = {}
    for character in _USUAL + _CANDIDATES + "".join(map(chr, range(_ASCII))) + _SCRIPTS:
        is_in = (not split.pre_tokenize_str(character) for split in splits)
        chosen.setdefault((character < "\x80", *is_in), character)
    return "".join(dict.fromkeys([*_USUAL, *chosen.values()]))


def structure_probes(characters: str) -> list[str]:
    """Texts of every sequence of up to four characters (three, of many), longer ones, and ASCII in every context.

    Args:
        characters: see `representatives`.
    """
    longest = _LONGEST if len(characters) ** _LONGEST <= _MOST_TEXTS else _LONGEST - 1
    ways = itertools.chain.from_iterable(itertools.product(characters, repeat=length) for length in range(longest + 1))
    contexts = (probe for number in range(_ASCII) for probe in character_probes(chr(number)))
    draw = random.Random(0)
    drawn = ("".join(draw.choices(characters, k=_DRAWN[1])) for _ in range(_DRAWN[0]))
    return list(dict.fromkeys([*map("".join, ways), *contexts, *drawn]))


def character_probes(character: str) -> list[str]:
    """The texts of a character in each context: aXa -> aéa."""
    return [context.replace("X", character) for context in _CONTEXTS]


def first_probe(character: str) -> str:
    """The text of a character in the context with most differences, tried before the others."""
    return _FIRST_CONTEXT.replace("X", character)


def line_ends(characters: str) -> list[tuple[str, str]]:
    """Pairs of texts for a cut at a line end: a visible character and LF end the left, one but `/` begins the right."""
    ways = [*map("".join, itertools.product(characters, repeat=2)), *characters]
    before = [way + "\n" for way in ways if not way[-1].isspace()]
    after = [way for way in ways if not way[0].isspace() and way[0] != "/"]
    return list(itertools.product(before, after))


def name_probes(names: Sequence[str]) -> list[str]:
    """Texts with names of added tokens: each in contexts, pairs with common characters, and rows of parts of names."""
    whole = [context.replace("X", part) for name in names for part in (name, name[:-1]) for context in _NAME_CONTEXTS]
    by_start: dict[str, list[str]] = {}
    for name in names:
        for length in range(1, len(name)):
            by_start.setdefault(name[:length], []).append(name)
    shared = (
        name[:start] + other
        for name in names
        for start in range(len(name))
        for other in by_start.get(name[start:], ())[:_MOST_OVERLAPS]
    )
    draw = random.Random(0)
    parts = (names, [*"a1 \n'?", *(name[at:] for name in names for at in range(1, min(len(name), _MOST_OVERLAPS)))])
    rows = (
        "".join(draw.choice(draw.choice(parts)) for _ in range(draw.randint(2, 6)))
        for _ in range(_NAME_ROWS if names else 0)
    )
    return list(dict.fromkeys([*whole, *itertools.islice(shared, _NAME_ROWS), *rows]))


def code_point_blocks() -> Iterator[CodePointBlock]:
    """Blocks of every code point beyond ASCII, each once, surrogates left out."""
    for category, group in itertools.chain(
        itertools.groupby(range(_ASCII, 0xD800), key=_category),
        itertools.groupby(range(0xE000, sys.maxunicode + 1), key=_category),
    ):
        sides = _UNASSIGNED_SIDES if category in ("Cn", "Co") else _SIDES
        while numbers := tuple(itertools.islice(group, _BLOCK_LENGTH)):
            inside = "".join(map(chr, numbers))
            yield CodePointBlock(numbers[0], numbers[-1], tuple(left + inside + right for left, right in sides))


def _category(number: int) -> str:
    return unicodedata.category(chr(number))


def cased_as_ascii() -> list[int]:
    """Code points beyond ASCII equal to ASCII where the case is ignored: the long s, the sign of kelvin."""
    numbers = itertools.chain(range(_ASCII, 0xD800), range(0xE000, 0x20000))
    cases = ((number, chr(number).casefold() + chr(number).lower() + chr(number).upper()) for number in numbers)
    return [number for number, text in cases if any(character < "\x80" for character in text)]


_LEADING: Final = range(0xC2, 0xF5)
_CONTINUING: Final = range(0x80, 0xC0)
ANCHORS: Final = b"aA1?' \ns/"
"""ASCII characters that probes put beside other characters."""


def whole_words(pre_tokenizer: Mapping[str, Any], probes: Iterable[str]) -> str:
    """A tokenizer.json with every substring of every probe as a token.

    Args:
        pre_tokenizer: of the probed tokenizer.
        probes: short ASCII texts and others; memory grows with the square of their length.
    """
    parts = {
        probe[start:end] for probe in probes for start in range(len(probe)) for end in range(start + 1, len(probe) + 1)
    }
    return _tokenizer_json(pre_tokenizer, [token_name(part.encode()) for part in sorted(parts)], [])


def boundaries(pre_tokenizer: Mapping[str, Any]) -> str:
    """A tokenizer.json to merge the last byte of a character with the first byte of the next, and nothing else.

    The two characters are beyond ASCII or of `ANCHORS`. An anchor between two characters merges with one of them only:
    with one beyond ASCII before it merges with another anchor.
    """
    pairs = [
        *itertools.product(_CONTINUING, _LEADING),
        *itertools.product(ANCHORS, _LEADING),
        *itertools.product(_CONTINUING, ANCHORS),
        *itertools.product(ANCHORS, ANCHORS),
    ]
    merges = [[BYTE_NAMES[left], BYTE_NAMES[right]] for left, right in pairs]
    return _tokenizer_json(pre_tokenizer, [left + right for left, right in merges], merges)


def _tokenizer_json(pre_tokenizer: Mapping[str, Any], tokens: Iterable[str], merges: list[list[str]]) -> str:
    """A tokenizer.json: byte-level BPE. Without merges, `ignore_merges` makes a word that is a token that token."""
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys([*BYTE_NAMES, *tokens]))}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": not merges,
        "vocab": vocabulary,
        "merges": merges,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": byte_level,
            "model": model,
        }
    )


@made_once
def newly_composing() -> frozenset[int]:
    """Code points composed or decomposed by the reference's NFC and unknown to this Python.

    Python checks whether a text is in NFC, and it takes characters of a later Unicode for ones that never compose.
    """
    unknown = [chr(number) for number in range(0x80, sys.maxunicode + 1) if unicodedata.category(chr(number)) == "Cn"]
    composing: set[str] = set()
    for start in range(0, len(unknown), _BLOCK):
        block = unknown[start : start + _BLOCK]
        if _parted("".join(map(_marked, block))) is not None:
            composing.update(part for character in block for part in _parted(_marked(character)) or "")
    return frozenset(map(ord, composing.intersection(unknown)))


def _marked(character: str) -> str:
    """A character between a letter and an overlay mark, sorted by NFC before all other marks."""
    return f"a{character}\u0334"


def _parted(text: str) -> str | None:
    """A text followed by its canonical decomposition (NFD) by the reference; None where they are equal."""
    from tokenizers import normalizers

    decomposed = normalizers.NFD().normalize_str(text)
    return None if decomposed == text else text + decomposed
