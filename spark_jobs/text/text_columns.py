r"""Normalize the texts of Arrow columns, and hash their letters for comparison; columns without edits are not copied.

Prose is compared by its letters alone, regardless of case, white space and punctuation:

1. Each character is lower-cased by Unicode's full mapping (`str.lower`); a final sigma counts as sigma.
2. White space, punctuation, control and format characters are left out (general categories Z*, P*, Cc, Cf). Symbols
   (S*: `+ < = > $ ^ | ~` and the backtick), numbers, `%` and everything else stay.
3. Characters that change a number stay too: a dash, `/` or `*` beside it, a point or comma before it, and all between
two numbers without a letter between them, white space there as one space. Signs of currencies, `%` and degrees
count as numbers.

    'Hello, World!\n'                 ->  'helloworld'  ->  SHA-256 of these ten bytes
    'From -1.25 to 3/4, at 12:30.'    ->  'from-1.25to3/4at12:30'

In code, markup and data every mark, case and indent may matter: only spaces at ends of lines and blank lines are left
out. Short texts such as `return 0;` are equal by chance, so there is no hash of fewer than `min_letters` characters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.text.characters import (
    COUNTED,
    GAP,
    INVISIBLE,
    NUMBER,
    POINT,
    SIGN,
    code_points,
    comparison_classes,
)
from spark_jobs.text.mojibake import mend
from spark_jobs.text.normalization import NO_EDITS, RULES, Edits, compose, normalize

EDITS_TYPE = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("rule", pa.string(), nullable=False),
                pa.field("start", pa.int64(), nullable=False),
                pa.field("end", pa.int64(), nullable=False),
                pa.field("replacement_length", pa.int64(), nullable=False),
            ]
        ),
        nullable=False,
    )
)


def text_batches(batches: Iterator[pa.RecordBatch], min_letters: int, mends: bool = False) -> Iterator[pa.RecordBatch]:
    """Turn batches of documents (shard, doc_id, kind, language, content) into batches of the table `texts`."""
    for batch in batches:
        content, edits = normalized(batch.column("content"), mends)
        yield pa.RecordBatch.from_arrays(
            [
                *(batch.column(name) for name in ("shard", "doc_id", "kind", "language")),
                content,
                letters_column(content, batch.column("kind"), min_letters),
                edits,
            ],
            names=["shard", "doc_id", "kind", "language", "content", "letters_sha256", "edits"],
        )


def normalized(content: pa.Array, mends: bool = False) -> tuple[pa.Array, pa.ListArray]:
    """Normalize a column of texts.

    Args:
        content: (D,) strings, none of them null.
        mends: whether text that was decoded wrongly is mended first.

    Returns:
        (D,) texts of the same type, and (D,) lists of edits, struct<rule, start, end, replacement_length>.
    """
    plain = pc.and_(pc.string_is_ascii(content), pc.invert(pc.match_substring(content, "\r")))
    if pc.all(plain, min_count=0).as_py():
        return content, edits_column([NO_EDITS] * len(content))
    doubtful = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    all_edits = [NO_EDITS] * len(content)
    changed, texts = np.zeros(len(content), dtype=bool), []
    for row in doubtful.tolist():
        source = content[row].as_py()
        mended, first = mend(source) if mends else (source, NO_EDITS)
        text, second = normalize(mended)
        edits = compose(first, second)
        if len(edits):
            changed[row], all_edits[row] = True, edits
            texts.append(text)
    if texts:
        content = pc.replace_with_mask(content, pa.array(changed), pa.array(texts, type=content.type))
    return content, edits_column(all_edits)


def edits_column(edits: list[Edits]) -> pa.ListArray:
    """Edits of D texts as (D,) lists of struct<rule, start, end, replacement_length>."""
    offsets = np.zeros(len(edits) + 1, dtype=np.int32)
    np.cumsum([len(one) for one in edits], out=offsets[1:])
    some = [one for one in edits if len(one)] or [NO_EDITS]
    rules = pa.DictionaryArray.from_arrays(np.concatenate([one.rule for one in some]), pa.array(RULES))
    numbers = [np.concatenate([getattr(one, name) for one in some]) for name in ("start", "end", "replacement_length")]
    fields = EDITS_TYPE.value_type
    structs = pa.StructArray.from_arrays([rules.dictionary_decode(), *map(pa.array, numbers)], fields=list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=EDITS_TYPE)


def edits_of(rows: Iterable[Mapping[str, Any]]) -> Edits:
    """The edits of one text, from `edits` in its row of the table `texts`; an unknown rule becomes -1."""
    found = list(rows)
    rules = [RULES.index(edit["rule"]) if edit["rule"] in RULES else -1 for edit in found]
    numbers = ([edit[name] for edit in found] for name in ("start", "end", "replacement_length"))
    return Edits(*(np.array(column, dtype=np.int64) for column in (rules, *numbers)))


def letters_column(content: pa.Array, kinds: pa.Array, min_letters: int) -> pa.Array:
    """(D,) `letters_sha256` of each text; null where fewer than `min_letters` characters remain."""
    offsets, data = utf8_buffer(content)
    spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), kinds.to_pylist(), strict=True)
    hashes = [letters_sha256(bytes(data[start:end]), kind, min_letters) for start, end, kind in spans]
    return pa.array(hashes, type=pa.string())


def utf8_buffer(content: pa.Array) -> tuple[Int64Array, memoryview]:
    """The bytes of a column of strings, without a copy of them.

    Args:
        content: (D,) strings, none of them null.

    Returns:
        (D + 1,) int64 byte offsets, and the buffer that they point into.
    """
    wide = content.cast(pa.large_string())
    _, offset_buffer, data = wide.buffers()
    if len(wide) == 0 or data is None:
        return np.zeros(len(wide) + 1, dtype=np.int64), memoryview(b"")
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return offsets, memoryview(data)


def utf8_arrays(content: pa.Array) -> tuple[UInt8Array, Int64Array]:
    """The bytes of a column of strings and (D + 1,) offsets into them, both read-only.

    Numba compiles a function anew for writable and for read-only arrays; all are read-only, so it does so once.
    """
    offsets, data = utf8_buffer(content)
    read_only = np.frombuffer(data, dtype=np.uint8), offsets.view()
    for array in read_only:
        array.flags.writeable = False
    return read_only


_ASCII_LEFT_OUT: Final = bytes([*range(33), 127]) + b"!\"#&'()*,-./:;?@[\\]_{}"
_ASCII_LOWER: Final = bytes(range(256)).lower()
_ASCII_NUMBER: Final = re.compile(rb"[0-9$%]")


def letters(utf8: bytes) -> bytes:
    """The letters of prose, as the module defines them: `Hello, World!` -> `helloworld`.

    Args:
        utf8: the text in valid UTF-8.
    """
    if utf8.isascii():
        # ASCII without a number is translated as bytes, which is fast.
        if not _ASCII_NUMBER.search(utf8):
            return utf8.translate(_ASCII_LOWER, _ASCII_LEFT_OUT)
        classes = np.frombuffer(utf8.translate(comparison_classes()[:256].tobytes()), dtype=np.uint8)
        return _counted(np.frombuffer(utf8.lower(), dtype=np.uint8), classes).tobytes()
    # Lower-casing a whole text differs from lower-casing its characters one by one in the final sigma alone.
    points = code_points(str(utf8, "utf-8").lower().replace("ς", "σ").encode("utf-8"))
    classes = comparison_classes()[points]
    visible = classes != INVISIBLE
    return _counted(points[visible], classes[visible]).tobytes().decode("utf-32-le").encode("utf-8")


def _counted(points: npt.NDArray[Any], classes: UInt8Array) -> npt.NDArray[Any]:
    """The characters of a lower-case text that count, by its (C,) code points and their (C,) classes."""
    is_number, is_space = classes == NUMBER, classes == GAP
    kept = (classes == COUNTED) | is_number
    ends = np.flatnonzero(kept[1:] != kept[:-1]) + 1  # of runs that count, and of gaps between them
    gaps = ends[int(not kept[0]) :] if len(kept) else ends
    gaps = gaps[: len(gaps) // 2 * 2].reshape(-1, 2)
    gaps = gaps[is_number[gaps[:, 0] - 1] & is_number[gaps[:, 1]]]
    steps = np.zeros(len(kept) + 1, dtype=np.int8)
    steps[gaps[:, 0]], steps[gaps[:, 1]] = 1, -1
    within = np.cumsum(steps[:-1], dtype=np.int8) > 0
    is_later_space = is_space.copy()
    is_later_space[1:] &= is_space[:-1]
    is_later_space[:1] = False
    kept |= within & ~is_later_space
    kept[:-1] |= ((classes[:-1] == SIGN) | (classes[:-1] == POINT)) & is_number[1:]
    kept[1:] |= (classes[1:] == SIGN) & is_number[:-1]
    counted: npt.NDArray[Any] = points[kept]
    counted[is_space[kept]] = ord(" ")
    return counted


def compared_text(utf8: bytes, kind: str) -> bytes:
    """The part of a text that is compared, as the module defines it for its kind.

    Args:
        utf8: the text in valid UTF-8.
        kind: code, prose, markup or data.
    """
    if kind == "prose":
        return letters(utf8)
    return b"\n".join(line for line in (line.rstrip(b" ") for line in utf8.split(b"\n")) if line)


def letters_sha256(utf8: bytes, kind: str, min_letters: int) -> str | None:
    """SHA-256 of `compared_text`, or None where that has fewer than `min_letters` characters.

    Args:
        utf8: the text in valid UTF-8.
        kind: code, prose, markup or data.
        min_letters: fewest characters that a hash is given for.

    Returns:
        64 lower-case hex digits, or None.
    """
    kept = compared_text(utf8, kind)
    # A character has 1 to 4 bytes, so characters are counted only where the number of bytes does not decide.
    if len(kept) < min_letters or (len(kept) < 4 * min_letters and len(str(kept, "utf-8")) < min_letters):
        return None
    return hashlib.sha256(kept).hexdigest()
