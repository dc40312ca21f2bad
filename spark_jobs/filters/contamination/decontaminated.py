"""The step `decontaminated`: the documents of a corpus without an item of a benchmark, the last step before tokens.

A corpus runs it as soon as the registry holds an eval set, over all that survived deduplication, with the newest
version of every set. `contaminated` keeps what was found, item by item.

The scorer `contamination` says the same of a dataset's texts, for the benchmarks of the registry (`headrace evals add`)
that its declaration names: `scorers: {contamination: {evals: [gsm8k@1, humaneval@1]}}`. A policy then leaves documents
out by `contamination.max_share`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import Field

from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.filters.contamination.eval_set import encode
from spark_jobs.filters.contamination.index import ContaminationConfig, IndexContents
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.run.registry import REGISTRY, Entry, entries, record
from spark_jobs.selection.kept import IDENTITY, KEYS
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from spark_jobs.filters.contamination.eval_set import EvalSet
    from spark_jobs.filters.contamination.index import IndexContents


class SearchedEvals(ContaminationConfig):
    """Which benchmarks are searched for, and how."""

    evals: tuple[str, ...] = Field(min_length=1, description="eval sets of the registry, each as name@version")


def registered(references: tuple[str, ...]) -> list[EvalSet]:
    """Eval sets of the registry.

    Raises:
        InputError: one is not there; the message names the nearest.
    """
    from headrace.tables.settings import load_settings
    from spark_jobs.filters.contamination.eval_set import EvalSet, decode
    from spark_jobs.lake.run.registry import find_entries
    from spark_jobs.lake.session.catalogue import open_catalogue

    sets = find_entries(open_catalogue(load_settings()), "eval_set", references, "headrace evals add")
    return [EvalSet(entry.name, decode(entry.content)) for entry in sets]


def index_of_registered(config: SearchedEvals) -> IndexContents:
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
    version="3",
    columns=(
        FINDINGS_COLUMN,
        Column("max_share", "double", "largest share of an item that the text holds; null without findings"),
    ),
    config=SearchedEvals,
    prepare=index_of_registered,
    checks=(FINDINGS_CHECK,),
)
def contamination(content: pa.Array, contents: IndexContents) -> dict[str, pa.Array]:
    """Items of benchmarks in texts, verified letter by letter."""
    from spark_jobs.filters.contamination.findings import largest_shares, score

    findings = score(content, contents)
    return {**findings, "max_share": largest_shares(findings["findings"])}


EVALS_PROPERTY: Final = "headrace.evals"
"""Property of a packed table: `PresentEvals.digest` of the eval sets that its documents were searched for; `off` where
the corpus says so."""

_RETIRED: Final = hashlib.sha256(encode([])).hexdigest()


class PresentEvals(NamedTuple):
    """The eval sets of a registry, the newest version of each.

    Attributes:
        labels: name@version, ascending; empty where there is none.
        digest: SHA-256 of the labels with the hashes of what they stand for, 64 hex digits; empty where there is none.
    """

    labels: tuple[str, ...] = ()
    digest: str = ""


def present_evals(catalogue: Catalog) -> PresentEvals:
    """The eval sets to search documents for."""
    from pyiceberg.expressions import EqualTo

    from spark_jobs.lake.files.lookups import read_rows

    columns = ("name", "version", "content_hash", "recorded_at")
    rows = read_rows(catalogue, REGISTRY, columns, EqualTo("kind", "eval_set"))
    rows.sort(key=lambda row: (row["recorded_at"], row["version"]))
    newest = {row["name"]: row for row in rows}
    there = {name: row for name, row in sorted(newest.items()) if row["content_hash"] != _RETIRED}
    if not there:
        return PresentEvals()
    labels = {f"{name}@{row['version']}": row["content_hash"] for name, row in there.items()}
    return PresentEvals(tuple(labels), hashlib.sha256(canonical_json(labels).encode()).hexdigest())


def retire(catalogue: Catalog, name: str) -> Entry:
    """Enter that an eval set is searched for no more; its versions stay, and a new one brings it back.

    Raises:
        InputError: the registry has none of this name still searched for.
    """
    there = entries(catalogue, "eval_set", name)
    present = {label.partition("@")[0] for label in present_evals(catalogue).labels}
    if name not in present:
        raise InputError(f"eval set {name}: is not searched for{did_you_mean(name, present)}")
    return record(catalogue, "eval_set", name, f"retired-{len(there)}", encode([]))


class DecontaminatedConfig(SearchedEvals):
    """Which benchmarks are searched for, and how much of an item a document may hold."""

    min_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="least share of an item that makes a document go; 0: any finding does",
    )


DECONTAMINATED = Table(
    name="decontaminated",
    comment="One row per document that goes on: it holds no item of a benchmark.",
    columns=IDENTITY,
    key=("doc_id",),
    partition=("increment", "shard"),
)


def _draw_items(table: pa.Table) -> bytes:
    """Documents by eval set and kind of finding as bars, a PNG below 30 KB."""
    from spark_jobs.lake.declare.pictures import draw_bars

    counts: dict[str, int] = {}
    for findings in table.column("findings").to_pylist():
        for label in {f"{finding['eval_set']}, {finding['kind']}" for finding in findings}:
            counts[label] = counts.get(label, 0) + 1
    return draw_bars(counts, f"documents with a finding, of {len(table):,}")


CONTAMINATED = Table(
    name="contaminated",
    comment="One row per document that holds an item of a benchmark, whether or not it goes on.",
    columns=(
        *IDENTITY,
        FINDINGS_COLUMN,
        Column("max_share!", "double", "largest share of an item that the text holds"),
        Column("removed!", "boolean", "whether it is left out of `decontaminated`"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(FINDINGS_CHECK, Check("found_something", "size(findings) > 0", "a document without findings has no row")),
)
_DDL = (
    "dataset string, shard int, doc_id string, findings array<struct<eval_set: string, item: string, kind: string, "
    "start: bigint, end: bigint, share: double>>, max_share double, removed boolean"
)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(DECONTAMINATED, CONTAMINATED),
    plot=Plot("Items of benchmarks", ("findings",), _draw_items, table=CONTAMINATED.name),
)
def decontaminated(survivors: DataFrame, documents: DataFrame, config: DecontaminatedConfig) -> Output:
    """Leave out the documents with items of benchmarks.

    They are searched as they landed, not as their texts go on: a text with replaced mail addresses may hold an item no
    more to the letter, but it is the item.

    Raises:
        InputError: the registry lacks an eval set.
    """
    search = functools.partial(_found, contents=index_of_registered(config), min_share=config.min_share)
    narrow = survivors.select(*KEYS)
    scored = persist(map_joined(documents, narrow, KEYS, KEYS, ["content"], search, _DDL).to_frame())
    kept = narrow.join(scored.where("removed").select("doc_id"), "doc_id", "left_anti").select(*KEYS)
    return Output({DECONTAMINATED.name: kept, CONTAMINATED.name: scored}, persisted=(scored,))


def _found(batches: Iterable[pa.RecordBatch], contents: IndexContents, min_share: float) -> Iterator[pa.RecordBatch]:
    """Batches of the documents with items, of batches of all (dataset, shard, doc_id, content)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from spark_jobs.filters.contamination.findings import largest_shares, score

    for batch in batches:
        findings = score(batch.column("content"), contents)["findings"]
        has_findings = pc.greater(pc.list_value_length(findings), 0)
        findings = findings.filter(has_findings)
        shares = largest_shares(findings)
        keys = [batch.column(name).filter(has_findings) for name in KEYS]
        yield pa.RecordBatch.from_arrays(
            [*keys, findings, shares, pc.greater_equal(shares, min_share)],
            names=[*KEYS, "findings", "max_share", "removed"],
        )
