"""The scorer `contamination`: which items of benchmarks each text holds.

The benchmarks stand in the registry (`headrace evals add`), and a dataset names those that it is searched for:
`scorers: {contamination: {evals: [gsm8k@1, humaneval@1]}}`. A policy then leaves documents out by
`contamination.max_share`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from spark_jobs.filters.contamination.index import ContaminationConfig, Contents
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.filters.contamination.eval_set import EvalSet


class SearchedEvals(ContaminationConfig):
    """Which benchmarks are searched for, and how."""

    evals: tuple[str, ...] = Field(min_length=1, description="eval sets of the registry, each as name@version")


def registered(references: tuple[str, ...]) -> list[EvalSet]:
    """Eval sets of the registry.

    Raises:
        InputError: one is not there; the message names the nearest.
    """
    from spark_jobs.filters.contamination.eval_set import EvalSet, decode
    from spark_jobs.filters.registry import find_entries
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import load_settings

    found = find_entries(open_catalogue(load_settings()), "eval_set", references, "headrace evals add")
    return [EvalSet(one.name, decode(one.content)) for one in found]


def index_of_registered(config: SearchedEvals) -> Contents:
    """What texts are searched for, made once on the driver."""
    from spark_jobs.filters.contamination.index import index_of

    return index_of(registered(config.evals), config)


FINDINGS_COLUMN: Final = Column(
    "findings!",
    "list<struct<eval_set!: string, item!: string, kind!: string, start!: long, end!: long, share!: double>!>",
    "items found, by start: eval set, item, exact, ngram or near, first byte and byte after the last in the UTF-8 of "
    "what was searched, share of the item",
)
FINDINGS_CHECK: Final = Check(
    "shares_in_bounds", "forall(findings, f -> f.share > 0 and f.share <= 1)", "a share is in (0, 1]"
)


@scorer(
    name="contamination",
    version="2",
    columns=(
        FINDINGS_COLUMN,
        Column("max_share", "double", "largest share of an item that the text holds; null without findings"),
    ),
    config=SearchedEvals,
    prepare=index_of_registered,
    checks=(FINDINGS_CHECK,),
)
def contamination(content: pa.Array, contents: Contents) -> dict[str, pa.Array]:
    """Items of benchmarks in texts, verified letter by letter."""
    from spark_jobs.filters.contamination.findings import largest_shares, score

    found = score(content, contents)
    return {**found, "max_share": largest_shares(found["findings"])}
