"""Frames of other libraries: the texts of each, and the same type back."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.frames import frame_of

TEXTS = ["one", None, "three", "four"]
ROWS = np.array([0, 2])


def frames() -> dict[str, Any]:
    """The same rows in the types of libraries that are here."""
    rows: dict[str, Any] = {
        "list": TEXTS,
        "dictionaries": [{"text": text, "n": number} for number, text in enumerate(TEXTS)],
        "arrow table": pa.table({"n": range(4), "text": TEXTS}),
        "arrow views": pa.table({"n": range(4), "text": pa.array(TEXTS, pa.string_view())}),
        "arrow dictionary": pa.table({"n": range(4), "text": pa.array(TEXTS).dictionary_encode()}),
        "arrow batches": iter(pa.table({"n": range(4), "text": TEXTS}).to_batches(max_chunksize=3)),
        "record batch": pa.table({"n": range(4), "text": TEXTS}).to_batches()[0],
        "arrow array": pa.array(TEXTS),
        "tuple": tuple(TEXTS),
        "numpy": np.array(TEXTS, object),
        "generator": (text for text in TEXTS),
        "generator of dictionaries": ({"text": text} for text in TEXTS),
        "arrow tables": iter([pa.table({"text": TEXTS[:2]}), pa.table({"text": TEXTS[2:]})]),
        "arrow reader": pa.table({"n": range(4), "text": TEXTS}).to_reader(max_chunksize=3),
    }
    columns = {"n": list(range(4)), "text": TEXTS}
    rows["datasets"] = datasets.Dataset.from_dict(columns)
    rows["datasets stream"] = rows["datasets"].to_iterable_dataset()
    for library in (pandas, polars):
        rows[library.__name__] = library.DataFrame(columns)
        rows[f"{library.__name__} series"] = library.Series(TEXTS)
    return rows


@pytest.mark.parametrize("name", list(frames()))
def test_rows_of_a_frame(name: str) -> None:
    """Its texts with their nulls, and some rows in its own type."""
    data = frames()[name]
    frame = frame_of(data, "text")
    assert frame.texts.to_pylist() == TEXTS and frame.texts.type == pa.large_string()
    assert [text for batch in frame.batches(5) for text in batch.to_pylist()] == ["one", "", "three", "four"]
    chosen = frame.rows(ROWS)
    streams = ("arrow batches", "arrow tables", "arrow reader", "record batch", "datasets stream")
    if name not in streams and not name.startswith("generator"):
        assert type(chosen) is type(data)
    assert frame_of(chosen, "text").texts.to_pylist() == ["one", "three"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "a int is no data that is read"),
        ([1, 2], "holds no texts"),
        (pa.table({"n": [1]}), "there is no column 'text'; columns: n"),
        ([{"body": "x"}], "there is no column 'text'"),
        ([{"text": "x"}, "y"], "row 1 is a str, and row 0 is not"),
        (
            datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": ["x"]})),
            "has splits; give one of them: train",
        ),
        (iter([1, 2]), "holds no texts"),
    ],
)
def test_other_data_is_refused_in_a_line(data: object, message: str) -> None:
    """What it is, and what may be given."""
    with pytest.raises(InputError, match=message):
        frame_of(data)


def test_a_batch_has_some_bytes_or_one_text() -> None:
    """However long a text is, in order, none twice."""
    texts = ["x" * size for size in (1, 9, 3, 3, 30, 2, 0, 0)]
    batches = [batch.to_pylist() for batch in frame_of(texts).batches(10)]
    assert [text for batch in batches for text in batch] == texts
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 10 for batch in batches)
