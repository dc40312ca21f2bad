"""Heuristics: what Gopher, C4, FineWeb and BigCode measure of a text, and more, one column per measure.

Measures only: the rules to judge them are a policy's. `signals` has the plain measures of characters, words and lines;
its `duplicate_line_fraction` leaves empty lines out, as do lines here, and differs by the ends of a text alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

_LINES = "of all lines (`str.splitlines`)"
_FILLED = "of lines that are not blank"


def _count(name: str, about: str) -> Column:
    return Column(f"{name}!", "long", about)


def _ratio(name: str, about: str) -> Column:
    return Column(name, "double", f"{about}; null without any")


_COLUMNS = (
    _count("gopher_word_count", "words that are not of punctuation alone"),
    _ratio(
        "gopher_mean_word_length",
        "characters per word of gopher_word_count; null without any and where most words are of a script without "
        "spaces",
    ),
    _ratio("hash_word_ratio", "number signs per word"),
    _ratio("ellipsis_word_ratio", "ellipses per word"),
    _ratio("bullet_line_fraction", f"lines that begin with - or a bullet, {_LINES}"),
    _ratio("ellipsis_line_fraction", f"lines that end with an ellipsis, {_LINES}"),
    _count("stop_word_count", "different words among Gopher's eight stop words"),
    _ratio("alphabetic_word_fraction", "words with a letter, of all words"),
    _ratio("duplicate_line_fraction", "lines that repeat an earlier one, of lines between runs of LF"),
    _ratio(
        "duplicate_paragraph_fraction", "paragraphs that repeat an earlier one, of paragraphs between two or more LF"
    ),
    _ratio("duplicate_line_character_fraction", "characters of repeated lines, of all characters"),
    _ratio("duplicate_paragraph_character_fraction", "characters of repeated paragraphs, of all characters"),
    *(
        _ratio(f"top_{n}gram_character_fraction", f"characters of the most frequent {n}-gram of words, of all")
        for n in (2, 3, 4)
    ),
    *(
        _ratio(
            f"duplicate_{n}gram_character_fraction", f"characters of {n}-grams of words that were read before, of all"
        )
        for n in range(5, 11)
    ),
    _ratio("terminal_punctuation_line_fraction", f"lines whose last character ends a sentence, {_FILLED}"),
    _ratio("short_line_fraction", f"lines of at most 30 characters, {_FILLED}"),
    _ratio(
        "fineweb_duplicate_line_character_fraction", "characters of repeated lines that are not blank, of all but LF"
    ),
    _ratio("newline_word_ratio", "LF per word"),
    _count("sentence_count", "sentences in the lines that C4 keeps"),
    _count("c4_kept_line_count", "lines that C4 keeps"),
    _count("javascript_line_count", "lines that C4 drops for the word javascript"),
    _count("policy_line_count", "lines that C4 drops for a phrase of terms of use, privacy or cookies"),
    _count("curly_bracket_count", "lines for whose { C4 drops the document"),
    _count("lorem_ipsum_count", "lines for whose lorem ipsum C4 drops the document"),
    Column("xml_head!", "boolean", "whether `<?xml version=` ends within the first 100 characters of the text"),
    _ratio("capital_fraction", "upper and title case letters, of letters"),
    _ratio("link_fraction", "characters in links, of all"),
    _ratio("list_line_fraction", f"lines that open with a bullet or a number, {_FILLED}"),
    _ratio("table_line_fraction", f"lines with three cells, and rules of tables, {_FILLED}"),
    _ratio(
        "compression_ratio",
        "size of the first 16,384 characters after repeated runs became references, of their number",
    ),
    _count("placeholder_count", "phrases of placeholder text, test fixtures and generated files"),
    _count("mojibake_count", "pairs of characters that are UTF-8 read as Latin-1, and signs of lost characters"),
    _ratio("stack_trace_line_fraction", f"lines of stack traces, {_FILLED}"),
    _ratio("log_line_fraction", f"lines with a time of day at their head or a level, {_FILLED}"),
    _ratio("repeated_share", "words in blocks of 30 or more that stand earlier in the text, of all words"),
)
_NAMES = [column.name for column in _COLUMNS]
_NO_LESS_THAN_0 = ", ".join(name for name in _NAMES if name.endswith("_count"))


@scorer(
    name="heuristics",
    version="4",
    columns=_COLUMNS,
    # The most frequent n-gram may overlap itself (`a a a`), and counts spaces that the text may not have.
    fractions=[name for name in _NAMES if name.endswith(("_fraction", "_share")) and not name.startswith("top_")],
    checks=(
        Check(
            "counts_in_bounds",
            f"least({_NO_LESS_THAN_0}) >= 0 and stop_word_count <= 8 and sentence_count >= c4_kept_line_count",
            "counts are not negative, there are eight stop words, and every line that C4 keeps has a sentence",
        ),
    ),
)
def heuristics(content: pa.Array) -> dict[str, pa.Array]:
    """The heuristics of Gopher, C4, FineWeb and BigCode, and of lists, tables, logs and links."""
    from spark_jobs.filters.heuristics.measure import score

    return score(content)
