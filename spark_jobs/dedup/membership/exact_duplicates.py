"""Exact duplicates: members of a corpus repeating another one, byte for byte or letter for letter.

Two members are the same if they have the same bytes (`content_sha256`), or the same letters (`letters_sha256`, which is
null for texts with few letters; in code, markup and data every mark counts as a letter). Of members that are the same,
one is kept: that of the earliest increment, then of the lowest `place` (see `members`), then of the lowest doc_id. What
an earlier increment kept stays kept, and what it removed is never a witness. A document is not the witness of another
revision of its path either, nor is one gone from the corpus (see `revisions`): an edit that changes no letter is
kept beside the replaced document.

The step takes two rounds over narrow columns (no content is read), each one shuffle:

1. Of the members with the same bytes, the first represents all.
2. Of these representatives with the same letters, the first is kept. It is the witness of all others, and of the
   members represented by them.

         bytes letters          round 1         round 2
    A     x1     l1             A               A kept
    B     x2     l1             B               B removed, letters, witness A
    C     x2     l1             B for C         C removed, letters, witness A
    D     x1     l1             A for D         D removed, bytes, witness A

One round, by letters or else by bytes, would suffice if the same bytes always had the same letters. They need not: the
text of a document depends on its kind, and `min_letters` on its dataset. Two rounds guarantee in any case that
no two kept members share bytes (round 1) or letters (round 2), but for revisions of one path, and that every witness is
kept, since it came first in both. Only where the same bytes have other letters may a removed member and its witness
share nothing themselves; then its representative shares bytes with the one and letters with the other. Kept members
that share letters are all revisions of one path, so it is enough to compare a member's path with that of the first.
"""

from __future__ import annotations

from spark_jobs.dedup.membership.revisions import left_members, paths_of
from spark_jobs.lake.declare.step import NoConfig, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.spark_sql import DataFrame, F

EXACT_DUPLICATES = Table(
    name="exact_duplicates",
    comment="One row per member that repeats another: removed, with the kept member that justifies it.",
    columns=(
        Column("dataset!", "string", "dataset of the removed document"),
        Column("doc_id!", "string", "identity of the removed document"),
        Column("witness_doc_id!", "string", "the kept document that it repeats"),
        Column("matched!", "string", "what both share: bytes, or else letters"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check("witness_is_another", "witness_doc_id <> doc_id", "no document is its own duplicate"),
        Check("matched_is_known", "matched in ('bytes', 'letters')", "what both share is bytes or letters"),
    ),
)


@step(version="3", scope=Scope.HISTORY, tables=(EXACT_DUPLICATES,))
def exact_duplicates(
    members: DataFrame,
    exact_duplicates: DataFrame,
    increment: int,
    config: NoConfig,
    revisions: DataFrame | None = None,
) -> Output:
    """Find the new members repeating a kept one; one row per removed member.

    Without `revisions` no member is a revision of another.
    """
    from pyspark.sql import Window

    narrow = members.select("increment", "dataset", "doc_id", "place", "content_sha256", "letters_sha256")
    compared = narrow.where(F.col("increment") == increment)
    persisted = list[DataFrame]()
    if increment > 0:
        met, related = _related(narrow.where(F.col("increment") < increment), compared)
        out = exact_duplicates.select("doc_id")
        out = out if revisions is None else out.unionByName(left_members(revisions))
        compared = persist(compared.unionByName(related.join(out, "doc_id", "left_anti")))
        persisted += [met, compared]  # else the history is read again wherever one of them is named
    compared = _repeated(compared)
    if revisions is None:
        compared = compared.withColumn("path_id", F.lit(None).cast("string"))
    else:
        compared = compared.join(paths_of(revisions), "doc_id", "left")

    ranked = compared.withColumn("place", F.struct("increment", "place", "doc_id"))
    same_bytes = Window.partitionBy("content_sha256").orderBy("place").rowsBetween(Window.unboundedPreceding, 0)
    represented = ranked.select(
        "*",
        F.first("place").over(same_bytes).alias("bytes_place"),
        F.first("path_id").over(same_bytes).alias("bytes_path"),
        F.first("letters_sha256").over(same_bytes).alias("letters"),
    )
    # Without letters a member is grouped by its bytes, that is, with the members alone that it represents.
    group = (F.col("letters").isNull(), F.coalesce("letters", "content_sha256"))
    same_letters = Window.partitionBy(*group).orderBy("bytes_place").rowsBetween(Window.unboundedPreceding, 0)
    judged = represented.withColumn("kept_place", F.first("bytes_place").over(same_letters)).withColumn(
        "kept_path", F.first("bytes_path").over(same_letters)
    )
    repeats = (F.col("place") != F.col("kept_place")) & F.expr("(path_id = kept_path) IS NOT TRUE")
    rows = judged.where((F.col("increment") == increment) & repeats).select(
        "dataset",
        "doc_id",
        F.col("kept_place.doc_id").alias("witness_doc_id"),
        F.when(F.col("bytes_place") == F.col("kept_place"), "bytes").otherwise("letters").alias("matched"),
    )
    return Output({EXACT_DUPLICATES.name: rows}, persisted=tuple(persisted))


def _repeated(compared: DataFrame) -> DataFrame:
    """The members with another one's bytes or letters; all others are alone in both rounds, so they are kept."""
    keys = ("content_sha256", "letters_sha256")
    several = [compared.groupBy(key).count().where("count > 1").select(key).where(f"{key} IS NOT NULL") for key in keys]
    flagged = compared
    for key, rows in zip(keys, several, strict=True):
        flagged = flagged.join(rows.withColumn(f"several_{key}", F.lit(True)), key, "left")
    return flagged.where(" OR ".join(f"several_{key}" for key in keys)).select(*compared.columns)


def _related(earlier: DataFrame, new: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The earlier members with letters of new ones, persisted, and all that both rounds of new ones can meet.

    Those with the bytes of a new one; with its letters or letters of the former; and with the bytes of these. The rest
    of the history is read, and neither sorted nor joined.
    """
    same_bytes = earlier.join(new.select("content_sha256").distinct(), "content_sha256", "left_semi")
    letters = new.select("letters_sha256").unionByName(same_bytes.select("letters_sha256")).distinct()
    same_letters = persist(earlier.join(letters, "letters_sha256", "left_semi"))
    represented = same_letters.select("content_sha256").unionByName(new.select("content_sha256")).distinct()
    more = earlier.join(represented, "content_sha256", "left_semi")
    columns = earlier.columns
    return same_letters, same_letters.select(*columns).unionByName(more.select(*columns)).dropDuplicates(["doc_id"])
