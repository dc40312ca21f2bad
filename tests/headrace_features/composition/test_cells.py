"""Cells of values, bounds and quantiles, copies, and exact means: kernels and steps against brute force."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace.tables.cells import cell_text, cell_values, parse_choice
from headrace_features.composition.cells import bounds_step, cell_names, cells_step
from headrace_features.composition.config import CellsConfig, require_values
from headrace_features.composition.copies import copies_of
from headrace_features.composition.quantiles import from_bits, ordered_bits, quantile_bounds, ranks
from headrace_features.composition.statistics import exact_sum, statistics_step
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.exceptions import InputError
from tests.tiers import on_spark, tries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

doubles = st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, -0.0, 1.0, 2.0, 5e-324, math.inf, -math.inf]))
values = st.one_of(st.none(), st.just(math.nan), doubles)


@settings(max_examples=tries(100))
@given(st.lists(values, max_size=30), st.lists(doubles, max_size=5, unique=True), st.data())
@example([1.0, None, math.nan, 0.0, -0.0], [0.0, 1.0], None)
def test_a_value_is_in_as_many_bins_as_there_are_bounds_up_to_it(
    numbers: list[float | None], bounds: list[float], data: Any
) -> None:
    """A value equal to a bound is above it; null and NaN are none; texts and whole numbers are what they are."""
    bounds.sort()
    texts = [None if number is None else str(number)[:1] for number in numbers]
    whole = [at % 3 if at % 4 else None for at in range(len(numbers))]
    columns = {
        "quality": pa.array(numbers, pa.float64(), from_pandas=False),
        "topic": pa.array(texts, pa.string()),
        "zone": pa.array(whole, pa.int32()),
    }
    named = cell_names(columns, {"quality": np.array(bounds)}, len(numbers)).to_pylist()
    for name, number, text, zone in zip(named, numbers, texts, whole, strict=True):
        is_none = number is None or math.isnan(number)
        wanted = None if is_none else sum(bound <= number for bound in bounds)
        assert name == cell_text({"quality": wanted, "topic": text, "zone": zone})


@settings(max_examples=tries(100))
@given(st.lists(doubles, min_size=1, max_size=40))
def test_whole_numbers_are_in_the_order_of_doubles(numbers: list[float]) -> None:
    """And lead back to them."""
    bits = ordered_bits(np.array(numbers)).tolist()
    for (one, other), (bit, other_bit) in zip(itertools.pairwise(numbers), itertools.pairwise(bits), strict=True):
        assert (one < other, one == other) == (bit < other_bit, bit == other_bit)
    assert from_bits(np.array(bits, np.uint64)).tolist() == numbers


def quantiles_of(numbers: list[float], parts: int) -> list[int]:
    """The quantile of each of some values: floor(k * share of those with a lesser value)."""
    return [parts * sum(other < number for other in numbers) // len(numbers) for number in numbers]


def _columns(spark: SparkSession, columns: dict[str, list[float | None]]) -> DataFrame:
    table = {name: pa.array(numbers, pa.float64(), from_pandas=False) for name, numbers in columns.items()}
    return spark.createDataFrame(pa.table(table)).repartition(3)


@on_spark
@settings(max_examples=tries(12))
@given(st.integers(0, 10**6), st.integers(2, 12), st.sampled_from(["floats", "few", "equal", "tiny", "none"]))
def test_quantiles_are_exact(spark: SparkSession, seed: int, parts: int, kind: str) -> None:
    """Each document's bin is that of brute force: equal values share one, distinct ones fill bins alike."""
    draw = random.Random(seed)
    make = {
        "floats": lambda: draw.gauss(0, 10.0 ** draw.randrange(-300, 300)),
        "few": lambda: float(draw.choice([-1, -0.0, 0.0, 0.0, 0.5, 2, 3, math.inf])),
        "equal": lambda: 7.0,
        "tiny": lambda: draw.randrange(-9, 9) * 5e-324,
        "none": lambda: math.nan,
    }[kind]
    numbers = [make() for _ in range(draw.randrange(1, 200))]
    more: list[float | None] = [draw.random() if draw.random() < 0.8 else None for _ in numbers]
    found = quantile_bounds(_columns(spark, {"a": [*numbers], "b": more}), {"a": parts, "b": 3})
    for column, k, bounds in ((numbers, parts, found["a"]), (more, 3, found["b"])):
        present = [number for number in column if number is not None and not math.isnan(number)]
        assert len(bounds) == (k - 1 if present else 0)
        assert np.searchsorted(bounds, present, side="right").tolist() == quantiles_of(present, k)
        sizes = Counter(np.searchsorted(bounds, present, side="right").tolist())
        if len(set(present)) == len(present) >= k:
            assert max(sizes.values()) - min(sizes.values()) <= 1 and len(sizes) == k


