"""Read supervised models of fastText, plain (`.bin`) and quantized (`.ftz`), and score columns of texts by them.

Labels and probabilities are fastText's own to 1e-4, at several times its speed; `kernel` defines them.
Only one-vs-all reads its logistic function from a table of 512 steps, so that one probability in some 10,000, whose sum
lies on the edge of a step, is that of the next step (less than .008 away).
A text is scored as one line: LF is white space, where fastText itself refuses it. The layout of a file, little-endian:

    magic, version, 12 settings, t | entries: words, then labels | pruned buckets | input matrix | output matrix

Rows of a quantized matrix are decoded once, when the model is read: 4 bytes for each number of a row.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Float32Array, Int32Array, Int64Array
from spark_jobs.exceptions import ConfigError, InputError, did_you_mean
from spark_jobs.fasttext.kernel import HIERARCHICAL, ONE_VS_ALL, ModelArrays, score_texts
from spark_jobs.fasttext.tables import fill_slots, find_entries, sum_words
from spark_jobs.text.text_columns import utf8_arrays

LABEL_PREFIX: Final = "__label__"
_MAGIC: Final = 793712314  # of fastText's files, as are the numbers below
_VERSIONS: Final = (11, 12)
_SUPERVISED: Final = 3
_CENTROIDS: Final = 256  # of a part of a quantized row, which is named by a byte
_COPIED_BYTES: Final = 64 << 20
_SETTINGS: Final = struct.Struct("<14id")
_COUNTS: Final = struct.Struct("<3i2q")


@dataclass(frozen=True)
class FastTextModel:
    """A fastText model that has been read.

    Attributes:
        name: name of the model in errors.
        labels: (L,) without the prefix `__label__`, in the file's order.
        sha256: hash of the file.
        tables: arrays for the kernels.
    """

    name: str
    labels: tuple[str, ...]
    sha256: str
    tables: ModelArrays

    def judge(self, content: pa.Array, labels: Sequence[str]) -> tuple[pa.Array, pa.Array, dict[str, pa.Array]]:
        """(D,) the most probable label, (D,) its probability, and (D,) probabilities by label; clipped to 1.

        Raises:
            ConfigError: the model has no such label.
        """
        for label in labels:
            if label not in self.labels:
                raise ConfigError(f"{self.name}: has no label {label!r}{did_you_mean(label, self.labels)}")
        wanted = np.array([self.labels.index(label) for label in labels], dtype=np.int64)
        source, offsets = utf8_arrays(content)
        probabilities = np.empty((len(content), len(wanted)), np.float32)
        best, of_best = np.empty(len(content), np.int32), np.empty(len(content), np.float32)
        score_texts(self.tables, source, offsets, wanted, probabilities, best, of_best)
        probabilities, of_best = np.minimum(probabilities, 1), np.minimum(of_best, 1)
        return (
            pa.array(self.labels, pa.string()).take(pa.array(best, mask=best < 0)),
            pa.array(of_best, from_pandas=True),
            {label: pa.array(probabilities[:, k], from_pandas=True) for k, label in enumerate(labels)},
        )


def read_fasttext(data: Any, name: str) -> FastTextModel:
    """Read a supervised model.

    Raises:
        InputError: the bytes are no such model, are of another version, or end early.
    """
    view = memoryview(data)
    try:
        return _Reader(view, name).model()
    except (struct.error, IndexError, ValueError) as error:
        message = f"{name}: is damaged, its {len(view)} bytes are not a whole fastText model; copy the file again"
        raise InputError(message) from error


class _Reader:
    """Reads a file from front to back; a read beyond the end is an IndexError."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def model(self) -> FastTextModel:
        """Read the whole file."""
        magic, version = struct.unpack("<2i", self._take(8))
        if magic != _MAGIC:
            raise InputError(f"{self.name}: is no fastText model, it begins with {magic}, not with {_MAGIC}")
        if version not in _VERSIONS:
            raise InputError(f"{self.name}: has version {version}, known are 11 and 12; save it with fastText 0.9")
        self.at = 0
        settings = _SETTINGS.unpack(self._take(_SETTINGS.size))
        dimension, _, _, _, _, word_ngrams, loss, kind, bucket, low, high = settings[2:13]
        if kind != _SUPERVISED:
            raise InputError(f"{self.name}: is a model of word vectors and has no labels; train with `supervised`")
        entry_count, word_count, label_count, _, pruned_count = _COUNTS.unpack(self._take(_COUNTS.size))
        counts_fit = word_count >= 0 < label_count and word_count + label_count == entry_count
        if not (1 <= loss <= ONE_VS_ALL and counts_fit and 10 * entry_count <= len(self.data) and bucket >= 0):
            raise IndexError
        starts, entry_bytes, label_counts, used = find_entries(self._rest(), entry_count, word_count)
        if used < 0:
            raise IndexError
        self.at += int(used)
        pruned = self._array("<i4", 2 * max(pruned_count, 0)).reshape(-1, 2)
        bits, before, kept = _kept_buckets(pruned, bucket)
        is_quantized = bool(self._take(1)[0])
        rows = self._quantized() if is_quantized else self._dense()
        output_is_quantized = bool(self._take(1)[0])
        output = self._quantized() if is_quantized and output_is_quantized else self._dense()
        high = high if version > min(_VERSIONS) else 0  # fastText ignores the setting in such models
        bucket_rows = bucket if high > 0 or word_ngrams > 1 else 0
        row_count = word_count + (len(kept) if pruned_count >= 0 else bucket_rows)
        shapes_fit = rows.shape[1] == dimension and output.shape == (label_count, dimension) and len(rows) >= row_count
        if self.at != len(self.data) or not shapes_fit:
            raise IndexError
        if len(kept) and not (kept.min() >= 0 and kept.max() < len(rows) - word_count):
            raise IndexError
        if len(kept):
            rows = np.concatenate([rows[:word_count], rows[word_count + kept]])
        left, right = _huffman(label_counts) if loss == HIERARCHICAL else (np.zeros(0, np.int32),) * 2
        tables = ModelArrays(
            word_count=word_count,
            bucket=bucket if pruned_count != 0 else 0,
            min_characters=low,
            max_characters=high,
            word_ngrams=word_ngrams,
            loss=loss,
            entry_bytes=entry_bytes,
            entry_starts=starts,
            slots=fill_slots(entry_bytes, starts),
            is_pruned=pruned_count >= 0,
            kept_bits=bits,
            kept_before=before,
            rows=rows,
            word_sums=rows[:word_count],
            word_rows=np.ones(word_count, np.int32),
            output=output,
            left=left,
            right=right,
        )
        if high > 0:
            sums, counts = sum_words(tables)
            tables = tables._replace(word_sums=sums, word_rows=counts)
        labels = [
            bytes(entry_bytes[starts[entry] : starts[entry + 1]]).decode("utf-8").removeprefix(LABEL_PREFIX)
            for entry in range(word_count, entry_count)
        ]
        return FastTextModel(self.name, tuple(labels), hashlib.sha256(self.data).hexdigest(), tables)

    def _take(self, size: int) -> memoryview:
        if size < 0 or self.at + size > len(self.data):
            raise IndexError
        self.at += size
        return self.data[self.at - size : self.at]

    def _rest(self) -> Any:
        return np.frombuffer(self.data, dtype=np.uint8, offset=self.at)

    def _array(self, dtype: str, count: int) -> Any:
        return np.frombuffer(self._take(np.dtype(dtype).itemsize * count), dtype=dtype)

    def _dense(self) -> Float32Array:
        """Read a dense matrix: a view of the file, or a copy if small, so that small models share compiled kernels."""
        rows, columns = struct.unpack("<2q", self._take(16))
        matrix: Float32Array = self._array("<f4", rows * columns).reshape(rows, columns)
        return matrix.copy() if matrix.nbytes <= _COPIED_BYTES else matrix

    def _quantized(self) -> Float32Array:
        """Read a quantized matrix: each part of a row is a centroid; the row may be scaled by a quantized norm."""
        has_norms = bool(self._take(1)[0])
        rows, columns, code_count = struct.unpack("<2qi", self._take(20))
        codes = self._array("u1", code_count)
        matrix = self._decoded(codes, rows, columns)
        if has_norms:
            norm_codes = self._array("u1", rows)
            matrix *= self._decoded(norm_codes, rows, 1)
        return matrix

    def _decoded(self, codes: Any, rows: int, columns: int) -> Float32Array:
        """Decode codes by the product quantizer that follows in the file."""
        dimension, parts, width, last_width = struct.unpack("<4i", self._take(16))
        centroids = self._array("<f4", dimension * _CENTROIDS)
        if dimension != columns or len(codes) != rows * parts or (parts - 1) * width + last_width != columns:
            raise IndexError
        by_part = codes.reshape(rows, parts)
        matrix = np.empty((rows, columns), np.float32)
        for part in range(parts):
            size = width if part < parts - 1 else last_width
            first = part * _CENTROIDS * width
            table = centroids[first : first + _CENTROIDS * size].reshape(_CENTROIDS, size)
            matrix[:, part * width : part * width + size] = table[by_part[:, part]]
        return matrix


