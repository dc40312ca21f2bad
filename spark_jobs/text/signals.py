"""Signals: the measures of each text, one column per signal; the costly part of filtering.

The rules on signals are a step of their own (`verdicts`), so that a changed bound measures no text again.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.side_reads import map_rows
from spark_jobs.spark_sql import DataFrame


class SignalsConfig(ConfigModel):
    """Options of the measures."""

    generated_marker_lines: int = Field(
        10, ge=1, le=1000, description="first lines of a text in which a marker of generated files is looked for"
    )


_FRACTIONS = (
    "alphabetic_fraction",
    "digit_fraction",
    "symbol_fraction",
    "alphanumeric_fraction",
    "duplicate_line_fraction",
)

SIGNALS = Table(
    name="signals",
    comment="One row per text: what was measured of it, one column per signal.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data: which rules judge the signals"),
        Column("character_count!", "long", "characters (code points) of the text"),
        Column(
            "word_count!",
            "long",
            "words: maximal runs without white space; of scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese) "
            "an estimate from their letters",
        ),
        Column("line_count!", "long", "lines; an LF at the end opens no further line"),
        Column("max_line_length!", "long", "characters of the longest line"),
        Column("token_estimate", "long", "tokens that GPT-2 would make of the text, about, from its characters"),
        Column(
            "mean_word_length",
            "double",
            "characters per word between spaces; null without words, or where most of them are estimated",
        ),
        Column("mean_line_length", "double", "characters per line, the LF left out; null without lines"),
        Column("alphabetic_fraction", "double", "letters and marks (L*, M*), of all characters; null without any"),
        Column("digit_fraction", "double", "decimal digits (Nd), of all characters; null without any"),
        Column(
            "symbol_fraction",
            "double",
            "characters that are neither letters, marks, numbers nor white space, of all characters; null without any",
        ),
        Column(
            "alphanumeric_fraction",
            "double",
            "letters, marks and numbers (L*, M*, N*), of all characters; null without any",
        ),
        Column(
            "duplicate_line_fraction",
            "double",
            "lines that repeat an earlier line of the text, of all lines that are not empty; null without any",
        ),
        Column("generated_marker", "string", "first marker of generated files in the first lines; null without one"),
        Column("heading_count", "long", "headings that Markdown marks with number signs; null for code and data"),
        Column("code_block_count", "long", "blocks of code between Markdown's fences; null for code and data"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        *(
            Check(
                f"{name}_in_bounds",
                f"coalesce({name}, 0) between 0 and 1",
                f"{name} is a fraction: between 0 and 1",
            )
            for name in _FRACTIONS
        ),
        Check(
            "counts_in_bounds",
            "word_count between 0 and character_count and line_count between 0 and character_count "
            "and max_line_length between 0 and character_count",
            "a text has no more words and lines than characters",
        ),
    ),
)

_SPARK_TYPES = {"int": "int", "long": "bigint", "double": "double", "string": "string"}
_DDL = ", ".join(f"{column.name} {_SPARK_TYPES[column.type]}" for column in SIGNALS.columns)


@step(version="3", scope=Scope.INCREMENT, tables=(SIGNALS,))
def signals(texts: DataFrame, config: SignalsConfig) -> DataFrame:
    """Measure every text; one row per text, all signals for all kinds."""
    from spark_jobs.text.measures import signal_batches

    measure = partial(signal_batches, marker_lines=config.generated_marker_lines)
    return map_rows(texts, ["shard", "doc_id", "kind"], ["content"], measure, _DDL).to_frame()
