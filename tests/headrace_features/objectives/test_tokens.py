"""The step: the same rows on either engine, for any number of partitions and any batch."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.kernels.fixed_texts import ENCODED_BY, FIXED_IDS
from headrace.tables.window_facts import MASK_RULES
from headrace_features.objectives.config import ObjectivesConfig
from headrace_features.objectives.tokens import OBJECTIVE_TOKENS, RULED_OBJECTIVE_TOKENS, objective_tokens
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.mask_check import rows_are_trained
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer
from tests.headrace_features.objectives.sources import SOURCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _IDS = fim_tokenizer()
_KINDS = {
    name: pa.int32() if name == "shard" else pa.string()
    for name in ("dataset", "shard", "doc_id", "kind", "language", "content")
}
GOLDEN = "fd64653c7af9feaddf72dcf5cdcac884df2208edde2e8b792ec96bad009e5482"
"""SHA-256 of the rows, the same in every version that does not bump the step's."""


def documents() -> list[dict[str, object]]:
    """Files of six languages and one without a parser, prose, and an empty text."""
    named = [*SOURCES.items(), ("COBOL", "MOVE A TO B.\nSTOP RUN.\n"), (None, "words of prose\n"), ("Go", "")]
    return [
        {
            "dataset": "code" if number % 2 else "more",
            "shard": number % 4,
            "doc_id": hashlib.sha256(str(number).encode()).hexdigest()[:32],
            "kind": "prose" if language is None else "code",
            "language": language,
            "content": text * (1 + number % 6),
        }
        for number, (language, text) in enumerate(named * 12)
    ]


def frame(spark: SparkSession, rows: list[dict[str, object]]) -> DataFrame:
    """Rows as Spark has them."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema(_KINDS)))


def run(spark: SparkSession, partitions: int = 2, batch: int = 1 << 18, **fim: Any) -> list[dict[str, Any]]:
    """The step's rows by document."""
    rows = random.Random(partitions).sample(documents(), len(documents()))
    ids = {"vocabulary_size": pa.array([420], pa.int32()), "end_of_document_id": pa.array([0], pa.int32())}
    tokenizer = spark.createDataFrame(pa.table({"file": [_FILE], "sha256": ["ab"], **ids}))
    survivors = frame(spark, [row for row in rows if row["shard"] != 3]).select("dataset", "shard", "doc_id")
    config = ObjectivesConfig.model_validate(
        {"kinds": {"code": {"fim": {"cut": "syntax", **fim}}}, "max_tokens": 128, "batch_characters": batch}
    )
    texts = frame(spark, rows).repartition(partitions)
    output = objective_tokens(survivors.repartition(partitions), texts, tokenizer, config)
    assert json.loads(output.properties["headrace.sentinels"]) == {"code": _IDS._asdict()}
    made = output.frames["objective_tokens"]
    assert made.columns == [column.name for column in OBJECTIVE_TOKENS.columns]
    return sorted((row.asDict(recursive=True) for row in made.collect()), key=lambda row: row["doc_id"])


def test_rows_are_the_same_on_either_engine(spark: SparkSession) -> None:
    """Their digest is on record."""
    rows = run(spark)
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == GOLDEN