def _kept_buckets(pruned: Any, bucket: int) -> tuple[Any, Int32Array, Int32Array]:
    """`kept_bits` and `kept_before` of `ModelArrays`, and the row number of each kept bucket in the file, by bucket."""
    order = np.argsort(pruned[:, 0], kind="stable")
    kept = pruned[order, 0].astype(np.int64)
    if len(kept) and not (kept[0] >= 0 and kept[-1] < bucket and (np.diff(kept) > 0).all()):
        raise IndexError
    flags = np.zeros((max(bucket, 0) // 64 + 1) * 64, dtype=bool) if len(kept) else np.zeros(64, dtype=bool)
    flags[kept] = True
    bits = np.packbits(flags, bitorder="little").view(np.uint64)
    before = np.cumsum(flags.reshape(-1, 64).sum(axis=1)) - flags.reshape(-1, 64).sum(axis=1)
    return bits, before.astype(np.int32), np.ascontiguousarray(pruned[order, 1], dtype=np.int32)


def _huffman(counts: Int64Array) -> tuple[Int32Array, Int32Array]:
    """(2 L - 1,) left and right children in the labels' Huffman tree. Counts descend; nodes from L on are inner."""
    label_count = len(counts)
    totals = [*counts.tolist(), *[10**15] * (label_count - 1)]
    left, right = np.full((2, 2 * label_count - 1), -1, np.int32)
    leaf, node = label_count - 1, label_count
    for parent in range(label_count, 2 * label_count - 1):
        children = []
        for _ in range(2):
            if leaf >= 0 and totals[leaf] < totals[node]:
                children.append(leaf)
                leaf -= 1
            else:
                children.append(node)
                node += 1
        left[parent], right[parent] = children
        totals[parent] = totals[children[0]] + totals[children[1]]
    return left, right
