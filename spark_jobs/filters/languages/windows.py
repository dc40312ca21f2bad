"""Identify the languages of texts in compiled code, window by window of the prose in them.

Prose is a text without fenced code blocks and addresses:

    text     See [the RFC](https://www.rfc-editor.org/rfc/rfc1) n ``` n x = 1 n ``` n Das war es.
    prose    See [the RFC]() n n Das war es.

It is cut into windows of equal size. Where they are more than a text may have, as many are spread evenly over it, each
from the first white space after its even position; nothing is drawn, so a text always has the same windows. A window
votes for the label most probable to the model, with its letters as weight.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import Float32Array, Int32Array, Int64Array, UInt8Array
from spark_jobs.fasttext.kernel import ModelArrays, best_label, embed, label_scores, new_scratch
from spark_jobs.filters.languages.scripts import HAN, KANA, NO_LETTER

_SCRIPT_COUNT: Final = 64
_LF, _SPACE, _TILDE, _BACKTICK, _COLON, _SLASH, _DOT, _W = 10, 32, 126, 96, 58, 47, 46, 119
_STOPS: Final = np.isin(np.arange(256), [_LF, _COLON, _W])  # bytes that a line, `://` and `www.` begin with
_IN_WORD: Final = np.array([chr(byte).isalnum() or byte > 127 for byte in range(256)])
_ENDS_ADDRESS: Final = np.isin(np.arange(256), [*range(33), *b'")<>]'])


@inner
def copy_prose(data: UInt8Array, start: int, end: int, out: UInt8Array) -> int:
    """Copy a text without fenced blocks (three backticks or tildes) and addresses; gives the bytes written."""
    used = 0
    fence = 0  # the byte that the open fence is made of
    at_line = True
    i = start
    while i < end:
        if at_line:
            j = i
            while j < end and j - i < 4 and data[j] == _SPACE:
                j += 1
            mark = data[j] if j + 2 < end else 0
            is_fence = mark in (_BACKTICK, _TILDE) and data[j + 1] == mark and data[j + 2] == mark
            closes = is_fence and fence == mark
            opens = is_fence and fence == 0
            if fence != 0 or opens:
                fence = 0 if closes else mark if opens else fence
                while i < end and data[i] != _LF:
                    i += 1
                i += 1
                continue
        at_line = False
        while i < end and not _STOPS[data[i]]:
            out[used] = data[i]
            used += 1
            i += 1
        if i == end:
            break
        byte = data[i]
        at_line = byte == _LF
        is_address = False
        if byte == _COLON:
            if i + 2 < end and data[i + 1] == _SLASH and data[i + 2] == _SLASH:
                is_address = True
                while used > 0 and out[used - 1] < 128 and _IN_WORD[out[used - 1]]:
                    used -= 1
        elif byte == _W and i + 3 < end and data[i + 1] == _W and data[i + 2] == _W and data[i + 3] == _DOT:
            is_address = used == 0 or not _IN_WORD[out[used - 1]]
        if is_address:
            while i < end and not _ENDS_ADDRESS[data[i]]:
                i += 1
        else:
            out[used] = byte
            used += 1
            i += 1
    return used


@inner
def _window_edge(prose: UInt8Array, at: int, size: int) -> int:
    """Position of the first white space from `at` to 64 bytes after it, else of the first character from `at` on."""
    if at <= 0 or at >= size:
        return min(max(at, 0), size)
    for i in range(at, min(at + 64, size)):
        if prose[i] <= _SPACE:
            return i
    while at < size and prose[at] & 0xC0 == 0x80:
        at += 1
    return at


@inner
def count_scripts(prose: UInt8Array, start: int, end: int, classes: UInt8Array, counts: Int64Array) -> int:
    """Count the letters of a window by script, and give their number."""
    letters = 0
    i = start
    while i < end:
        script = classes[code_point(prose, i)]
        i += width(prose[i])
        counts[script] += 1
        letters += script != NO_LETTER
    return letters


@inner
def _main_script(counts: Int64Array) -> int:
    """The script with the most letters; Han with a twentieth of kana is Japanese."""
    if counts[KANA] * 20 >= counts[HAN] + counts[KANA]:
        counts[KANA] += counts[HAN] if counts[KANA] else 0
    return 1 + int(np.argmax(counts[1:]))


@compiled
def identify(  # noqa: PLR0913, PLR0917 (arrays in, arrays out)
    t: ModelArrays,
    classes: UInt8Array,
    data: UInt8Array,
    offsets: Int64Array,
    window_bytes: int,
    max_windows: int,
    min_confidence: float,
    labels: Int32Array,
    shares: Float32Array,
    scripts: UInt8Array,
) -> None:
    """Fill (D, 2) labels, -1 where there is none, (D, 2) confidence and share of the second, (D,) script."""
    longest = np.int64(0)
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    prose = np.empty(longest, np.uint8)
    s = new_scratch(t, min(longest, 2 * window_bytes + 128))
    label_count = t.output.shape[0]
    weights, sums, sure = np.zeros(label_count), np.zeros(label_count), np.zeros(label_count)
    counts = np.zeros(_SCRIPT_COUNT, np.int64)
    labels[:] = -1
    shares[:] = np.nan
    for text in range(offsets.size - 1):
        size = copy_prose(data, offsets[text], offsets[text + 1], prose)
        weights[:], sums[:], sure[:] = 0, 0, 0
        counts[:] = 0
        total = 0
        whole = max(-(-size // window_bytes), 1)
        windows = min(whole, max_windows)
        for w in range(windows):
            start = _window_edge(prose, w * size // windows, size)
            end = (w + 1) * size // windows if windows == whole else start + window_bytes
            end = max(_window_edge(prose, end, size), start)
            letters = count_scripts(prose, start, end, classes, counts)
            if letters == 0 or not embed(t, s, prose, start, end):
                continue
            label_scores(t, s, True)
            label = best_label(t, s)
            p = min(s.scores[label], 1.0)  # fastText's are p + 1e-5
            weights[label] += letters
            sums[label] += letters * p
            sure[label] += letters if p >= min_confidence else 0
            total += letters
        scripts[text] = _main_script(counts) if counts[1:].any() else NO_LETTER
        if total == 0:
            continue
        first = np.argmax(sums)
        labels[text, 0] = first
        shares[text, 0] = sums[first] / weights[first]
        sure[first] = 0
        second = np.argmax(sure)
        shares[text, 1] = sure[second] / total
        if sure[second] > 0:
            labels[text, 1] = second