def test_ranks_are_those_of_the_values_below_each_bin() -> None:
    """Of 10 values in 4 parts, bins begin behind the 3rd, 5th and 8th."""
    assert ranks(10, 4).tolist() == [2, 4, 7]
    assert ranks(1, 5).tolist() == [0, 0, 0, 0]


CONFIG: dict[str, Any] = {
    "quality": {"column": "quality.score", "quantiles": 4},
    "length": {"column": "signals.word_count", "bounds": [50, 500]},
    "language": "texts.language",
    "spoken": "texts.spoken",
    "stars": {"column": "metadata.stars", "bounds": [10]},
    "dataset": "metadata.site",  # dimensions may be called as columns are
    "tokens": {"duplicates": {"most": 3}},
}


def planted(count: int, seed: int, first: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Documents of an increment with values, some without; every fifth was found more often than once."""
    draw = random.Random(seed)
    keys = [{"dataset": "notes", "shard": at % 3, "doc_id": f"{first + at:05d}"} for at in range(count)]
    tables: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("survivors", "quality", "signals", "texts", "documents", "members", "tokens", "exact_duplicates")
    }
    for at, key in enumerate(keys):
        score = draw.choice([draw.random(), 0.5, math.nan, None])
        tables["survivors"].append(key)
        tables["quality"] += [{**key, "score": score}] * (at % 7 > 0)
        tables["signals"].append({**key, "word_count": draw.choice([0, 49, 50, 51, 499, 500, 9999])})
        tables["texts"].append(
            {**key, "language": draw.choice(["en", "de", None]), "spoken": draw.choice([True, False, None])}
        )
        stars = (
            [("stars", draw.choice(["3", "10", "11.5", "many", "12d", "7f", "0x1p9", " 1e1 ", "-3", "inf", "nan"]))]
            if at % 2
            else []
        )
        tables["documents"].append({**key, "metadata": [*stars, ("site", draw.choice(["a.org", "b.org"]))]})
        tables["members"].append({**key, "kind": "prose", "byte_count": 10 * at})
        tables["tokens"].append({**key, "token_count": at})
        if at % 5 == 0:
            tables["exact_duplicates"] += [
                {"doc_id": f"x{key['doc_id']}{copy}", "witness_doc_id": key["doc_id"]} for copy in range(at % 4)
            ]
    return tables


SCHEMAS = {
    "quality": "dataset string, shard int, doc_id string, score double",
    "signals": "dataset string, shard int, doc_id string, word_count bigint",
    "texts": "dataset string, shard int, doc_id string, language string, spoken boolean",
    "documents": "dataset string, shard int, doc_id string, metadata map<string, string>",
    "members": "dataset string, shard int, doc_id string, kind string, byte_count bigint",
    "tokens": "dataset string, shard int, doc_id string, token_count int",
    "survivors": "dataset string, shard int, doc_id string",
    "exact_duplicates": "doc_id string, witness_doc_id string",
}


def frames(spark: SparkSession, tables: dict[str, list[dict[str, Any]]]) -> dict[str, DataFrame]:
    """The tables as DataFrames."""
    made = {}
    for name, rows in tables.items():
        columns = [part.split()[0] for part in SCHEMAS[name].split(", ") if not part.startswith("string>")]
        data = [tuple(dict(row[c]) if c == "metadata" else row[c] for c in columns) for row in rows]
        made[name] = spark.createDataFrame(data, SCHEMAS[name])
    return made


def brute(tables: dict[str, list[dict[str, Any]]], frozen: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The cell of each document; quantiles of the frozen tables."""
    by = {name: {row["doc_id"]: row for row in rows} for name, rows in tables.items()}
    scores = [row["score"] for row in frozen["quality"] if row["score"] is not None and not math.isnan(row["score"])]
    found = Counter(row["witness_doc_id"] for row in tables["exact_duplicates"])
    cells = {}
    for doc_id in by["survivors"]:
        score = by["quality"].get(doc_id, {}).get("score")
        is_none = score is None or math.isnan(score)
        metadata = dict(by["documents"][doc_id]["metadata"])
        try:
            number = float(metadata["stars"])
            stars = None if math.isnan(number) else int(number >= 10)
        except (KeyError, ValueError):
            stars = None
        words, spoken = by["signals"][doc_id]["word_count"], by["texts"][doc_id]["spoken"]
        below = sum(other < score for other in scores) if not is_none else 0
        cells[doc_id] = cell_text(
            {
                "quality": None if is_none else min(3, 4 * below // len(scores)),
                "length": (words >= 50) + (words >= 500),
                "language": by["texts"][doc_id]["language"],
                "spoken": None if spoken is None else str(spoken).lower(),
                "stars": stars,
                "dataset": metadata["site"],
                "tokens": min(3, 1 + found[doc_id]),
            }
        )
    return cells


@on_spark
def test_cells_are_those_of_brute_force_and_bounds_are_frozen(spark: SparkSession) -> None:
    """A second increment gets its cells by the bounds of the first; a document without a value is there."""
    config = CellsConfig(by=CONFIG)
    assert config.binned is not None
    first, second = planted(150, 1), planted(80, 2, first=500)
    of_first = frames(spark, first)
    read = {name: of_first[name] for name in config.binned.tables}
    bounds = bounds_step(read)(of_first["survivors"], config.binned, **read)
    rows = {(row["dimension"], row["number"]): row["bound"] for row in bounds.collect()}
    assert sorted(key for key in rows if key[0] != "quality") == [("length", 1), ("length", 2), ("stars", 1)]
    for tables in (first, second):
        given_ = frames(spark, tables)
        more = {name: given_[name] for name in config.tables}
        output = cells_step(more)(
            given_["survivors"], config, bounds, given_["exact_duplicates"], None, given_["members"], **more
        )
        found = {row["doc_id"]: row["cell"] for row in output.frames["cells"].collect()}
        assert found == brute(tables, first)
    assert any(cell_values(cell)["quality"] is None for cell in found.values())


@on_spark
def test_values_without_frozen_bounds_are_refused(spark: SparkSession) -> None:
    """A dimension that was declared later would have all in the lowest bin; without a value it is none."""
    by = {"new": {"column": "quality.score", "quantiles": 4}, "language": "texts.language"}
    config, tables = CellsConfig(by=by), planted(30, 5)
    bounds = spark.createDataFrame([("quality", 1, 0.5)], "dimension string, number int, bound double")
    for row in tables["quality"]:
        row["score"] = None if row["doc_id"] == "00003" else math.nan
    for refused in (False, True):
        if refused:
            tables["quality"][5]["score"] = 0.25
        made = frames(spark, tables)
        read = {name: made[name] for name in ("quality", "texts")}
        if refused:
            with pytest.raises(InputError, match=r"by\.new: cell_bounds has none of it"):
                cells_step(read)(made["survivors"], config, bounds, **read)
        else:
            output = cells_step(read)(made["survivors"], config, bounds, **read)
            cells = [cell_values(row["cell"]) for row in output.frames["cells"].collect()]
            assert {cell["new"] for cell in cells} == {None} and len(cells) == 30


@on_spark
def test_statistics_add_up(spark: SparkSession) -> None:
    """Documents, bytes, tokens, and the mean of each measure, exactly."""
    config = CellsConfig(by={"tokens": {"column": "quality.score", "bounds": [0.5]}, "cell": "texts.language"})
    tables = planted(120, 3)
    made = frames(spark, tables)
    read = {name: made[name] for name in ("quality", "texts")}
    bounds = spark.createDataFrame([("tokens", 1, 0.5)], "dimension string, number int, bound double")
    cells = cells_step(read)(made["survivors"], config, bounds, **read).frames["cells"]
    measured = {"quality": made["quality"]}
    statistics = statistics_step(measured)(cells, made["members"], made["tokens"], config, **measured)
    of = {row["doc_id"]: row["cell"] for row in cells.collect()}
    scores = {row["doc_id"]: row["score"] for row in tables["quality"]}
    for row in statistics.collect():
        own = [int(doc_id) for doc_id, cell in of.items() if cell == row["cell"]]
        assert (row["documents"], row["bytes"], row["tokens"]) == (len(own), 10 * sum(own), sum(own))
        there = [
            Fraction(score) for at in own if (score := scores.get(f"{at:05d}")) is not None and not math.isnan(score)
        ]
        assert row["means"] == {"tokens": float(sum(there) / len(there)) if there else None}
    assert sum(row["documents"] for row in statistics.collect()) == 120


@settings(max_examples=tries(50))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
def test_sums_of_doubles_are_exact(numbers: list[float]) -> None:
    """In units of the last bit of the least double."""
    assert Fraction(exact_sum(np.array(numbers, np.float64)), 1 << 1127) == sum(map(Fraction, numbers))
    large = np.full(5000, 1.7e308)
    assert Fraction(exact_sum(large), 1 << 1127) == 5000 * Fraction(1.7e308)


@on_spark
@settings(max_examples=tries(8))
@given(st.integers(0, 10**6))
def test_a_survivor_stands_for_all_that_went_because_of_it(spark: SparkSession, seed: int) -> None:
    """Each removed document counts once, for the document that is there; all of them add up."""
    draw = random.Random(seed)
    names = [f"{at:02d}" for at in range(draw.randrange(2, 40))]
    exact, near, kept = list[tuple[str, str]](), list[tuple[float, str, str]](), list[str]()
    heads = list[str]()
    for name in names:  # as the steps decide: of the exact duplicates the first, of those left the near ones
        if heads and draw.random() < 0.3:
            exact.append((name, draw.choice(heads)))
            continue
        heads.append(name)
        if kept and draw.random() < 0.4:
            near.append((0.8, name, draw.choice(kept)))
        else:
            kept.append(name)
    near += [(0.7, name, kept[0]) for name in kept[1:3]]  # of a threshold that does not apply
    stand_in = (
        exact[0][0] if exact and exact[0][1] in kept[1:] and not any(exact[0][1] in row for row in near) else None
    )
    if stand_in is not None:  # it is kept instead of the document that it repeats
        kept = [stand_in if name == exact[0][1] else name for name in kept]
        near.append((0.8, exact[0][1], stand_in))
    made = copies_of(
        spark.createDataFrame(exact, "doc_id string, witness_doc_id string"),
        spark.createDataFrame(near, "threshold double, doc_id string, witness_doc_id string"),
        spark.createDataFrame([(name, "prose") for name in names], "doc_id string, kind string"),
        KindThreshold(),
    )
    found = {row["doc_id"]: row["documents"] for row in made.collect()}
    gone = {doc: witness for doc, witness in exact if doc not in kept}
    gone |= {doc: witness for threshold, doc, witness in near if threshold == 0.8}
    wanted = Counter(kept)
    for name in gone:
        at = name
        while at in gone:
            at = gone[at]
        wanted[at] += 1
    assert found == {name: count for name, count in wanted.items() if count > 1}
    assert sum(found.values()) + sum(name not in found for name in kept) == len(names)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ({}, "at least 1 item"),
        ({"not": "texts.language"}, "'not' is no name of a dimension"),
        ({"Topic": "texts.language"}, "'Topic' is no name of a dimension"),
        ({"topic": "language"}, "'language' is no column; write TABLE.COLUMN"),
        ({"topic": {"quantiles": 3}}, "give column: TABLE.COLUMN, or duplicates"),
        ({"topic": {"column": "a.b", "quantiles": 1}}, "greater than or equal to 2"),
        ({"topic": {"column": "a.b", "quantiles": 3, "bounds": [1]}}, "both bounds and quantiles"),
        ({"topic": {"column": "a.b", "bounds": [2, 2]}}, r"bounds \[2.0, 2.0\] do not ascend"),
        ({"topic": {"column": "a.b", "bounds": [3, 2]}}, "do not ascend"),
        ({"topic": {"column": "a.b", "bounds": []}}, "at least 1 item"),
        ({"topic": {"column": "a.b", "quantile": 3}}, "quantile"),
        ({"copies": {"duplicates": {"most": 1}}}, "greater than or equal to 2"),
        ({"copies": {"duplicates": {"most": 3}, "bounds": [1]}}, "duplicates takes no bounds"),
    ],
)
def test_what_cannot_be_a_dimension_is_refused(by: dict[str, Any], said: str) -> None:
    """When it is declared."""
    with pytest.raises(ValidationError, match=said):
        CellsConfig(by=by)


