"""Heuristics: what Gopher, C4, FineWeb and BigCode measure of a text, and more, one column per measure.

Measures only: the rules that judge them are a policy's. `signals` has the plain measures of characters, words and
lines; its `duplicate_line_fraction` leaves empty lines out, as do lines here, and differs by the ends of a text alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

_LINES = "of all lines (`str.splitlines`)"
_FILLED = "of lines that are not blank"
_FRACTIONS = {
    "bullet_line_fraction": f"lines that begin with - or a bullet, {_LINES}",
    "ellipsis_line_fraction": f"lines that end with an ellipsis, {_LINES}",
    "alphabetic_word_fraction": "words with a letter, of all words",
    "duplicate_line_fraction": "lines that repeat an earlier one, of lines between runs of LF",
    "duplicate_paragraph_fraction": "paragraphs that repeat an earlier one, of paragraphs between two or more LF",
    "duplicate_line_character_fraction": "characters of repeated lines, of all characters",
    "duplicate_paragraph_character_fraction": "characters of repeated paragraphs, of all characters",
    **{
        f"top_{n}gram_character_fraction": f"characters of the most frequent {n}-gram of words, of all"
        for n in (2, 3, 4)
    },
    **{
        f"duplicate_{n}gram_character_fraction": f"characters of {n}-grams of words that were read before, of all"
        for n in range(5, 11)
    },
    "terminal_punctuation_line_fraction": f"lines whose last character ends a sentence, {_FILLED}",
    "short_line_fraction": f"lines of at most 30 characters, {_FILLED}",
    "fineweb_duplicate_line_character_fraction": "characters of repeated lines that are not blank, of all but LF",
    "capital_fraction": "upper and title case letters, of letters",
    "link_fraction": "characters in links, of all",
    "list_line_fraction": f"lines that open with a bullet or a number, {_FILLED}",
    "table_line_fraction": f"lines with three cells, and rules of tables, {_FILLED}",
    "stack_trace_line_fraction": f"lines of stack traces, {_FILLED}",
    "log_line_fraction": f"lines with a time of day at their head or a level, {_FILLED}",
}
_RATIOS = {
    "gopher_mean_word_length": "characters per word of gopher_word_count; null without any and where most words are of "
    "a script without spaces",
    "hash_word_ratio": "number signs per word",
    "ellipsis_word_ratio": "ellipses per word",
    "newline_word_ratio": "LF per word",
    "compression_ratio": "size of the first 16,384 characters after repeated runs became references, of their number",
}
_COUNTS = {
    "gopher_word_count": "words that are not of punctuation alone",
    "stop_word_count": "different words among Gopher's eight stop words",
    "sentence_count": "sentences in the lines that C4 keeps",
    "c4_kept_line_count": "lines that C4 keeps",
    "javascript_line_count": "lines that C4 drops for the word javascript",
    "policy_line_count": "lines that C4 drops for a phrase of terms of use, privacy or cookies",
    "curly_bracket_count": "lines for whose { C4 drops the document",
    "lorem_ipsum_count": "lines for whose lorem ipsum C4 drops the document",
    "placeholder_count": "phrases of placeholder text, test fixtures and generated files",
    "mojibake_count": "pairs of characters that are UTF-8 read as Latin-1, and signs of lost characters",
}
_ORDER = [
    "gopher_word_count",
    "gopher_mean_word_length",
    "hash_word_ratio",
    "ellipsis_word_ratio",
    "bullet_line_fraction",
    "ellipsis_line_fraction",
    "stop_word_count",
    "alphabetic_word_fraction",
    "duplicate_line_fraction",
    "duplicate_paragraph_fraction",
    "duplicate_line_character_fraction",
    "duplicate_paragraph_character_fraction",
    "top_2gram_character_fraction",
    "top_3gram_character_fraction",
    "top_4gram_character_fraction",
    "duplicate_5gram_character_fraction",
    "duplicate_6gram_character_fraction",
    "duplicate_7gram_character_fraction",
    "duplicate_8gram_character_fraction",
    "duplicate_9gram_character_fraction",
    "duplicate_10gram_character_fraction",
    "terminal_punctuation_line_fraction",
    "short_line_fraction",
    "fineweb_duplicate_line_character_fraction",
    "newline_word_ratio",
    "sentence_count",
    "c4_kept_line_count",
    "javascript_line_count",
    "policy_line_count",
    "curly_bracket_count",
    "lorem_ipsum_count",
    "xml_head",
    "capital_fraction",
    "link_fraction",
    "list_line_fraction",
    "table_line_fraction",
    "compression_ratio",
    "placeholder_count",
    "mojibake_count",
    "stack_trace_line_fraction",
    "log_line_fraction",
]


def _column(name: str) -> Column:
    """The declaration of a measure."""
    if name == "xml_head":
        return Column(
            "xml_head!", "boolean", "whether `<?xml version=` ends within the first 100 characters of the text"
        )
    if name in _COUNTS:
        return Column(f"{name}!", "long", _COUNTS[name])
    return Column(name, "double", f"{(_FRACTIONS | _RATIOS)[name]}; null without any")


@scorer(
    name="heuristics",
    version="1",
    columns=tuple(map(_column, _ORDER)),
    # The most frequent n-gram may overlap itself (`a a a`), and counts spaces that the text may not have.
    fractions=tuple(name for name in _FRACTIONS if not name.startswith("top_")),
    checks=(
        Check(
            "counts_in_bounds",
            f"least({', '.join(_COUNTS)}) >= 0 and stop_word_count <= 8 and sentence_count >= c4_kept_line_count",
            "counts are not negative, there are eight stop words, and every line that C4 keeps has a sentence",
        ),
    ),
)
def heuristics(content: pa.Array) -> dict[str, pa.Array]:
    """The heuristics of Gopher, C4, FineWeb and BigCode, and of lists, tables, logs and links."""
    from spark_jobs.filters.heuristics.measure import score

    return score(content)
