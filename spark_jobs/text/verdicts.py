"""Verdicts: which documents go on, and every rule that the others failed.

They are computed from signals and paths alone, so a changed bound costs no new measurement of texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.lake.declare.step import Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.sources.languages import EVIDENCE, MANIFEST
from spark_jobs.sources.source_config import KINDS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


class ProseBounds(BaseModel):
    """Bounds of running text.

    Sources: Gopher (Rae et al. 2021, table A1) for words and duplicate lines. Symbols are what ROOTS (Laurençon et al.
    2022) filters as special characters; the bounds of symbols, digits and letters are headrace's own, wide enough for
    technical prose with figures and tables. All of them hold for every language: words of scripts without spaces are
    estimated (`spark_jobs.text.measures`). Only the length of words cannot be: its bounds hold for texts most of whose
    words stand between spaces, and are wider than Gopher's 3 to 10, which were found on English. Documents of eight
    sentences have 2.9 to 10.3 in the 75 languages of the Leipzig corpora (Korean, Latin), of fifty 3.3 to 8.6.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_words: int = Field(50, ge=0, description="fewest words (Gopher: 50)")
    max_words: int | None = Field(
        None,
        ge=1,
        description="most words; none by default, because a book is no fault. Gopher's 100,000 guards against pages of "
        "a crawl that hold many texts, such as dumps and logs",
    )
    min_mean_word_length: float = Field(
        2.0, ge=0, description="shortest mean word between spaces, in characters: below are lists of single letters"
    )
    max_mean_word_length: float = Field(
        15.0, gt=0, description="longest mean word between spaces, in characters: above are addresses and encoded bytes"
    )
    max_symbol_fraction: float = Field(0.4, ge=0, le=1, description="most symbols, of characters")
    max_digit_fraction: float = Field(0.3, ge=0, le=1, description="most decimal digits, of characters")
    min_alphabetic_fraction: float = Field(0.25, ge=0, le=1, description="fewest letters and marks, of characters")
    max_duplicate_line_fraction: float = Field(
        0.3, ge=0, le=1, description="most lines that repeat an earlier one, of lines that are not empty (Gopher: 0.3)"
    )


class CodeBounds(BaseModel):
    """Bounds of code that people wrote.

    Source: StarCoder (Li et al. 2023, section 3.1), and before it Codex (Chen et al. 2021): files with a line above
    1,000 characters, a mean above 100 or less than 25% alphanumeric characters, and generated ones, are left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_words: int = Field(1, ge=0, description="fewest words")
    max_line_length: int = Field(1000, ge=1, description="longest line, in characters (StarCoder: 1,000)")
    max_mean_line_length: float = Field(100.0, gt=0, description="longest mean line, in characters (StarCoder: 100)")
    min_alphanumeric_fraction: float = Field(
        0.25, ge=0, le=1, description="fewest letters, marks and numbers, of characters (StarCoder: 0.25)"
    )
    keep_generated: bool = Field(False, description="whether files that say they were generated go on")


class OtherBounds(BaseModel):
    """Bounds of markup and of data: they must not be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_words: int = Field(1, ge=0, description="fewest words")


