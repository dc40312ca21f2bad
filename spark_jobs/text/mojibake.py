"""Mend text that was decoded in the wrong encoding (mojibake), with edits that map it back to the source.

    source   für  as UTF-8, read as Latin-1:  f Ã ¼ r     bytes 0:f 1-2:Ã 3-4:¼ 5:r
    text     für                              f ü r       bytes 0:f 1-2:ü 3:r
    edits    mojibake [1, 5) -> 2

ftfy decides line by line, and of its fixes only that of encodings is used: quotes, widths and entities stay. A line is
left as it is where mending would add a replacement character (U+FFFD) or a control, which is no gain.
Source: R. Speer, "ftfy", doi:10.5281/zenodo.2591652.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any, Final

import numpy as np

from spark_jobs.text.normalization import MOJIBAKE, NO_EDITS, Edits
from spark_jobs.threads import made_once

_LINES: Final = re.compile("(?<=[\n\r])")  # str.splitlines breaks inside of mojibake, at U+0085
_BEYOND_ASCII: Final = re.compile("([^\x00-\x7f]+)")
_NO_GAIN: Final = re.compile("[\ufffd\x00-\x08\x0b-\x1f\x7f]")
_SEGMENT_CHARACTERS: Final = 100_000  # a longer line is judged in parts of this length


def mend(source: str) -> tuple[str, Edits]:
    """Mend one text.

    Args:
        source: any text without lone surrogates.

    Returns:
        The mended text, and the edits that made it; a text without mojibake comes back as it is.
    """
    if source.isascii():
        return source, NO_EDITS
    pieces: list[str] = []
    spans: list[tuple[int, int, int]] = []
    position = 0
    for line in _LINES.split(source):
        for start in range(0, len(line), _SEGMENT_CHARACTERS):
            segment = line[start : start + _SEGMENT_CHARACTERS]
            mended = _mended(segment)
            if mended != segment:
                spans += [(position + first, position + last, size) for first, last, size in _spans(segment, mended)]
            pieces.append(mended)
            position += len(segment.encode())
    if not spans:
        return source, NO_EDITS
    starts, ends, lengths = np.array(spans, dtype=np.int64).T
    return "".join(pieces), Edits(np.full(len(spans), MOJIBAKE, dtype=np.int64), starts, ends, lengths)


def _mended(line: str) -> str:
    """Undo the wrong decoding of a line."""
    if line.isascii():
        return line
    is_bad, fix_encoding, config = _ftfy()
    if not is_bad(line):
        return line
    mended: str = fix_encoding(line, config)
    return line if len(_NO_GAIN.findall(mended)) > len(_NO_GAIN.findall(line)) else mended


def _spans(line: str, mended: str) -> list[tuple[int, int, int]]:
    """(first byte, byte after the last, bytes of the replacement) of each part of a line that changed.

    Runs beyond ASCII correspond one to one where the ASCII between them is equal; else all between the common prefix
    and suffix is one span.
    """
    old, new = _BEYOND_ASCII.split(line), _BEYOND_ASCII.split(mended)
    if old[::2] != new[::2]:
        # An edit replaces at least one byte, so that at least one character is left between the ends.
        head = min(_common(line, mended), len(line) - 1)
        tail = min(_common(line[head:][::-1], mended[head:][::-1]), len(line) - head - 1)
        old = ["", line[:head], "", line[head : len(line) - tail]]
        new = ["", mended[:head], "", mended[head : len(mended) - tail]]
    spans, position = [], 0
    for before, after in zip(old, new, strict=True):
        size = len(before.encode())
        if before != after:
            spans.append((position, position + size, len(after.encode())))
        position += size
    return spans


def _common(left: str, right: str) -> int:
    """Length of the common prefix of two texts, in characters."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


@made_once
def _ftfy() -> tuple[Any, Any, Any]:
    """The detector of mojibake, the fixer and the fixer's config of ftfy; imported only when texts are mended."""
    from ftfy import TextFixerConfig, fix_encoding
    from ftfy.badness import is_bad

    return is_bad, fix_encoding, TextFixerConfig(replace_lossy_sequences=False, explain=False)
