"""Revisions: which document is the latest at its path, and which events of a new reading of the source change that.

The latest document of a path is the one landed or returned there last, unless it is gone since. A reading without a
landing at a path can change the latest one there in two ways, each an event:

    returned    the documents read at a path are all known, and the latest one is not among them (or the path was gone)
    gone        the latest document's file is not listed any more, or its file of records was read to the end without it

A file read, but not taken any more by its source for what is in it, has no document either: `gone`.

Only paths of read or gone files are looked at, by the part of the path before the first `#`; of packages, standing for
their repositories, all paths of those.

A source with histories, or on pages, lands several versions of a path at once; then a third event says which of them is
the latest:

    landed      the last version of a path, where it landed with older ones

A document deleted for good is still the latest at its path until another one lands there: a deletion takes away, and
never brings an older version back.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.sources.refusals import TRIED_AGAIN, Reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PATH = ("repository", "path")
_LEFT_BY_CONTENT: Final = (str(Reason.OTHER_KIND), str(Reason.UNKNOWN_FORMAT))


def landings_and_events(documents: DataFrame, arrivals: DataFrame | None) -> DataFrame:
    """All rows to decide which document is the latest at a path, with the columns `gone`, `landed` and `is_event`.

    Args:
        documents: landed documents.
        arrivals: rows of `arrivals` with `status` and columns of the documents; those without a doc_id are ignored.
            None where there are none.

    Returns:
        The documents (landed, not gone, no event), and the events, without the columns missing in arrivals; landed
        where the event names the latest of several documents landed with it, or one landed and deleted.
    """
    from pyspark.sql import functions as F

    landed = documents.withColumns({"gone": F.lit(False), "landed": F.lit(True), "is_event": F.lit(False)})
    if arrivals is None:
        return landed
    there = [name for name in documents.columns if name in arrivals.columns]
    events = arrivals.where("doc_id IS NOT NULL").select(
        *there,
        (F.col("status") == "gone").alias("gone"),
        F.col("status").isin("landed", "deleted").alias("landed"),
        F.lit(True).alias("is_event"),
    )
    return landed.unionByName(events, allowMissingColumns=True)


def newest(order: str) -> Column:
    """Aggregate of a path's landings and events: doc_id, gone and landed of what came last, by a column of increments.

    Of documents landed together, the one named by an event counts as the last, else that with the lowest doc_id.
    """
    from pyspark.sql import functions as F

    return F.min(F.struct((-F.col(order)).alias("age"), (~F.col("is_event")).alias("rank"), "doc_id", "gone", "landed"))


def latest_at_paths(documents: DataFrame, arrivals: DataFrame, keys: Sequence[str], order: str) -> DataFrame:
    """The last landing or event at each path: keys, doc_id, gone, landed; see `landings_and_events`."""
    deciding = landings_and_events(documents.select("doc_id", order, *keys), arrivals)
    newest_rows = deciding.groupBy(*keys).agg(newest(order).alias("newest"))
    return newest_rows.select(*keys, *(f"newest.{name}" for name in ("doc_id", "gone", "landed")))


def same_path(frame: str, other: str, keys: Sequence[str] = PATH) -> Column:
    """Whether rows of two frames, by their aliases, are about one path; a repository may be null."""
    from pyspark.sql import functions as F

    return functools.reduce(
        lambda all_equal, more: all_equal & more,
        (F.col(f"{frame}.{key}").eqNullSafe(F.col(f"{other}.{key}")) for key in keys),
    )


def reading_events(
    files: DataFrame,
    read: DataFrame,
    documents: DataFrame,
    arrivals: DataFrame,
    one_document: Collection[str],
    by_repository: bool,
) -> DataFrame:
    """Find the documents shown by a reading of the source to have returned, or to be gone.

    Args:
        files: the listing.
        read: what was read of it (`READ_ROWS`), with `known`: whether the document landed before.
        documents: the dataset's documents so far.
        arrivals: its arrivals so far.
        one_document: readers of files with no more than one document.
        by_repository: whether a file of the source holds all files of a repository, as packages do.

    Returns:
        Rows (location, repository, path, doc_id, status): the file as evidence, the document and its path.
    """
    from pyspark.sql import functions as F

    stem = (F.col("repository") if by_repository else F.substring_index("path", "#", 1)).alias("stem")
    at_hand = files.where("NOT unchanged AND path IS NOT NULL").select(
        "location", *PATH, "gone", (~F.col("reader").isin(*one_document)).alias("has_records"), stem
    )
    stems = at_hand.select("stem").distinct()
    columns = ("doc_id", "increment", *PATH)
    latest = latest_at_paths(
        documents.select(*columns, stem).join(stems, "stem", "left_semi"),
        arrivals.select(*columns, "status", stem).join(stems, "stem", "left_semi"),
        PATH,
        "increment",
    ).select(*PATH, F.col("doc_id").alias("latest"), F.col("gone").alias("was_gone"))
    before = checkpointed(latest)  # else all documents before are read for each of its readers
    now = read.where("doc_id IS NOT NULL").select("location", *PATH, "doc_id", "known")
    lost = _lost(before, at_hand, read, stem)
    left = _refused(read).where(F.col("reason").isin(*_LEFT_BY_CONTENT)).alias("left")
    left = left.join(before.where("NOT was_gone").alias("before"), same_path("left", "before")).select(
        "left.*", F.col("latest").alias("doc_id"), F.lit("gone").alias("status")
    )
    for there in (now, files.where("NOT gone")):
        lost = lost.alias("lost").join(there.select(*PATH).alias("there"), same_path("lost", "there"), "left_anti")
    return _returned(now, before).unionByName(lost).unionByName(left.drop("reason"))


def history_events(files: DataFrame, read: DataFrame, documents: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Find what a listing with `version` (the order of versions at a path) says about the latest document of each path.

    Versions of one listed file, such as a page, are ordered by their `number`.

    The last readable version is the latest. An event says so where the landings of this reading alone would not:
    several landed, or none, or an older one. A path with a row `gone` has no latest document, whatever landed; nor has
    one with its present version refused, unless that may be whole the next time.

    Args:
        files: the listing of a source with histories.
        read: what was read of it (`READ_ROWS`), with `known`: whether the document landed before.
        documents: the dataset's documents so far.
        arrivals: its arrivals so far.

    Returns:
        Rows (location, repository, path, doc_id, status), as of `reading_events`.
    """
    from pyspark.sql import functions as F

    columns = ("doc_id", "increment", *PATH)
    records = read.where("doc_id IS NOT NULL").select(*PATH)
    touched = files.where("path IS NOT NULL").select(*PATH).unionByName(records).distinct()
    landed, arrived = (
        _of_paths(documents.select(*columns), touched),
        _of_paths(arrivals.select(*columns, "status"), touched),
    )
    before = latest_at_paths(landed, arrived, PATH, "increment").where("NOT gone")
    before = before.select(*PATH, F.col("doc_id").alias("latest")).alias("before")
    is_new = F.col("known").isNull()
    now = (
        read.where("doc_id IS NOT NULL")
        .join(files.select("location", "version"), "location")
        .groupBy(*PATH)
        .agg(
            F.max(F.struct("version", "number", "location", "doc_id", is_new.alias("is_new"))).alias("last"),
            F.count_distinct(F.when(is_new, F.col("doc_id"))).alias("landings"),
        )
        .alias("now")
    )
    refused = _refused(read).where(~F.col("reason").isin(*TRIED_AGAIN)).drop("reason")
    refused = refused.join(files.where("NOT past").select("location"), "location", "left_semi")
    gone = files.where("gone AND path IS NOT NULL").select("location", *PATH).unionByName(refused).alias("gone")
    is_latest = F.coalesce(F.col("latest") == F.col("last.doc_id"), F.lit(False))
    needs_event = F.when(F.col("landings") == 0, ~is_latest).otherwise((F.col("landings") > 1) | ~F.col("last.is_new"))
    status = F.when(F.col("last.is_new"), "landed").otherwise("returned")
    stay = (
        now.join(before, same_path("now", "before"), "left")
        .where(needs_event)
        .join(gone, same_path("now", "gone"), "left_anti")
        .select("last.location", *(f"now.{name}" for name in PATH), "last.doc_id", status.alias("status"))
    )
    lost = (
        gone.join(now, same_path("gone", "now"), "left")
        .join(before, same_path("gone", "before"), "left")
        .select("gone.*", F.coalesce("last.doc_id", "latest").alias("doc_id"), F.lit("gone").alias("status"))
        .where("doc_id IS NOT NULL")
    )
    return stay.unionByName(lost)