def test_table_is_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Partitions, order of documents and size of batches change nothing."""
    wanted = run(spark)
    for partitions, batch in ((1, 50), (7, 2000)):
        assert run(spark, partitions, batch) == wanted


def test_rows_say_how_they_are_cut(spark: SparkSession) -> None:
    """Pieces follow one another, and hold all bytes; what has no parser is counted by its language."""
    rows, texts = run(spark, rate=1), {row["doc_id"]: row for row in documents()}
    for row in rows:
        text, pieces = texts[row["doc_id"]], row["pieces"]
        spans = sorted((piece["start"], piece["end"]) for piece in pieces if piece["start"] >= 0)
        assert spans[0][0] == 0 and spans[-1][1] == len(str(text["content"]).encode())
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))
        assert [piece["token"] for piece in pieces] == sorted(piece["token"] for piece in pieces)
        sentinels = [row["input_ids"][piece["token"]] for piece in pieces if piece["start"] == -1]
        assert (
            (set(sentinels) <= {*_IDS, 0} and row["forms"].count("whole") < len(row["forms"]))
            or not spans[-1][1]
            or text["kind"] == "prose"
        )
        assert len(row["forms"]) == len(row["cuts"]) == len(row["row_starts"]) + 1
        assert (
            row["fell_back"] == "no parser of COBOL"
            if text["language"] == "COBOL"
            else row["fell_back"] in (None, "no node of the grammar")
        )
    masks = pa.table(
        {name: pa.array([row[name] for row in rows]) for name in ("token_count", "row_starts", "trainable")}
    )
    (batch,) = (
        masks.cast(
            pa.schema(
                [("token_count", pa.int32()), ("row_starts", pa.list_(pa.int32())), ("trainable", pa.list_(pa.bool_()))]
            )
        )
        .combine_chunks()
        .to_batches()
    )
    assert rows_are_trained(batch).all()


def test_a_tokenizer_without_sentinels_is_refused(spark: SparkSession) -> None:
    """In one line that names the kind of document."""
    with pytest.raises(InputError, match=r"^objectives: code: fim: the tokenizer has no token '<PRE>'; nearest is"):
        run(spark, sentinels={"prefix": "<PRE>", "middle": "<MID>", "suffix": "<SUF>"})


RULED_GOLDEN = "d167f3c38e988733a9f728f2cd0a3f5923c5220962ba6c8af5d43cd0c84bdd01"
"""The same with rules of masks and headers."""


def run_ruled(spark: SparkSession, partitions: int = 2, batch: int = 1 << 18) -> list[dict[str, Any]]:
    """The step's rows with rules and headers, of texts that a selection cut among them."""
    rows = [row | {"content": f"# Copyright 2021 Ada\n{row['content']}<MAIL_1> {'ab' * 200}"} for row in documents()]
    shuffled = random.Random(partitions).sample(rows, len(rows))
    edits = pa.list_(
        pa.struct([("rule", pa.string()), *((name, pa.int64()) for name in ("start", "end", "replacement_length"))])
    )

    def edited(size: int, start: int, end: int, rule: str) -> list[dict[str, Any]]:
        return [{"rule": rule, "start": start, "end": end, "replacement_length": size}]

    def with_column(rows: list[dict[str, Any]], name: str, kind: pa.DataType, values: list[Any]) -> DataFrame:
        table = pa.Table.from_pylist(rows, pa.schema(_KINDS)).append_column(name, pa.array(values, kind))
        return spark.createDataFrame(table).repartition(partitions)

    places = [len(str(row["content"]).split("<MAIL_1>")[0].encode()) for row in shuffled]
    texts = with_column(shuffled, "edits", edits, [edited(8, at, at + 9, "redacted") for at in places])
    cut = [row | {"content": str(row["content"])[2:]} for row in shuffled if row["shard"] == 1]
    cuts = with_column(cut, "edits", edits, [edited(0, 0, 2, "passage") for _ in cut])
    facts = [{"author": str(row["doc_id"])[:4]} if row["shard"] else {} for row in shuffled]
    landed = with_column(shuffled, "metadata", pa.map_(pa.string(), pa.string()), [[*fact.items()] for fact in facts])
    survivors = frame(spark, [row for row in shuffled if row["shard"] != 3]).select("dataset", "shard", "doc_id")
    ids = {"vocabulary_size": pa.array([420], pa.int32()), "end_of_document_id": pa.array([0], pa.int32())}
    tokenizer = spark.createDataFrame(pa.table({"file": [_FILE], "sha256": ["ab"], **ids}))
    rules = {"trainable": {"except": ["licence_header", "personal", "blob"]}, "header": "{author} {language}\n"}
    kinds = {"code": {"fim": {"cut": "line"}, **rules}, "all": rules}
    config = ObjectivesConfig.model_validate({"kinds": kinds, "max_tokens": 128, "batch_characters": batch})
    output = objective_tokens(survivors, texts, tokenizer, config, cut_texts=cuts, documents=landed)
    made = output.frames["objective_tokens"]
    assert made.columns == [column.name for column in RULED_OBJECTIVE_TOKENS.columns]
    assert json.loads(output.properties[MASK_RULES]) == ["licence_header", "personal", "blob", "header"]
    return sorted((row.asDict(recursive=True) for row in made.collect()), key=lambda row: row["doc_id"])


def test_rows_with_rules_are_the_same_on_either_engine(spark: SparkSession) -> None:
    """For any number of partitions and any batch; a placeholder is found behind a cut too."""
    rows = run_ruled(spark)
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == RULED_GOLDEN
    assert run_ruled(spark, 7, 50) == rows
    for row in rows:
        found = {span["rule"]: span["end"] - span["start"] for span in row["masked"]}
        assert found[2] == len("<MAIL_1>") and found[3] == 400
    assert {row["no_header"] for row in rows} == {None, "no author", "no language"}


def test_another_version_of_the_encoder_is_compared_by_fixed_texts(spark: SparkSession) -> None:
    """Equal ids go on, though stored documents were cut in three; others refuse the increment."""
    ids = {"vocabulary_size": pa.array([420], pa.int32()), "end_of_document_id": pa.array([0], pa.int32())}
    inputs = {"tokenizer": spark.createDataFrame(pa.table({"file": [_FILE], "sha256": ["ab"], **ids}))}
    config = ObjectivesConfig.model_validate({"kinds": {"code": {"fim": {}}}})
    guard: Any = objective_tokens.guard

    def standing(properties: dict[str, str]) -> Any:
        return SimpleNamespace(table=SimpleNamespace(properties=properties, name=lambda: ("main", "tokens")), inputs={})

    recorded = guard(config, inputs, None)
    assert guard(config, inputs, standing(recorded)) == {}
    assert guard(config, inputs, standing({**recorded, ENCODED_BY: "before"})) == recorded
    first, *others = json.loads(recorded[FIXED_IDS]).items()
    changed = json.dumps(dict([(first[0], [*first[1], 1]), *others]))
    with pytest.raises(InputError, match=r"main.tokens: .* gets other ids from token"):
        guard(config, inputs, standing({ENCODED_BY: "before", FIXED_IDS: changed}))
