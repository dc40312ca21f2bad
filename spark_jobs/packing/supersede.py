"""Supersede: excise packed documents replaced or deleted by their source, as the step `revisions` records.

    excised   members leaving by the corpus's policies, or of a standing (`superseded`, `gone`) named by the caller
    kept      a member that a current document was removed as a duplicate of, directly or through another one, since
              otherwise no window would hold the text
              a member whose path's latest document is excised itself, because it returned after it was excised

`excise` removes them from the windows and bars them from later packing; blends pinning an earlier snapshot keep them.
In a new generation such a document may be the latest of its path again: `reinstate` takes it off the list of excisions
before the table is packed. Documents excised by hand, by id, stay out. Runs do not decide anew while the corpus is
unchanged: a property of the table records the snapshots of the last decision.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In, Or

from headrace.tables.catalogue import load_table
from spark_jobs.corpus_stages import stages_of
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.membership.revisions import paths_of, standings
from spark_jobs.dedup.removal.survivors import applied_removals
from spark_jobs.exceptions import InputError
from spark_jobs.lake.engine.arrangement import persist, release
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.excisions import (
    EXCISIONS,
    SUPERSEDE_PREFIX,
    excised_by,
    excised_documents,
    withdraw_excisions,
)
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.packing.excise import Excised, excise
from spark_jobs.packing.ordinals import packed_facts
from spark_jobs.spark_sql import DataFrame, F

DECIDED_PROPERTY = "headrace.superseded-decided"


@dataclass(frozen=True)
class Superseded:
    """The documents excised from one packed table, and those kept.

    Attributes:
        excised: result of the excision; empty where no document was to be excised.
        staying: documents kept because a current one was removed as their duplicate, or because their replacement is
            excised; ascending.
    """

    excised: Excised
    staying: tuple[str, ...] = ()


def excise_superseded(
    lake: Lake, identifier: str, threshold: KindThreshold | None, standing: Collection[str] = ()
) -> Superseded:
    """Excise from a packed table the members leaving the corpus, or of one of the given standings.

    Args:
        lake: the lake.
        identifier: the packed table of a corpus.
        threshold: the one at which the corpus removes near-duplicates; None where it keeps them.
        standing: `superseded`, `gone`: members of these standings are excised whatever the corpus's policies are.

    Raises:
        InputError: the corpus has no table `revisions` (an earlier version of headrace made the lake).
        SparkJobsError: as `excise`.
    """
    corpus = identifier.split(".")[0]
    listed = excised_documents(lake.catalogue, identifier)
    candidates = _undecided(lake.catalogue, identifier, listed, standing)
    if not candidates:
        return Superseded(Excised(identifier))
    leaving, staying = _decided(lake, corpus, candidates, listed, threshold, standing)
    by_rule = replace(lake, run_id=f"{SUPERSEDE_PREFIX}{lake.run_id}")
    excised = excise(by_rule, identifier, leaving, head_only=True) if leaving else Excised(identifier)
    with lake.catalogue.load_table(identifier).transaction() as changed:
        changed.set_properties({DECIDED_PROPERTY: _read(lake.catalogue, corpus)})
    return Superseded(excised, staying)


def is_pending(catalogue: Catalog, identifier: str) -> bool:
    """Whether any member leaves the corpus by its policies and was neither excised nor decided to stay."""
    try:
        return bool(_undecided(catalogue, identifier, excised_documents(catalogue, identifier)))
    except InputError:  # a lake of an earlier version, whose next run makes the revisions
        return True


def _undecided(
    catalogue: Catalog, identifier: str, listed: Collection[str], standing: Collection[str] = ()
) -> list[str]:
    """Members leaving by the policies or of one of the given standings, and not excised yet.

    Without `standing` empty if the corpus has not changed since the last decision.

    Raises:
        InputError: the corpus has no table `revisions`.
    """
    corpus = identifier.split(".")[0]
    table = load_table(catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return []
    if not standing and table.properties.get(DECIDED_PROPERTY) == _read(catalogue, corpus):
        return []
    leaving = EqualTo("leaves", True)
    condition = And(
        EqualTo("dataset", packed_facts(identifier, table).dataset),
        Or(leaving, In("standing", set(standing))) if standing else leaving,
    )
    superseded = read_columns(catalogue, f"{corpus}.revisions", ("doc_id",), condition)
    if superseded is None:
        raise InputError(
            f"{identifier}: {corpus}.revisions, which says what was replaced, has not been materialized; "
            f"run `headrace run {corpus}` first"
        )
    return sorted(set(superseded["doc_id"].to_pylist()) - set(listed))


def _read(catalogue: Catalog, corpus: str) -> str:
    """Ids of the snapshots behind a decision, joined by spaces; `-` for a missing table."""
    levels = ("exact_duplicates", "removals", *_selections_of_duplicates(catalogue, corpus))
    names = (EXCISIONS, *(f"{corpus}.{name}" for name in ("revisions", "members", *levels)))
    tables = (load_table(catalogue, name) for name in names)
    return " ".join("-" if table is None else str(table.metadata.current_snapshot_id) for table in tables)


def _selections_of_duplicates(catalogue: Catalog, corpus: str) -> list[str]:
    """Names of the tables in which selections of the corpus name the kept document for each that stays behind."""
    return [stage.reasons for stage in stages_of(Ledger.fresh(catalogue), corpus) if stage.repeats]


def reinstate(lake: Lake, identifier: str) -> None:
    """Take present members off the list of what was superseded; called before packing."""
    corpus = identifier.split(".")[0]
    excised = excised_by(lake.catalogue, identifier, SUPERSEDE_PREFIX)
    if not excised:
        return
    recorded = read_columns(lake.catalogue, f"{corpus}.revisions", ("doc_id",))
    excised -= set(recorded["doc_id"].to_pylist() if recorded is not None else ())
    members = load_table(lake.catalogue, f"{corpus}.members")
    if not excised or members is None:
        return
    wanted = pa.array(sorted(excised), pa.string())
    entering: set[str] = set()
    for batch in members.scan(selected_fields=("doc_id",)).to_arrow_batch_reader():
        ids = batch.column("doc_id").cast(pa.string())
        entering.update(ids.filter(pc.is_in(ids, wanted)).to_pylist())
    withdraw_excisions(lake.catalogue, identifier, entering, SUPERSEDE_PREFIX)


def _decided(
    lake: Lake,
    corpus: str,
    candidates: list[str],
    listed: Collection[str],
    threshold: KindThreshold | None,
    standing: Collection[str],
) -> tuple[list[str], tuple[str, ...]]:
    """(candidates to excise, candidates to keep); one with a standing changed meanwhile is in neither."""
    spark = lake.session()

    def own(table: str) -> DataFrame:
        return table_rows(spark, f"{corpus}.{table}")

    def ids(values: Collection[str]) -> DataFrame:
        return spark.createDataFrame(pa.table({"doc_id": pa.array(sorted(values), pa.string())}))

    links = own("exact_duplicates").select("doc_id", "witness_doc_id")
    if threshold is not None:
        near = applied_removals(own("removals"), own("members"), threshold)
        links = links.unionByName(near.select("doc_id", "witness_doc_id"))
    for table in _selections_of_duplicates(lake.catalogue, corpus):
        links = links.unionByName(own(table).select("doc_id", "witness_doc_id"))
    revisions = own("revisions")
    last = persist(standings(revisions))
    leaving = last.where(F.col("leaves") | F.col("standing").isin(*standing)).join(
        F.broadcast(ids(candidates)), "doc_id"
    )
    judged = leaving.select("doc_id").join(_needed(last, paths_of(revisions), links, ids(listed)), "doc_id", "left")
    decisions = judged.select("doc_id", F.coalesce("stays", F.lit(False)).alias("stays")).toArrow()
    release(last)
    left, stay = (decisions.filter(pc.field("stays") == stays)["doc_id"].to_pylist() for stays in (False, True))
    return sorted(left), tuple(sorted(stay))


def _needed(last: DataFrame, paths: DataFrame, links: DataFrame, excised: DataFrame) -> DataFrame:
    """Rows (doc_id, stays=true) of documents to keep whatever their standing is.

    Args:
        last: the present standing of each document.
        paths: the path of each document.
        links: from a removed duplicate to its witness.
        excised: documents listed as excised.
    """
    stale = last.where("standing <> 'latest'").select("doc_id")
    first = links.join(stale, "doc_id", "left_anti").select(F.col("witness_doc_id").alias("doc_id"))
    second = links.join(first, "doc_id", "left_semi").select(F.col("witness_doc_id").alias("doc_id"))
    third = links.join(second, "doc_id", "left_semi").select(F.col("witness_doc_id").alias("doc_id"))
    out_paths = paths.join(last.where("standing = 'latest'").join(excised, "doc_id"), "doc_id").select("path_id")
    same_paths = paths.join(out_paths, "path_id", "left_semi").select("doc_id")
    return (
        first.unionByName(second).unionByName(third).unionByName(same_paths).distinct().withColumn("stays", F.lit(True))
    )
