"""Packed tables end to end over small DataFrames: every token once, dense ordinals, one file per run of ordinals."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.files.rows import path_rows
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig, lost_tokens, packed_table
from spark_jobs.packing.windows.assemble import WINDOWS_SCHEMA
from tests.tiers import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

L = 16
NAME = f"packed_code_{L}"
END, PADDING, BEGIN = 0, 1, 99_999
WINDOW_TYPES = [
    ("ordinal", "bigint"),
    ("token_count", "int"),
    ("input_ids", "array<int>"),
    ("segments", "array<struct<doc_id:string,document_start:bigint,token_count:int,window_start:int>>"),
]
TOKENS_SCHEMA = pa.schema(
    {
        "dataset": pa.string(),
        "shard": pa.int32(),
        "doc_id": pa.string(),
        "input_ids": pa.list_(pa.int32()),
        "token_count": pa.int32(),
    }
)
ORDERED_SCHEMA = pa.schema(
    {
        "dataset": pa.string(),
        "shard": pa.int32(),
        "doc_id": pa.string(),
        "repository": pa.string(),
        "package": pa.string(),
        "rank": pa.int64(),
    }
)


@dataclass(frozen=True)
class Corpus:
    """Documents with ids that occur nowhere else, so that every token can be found again."""

    tokens: list[tuple[str, int, str, list[int], int]]
    ordered: list[tuple[str, int, str, str | None, str | None, int]]

    def own_ids(self, dataset: str = "code") -> dict[str, list[int]]:
        """Ids of every document of a dataset."""
        return {doc_id: ids for name, _, doc_id, ids, _ in self.tokens if name == dataset}


def corpus(seed: int, documents: int = 120) -> Corpus:
    """Documents of 0 to 4 L tokens, many of equal length, in repositories and alone, and some of another dataset."""
    generator = random.Random(seed)
    tokens: list[tuple[str, int, str, list[int], int]] = []
    ordered: list[tuple[str, int, str, str | None, str | None, int]] = []
    next_id = 2
    for number in range(documents):
        doc_id = hashlib.sha256(f"{seed}/{number}".encode()).hexdigest()[:32]
        dataset = "prose" if number % 10 == 9 else "code"
        length = generator.choice([0, 1, 3, 5, 5, 5, L - 1, L, L + 1, 2 * L, generator.randrange(4 * L)])
        repository = f"r{number % 7}" if number % 3 else None
        tokens.append((dataset, number % 4, doc_id, list(range(next_id, next_id + length)), length))
        ordered.append((dataset, number % 4, doc_id, repository, None, number))
        next_id += length
    return Corpus(tokens, ordered)


def tokenizer_row(spark: SparkSession) -> DataFrame:
    """The one row of a tokenizer table."""
    return spark.createDataFrame(
        [("ab" * 32, 100_000, END, PADDING, {"<begin>": BEGIN}, line_tokenizer())],
        "sha256 string, vocabulary_size int, end_of_document_id int, padding_id int, special_tokens map<string, int>, "
        "file string",
    )


_scratch = tempfile.TemporaryDirectory(prefix="headrace-packed-")  # goes with the process


@functools.cache
def line_tokenizer() -> str:
    """A tokenizer.json whose even ids below 4,000 are a line feed with its number, the odd ones a word."""
    from tokenizers import Tokenizer, models

    return str(Tokenizer(models.WordLevel({f"w{n}" + "\n" * (n % 2 == 0): n for n in range(4000)})).to_str())


def frames(spark: SparkSession, rows: Corpus) -> tuple[DataFrame, DataFrame]:
    """`tokens`, in two files of several row groups, and `ordered` of a corpus."""
    folder = Path(tempfile.mkdtemp(dir=_scratch.name))
    for number in range(2):
        pq.write_table(arrow(rows.tokens[number::2], TOKENS_SCHEMA), folder / f"{number}.parquet", row_group_size=23)
    return path_rows(spark, str(folder)), spark.createDataFrame(arrow(rows.ordered, ORDERED_SCHEMA))


def arrow(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def configured(**config: object) -> PackedConfig:
    """Config of the table under test."""
    return PackedConfig.model_validate({"dataset": "code", "window_tokens": L, **config})


def run(
    spark: SparkSession, rows: Corpus, base: int = 0, increment: int = 0, partitions: int = 0, **config: object
) -> Output:
    """The step over these documents."""
    step = packed_step("code", L)
    tokens, ordered = frames(spark, rows)
    if partitions:
        tokens, ordered = tokens.repartition(partitions), ordered.repartition(partitions)
    settings = configured(**config)
    output = step(tokens, ordered, tokenizer_row(spark), base, increment, settings)
    assert isinstance(output, Output)
    return output


def collected(output: Output) -> list[Row]:
    """The windows by ordinal."""
    return sorted(output.frames[NAME].collect(), key=lambda row: row["ordinal"])


def assert_every_token_once(windows: list[Row], rows: Corpus) -> None:
    """Segments give back every document of the dataset exactly, its end once, and the rest is padding."""
    found: dict[str, dict[int, list[int]]] = {}
    for window in windows:
        assert len(window["input_ids"]) == L
        place = 0
        for segment in window["segments"]:
            assert segment["window_start"] == place
            place += segment["token_count"]
            ids = window["input_ids"][segment["window_start"] : place]
            found.setdefault(segment["doc_id"], {})[segment["document_start"]] = ids
        assert window["token_count"] == place >= 1
        assert set(window["input_ids"][place:]) <= {PADDING}
    for doc_id, ids in rows.own_ids().items():
        pieces = found.pop(doc_id, {})
        assert len(pieces) == (-(-(len(ids) + 1) // L) if ids else 0), "fewest pieces"
        start = 0
        for piece_start in sorted(pieces):
            assert piece_start == start
            start += len(pieces[piece_start])
        joined = [token for piece_start in sorted(pieces) for token in pieces[piece_start]]
        assert joined == ([*ids, END] if ids else [])
    assert not found


@pytest.fixture(scope="module")
def rows() -> Corpus:
    """The documents of most tests."""
    return corpus(5)


@pytest.fixture(scope="module")
def reference(spark: SparkSession, rows: Corpus) -> list[Row]:
    """Their windows from ordinal 500, in increment 3."""
    return collected(run(spark, rows, base=500, increment=3))


def test_every_token_is_found_again_once(reference: list[Row], rows: Corpus) -> None:
    """Through the segments every document comes back whole; ordinals are dense from the base; one window over ideal."""
    assert [window["ordinal"] for window in reference] == list(range(500, 500 + len(reference)))
    assert_every_token_once(reference, rows)
    assert len(reference) <= -(-sum(len(i) + 1 for i in rows.own_ids().values() if i) // L) + 1


@pytest.mark.nightly
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_table_is_identical_for_1_2_and_7_partitions(
    spark: SparkSession, reference: list[Row], rows: Corpus, partitions: int
) -> None:
    """Partitions and row order change nothing."""
    shuffled = Corpus(random.Random(partitions).sample(rows.tokens, len(rows.tokens)), rows.ordered[::-1])
    spark.conf.set("spark.sql.shuffle.partitions", str(min(partitions, 7)))
    try:
        assert collected(run(spark, shuffled, base=500, increment=3, partitions=partitions)) == reference
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


POLICIES: dict[str, dict[str, object]] = {
    "repository": {"affinity": "repository", "target_utilisation": 0.9},
    "shards": {"affinity": "repository", "shards": 3, "order_buckets": 8, "target_utilisation": 0.0},
    "line": {"cut": "line"},
    "beginning": {"beginning_of_document": "<begin>"},
    "next_fit": {"plan": "next_fit", "shards": 2},
    "concatenated": {"plan": "concat_and_slice", "beginning_of_document": "<begin>"},
}


@needs_spark  # it finds rows that were dealt anew in their files, by metadata columns
@pytest.mark.nightly
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_every_token_whatever_the_partitions(spark: SparkSession, rows: Corpus, policy: str) -> None:
    """Ordinals are dense, the proof finds no document that lost a token, and 1 and 7 partitions give one table."""
    config = POLICIES[policy]
    output = run(spark, rows, base=3, partitions=1, **config)
    landed = output.frames[NAME].cache()
    one = collected(output)
    if policy in ("shards", "concatenated"):
        other = run(spark, Corpus(rows.tokens[::-1], rows.ordered), base=3, partitions=7, **config)
        assert collected(other) == one
    assert [window["ordinal"] for window in one] == list(range(3, 3 + len(one)))
    assert broken(spark, landed, rows, **config) == []
    landed.unpersist()
    assert float(output.summary["headrace.packing.utilisation"]) == pytest.approx(
        sum(window["token_count"] for window in one) / (len(one) * L), abs=1e-6
    )
    segments = [segment for window in one for segment in window["segments"]]
    extra = 2 if "beginning_of_document" in config else 1
    fewest = sum(-(-(len(ids) + extra) // L) for ids in rows.own_ids().values() if ids)
    assert (len(segments) == fewest) == (policy != "concatenated")


def broken(spark: SparkSession, landed: DataFrame, rows: Corpus, **config: object) -> list[str]:
    """Documents that the proof objects to."""
    given = {"tokens": frames(spark, rows)[0], "tokenizer": tokenizer_row(spark)}
    return sorted(row["doc_id"] for row in lost_tokens(landed, given, 0, configured(**config)).collect())


def test_the_proof_names_documents_that_lost_or_gained_tokens(spark: SparkSession, rows: Corpus) -> None:
    """A window left out, one written twice, and a document that tokens does not know are all found."""
    from pyspark.sql import functions as F

    windows = run(spark, rows).frames[NAME].cache()
    one = windows.where("ordinal = 1")
    held = sorted({segment["doc_id"] for row in one.collect() for segment in row["segments"]})
    assert broken(spark, windows.where("ordinal <> 1"), rows) == held
    assert broken(spark, windows.unionByName(one), rows) == held
    unknown = Corpus([row for row in rows.tokens if row[2] != held[0]], rows.ordered)
    assert broken(spark, windows, unknown) == [held[0]]
    swapped = windows.withColumn("input_ids", F.reverse("input_ids"))
    assert len(broken(spark, swapped, rows)) > 10
    windows.unpersist()


def test_code_keeps_repositories_together_by_default(spark: SparkSession, rows: Corpus) -> None:
    """Where most documents of the increment are code, neighbours of a repository become one unit; else none do."""
    tokens, ordered = frames(spark, rows)
    found = {}
    for kind in ("code", "prose"):
        members = spark.createDataFrame(
            [("code", kind), ("prose", "code"), ("code", kind)], "dataset string, kind string"
        )
        arguments = (tokens, ordered, tokenizer_row(spark), 0, 0, configured(target_utilisation=0.0), members)
        output = packed_step("code", L)(*arguments)
        found[kind] = output.summary["headrace.packing.theta"], int(output.summary["headrace.packing.neighbours-kept"])
    assert found["prose"] == ("none", 0)
    assert found["code"][0] == "0.50" and found["code"][1] > 5


def test_neighbours_lie_side_by_side_in_order_of_rank(spark: SparkSession, rows: Corpus) -> None:
    """Documents of a repository that share a unit follow each other in the window, as `ordered` ranks them."""
    output = run(spark, rows, affinity="repository", target_utilisation=0.0)
    rank = {row[2]: (row[3], row[5]) for row in rows.ordered}
    adjacent = 0
    own = rows.own_ids()
    neighbours: set[tuple[str, str]] = set()
    for repository in {place[0] for place in rank.values()} - {None}:
        members = sorted((place[1], d) for d, place in rank.items() if place[0] == repository and own.get(d))
        neighbours |= {(left, right) for (_, left), (_, right) in itertools.pairwise(members)}
    for window in collected(output):
        documents = [segment["doc_id"] for segment in window["segments"]]
        adjacent += sum(pair in neighbours for pair in itertools.pairwise(documents))
    assert adjacent >= int(output.summary["headrace.packing.neighbours-kept"]) > 0


def test_line_cuts_lie_after_tokens_that_end_a_line(spark: SparkSession, rows: Corpus) -> None:
    """Every second token ends a line here, so all cuts but forced ones do; exact cuts lie where windows end."""
    exact = [s["document_start"] for w in collected(run(spark, rows)) for s in w["segments"]]
    assert {start % L for start in exact} == {0}
    by_document = rows.own_ids()
    after = [
        by_document[s["doc_id"]][s["document_start"] - 1] % 2 == 0
        for w in collected(run(spark, rows, cut="line"))
        for s in w["segments"]
        if s["document_start"]
    ]
    assert sum(after) > 0.6 * len(after)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"beginning_of_document": "<bos>"}, r"beginning_of_document is '<bos>', the tokenizer's special tokens are"),
        ({"shards": 65}, "give no more shards than order_buckets"),
        ({"window_tokens": 1}, "window_tokens"),
        ({"cut": "sentence"}, "cut"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(
    spark: SparkSession, rows: Corpus, config: dict[str, object], message: str
) -> None:
    """The message names the setting."""
    with pytest.raises((ConfigError, ValueError), match=message):
        run(spark, rows, **config)


def test_tokens_without_files_are_refused(spark: SparkSession, rows: Corpus) -> None:
    """Ids are read where they lie, so rows made in memory cannot be packed."""
    made = spark.createDataFrame(arrow(rows.tokens, TOKENS_SCHEMA))
    with pytest.raises(InputError, match="tokens must be one table or Parquet files"):
        packed_step("code", L)(made, frames(spark, rows)[1], tokenizer_row(spark), 0, 0, configured())


def test_checks_hold_alike_in_sql_and_in_arrow(spark: SparkSession, reference: list[Row]) -> None:
    """Windows as they are and broken in every way: both forms of each check say the same of each row."""
    generator = random.Random(3)
    broken = [row.asDict(recursive=True) for row in reference]
    for window in broken[: len(broken) // 2]:
        kind = generator.randrange(6)
        segment = generator.choice(window["segments"])
        if kind == 0:
            window["input_ids"] = window["input_ids"][: generator.randrange(L)]
        elif kind == 1:
            window["token_count"] = generator.choice([0, L + 1, window["token_count"] - 1])
        elif kind == 2:
            window["segments"] = window["segments"][generator.randrange(2) :]
        elif kind == 3:
            segment["window_start"] += generator.choice([-1, 1])
        elif kind == 4:
            segment["token_count"] += generator.choice([-1, 1])
    table = packed_table("code", L)
    arrow_rows = pa.RecordBatch.from_pylist(broken, schema=WINDOWS_SCHEMA)
    frame = spark.createDataFrame(pa.Table.from_batches([arrow_rows])).selectExpr(
        "ordinal", *(f"{check.predicate} as {check.name}" for check in table.checks)
    )
    expected = sorted(tuple(row) for row in frame.collect())
    for number, check in enumerate(table.checks, 1):
        assert check.holds is not None
        found = check.holds(arrow_rows).tolist()
        assert found == [row[number] for row in expected], check.name
        assert 0 < sum(found) < len(found), check.name


def test_increments_continue_the_ordinals_in_an_order_of_their_own(
    spark: SparkSession, reference: list[Row], rows: Corpus
) -> None:
    """The next increment begins where the last ended; the same documents lie in another order there."""
    base = 500 + len(reference)
    following = collected(run(spark, rows, base=base, increment=4))
    assert [window["ordinal"] for window in following] == list(range(base, base + len(reference)))
    ids = [[window["input_ids"] for window in windows] for windows in (reference, following)]
    assert ids[0] != ids[1]
    assert sorted(ids[0]) == sorted(ids[1])


@needs_spark  # whose own writer makes a file of each partition
@pytest.mark.nightly
def test_each_data_file_holds_one_ascending_run(
    spark: SparkSession, reference: list[Row], rows: Corpus, tmp_path: Path
) -> None:
    """Written as they come, files hold rows_per_file neighbouring ordinals each, in order; no row differs by it."""
    output = run(spark, rows, base=500, increment=3, rows_per_file=7)
    output.frames[NAME].write.parquet(str(tmp_path / "t"))
    runs, found = [], []
    for file in (tmp_path / "t").glob("*.parquet"):
        windows = pq.read_table(file).to_pylist()
        ordinals = [window["ordinal"] for window in windows]
        assert ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals)))
        runs.append((ordinals[0], len(ordinals)))
        found += windows
    starts, counts = zip(*sorted(runs), strict=True)
    assert list(starts) == list(range(500, 500 + len(reference), 7))
    assert set(counts[:-1]) == {7}
    assert sorted(found, key=lambda w: w["ordinal"]) == [row.asDict(recursive=True) for row in reference]


@pytest.mark.parametrize("empty_documents", [0, 3])
def test_an_increment_without_units_has_no_rows(spark: SparkSession, empty_documents: int) -> None:
    """No documents, or only empty ones, give no window, and the properties all the same."""
    tokens: list[tuple[str, int, str, list[int], int]] = [
        ("code", 0, f"{n:032x}", [], 0) for n in range(empty_documents)
    ]
    ordered: list[tuple[str, int, str, str | None, str | None, int]] = [
        ("code", 0, f"{n:032x}", None, None, n) for n in range(empty_documents)
    ]
    output = run(spark, Corpus(tokens, ordered), base=9)
    assert output.frames[NAME].collect() == []
    assert output.frames[NAME].dtypes == WINDOW_TYPES
    assert output.properties["headrace.window-tokens"] == str(L)


def test_properties_types_and_checks_are_those_of_the_table(spark: SparkSession, rows: Corpus) -> None:
    """Properties are what readers rely on; columns have the declared types; every check is true for every row."""
    from pyspark.sql import functions as F

    output = run(spark, rows)
    assert dict(output.properties) == {
        "headrace.window-tokens": "16",
        "headrace.tokenizer-sha256": "ab" * 32,
        "headrace.vocabulary-size": "100000",
        "headrace.end-of-document-id": "0",
        "headrace.padding-id": "1",
    }
    table = packed_table("code", L)
    frame = output.frames[NAME]
    assert frame.dtypes == WINDOW_TYPES
    assert frame.columns == [column.name for column in table.columns]
    failing = frame.select([F.count_if(~F.expr(check.predicate)).alias(check.name) for check in table.checks]).first()
    assert failing is not None
    assert set(failing.asDict().values()) == {0}


def test_documents_that_ordered_lacks_are_packed_too(spark: SparkSession, rows: Corpus) -> None:
    """Nothing is dropped: without a rank a document is ordered by its id."""
    lacking = Corpus(rows.tokens, rows.ordered[::2])
    assert_every_token_once(collected(run(spark, lacking)), rows)


def test_a_config_of_another_table_is_refused(spark: SparkSession) -> None:
    """A step packs one dataset into one window length."""
    tokens, ordered = frames(spark, Corpus([], []))
    with pytest.raises(ConfigError, match=r"use packed_step\('code', 32\)"):
        packed_step("code", L)(tokens, ordered, tokens, 0, 0, PackedConfig(dataset="code", window_tokens=32))


def test_step_is_declared_as_the_lake_needs_it() -> None:
    """Name, numbering and inputs of the step."""
    step = packed_step("code", L)
    assert step.name == step.table.name == NAME
    assert step.numbered
    assert step.inputs == ("tokens", "ordered", "tokenizer", "members")
    assert step.required_inputs == ("tokens", "ordered", "tokenizer")
