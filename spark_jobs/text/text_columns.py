"""Normalize the texts of Arrow columns; columns without edits are not copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int64Array, UInt8Array
from spark_jobs.text.mojibake import mend
from spark_jobs.text.normalization import NO_EDITS, REPEATED_BLOCK, RULES, Edits, compose, normalize

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


def normalized(content: pa.Array, mends: bool = False) -> tuple[pa.Array, pa.ListArray]:
    """Normalize a column of texts.

    Args:
        content: (D,) strings, none of them null.
        mends: whether text that was decoded wrongly is mended first.

    Returns:
        (D,) texts of the same type, and (D,) lists of edits, struct<rule, start, end, replacement_length>.
    """
    is_foreign = ~pc.string_is_ascii(content).to_numpy(zero_copy_only=False)
    doubtful = np.flatnonzero(is_foreign | holding(content, ord("\r")))
    if not len(doubtful):
        return content, edits_column([NO_EDITS] * len(content))
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


def without_repeats(
    content: pa.Array, edits: pa.ListArray, is_code: BoolArray, least_words: int, keep: int
) -> tuple[pa.Array, pa.ListArray]:
    """Cut the repeated blocks of normalized texts; their edits then lead past the cut spans.

    Args:
        content: (D,) strings, none of them null.
        edits: (D,) as of `normalized`.
        is_code: (D,) whether a text is code, of which whole lines go.
        least_words: fewest words of a block.
        keep: places of a block that stay.
    """
    from spark_jobs.text.repeated_blocks import repeated_blocks

    blocks = repeated_blocks(content, least_words, keep, is_code)
    rows = np.flatnonzero(np.diff(blocks.offsets))
    if not rows.size:
        return content, edits
    cut, all_edits, texts = np.zeros(len(content), np.bool_), [edits_of(row) for row in edits.to_pylist()], []
    for row in rows.tolist():
        part = slice(blocks.offsets[row], blocks.offsets[row + 1])
        starts, ends, source = blocks.starts[part], blocks.ends[part], content[row].as_py().encode()
        pieces = zip([0, *ends.tolist()], [*starts.tolist(), len(source)], strict=True)
        # What stood before a block and what stood behind it may compose: kana and its mark.
        text, joined = normalize(b"".join(source[start:end] for start, end in pieces).decode())
        cuts = Edits(np.full(len(starts), REPEATED_BLOCK, np.int64), starts, ends, np.zeros(len(starts), np.int64))
        cut[row], all_edits[row] = True, compose(compose(all_edits[row], cuts), joined)
        texts.append(text)
    content = pc.replace_with_mask(content, pa.array(cut), pa.array(texts, type=content.type))
    return content, edits_column(all_edits)


def edits_column(edits: list[Edits]) -> pa.ListArray:
    """Edits of D texts as (D,) lists of struct<rule, start, end, replacement_length>."""
    offsets = np.zeros(len(edits) + 1, dtype=np.int32)
    np.cumsum([len(text_edits) for text_edits in edits], out=offsets[1:])
    some = [text_edits for text_edits in edits if len(text_edits)] or [NO_EDITS]
    rules = pa.DictionaryArray.from_arrays(np.concatenate([text_edits.rule for text_edits in some]), pa.array(RULES))
    numbers = [
        np.concatenate([getattr(text_edits, name) for text_edits in some])
        for name in ("start", "end", "replacement_length")
    ]
    fields = EDITS_TYPE.value_type
    structs = pa.StructArray.from_arrays([rules.dictionary_decode(), *map(pa.array, numbers)], fields=list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=EDITS_TYPE)


def edits_of(rows: Iterable[Mapping[str, Any]]) -> Edits:
    """The edits of one text, from `edits` in its row of the table `texts`; an unknown rule becomes -1."""
    edit_rows = list(rows)
    rules = [RULES.index(edit["rule"]) if edit["rule"] in RULES else -1 for edit in edit_rows]
    numbers = ([edit[name] for edit in edit_rows] for name in ("start", "end", "replacement_length"))
    return Edits(*(np.array(column, dtype=np.int64) for column in (rules, *numbers)))


def holding(content: pa.Array, byte: int) -> BoolArray:
    """(D,) whether each of (D,) texts, none of them null, holds a byte; a tenth of the time of Arrow's search."""
    data, offsets = utf8_arrays(content)
    first, holds_place = int(offsets[0]), np.zeros(len(content), dtype=np.bool_)
    places = np.flatnonzero(data[first : offsets[-1]] == byte) + first
    holds_place[np.searchsorted(offsets, places, side="right") - 1] = True
    return holds_place


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
