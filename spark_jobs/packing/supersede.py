"""Supersede: packed documents leave when their source has replaced or lost them (the step `revisions` says which).

    which     members that leave by the corpus's policies, or stand as what the caller names; excised once each
    but not   a member that a current document was removed as a duplicate of, directly or through another one: the text
              would be nowhere then
              a member whose path's latest document is out of the table itself: it returned after it was excised
    then      `excise` takes them out of the windows, and keeps them out of what is packed later

What was excised so is a member of a new generation where it is the latest of its path again: `reinstate` lets it in
again before the table is packed. Documents that were excised by name stay out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, EqualTo, In, Or

from spark_jobs.dedup.membership.standings import paths_of, standings
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.run.excisions import excised_by, excised_documents, withdraw_excisions
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import load_table, spark_identifier
from spark_jobs.packing.excise import Excised, excise
from spark_jobs.packing.ordinals import packed_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN_PREFIX = "supersede-"
"""Begins the run_id of such excisions, which tells them from those of a person."""


@dataclass(frozen=True)
class Superseded:
    """What left one packed table, and what did not.

    Attributes:
        excised: what the excision did; nothing where no document was to leave.
        staying: documents that stay, since a current one was removed as their duplicate, or since what replaced them
            is out of the table; ascending.
    """

    excised: Excised
    staying: tuple[str, ...] = ()


def excise_superseded(
    lake: Lake, identifier: str, threshold: float | None, standing: Collection[str] = ()
) -> Superseded:
    """Take members that leave, or have one of some standings, out of a packed table.

    Args:
        lake: the lake.
        identifier: the packed table of a corpus.
        threshold: the one at which the corpus removes near-duplicates; None where it keeps them.
        standing: `superseded`, `gone`: what leaves whatever the policies of the corpus say.

    Raises:
        InputError: the corpus has no table of revisions yet, as one of an earlier version of headrace.
        SparkJobsError: as `excise`.
    """
    corpus = identifier.split(".")[0]
    table = load_table(lake.catalogue, identifier)
    if table is None or table.current_snapshot() is None:
        return Superseded(Excised(identifier))
    leaving = EqualTo("leaves", True)
    condition = And(
        EqualTo("dataset", packed_facts(identifier, table).dataset),
        Or(leaving, In("standing", set(standing))) if standing else leaving,
    )
    told = read_columns(lake.catalogue, f"{corpus}.revisions", ("doc_id",), condition)
    if told is None:
        raise InputError(
            f"{identifier}: {corpus}.revisions, which says what was replaced, has not been materialized; "
            f"run `headrace run {corpus}` first"
        )
    listed = excised_documents(lake.catalogue, identifier)
    candidates = sorted(set(told["doc_id"].to_pylist()) - listed)
    if not candidates:
        return Superseded(Excised(identifier))
    leaving_ids, staying = _decided(lake, corpus, candidates, listed, threshold, standing)
    if not leaving_ids:
        return Superseded(Excised(identifier), staying)
    return Superseded(excise(replace(lake, run_id=f"{RUN_PREFIX}{lake.run_id}"), identifier, leaving_ids), staying)


def reinstate(lake: Lake, identifier: str) -> None:
    """Let documents in again that left this way and are members of a new generation; call it before packing."""
    corpus = identifier.split(".")[0]
    excised = excised_by(lake.catalogue, identifier, RUN_PREFIX)
    if not excised:
        return
    told = read_columns(lake.catalogue, f"{corpus}.revisions", ("doc_id",))
    excised -= set(told["doc_id"].to_pylist() if told is not None else ())
    members = load_table(lake.catalogue, f"{corpus}.members")
    if not excised or members is None:
        return
    wanted = pa.array(sorted(excised), pa.string())
    entering: set[str] = set()
    for batch in members.scan(selected_fields=("doc_id",)).to_arrow_batch_reader():
        ids = batch.column("doc_id").cast(pa.string())
        entering.update(ids.filter(pc.is_in(ids, wanted)).to_pylist())
    withdraw_excisions(lake.catalogue, identifier, entering, RUN_PREFIX)


def _decided(
    lake: Lake,
    corpus: str,
    candidates: list[str],
    listed: Collection[str],
    threshold: float | None,
    standing: Collection[str],
) -> tuple[list[str], tuple[str, ...]]:
    """Which of the candidates leave, and which stay; those that stand otherwise by now are neither."""
    from pyspark.sql import functions as F

    spark = lake.session()

    def own(table: str) -> DataFrame:
        return spark.table(spark_identifier(f"{corpus}.{table}"))

    def ids(values: Collection[str]) -> DataFrame:
        return spark.createDataFrame(pa.table({"doc_id": pa.array(sorted(values), pa.string())}))

    revisions = own("revisions")
    last = standings(revisions).cache()
    paths = paths_of(revisions)
    out_paths = paths.join(last.where("standing = 'latest'").join(ids(listed), "doc_id"), "doc_id").select("path_id")
    links = own("exact_duplicates").select("doc_id", "witness_doc_id")
    if threshold is not None:
        near = own("removals").where(F.col("threshold") == threshold)
        links = links.unionByName(near.select("doc_id", "witness_doc_id"))
    stale = last.where("standing <> 'latest'").select("doc_id")
    first = links.join(stale, "doc_id", "left_anti").select(F.col("witness_doc_id").alias("doc_id"))
    second = links.join(first, "doc_id", "left_semi").select(F.col("witness_doc_id").alias("doc_id"))
    held = paths.join(out_paths, "path_id", "left_semi").select("doc_id")
    needed = first.unionByName(second).unionByName(held).distinct().withColumn("stays", F.lit(True))
    judged = (
        last.where(F.col("leaves") | F.col("standing").isin(*standing))
        .join(F.broadcast(ids(candidates)), "doc_id")
        .join(needed, "doc_id", "left")
        .select("doc_id", F.coalesce("stays", F.lit(False)).alias("stays"))
        .toArrow()
    )
    last.unpersist()
    stays = judged["stays"]
    leaving = judged.filter(pc.invert(stays))["doc_id"].to_pylist()
    return sorted(leaving), tuple(sorted(judged.filter(stays)["doc_id"].to_pylist()))
