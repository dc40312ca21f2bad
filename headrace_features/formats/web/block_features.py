"""What the blocks of a page look like, in numbers, for the network to choose those of the article."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_features.formats.web.page_blocks import BLANK_LINE, CELL, Block
from headrace_features.formats.web.roles import ROLE_COUNT

_TAGS = ("p", "h1", "h2", "h3", "h4", "li", "td", "dt", "dd", "pre", "div", "figcaption", "a", "blockquote")
_TAG_NUMBERS = {tag: number for number, tag in enumerate(_TAGS)}
_SENTENCE_ENDS = ".!?。！？।؟…"
_PAUSES = ",;:，、；：،؛"
_MENU_SIGNS = "|»©›•>"
_CLOSERS = "\"'”’»)）」』]"
_ENDS = frozenset(_SENTENCE_ENDS + ":：")
_WIDE = (0x2E80, 0xD800)  # scripts whose letters are syllables or words

Floats = NDArray[np.float32]


def block_features(blocks: Sequence[Block], title: str) -> tuple[Floats, Floats]:
    """What blocks look like.

    Args:
        blocks: of one page, in order; at least one.
        title: what the page calls itself.

    Returns:
        (N, 142) of float32: roles around each block and near it, its tag, its letters, its place in the page,
        and what else stands in the same container, list or row; and (N,) how many words each has, a letter of scripts
        without blanks being half of one.
    """
    roles = _bits([block.roles for block in blocks])
    near = _bits([block.near_roles for block in blocks])
    tags = np.zeros((len(blocks), len(_TAGS) + 1), np.float32)
    tags[np.arange(len(blocks)), [_TAG_NUMBERS.get(block.tag, len(_TAGS)) for block in blocks]] = 1
    fractions, words = _letters([block.text for block in blocks])
    return np.concatenate([roles, near, tags, _measures(blocks, title, fractions, words)], axis=1), words


def _bits(masks: list[int]) -> Floats:
    """(N, ROLE_COUNT) of the bits of N numbers."""
    columns = np.arange(ROLE_COUNT, dtype=np.uint64)
    return ((np.array(masks, np.uint64)[:, None] >> columns) & np.uint64(1)).astype(np.float32)


def _letters(texts: list[str]) -> tuple[Floats, Floats]:
    """(N, 7) fractions of letters of some kinds, and (N,) words."""
    lengths = np.array([len(text) for text in texts])
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _letter_kinds()[codes]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    counts = np.stack(
        [np.add.reduceat((kinds >> kind) & 1, starts, dtype=np.int32) for kind in range(7)], axis=1, dtype=np.float32
    )
    words = (counts[:, 0] + 1 + counts[:, 1] / 2).astype(np.float32)
    return (counts / lengths[:, None]).astype(np.float32), words


@lru_cache(maxsize=1)
def _letter_kinds() -> NDArray[np.uint8]:
    """(0x110000,) the kinds of each letter, as bits: blank, wide, digit, capital, end, pause, sign of menus."""
    kinds = np.zeros(0x110000, np.uint8)
    kinds[_WIDE[0] : _WIDE[1]] |= 2
    kinds[ord("0") : ord("9") + 1] |= 4
    kinds[ord("A") : ord("Z") + 1] |= 8
    for letters, bit in ((" \n\t\xa0", 1), (_SENTENCE_ENDS, 16), (_PAUSES, 32), (_MENU_SIGNS, 64)):
        kinds[[ord(letter) for letter in letters]] |= bit
    return kinds


def _measures(blocks: Sequence[Block], title: str, fractions: Floats, words: Floats) -> Floats:
    """(N, 39) of lengths, letters, places and neighbourhoods."""
    count = len(blocks)
    sizes = np.array([max(1, len(block.text)) for block in blocks], np.float32)
    links = np.minimum(
        1, np.array([block.link_count for block in blocks], np.float32) / (sizes * (1 - fractions[:, 0]) + 1e-6)
    )
    linked = words * links
    free = words - linked
    total, depth = words.sum(), np.array([block.depth for block in blocks], np.float32)
    ends = np.array([_ends_sentence(block.text) for block in blocks], np.float32)
    sentences = fractions[:, 4] * sizes
    prose = free * np.minimum(1, sentences) * (words > 8)
    behind = np.cumsum(words) - words
    prose_behind = np.cumsum(prose)
    all_prose = max(1.0, prose.sum())
    first = {text: place for place, text in reversed(list(enumerate(block.text for block in blocks)))}
    again = np.array([first[block.text] != place for place, block in enumerate(blocks)], np.float32)
    heading = np.array([block.tag == "h1" for block in blocks], np.float32)
    headings = np.array([block.tag[:1] == "h" and block.tag[1:].isdigit() for block in blocks], np.float32)
    titles = _title_words(title)
    columns: list[Any] = [
        np.log1p(words),
        np.log1p(free),
        np.log1p(prose),
        links,
        *fractions.T,
        ends,
        np.minimum(1, sentences / 3),
        np.log1p(depth),
        depth - depth.min(),
        np.arange(count) / count,
        behind / total,
        prose_behind / all_prose,
        (all_prose - prose_behind) / all_prose,
        np.full(count, np.log1p(total)),
        np.full(count, linked.sum() / total),
        np.full(count, np.log1p(all_prose)),
        np.full(count, np.log1p(count)),
        again,
        np.minimum(2, np.cumsum(heading)),
        np.full(count, min(2, heading.sum())),
        np.log1p(_distance(headings)),
        np.array([_overlap(block.text, titles) for block in blocks], np.float32),
        np.array([block.lead == BLANK_LINE for block in blocks], np.float32),
        np.array([block.lead == CELL for block in blocks], np.float32),
    ]
    for numbers in ("container", "outer", "group"):
        keys = np.unique([getattr(block, numbers) for block in blocks], return_inverse=True)[1]
        columns += [
            np.log1p(np.bincount(keys, prose))[keys] if numbers != "group" else np.log1p(np.bincount(keys))[keys],
            (np.bincount(keys, linked) / np.bincount(keys, words))[keys],
            (np.bincount(keys, prose) / all_prose)[keys],
        ]
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)


def _ends_sentence(text: str) -> bool:
    """Whether a text ends as a sentence does."""
    return text.rstrip(_CLOSERS)[-1:] in _ENDS


def _title_words(title: str) -> frozenset[str]:
    """The words of a title."""
    return frozenset(title.lower().split())


def _overlap(text: str, title: frozenset[str]) -> float:
    """The fraction of a short text's words in the title."""
    if len(text) > 200 or not title:
        return 0.0
    words = text.lower().split()
    return sum(word in title for word in words) / max(1, len(words))


def _distance(marks: Floats) -> Floats:
    """(N,) how many blocks there are since the last marked one."""
    places = np.arange(len(marks))
    last = np.maximum.accumulate(np.where(marks > 0, places, -1))
    return (places - last).astype(np.float32)