def _refused(read: DataFrame) -> DataFrame:
    """Location, repository, path and reason of refused files; records and members have no path."""
    return read.where("doc_id IS NULL AND path IS NOT NULL AND status = 'rejected'").select("location", *PATH, "reason")


def _of_paths(rows: DataFrame, paths: DataFrame) -> DataFrame:
    """The rows with a path among the given ones."""
    return rows.alias("row").join(paths.alias("path"), same_path("row", "path"), "left_semi")


def _returned(now: DataFrame, before: DataFrame) -> DataFrame:
    """Returned documents: at their path only known documents were read, and not the latest one."""
    from pyspark.sql import functions as F

    is_latest = (F.col("doc_id") == F.col("latest")) & ~F.col("was_gone")
    return (
        now.alias("now")
        .join(before.alias("before"), same_path("now", "before"))
        .groupBy("now.repository", "now.path")
        .agg(
            F.min(F.struct("doc_id", "location")).alias("first"),
            F.max(F.col("known").isNull() | is_latest).alias("as_before"),
        )
        .where("NOT as_before")
        .select("first.location", *PATH, "first.doc_id", F.lit("returned").alias("status"))
    )


def _lost(before: DataFrame, at_hand: DataFrame, read: DataFrame, stem: Column) -> DataFrame:
    """Latest documents of gone files, and of files of records read to their end."""
    from pyspark.sql import functions as F

    damaged = read.where(F.col("location").endswith("#rest")).select(F.expr("left(location, length(location) - 5)"))
    damaged = damaged.toDF("location")
    whole = read.where("doc_id IS NULL AND path IS NOT NULL AND status = 'landed'").select("location")
    complete = at_hand.where("has_records").join(whole.join(damaged, "location", "left_anti"), "location", "left_semi")
    searched = at_hand.where("gone").unionByName(complete).alias("file")
    latest = before.where("NOT was_gone").select("*", stem).alias("before")
    is_record = F.expr("file.repository IS NULL AND startswith(before.path, concat(file.path, '#'))")
    is_member = F.expr("file.repository = before.repository AND file.path = '.'")
    return (
        latest.join(searched, "stem")
        .where(same_path("file", "before") | is_record | is_member)
        .groupBy("before.repository", "before.path")
        .agg(F.min("location").alias("location"), F.first("latest").alias("doc_id"))
        .select("location", *PATH, "doc_id", F.lit("gone").alias("status"))
    )