@pytest.mark.parametrize(
    ("dimension", "said"),
    [
        ("quality.scor", r"by.one: quality has no column 'scor'; did you mean 'score'\?"),
        ("quality.score", "quality.score is double; give bounds or quantiles"),
        ("quality.parts", "quality.parts is list<string>; name a column of string, int, long, boolean"),
        ({"column": "texts.language", "quantiles": 3}, "texts.language is string; bounds and quantiles are of numbers"),
        ({"column": "texts.spoken", "bounds": [1]}, "texts.spoken is boolean; bounds and quantiles are of numbers"),
        ("documents.metadata", "documents.metadata is a map of texts; name a key: documents.metadata.KEY"),
        ("texts.language.first", "texts.language is string and has no keys; write: texts.language"),
    ],
)
def test_columns_that_are_no_cells_are_refused(dimension: Any, said: str) -> None:
    """Before anything is computed, with the nearest name."""
    columns = {
        "quality": {"doc_id": "string", "score": "double", "parts": "list<string>"},
        "texts": {"language": "string", "spoken": "boolean"},
        "documents": {"metadata": "map<string, string>"},
    }
    with pytest.raises(InputError, match=said):
        require_values(CellsConfig(by={"one": dimension}), columns)
    require_values(
        CellsConfig(by={name: CONFIG[name] for name in ("quality", "language", "spoken", "dataset")}), columns
    )


def test_cells_are_chosen_by_what_they_are() -> None:
    """Truth is a text; copies are numbers; what has no value is none."""
    cell = cell_names({"spoken": pa.array(["true"]), "copies": pa.array([2]), "topic": pa.nulls(1, pa.string())}, {}, 1)
    assert parse_choice("spoken=true, copies >= 2, topic = none").takes(cell[0].as_py())
