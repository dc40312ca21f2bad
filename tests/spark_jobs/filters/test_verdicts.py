"""The step that judges documents by their signals."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.filters.verdicts import VERDICTS, VerdictsConfig, verdicts, verdicts_step
from spark_jobs.text.signals import SignalsConfig
from spark_jobs.text.signals import signals as measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

GOOD: dict[str, Any] = {
    "word_count": 200,
    "mean_word_length": 5.0,
    "max_line_length": 80,
    "mean_line_length": 30.0,
    "alphabetic_fraction": 0.8,
    "digit_fraction": 0.01,
    "symbol_fraction": 0.1,
    "alphanumeric_fraction": 0.7,
    "duplicate_line_fraction": 0.1,
    "generated_marker": None,
}
SCHEMA = "shard int, doc_id string, kind string, " + ", ".join(
    f"{name} {'string' if name == 'generated_marker' else 'bigint' if isinstance(value, int) else 'double'}"
    for name, value in GOOD.items()
)
# Kind, the signals that differ from a good document's, and every (rule, value, threshold) that must fail.
CASES: list[tuple[str, dict[str, Any], list[tuple[str, float | None, float | None]]]] = [
    ("prose", {}, []),
    ("code", {}, []),
    ("prose", {"word_count": 49}, [("too_few_words", 49, 50)]),
    ("prose", {"word_count": 50}, []),
    ("prose", {"word_count": 10_000_000}, []),
    ("prose", {"mean_word_length": 2.9}, []),
    ("prose", {"mean_word_length": 1.9}, [("words_too_short", 1.9, 2)]),
    ("prose", {"mean_word_length": 15.5}, [("words_too_long", 15.5, 15)]),
    ("prose", {"mean_word_length": None}, []),
    ("prose", {"symbol_fraction": 0.5}, [("too_many_symbols", 0.5, 0.4)]),
    ("prose", {"digit_fraction": 0.5}, [("too_many_digits", 0.5, 0.3)]),
    ("prose", {"alphabetic_fraction": 0.2}, [("too_few_letters", 0.2, 0.25)]),
    ("prose", {"duplicate_line_fraction": 0.31}, [("too_many_duplicate_lines", 0.31, 0.3)]),
    ("prose", {"duplicate_line_fraction": 0.3, "max_line_length": 10**9, "generated_marker": "do not edit"}, []),
    ("prose", {"word_count": 0, "mean_word_length": None, "symbol_fraction": None}, [("too_few_words", 0, 50)]),
    (
        "prose",
        {"word_count": 2, "alphabetic_fraction": 0.0, "symbol_fraction": 1.0},
        [("too_few_words", 2, 50), ("too_many_symbols", 1, 0.4), ("too_few_letters", 0, 0.25)],
    ),
    ("code", {"max_line_length": 1000, "mean_line_length": 100.0}, []),
    ("code", {"max_line_length": 1001}, [("line_too_long", 1001, 1000)]),
    ("code", {"mean_line_length": 100.5}, [("lines_too_long_on_average", 100.5, 100)]),
    ("code", {"alphanumeric_fraction": 0.24}, [("too_few_alphanumerics", 0.24, 0.25)]),
    ("code", {"generated_marker": "do not edit"}, [("generated", None, None)]),
    ("code", {"word_count": 0}, [("too_few_words", 0, 1)]),
    ("markup", {"word_count": 1, "symbol_fraction": 1.0, "max_line_length": 10**6}, []),
    ("markup", {"word_count": 0}, [("too_few_words", 0, 1)]),
    ("data", {"word_count": 0}, [("too_few_words", 0, 1)]),
]


def signals(spark: SparkSession, order: int = 1) -> DataFrame:
    """One row of signals per case."""
    rows = [(3, f"{row:032x}", kind, *(GOOD | changed).values()) for row, (kind, changed, _) in enumerate(CASES)]
    return spark.createDataFrame(rows[::order], SCHEMA)


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def test_every_failed_rule_is_listed_with_value_and_threshold(spark: SparkSession) -> None:
    """One row per document; kept if and only if nothing failed; bounds themselves are allowed."""
    rows = by_id(verdicts(signals(spark), VerdictsConfig()))
    for (kind, changed, failed), row in zip(CASES, rows, strict=True):
        assert [tuple(one) for one in row.failed] == failed, (kind, changed)
        assert row.kept == (not failed)
        assert row.shard == 3


def config(**policy: Any) -> VerdictsConfig:
    """A policy that is written in place."""
    return VerdictsConfig.model_validate({"policy": policy})


def test_rules_come_from_the_policy(spark: SparkSession) -> None:
    """Without rules every document is kept; a threshold that is set, or a rule that is added, is what counts."""
    assert verdicts(signals(spark), config()).where("not kept").count() == 0
    book = {"rule": "too_many_words", "signal": "word_count", "above": 100_000}
    rows = by_id(verdicts(signals(spark), config(extends=["headrace"], rules=[book], set={"prose.too_few_words": 3})))
    failed = {tuple(one) for row in rows for one in row.failed}
    assert ("too_many_words", 10_000_000, 100_000) in failed
    assert {one[1:] for one in failed if one[0] == "too_few_words"} == {(0, 3), (2, 3), (0, 1)}


def test_a_policy_reads_scorers_and_facts_of_documents(spark: SparkSession) -> None:
    """Each by its name; the language of prose is what was identified, that of code what its file says."""
    judged_rows = [(0, name, "code" if name == "c" else "prose", *GOOD.values()) for name in "abcd"]
    scored = spark.createDataFrame([(0, "a", 0.9), (0, "b", 0.1), (0, "c", 0.9)], "shard int, doc_id string, x double")
    languages = spark.createDataFrame([(0, "a", "en"), (0, "b", "de")], "shard int, doc_id string, language string")
    facts = [("a", "fr", {"stars": "7"}), ("b", None, {"stars": "many"}), ("c", "Go", {"stars": "-1"}), ("d", "en", {})]
    documents = spark.createDataFrame(
        [(0, name, "p", language, metadata) for name, language, metadata in facts],
        "shard int, doc_id string, path string, language string, metadata map<string, string>",
    )
    rules = [
        {"rule": "much", "signal": "own.x", "above": 0.5, "languages": ["en", "Go"]},
        {"rule": "few_stars", "signal": "metadata.stars", "below": 10},
        {"rule": "foreign", "signal": "documents.language", "not_in": ["Go", "en"]},
    ]
    made = verdicts_step(("own", "languages"), "strict")
    assert (made.name, made.inputs) == ("verdicts_strict", ("signals", "documents", "own", "languages"))
    frame = made(
        spark.createDataFrame(judged_rows, SCHEMA), config(rules=rules), documents, own=scored, languages=languages
    )
    found = {row.doc_id: [tuple(one) for one in row.failed] for row in frame.collect()}
    assert found == {
        "a": [("much", 0.9, 0.5), ("few_stars", 7.0, 10.0), ("foreign", None, None)],
        "b": [],
        "c": [("much", 0.9, 0.5), ("few_stars", -1.0, 10.0)],
        "d": [],
    }


# Path, metadata, and the rule that it fails, where manifests are kept and where they are left out.
MANIFESTS: list[tuple[str, dict[str, str], str | None, str | None]] = [
    ("src/main.go", {}, None, None),
    ("go.mod", {}, None, "manifest"),
    ("web/tsconfig.base.json", {}, None, "manifest"),
    ("code.jsonl#app/pom.xml", {}, None, "manifest"),
    ("package.json", {"headrace.evidence": "manifest"}, "manifest", "manifest"),
    ("data/package.json.txt", {"evidence": "x"}, None, None),
    ("web/package-lock.json", {}, "lock_file", "lock_file"),
    ("code.jsonl#Cargo.lock", {}, "lock_file", "lock_file"),
]


def test_manifests_are_left_out_where_the_policy_or_the_source_says_so(spark: SparkSession) -> None:
    """Every kind of document can be one; without the documents none is known."""
    documents = spark.createDataFrame(
        [(3, f"{row:032x}", path, metadata) for row, (path, metadata, *_) in enumerate(MANIFESTS)],
        "shard int, doc_id string, path string, metadata map<string, string>",
    )
    good = [(3, f"{row:032x}", ("data", "markup", "code")[row % 3], *GOOD.values()) for row in range(len(MANIFESTS))]
    judged = spark.createDataFrame(good, SCHEMA)
    for policy, column in (("keep", 2), ("leave_out", 3)):
        rows = by_id(verdicts(judged, VerdictsConfig.model_validate({"manifests": policy}), documents))
        expected = [[(case[column], None, None)] if case[column] else [] for case in MANIFESTS]
        assert [[tuple(one) for one in row.failed] for row in rows] == expected
        assert [row.kept for row in rows] == [not failed for failed in expected]
    both = VerdictsConfig(manifests="leave_out", lock_files="keep")
    assert verdicts(judged, both).where("not kept").count() == 0
    assert verdicts(judged, both, documents).where("not kept").count() == 4


def garbage() -> dict[str, str]:
    """A few hundred words each of what nobody wants to read, with the rule that says why."""
    chance = random.Random(7)
    return {
        "too_many_symbols": " ".join(chance.choice(["***", "->", "|||", "== ==", "::", "a|b"]) for _ in range(400)),
        "too_many_digits": "\n".join(" ".join(str(chance.randrange(10**6)) for _ in range(8)) for _ in range(60)),
        "too_many_duplicate_lines": "\n".join(
            chance.choice(["Home", "Contact us", "Terms of use", "Accept all cookies", "Sign in to continue reading"])
            for _ in range(150)
        ),
        "words_too_short": " ".join(chance.choice("abcdefgh") for _ in range(400)),
        "words_too_long": "\n".join(f"{line} {chance.randbytes(45).hex()}" for line in range(200)),
        "too_few_words": "请登录 首页 联系我们 使用条款 接受所有 " * 2,
        "too_few_letters": "\n".join(f"{line}. ½ ⅔ ⅕ {chance.choice('abc')} Ⅷ ↑" for line in range(120)),
    }


@pytest.fixture(scope="module")
def languages(real_data: Path) -> dict[str, list[str]]:
    """Sentences by language."""
    folder = real_data / "languages"
    return {
        file.stem: [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        for file in sorted(folder.glob("??.txt"))
    }


def test_ordinary_text_of_every_language_is_kept_and_garbage_is_not(
    spark: SparkSession, languages: dict[str, list[str]]
) -> None:
    """75 languages in documents of 50 and of 8 sentences; a book of 200,000 words; garbage fails by the rule named."""
    assert len(languages) == 75
    good = {
        (name, size, first): "\n".join(sentences[first : first + size])
        for name, sentences in languages.items()
        for size in (8, 50)
        for first in range(0, len(sentences) - size + 1, 150)
    }
    good["en", 200_000, 0] = " ".join((" ".join(languages["en"]).split() * 15)[:200_000])
    bad = garbage()
    contents = [*good.values(), *bad.values()]
    rows = [(0, f"{row:032x}", "prose", text) for row, text in enumerate(contents)]
    texts = spark.createDataFrame(rows, "shard int, doc_id string, kind string, content string")
    judged = by_id(verdicts(measured(texts, SignalsConfig()), VerdictsConfig()))
    failed = [[one.rule for one in row.failed] for row in judged]
    lost = {case: rules for case, rules in zip(good, failed, strict=False) if rules and enough(case, good[case])}
    assert lost == {}
    for rule, rules in zip(bad, failed[len(good) :], strict=True):
        assert rule in rules


def enough(case: tuple[str, int, int], text: str) -> bool:
    """Whether a document has to be kept: one of eight sentences may have fewer than 50 words."""
    return case[1] > 8 or case[0] in ("zh", "ja", "th") or len(text.split()) >= 50


def test_a_kind_without_rules_is_an_error(spark: SparkSession) -> None:
    """No document passes because nobody had a rule for it."""
    from pyspark.errors import PySparkException

    one = spark.createDataFrame([(0, "d", "poetry", *GOOD.values())], SCHEMA)
    with pytest.raises(PySparkException, match="no rules for kind poetry"):
        verdicts(one, VerdictsConfig()).collect()


def test_an_unknown_policy_is_refused() -> None:
    """One line with the nearest name; and a policy survives as the plain values of a run's config."""
    with pytest.raises(ValidationError, match="none of this name; did you mean 'headrace'"):
        VerdictsConfig.model_validate({"policy": "hedrace"})
    plain = VerdictsConfig().model_dump(mode="json")
    assert VerdictsConfig.model_validate(plain).model_dump(mode="json") == plain


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns and types are those declared, and every row passes the blocking checks."""
    frame = verdicts(signals(spark), VerdictsConfig())
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("shard", "int"),
        ("doc_id", "string"),
        ("kept", "boolean"),
        ("failed", "array<struct<rule:string,value:double,threshold:double>>"),
    ]
    assert frame.columns == [column.name for column in VERDICTS.columns]
    (check,) = VERDICTS.checks
    assert frame.where(check.predicate).count() == len(CASES)


@pytest.mark.nightly
def test_verdicts_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    plain = by_id(verdicts(signals(spark), VerdictsConfig()))
    for partitions in (1, 2, 7):
        moved = by_id(verdicts(signals(spark, order=-1).repartition(partitions), VerdictsConfig()))
        assert moved == plain


@pytest.mark.parametrize("failed", [[], [[]], [[{"rule": "too_few_words", "value": 1.0, "threshold": 50.0}], []]])
def test_plot_is_a_small_png(failed: list[list[dict[str, Any]]]) -> None:
    """Also when nothing failed, or there is no document."""
    kind = pa.list_(pa.struct([("rule", pa.string()), ("value", pa.float64()), ("threshold", pa.float64())]))
    assert verdicts.plot is not None
    png = verdicts.plot.draw(pa.table({"failed": pa.array(failed, type=kind)}))
    assert png.startswith(b"\x89PNG")
    assert len(png) < 30_000
