"""Rules of masks: functions from a text and the facts of its row to spans of characters without loss.

    @mask_rule(version="1")
    def my_spans(document: MaskedText) -> Iterator[tuple[int, int]]:
        \"\"\"Tables of numbers.\"\"\"

is `trainable: {except: [mill.my_spans]}`, declared as an entry point of `headrace.mask_rules`; inside a project
`mill.masks:my_spans` does. A rule writes spans and no verdict: the text is kept, and its tokens are those that it has
without the rule. What it gives is a function of what it gets, the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.exceptions import InputError
from spark_jobs.plugins import load

HEADER: Final = "header"
"""The rule of what stands in front of documents; no rule of a user has its name."""


class MaskedText(NamedTuple):
    """A text to be searched, and the facts of its row.

    Attributes:
        text: as it is tokenized.
        doc_id: identity of the document.
        dataset: of the document.
        kind: code, prose, markup or data.
        language: programming language, or that of the language column.
        placeholders: spans that a redaction wrote in place of personal data; empty unless a rule reads them.
        template_lines: hashes of the lines that many documents of the dataset share, ascending; likewise.
    """

    text: str
    doc_id: str = ""
    dataset: str = ""
    kind: str = ""
    language: str | None = None
    placeholders: Sequence[tuple[int, int]] = ()
    template_lines: Int64Array | None = None


Search = Callable[[MaskedText], Iterable[tuple[int, int]]]


@dataclass(frozen=True)
class MaskRule:
    """A rule.

    Attributes:
        search: gives spans [start, end) of characters, in any order.
        version: changed whenever the spans change; tokens are computed again then.
        reads: `edits` or `template_lines`, where it looks at those.
    """

    search: Search
    version: str
    reads: str = ""


def mask_rule(*, version: str, reads: str = "") -> Callable[[Search], MaskRule]:
    """Declare a function from a text to spans without loss.

    Args:
        version: changed whenever its spans change.
        reads: `edits` where it looks at `placeholders`, `template_lines` where it looks at those.
    """

    def declare(search: Search) -> MaskRule:
        return MaskRule(search, version, reads)

    return declare


def find_rules(names: Iterable[str]) -> dict[str, MaskRule]:
    """The rules of some names, headrace's or those of packages.

    Raises:
        ConfigError: a name stands for no rule.
    """
    return {name: load("mask_rules", name, MaskRule) for name in names}


def spans_of(name: str, rule: MaskRule, document: MaskedText) -> Int64Array:
    """(S, 2) the spans of a rule, ascending, apart from one another.

    Raises:
        InputError: the rule failed, or gave spans outside of the text.
    """
    where = f"tokens: rule {name}: document {document.doc_id}"
    try:
        spans = np.array(sorted(rule.search(document)), np.int64).reshape(-1, 2)
    except Exception as error:  # a user's function may fail in any way
        raise InputError(f"{where}: {type(error).__name__}: {error}; mend the rule") from error
    if len(spans) and (spans.min() < 0 or spans.max() > len(document.text) or (spans[:, 0] > spans[:, 1]).any()):
        raise InputError(f"{where}: gives a span outside of its {len(document.text):,} characters; mend the rule")
    spans = spans[spans[:, 0] < spans[:, 1]]
    reach = np.maximum.accumulate(spans[:, 1])
    heads = np.flatnonzero(np.append(True, spans[1:, 0] > reach[:-1])[: len(spans)])
    return np.column_stack([spans[heads, 0], reach[np.append(heads[1:], len(spans))[: len(heads)] - 1]])


def token_rules(starts: Int64Array, ends: Int64Array, spans: Mapping[int, Int64Array]) -> Int32Array:
    """(T,) number of the first rule with a span that has a character of the token; 0 of none.

    Args:
        starts: (T,) first character of each token.
        ends: (T,) the one behind it; tokens of no character have no rule.
        spans: by number of a rule, the first of them first, as `spans_of` gives them.
    """
    numbers = np.zeros(len(starts), np.int32)
    for number, of_rule in reversed([*spans.items()]):
        first = np.searchsorted(of_rule[:, 1], starts, side="right")
        numbers[(first < np.searchsorted(of_rule[:, 0], ends)) & (starts < ends)] = number
    return numbers
