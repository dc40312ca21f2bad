"""The stages of a corpus: steps after deduplication, each of which says which documents go on.

    survivors -> shaped -> trimmed -> decontaminated -> tokens

A corpus has those that its declaration asks for. Of a lake they follow from what its tables were computed from, so that
a table of an earlier declaration counts no more. Whoever counts or explains documents walks these values; only
`assets.corpora`, which makes the steps of a declaration, knows a stage by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

SURVIVORS = "survivors"
"""Table of what deduplication leaves, which the first stage reads."""
_READERS = ("tokens", "ordered")  # what comes after the last stage, the surer first


@dataclass(frozen=True)
class Stage:
    """A step that lets some documents go on.

    Attributes:
        table: of those that do.
        reasons: table that says why others do not, or what was cut of a text.
        words: what documents of `table` are: "of them ..".
        finding: `module:function` that says what became of a document, from a catalogue, a corpus and its row.
        cuts: whether `reasons` has texts in place of those that came.
    """

    table: str
    reasons: str
    words: str
    finding: str
    cuts: bool = False


_FINDINGS = "dagster_project.inspect.documents.selection_findings"
STAGES = (
    Stage("shaped", "shape", "within the rates of the shape", f"{_FINDINGS}:shape_finding"),
    Stage("trimmed", "cut_texts", "with enough text of their own", f"{_FINDINGS}:cut_finding", cuts=True),
    Stage("decontaminated", "contaminated", "without an item of a benchmark", f"{_FINDINGS}:benchmark_finding"),
)
"""All that headrace has, in their order."""
LEFT_OUT = frozenset({"left_out", "contaminated", "missing"})
"""Outcomes of a finding after which a document does not go on."""


def stages_between(
    corpus: str, tables: Collection[str], inputs_of: Callable[[str], Collection[str]]
) -> tuple[Stage, ...]:
    """The stages that the newest rows of a corpus went through, in order.

    Args:
        corpus: its namespace.
        tables: names of the tables that it has.
        inputs_of: from one of these names to identifiers of the tables that its newest rows were computed from.
    """
    stages, reader = list[Stage](), next((table for table in _READERS if table in tables), None)
    while reader is not None:
        inputs = inputs_of(reader)
        stage = next((stage for stage in reversed(STAGES) if f"{corpus}.{stage.table}" in inputs), None)
        if stage is None:
            break
        stages.append(stage)
        reader = stage.table
    return tuple(reversed(stages))
