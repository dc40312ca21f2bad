r"""Texts of Arrow batches, normalized, and their letters; columns that need no edit are passed on without a copy.

Letters, by which texts are compared that differ only in case, white space and punctuation, are defined character by
character, independent of context:

1. Each character is lower-cased by Unicode's full mapping (`str.lower`); a final sigma counts as sigma.
2. White space, punctuation, control and format characters are left out (general categories Z*, P*, Cc, Cf). Symbols
   (S*: `+ < = > $ ^ | ~` and the backtick), digits and everything else stay.

    'Hello, World!\n'  ->  'helloworld'  ->  SHA-256 of these ten bytes

Short texts such as `return 0;` are equal by chance, so a text with fewer than `min_letters` letters has no hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.text.characters import code_points, without_letters
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
                letters_column(content, min_letters),
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
    """The edits of one text, from its row of the table `texts`; a rule of another version is -1."""
    found = list(rows)
    rules = [RULES.index(edit["rule"]) if edit["rule"] in RULES else -1 for edit in found]
    numbers = ([edit[name] for edit in found] for name in ("start", "end", "replacement_length"))
    return Edits(*(np.array(column, dtype=np.int64) for column in (rules, *numbers)))


def letters_column(content: pa.Array, min_letters: int) -> pa.Array:
    """(D,) hash of the letters of each text; null where it has fewer than `min_letters`."""
    offsets, data = utf8_buffer(content)
    spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return pa.array([letters_sha256(bytes(data[start:end]), min_letters) for start, end in spans], type=pa.string())


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

    Compiled code has a version for arrays that can be written to and one for others: it is compiled once this way.
    """
    offsets, data = utf8_buffer(content)
    read_only = np.frombuffer(data, dtype=np.uint8), offsets.view()
    for array in read_only:
        array.flags.writeable = False
    return read_only


_ASCII_LEFT_OUT: Final = bytes([*range(33), 127]) + b"!\"#%&'()*,-./:;?@[\\]_{}"
_ASCII_LOWER: Final = bytes(range(256)).lower()


def letters(utf8: bytes) -> bytes:
    """The letters of a text, as the module defines them.

    Args:
        utf8: the text in valid UTF-8.
    """
    # ASCII is translated as bytes, which is fast; bytes above 127 stay as they are.
    rest: bytes = utf8.translate(_ASCII_LOWER, _ASCII_LEFT_OUT)
    if rest.isascii():
        return rest
    # Lower-casing a whole text differs from lower-casing its characters one by one in the final sigma alone.
    points = code_points(str(rest, "utf-8").lower().replace("ς", "σ").encode("utf-8"))
    return points[~without_letters()[points]].tobytes().decode("utf-32-le").encode("utf-8")


def letters_sha256(utf8: bytes, min_letters: int) -> str | None:
    """SHA-256 of the letters of a text, or None where it has fewer than `min_letters`.

    Args:
        utf8: the text in valid UTF-8.
        min_letters: fewest letters (characters) that a hash is given for.

    Returns:
        64 lower-case hex digits, or None.
    """
    kept = letters(utf8)
    # A character has 1 to 4 bytes, so characters are counted only where the number of bytes does not decide.
    if len(kept) < min_letters or (len(kept) < 4 * min_letters and len(str(kept, "utf-8")) < min_letters):
        return None
    return hashlib.sha256(kept).hexdigest()
