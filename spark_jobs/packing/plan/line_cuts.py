"""Cut documents longer than a window where lines end, yet into the fewest possible pieces.

Of K = ceil(n / L) pieces, cut i may lie from n - (K - i) L, or the rest would not fit into K - i pieces, to L after the
cut before. The last line end in that range is taken; if there is none, the cut is at its upper end, in mid-line:

    L = 8, n = 18, K = 3      lines end before token 5, 7, 11, 18
    cut 1 in [2, 8] -> 7      cut 2 in [10, 15] -> 11      pieces of 7, 4, 7

A line end is a token ending in the byte LF, looked up once for every token of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import BoolArray, Int64Array

_NAMES_PER_CALL = 1 << 16


def line_end_tokens(file_text: str, vocabulary_size: int) -> BoolArray:
    """(V,) whether a token's text ends in a line feed.

    Args:
        file_text: text of a tokenizer.json.
        vocabulary_size: V, the largest id plus one.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(file_text)
    ends_line: list[bool] = []
    for first in range(0, vocabulary_size, _NAMES_PER_CALL):
        ids = [[token] for token in range(first, min(first + _NAMES_PER_CALL, vocabulary_size))]
        ends_line += [text.endswith("\n") for text in tokenizer.decode_batch(ids, skip_special_tokens=False)]
    return np.array(ends_line, dtype=np.bool_)


def soft_line_cuts(ends_line: BoolArray, window_tokens: int, leading: int) -> Int64Array:
    """Where to cut one document, at line ends as far as possible.

    Args:
        ends_line: (T,) whether each of the document's own tokens ends a line.
        window_tokens: L.
        leading: 1 where the document has a beginning-of-document token, else 0.

    Returns:
        (K - 1,) cuts, ascending: the first token of the piece after each, in the document with its specials.
    """
    length = len(ends_line) + 1 + leading
    pieces = -(-length // window_tokens)
    line_cuts = np.flatnonzero(ends_line) + 1 + leading
    cuts = np.zeros(pieces - 1, dtype=np.int64)
    before = 0
    for number in range(1, pieces):
        latest = before + window_tokens
        earliest = length - (pieces - number) * window_tokens  # > before, since length > (pieces - 1) * window_tokens
        nth = int(np.searchsorted(line_cuts, latest, side="right")) - 1
        before = int(line_cuts[nth]) if nth >= 0 and line_cuts[nth] >= earliest else latest
        cuts[number - 1] = before
    return cuts


def cut_batches(
    documents: Iterable[pa.RecordBatch], line_ends: BoolArray, window_tokens: int, leading: int
) -> Iterator[pa.RecordBatch]:
    """Find the cuts of documents longer than a window.

    Args:
        documents: rows with `input_ids`; all other columns are kept.
        line_ends: (V,) whether a token ends a line; ids outside the vocabulary end none (they are refused later).
        window_tokens: L.
        leading: 1 where documents have a beginning-of-document token, else 0.

    Yields:
        The rows with `cuts`, a list of longs, in place of `input_ids`.
    """
    for batch in documents:
        ids = batch.column("input_ids")
        values, offsets = ids.values.to_numpy(), ids.offsets.to_numpy()
        in_vocabulary = (values >= 0) & (values < len(line_ends))
        ends_line = line_ends[np.where(in_vocabulary, values, 0)] & in_vocabulary
        cuts_of_documents = [
            soft_line_cuts(ends_line[offsets[row] : offsets[row + 1]], window_tokens, leading)
            for row in range(batch.num_rows)
        ]
        bounds = np.zeros(len(cuts_of_documents) + 1, dtype=np.int32)
        np.cumsum([len(document_cuts) for document_cuts in cuts_of_documents], out=bounds[1:])
        cuts = np.concatenate(cuts_of_documents) if cuts_of_documents else np.zeros(0, dtype=np.int64)
        kept = [name for name in batch.schema.names if name != "input_ids"]
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in kept), pa.ListArray.from_arrays(pa.array(bounds), pa.array(cuts))],
            names=[*kept, "cuts"],
        )