class VerdictsConfig(BaseModel):
    """Bounds on the signals, by the kind of document, and whether manifests are training text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifests: Literal["keep", "leave_out"] = Field(
        "keep",
        description="leave_out: files that say what modules and packages are called (go.mod, package.json, ..) serve "
        "`dependencies` alone; those of a kind that the source does not take are left out in any case",
    )

    prose: ProseBounds = Field(ProseBounds(), description="bounds of running text")
    code: CodeBounds = Field(CodeBounds(), description="bounds of code")
    markup: OtherBounds = Field(OtherBounds(), description="bounds of markup")
    data: OtherBounds = Field(OtherBounds(), description="bounds of data")


def _draw_failed_rules(table: pa.Table) -> bytes:
    """Documents by failed rule as bars, a PNG below 30 KB."""
    import pyarrow.compute as pc
    from matplotlib.figure import Figure

    rules = pc.list_flatten(table.column("failed").combine_chunks())
    counts = pc.value_counts(pc.struct_field(rules, "rule")).to_pylist() if len(rules) else []
    bars = sorted((entry["counts"], entry["values"]) for entry in counts)
    figure = Figure(figsize=(6, 1 + 0.3 * len(bars)), dpi=80, layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh([rule for _, rule in bars], [count for count, _ in bars])
    axes.bar_label(drawn, padding=2)
    axes.margins(x=0.1)
    axes.set_xlabel(f"documents that failed, of {len(table):,}")
    png = BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


VERDICTS = Table(
    name="verdicts",
    comment="One row per text: whether it goes on, and every rule that it failed, with value and threshold.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kept!", "boolean", "whether the document goes on: no rule failed"),
        Column(
            "failed!",
            "list<struct<rule!: string, value: double, threshold: double>!>",
            "every rule that failed, in the order of the config: its name, the value seen, the threshold (both null "
            "for `generated` and `manifest`, which have no number)",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("kept_fails_nothing", "kept = (size(failed) = 0)", "a document is kept if and only if no rule failed"),
    ),
)


class _Rule(NamedTuple):
    """A rule for documents of a kind (None: of all kinds).

    A document fails it where the signal is `below` or `above` the threshold, or is `present` (`side`).
    """

    fault: str
    kind: str | None
    signal: str
    side: str
    threshold: float | None


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(VERDICTS,),
    plot=Plot("Documents by failed rule", ("failed",), _draw_failed_rules),
)
def verdicts(signals: DataFrame, config: VerdictsConfig, documents: DataFrame | None = None) -> DataFrame:
    """Judge every document by the rules of its kind; one row per document.

    A signal that is null (nothing to divide by) fails no rule but the one that asks for words. A document of an unknown
    kind is an error.

    Args:
        signals: rows of the table `signals`.
        config: bounds by kind.
        documents: shard, doc_id, path and metadata of the same documents; without it no document is a manifest.

    Returns:
        Rows of the table `verdicts`.
    """
    from pyspark.sql import functions as F

    judged_rows = signals if documents is None else _with_manifests(signals, documents, config)
    rules = [*_rules(config), *([] if documents is None else [_MANIFEST_RULE])]
    failed = F.array_compact(F.array(*(_failure(rule) for rule in rules)))
    unknown = F.raise_error(
        F.concat(F.lit("verdicts: no rules for kind "), "kind", F.lit("; know "), F.lit(str(KINDS)))
    )
    judged = F.when(F.col("kind").isin(*KINDS), failed).otherwise(unknown)
    return judged_rows.select("shard", "doc_id", judged.alias("failed")).select(
        "shard", "doc_id", (F.size("failed") == 0).alias("kept"), "failed"
    )


def _with_manifests(signals: DataFrame, documents: DataFrame, config: VerdictsConfig) -> DataFrame:
    """Add the column `manifest`: true for a manifest that is no training text, else null."""
    from pyspark.sql import functions as F

    left_out = F.col("metadata").getItem(EVIDENCE).isNotNull()
    if config.manifests == "leave_out":
        left_out |= F.col("path").rlike(MANIFEST)
    manifests = documents.where(left_out).select("shard", "doc_id", F.lit(True).alias("manifest"))
    return signals.join(manifests, ["shard", "doc_id"], "left")


_MANIFEST_RULE: Final = _Rule("manifest", None, "manifest", "present", None)


def _rules(config: VerdictsConfig) -> Iterator[_Rule]:
    """All rules, in the order in which failures are listed."""
    prose, code = config.prose, config.code
    yield _Rule("too_few_words", "prose", "word_count", "below", prose.min_words)
    if prose.max_words is not None:
        yield _Rule("too_many_words", "prose", "word_count", "above", prose.max_words)
    yield _Rule("words_too_short", "prose", "mean_word_length", "below", prose.min_mean_word_length)
    yield _Rule("words_too_long", "prose", "mean_word_length", "above", prose.max_mean_word_length)
    yield _Rule("too_many_symbols", "prose", "symbol_fraction", "above", prose.max_symbol_fraction)
    yield _Rule("too_many_digits", "prose", "digit_fraction", "above", prose.max_digit_fraction)
    yield _Rule("too_few_letters", "prose", "alphabetic_fraction", "below", prose.min_alphabetic_fraction)
    yield _Rule(
        "too_many_duplicate_lines", "prose", "duplicate_line_fraction", "above", prose.max_duplicate_line_fraction
    )
    yield _Rule("too_few_words", "code", "word_count", "below", code.min_words)
    yield _Rule("line_too_long", "code", "max_line_length", "above", code.max_line_length)
    yield _Rule("lines_too_long_on_average", "code", "mean_line_length", "above", code.max_mean_line_length)
    yield _Rule("too_few_alphanumerics", "code", "alphanumeric_fraction", "below", code.min_alphanumeric_fraction)
    if not code.keep_generated:
        yield _Rule("generated", "code", "generated_marker", "present", None)
    yield _Rule("too_few_words", "markup", "word_count", "below", config.markup.min_words)
    yield _Rule("too_few_words", "data", "word_count", "below", config.data.min_words)


def _failure(rule: _Rule) -> SparkColumn:
    """The entry of a rule in `failed`: its name, value and threshold, or null where the document passes."""
    from pyspark.sql import functions as F

    signal = F.col(rule.signal)
    if rule.threshold is None:
        fails, value = signal.isNotNull(), F.lit(None).cast("double")
    else:
        value = signal.cast("double")
        fails = value < rule.threshold if rule.side == "below" else value > rule.threshold
    threshold = F.lit(rule.threshold).cast("double")
    failure = F.struct(F.lit(rule.fault).alias("rule"), value.alias("value"), threshold.alias("threshold"))
    return F.when(fails if rule.kind is None else (F.col("kind") == rule.kind) & fails, failure)
