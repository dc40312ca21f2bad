"""Results of a selection's function: documents against rules, spans to cut; and the rows of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import index
from typing import TYPE_CHECKING, Any

from spark_jobs.selection.cuts import without

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True)
class Failed:
    """The documents against a rule.

    Attributes:
        rule: its name, the reason shown to people: `shouts`.
        where: (N,) booleans; null is no.
        value: (N,) compared numbers, one for all, or None.
        threshold: (N,) bounds, one for all, or None.
    """

    rule: str
    where: Any
    value: Any = None
    threshold: Any = None


@dataclass(frozen=True)
class Cut:
    """What is cut of texts by a rule.

    Attributes:
        rule: its name.
        spans: (N,) lists of (start, end), characters of the text, ascending and apart; null for none.
    """

    rule: str
    spans: Any


@dataclass(frozen=True)
class Verdicts:
    """Failed rules of N documents, R rules.

    Attributes:
        rules: (R,) their names.
        failed: (R, N) whether the document failed the rule.
        values: (R, N) what was measured; NaN for nothing.
        thresholds: (R, N) the bounds; NaN for none.
    """

    rules: list[str]
    failed: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    thresholds: np.ndarray[Any, Any]

    @classmethod
    def of(cls, given: Sequence[Failed], count: int) -> Verdicts:
        """What a function gave for so many documents."""
        import numpy as np

        failed = np.array([_flags(one, count) for one in given], bool).reshape(len(given), count)
        numbers = (
            np.array([_array(getattr(one, side), count, np.nan).astype(float) for one in given])
            for side in ("value", "threshold")
        )
        values, thresholds = (side.reshape(len(given), count) for side in numbers)
        return cls([one.rule for one in given], failed, values, thresholds)

    @property
    def counts(self) -> np.ndarray[Any, Any]:
        """(N,) failed rules of each document."""
        import numpy as np

        return np.asarray(np.count_nonzero(self.failed, axis=0))

    def column(self) -> pa.Array:
        """(N,) lists of (rule, value, threshold), in the order of the rules."""
        import numpy as np
        import pyarrow as pa

        rows, rules = np.nonzero(self.failed.T)
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        sides = [np.asarray(side)[rules, rows] for side in (self.values, self.thresholds)]
        named = pa.array([self.rules[rule] for rule in rules], pa.string())
        numbers = [pa.array(side, pa.float64(), mask=np.isnan(side)) for side in sides]
        structs = pa.StructArray.from_arrays([named, *numbers], names=["rule", "value", "threshold"])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)


def _flags(given: Failed, count: int) -> np.ndarray[Any, Any]:
    """(N,) whether documents fail a rule.

    Raises:
        ValueError: it has another length, or other values than booleans: "no" and NaN are both true in Python.
    """
    flags = _array(given.where, count, False)
    if count and (wrong := {type(one).__name__ for one in flags.tolist()} - {"bool"}):
        raise ValueError(f"where of {given.rule} has values of type {min(wrong)}, not booleans")
    return flags.astype(bool)


def _array(given: Any, count: int, missing: Any) -> np.ndarray[Any, Any]:
    """(N,) values of what a function gave: an Arrow or NumPy array, one value for all, or None.

    Raises:
        ValueError: it has another length.
    """
    import numpy as np
    import pyarrow as pa

    given = given.as_py() if isinstance(given, pa.Scalar) else given
    if isinstance(given, pa.ChunkedArray | pa.Array):
        given = given.to_pylist()
    if isinstance(given, list | tuple):
        given = np.asarray([missing if one is None else one for one in given])
    values = np.asarray(missing if given is None else given)
    if values.ndim == 0:
        return np.full(count, values)
    if values.shape != (count,):
        raise ValueError(f"{len(values)} values for {count} documents")
    return values


def edited(batch: pa.RecordBatch, cuts: Sequence[Cut]) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Texts after the cuts, and the edits on record; of overlapping spans, the first."""
    texts, edits = list[str](), list[list[dict[str, Any]]]()
    spans = [(cut.rule, cut.spans.to_pylist() if hasattr(cut.spans, "to_pylist") else list(cut.spans)) for cut in cuts]
    for rule, of in spans:
        if len(of) != batch.num_rows:
            raise ValueError(f"cut {rule}: lists of spans for {len(of)} of {batch.num_rows} documents")
    for number, text in enumerate(batch.column("content").to_pylist()):
        listed = sorted(
            (index(start), index(end), rule) for rule, of in spans for start, end in map(_pair, of[number] or ())
        )
        if any(start < 0 or end <= start or end > len(text) for start, end, _ in listed):
            raise ValueError(f"a span of {listed} is outside of a text of {len(text)} characters, or empty")
        ends = accumulate((end for _, end, _ in listed), max, initial=0)  # of all spans before each one
        apart = [span for span, before in zip(listed, ends, strict=False) if span[0] >= before]
        left, made = without(text, [(start, end) for start, end, _ in apart], "")
        texts.append(left)
        edits.append([{**edit, "rule": rule} for edit, (_, _, rule) in zip(made, apart, strict=True)])
    return texts, edits


def _pair(span: Any) -> tuple[int, int]:
    start, end = span.values() if isinstance(span, Mapping) else span
    return start, end
