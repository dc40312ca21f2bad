"""Compare the repositories of an increment by their files, and find the copied files.

`originals` has the rules; here are the joins. For letters shared by many repositories, only the eight smallest of
these are compared with the others, so that the work grows with the number of files and not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.dedup.membership.originals import (
    DECLARES_ADDRESS,
    DECLARES_NAME,
    RELEASE,
    SOURCE_ROOT,
    Aligned,
    Copy,
    Related,
    depth_of,
    judge,
    short_name,
)
from spark_jobs.lake.engine.united import united
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import Column, DataFrame, F

_LIGHTEST = 8
_MANIFESTS = r"^(package\.json|composer\.json|Cargo\.toml|pyproject\.toml|setup\.(cfg|py)|go\.mod|pubspec\.yaml)$"
_DECLARED = r"""(?m)(?:^\s*(?:name|module)|"name")\s*[:=]?\s*["']?([^"'\s,]+)"""
_LEADING = SOURCE_ROOT + r"([^/.]+)"
_ALIGNED = "repo string, other string, folder string, other_folder string, copy string, other_copy string"
_BELOW = "startswith(path, folder)"
_ALIGNMENTS = 16  # of two repositories, those of the most files


@dataclass(frozen=True)
class Copies:
    """The forks and the copied files of an increment.

    Attributes:
        forks: by repository (`repository_key`), 1 for a fork and 2 for a fork of a fork; originals are left out.
        files: rows (doc_id, copied): 1 for a copy of another repository's file, -1 for a file of a fork that no
            original of it holds; None if there are neither.
    """

    forks: Mapping[str, int]
    files: DataFrame | None


def repository_key() -> Column:
    """A repository of any dataset as one string."""
    return F.concat_ws("\n", "dataset", "repository")


def find_copies(members: DataFrame, documents: DataFrame, texts: DataFrame) -> Copies:
    """Find the forks and copies among the repositories of an increment.

    Args:
        members: rows (dataset, repository, path, doc_id, letters_sha256, fork_depth, stars) of the increment; the last
            two are what facts say of the repository.
        documents: rows of `documents`: their manifests are looked up where nothing else decides; also those that are
            no members.
        texts: rows of `texts`; read only for these manifests.
    """
    if not documents.where("repository IS NOT NULL").take(1):
        return Copies({}, None)
    files = checkpointed(
        members.where("repository IS NOT NULL AND letters_sha256 IS NOT NULL").select(
            repository_key().alias("repo"),
            "path",
            "doc_id",
            F.col("letters_sha256").alias("letters"),
            "fork_depth",
            "stars",
            _has_its_name().alias("named"),
        )
    )
    related = _related(files)
    unclear = {
        repository
        for pair in related
        if pair.is_close and pair.a_depth == pair.b_depth
        for repository in (pair.a, pair.b)
    }
    declared = _declared(sorted(unclear), documents, texts) if unclear else {}
    forks, copies, origins = judge(related, declared)
    marked = [*([_copied(files, copies)] if copies else []), *([_added(files, origins)] if origins else [])]
    if not marked:
        return Copies(forks, None)
    copied = F.max("copied").alias("copied")
    return Copies(forks, united(marked).groupBy("doc_id").agg(copied))


def _has_its_name() -> Column:
    """Whether the first folder or file of a path has the name of the row's repository."""
    last = F.regexp_replace(F.substring_index(F.lower("repository"), "/", -1), r"\.git$", "")
    name = F.regexp_replace(F.regexp_replace(last, RELEASE, ""), "[-_.]", "")
    first = F.regexp_replace(F.regexp_extract(F.lower("path"), _LEADING, 1), "[-_]", "")
    return first == name


def _related(files: DataFrame) -> list[Related]:
    """Compare repositories by their files (repo, path, letters, fork_depth, stars, named), in pairs sharing some."""
    from pyspark.sql import Window

    sizes = files.groupBy("repo").agg(
        F.count("*").alias("size"),
        F.max("fork_depth").alias("depth"),
        F.max("stars").alias("stars"),
    )
    shallowest = F.min_by("path", F.struct(F.size(F.split("path", "/")), "path"))
    contained = files.groupBy("letters", "repo").agg(shallowest.alias("path"), F.count("*").alias("files"))
    sized = contained.join(sizes, "repo").select("letters", "path", "files", F.struct("size", "repo").alias("by"))
    rank = F.row_number().over(Window.partitionBy("letters").orderBy("by.size", "by.repo"))
    light = sized.withColumn("rank", rank).where(F.col("rank") <= _LIGHTEST).alias("one")
    met = light.join(sized.alias("other"), "letters").where("one.by < other.by")
    alignments = (
        met.groupBy(
            F.col("one.by.repo").alias("a"),
            F.col("other.by.repo").alias("b"),
            F.col("one.by.size").alias("a_size"),
            F.coalesce(_alignment(F.col("one.path"), F.col("other.path")), F.lit("")).alias("aligned"),
        )
        .agg(F.sum(F.least("one.files", "other.files")).alias("shared"), (-F.count("*")).alias("fewer"))
        .groupBy("a", "b", "a_size")
        .agg(F.sum("shared").alias("shared"), F.array_sort(F.collect_list(F.struct("fewer", "aligned"))).alias("all"))
        .where("10 * shared >= 3 * a_size AND a_size >= 2")
        .select("a", "b", F.slice("all", 1, _ALIGNMENTS).alias("all"))
    )
    pairs = [_aligned(*row) for row in alignments.collect()]
    if not pairs:
        return []
    both = [*pairs, *(pair.turned for pair in pairs)]
    sides = (
        _held(files, both)
        .groupBy("repo", "other", "folder", "copy")
        .agg(
            F.count_if("is_held").alias("held"),
            F.count_if(F.expr(_BELOW)).alias("below"),
            F.expr("count_if(named) > 0 AND 2 * count_if(named AND is_held) >= count_if(named)").alias("named"),
            F.count_if(F.expr("startswith(path, copy)")).alias("inside"),
            F.count_if(F.expr("startswith(path, copy) AND is_held")).alias("copied"),
        )
        .withColumn("copy", F.expr("CASE WHEN copied > 1 AND 2 * copied >= inside THEN copy END"))
        .join(sizes, "repo")
    )
    facts = {(row["repo"], row["other"]): row.asDict() for row in sides.collect()}
    fields = ("size", "depth", "stars", "named", "folder", "below", "copy")
    return [
        Related(
            pair.repo,
            pair.other,
            held=facts[pair.repo, pair.other]["held"],
            **{f"a_{name}": facts[pair.repo, pair.other][name] for name in fields},
            **{f"b_{name}": facts[pair.other, pair.repo][name] for name in fields},
        )
        for pair in pairs
    ]


def _aligned(repo: str, other: str, alignments: Sequence[tuple[int, str]]) -> Aligned:
    """Two repositories with the folders below which most of their files are equal.

    If some files lie deeper in the first than in the second, and others deeper in the second, each may have a copy of
    the other, as two projects that vendor one another. If more files lie at the same path in both, as in forks, neither
    is taken for one.

    Args:
        repo: one.
        other: the other.
        alignments: minus the number of files aligned by two folders, and the folders, a line each; most files first.
    """
    counts = {(folders.split("\n")[0], folders.split("\n")[1]): -fewer for fewer, folders in alignments if folders}
    folder, other_folder = next(iter(counts), ("", ""))
    copy = next((two for two in counts if depth_of(two[0]) > depth_of(two[1])), None)
    other_copy = next((two for two in counts if depth_of(two[0]) < depth_of(two[1])), None)
    if copy is None or other_copy is None or counts[copy] + counts[other_copy] < counts.get(("", ""), 0):
        return Aligned(repo, other, folder, other_folder)
    return Aligned(repo, other, folder, other_folder, copy[0], other_copy[1])


def _held(files: DataFrame, pairs: Sequence[Aligned]) -> DataFrame:
    """The files of the first repository of each pair, with `is_held`: whether the other one holds them."""
    aligned = F.broadcast(files.sparkSession.createDataFrame(pairs, _ALIGNED))
    moved = F.when(F.expr(_BELOW), F.expr("other_folder || substring(path, length(folder) + 1)"))
    there = files.select(F.col("repo").alias("other"), F.col("path").alias("moved"), F.lit(True).alias("there"))
    equal = files.select(F.col("repo").alias("other"), "letters", F.lit(True).alias("equal"))
    return (
        aligned.join(files.select("repo", "path", "letters", "doc_id", "named"), "repo")
        .withColumn("moved", moved)
        .join(there.distinct(), ["other", "moved"], "left")
        .join(equal.distinct(), ["other", "letters"], "left")
        .withColumn("is_held", F.coalesce("there", "equal", F.lit(False)))
    )


def _alignment(a: Column, b: Column) -> Column:
    """The folders below which two paths are equal, with a line feed between them; null where their names differ."""
    a_parts, b_parts = F.split(a, "/"), F.split(b, "/")
    shorter = F.least(F.size(a_parts), F.size(b_parts))
    differ = F.filter(F.sequence(F.lit(1), shorter), lambda n: F.element_at(a_parts, -n) != F.element_at(b_parts, -n))
    alike = F.coalesce(F.array_min(differ) - 1, shorter)  # from the end

    def folder(parts: Column) -> Column:
        rest = F.concat_ws("/", F.slice(parts, F.lit(1), F.size(parts) - alike))
        return F.when(rest == "", rest).otherwise(F.concat(rest, F.lit("/")))

    return F.when(alike > 0, F.concat(folder(a_parts), F.lit("\n"), folder(b_parts)))


def _declared(wanted: Sequence[str], documents: DataFrame, texts: DataFrame) -> dict[str, int]:
    """`DECLARES_NAME` or `DECLARES_ADDRESS` of repositories with their name or address in the manifest at the root."""
    spark = documents.sparkSession
    listed = spark.createDataFrame(pa.table({"repo": list(wanted)}))
    manifests = documents.where(F.col("path").rlike(_MANIFESTS)).select(
        "dataset", "doc_id", "repository", repository_key().alias("repo")
    )
    declared = (
        manifests.join(listed, "repo")
        .join(texts.select("dataset", "doc_id", "content"), ["dataset", "doc_id"])
        .select(
            "repo",
            F.regexp_extract("content", _DECLARED, 1).alias("name"),
            F.lower("content").contains(F.lower("repository")).alias("has_address"),
        )
    )
    levels: dict[str, int] = {}
    for repo, name, has_address in declared.collect():
        if short_name(re.sub(r"/v[0-9]+$", "", name)) == short_name(repo):
            level = DECLARES_ADDRESS if has_address and "/" in repo else DECLARES_NAME
            levels[repo] = max(levels.get(repo, 0), level)
    return levels


def _copied(files: DataFrame, copies: Sequence[Copy]) -> DataFrame:
    """Rows (doc_id, copied) of the files in copied folders, and of files elsewhere with the same letters.

    If every file with some letters would be a copy, the least deep one is none, unless it lies in such a folder.
    """
    spark = files.sparkSession
    columns = zip(*copies, strict=True)
    folders = spark.createDataFrame(
        pa.table([pa.array(column, pa.string()) for column in columns], names=["original", "repo", "folder"])
    )
    inside = files.join(folders, "repo").where("startswith(path, folder)").select("doc_id").distinct()
    others = files.join(inside, "doc_id", "left_anti").select(F.col("repo").alias("original"), "letters")
    of_originals = others.join(folders.select("original", "repo"), "original").select("repo", "letters").distinct()
    equal = (
        files.join(of_originals, ["repo", "letters"], "left_semi").join(inside, "doc_id", "left_anti").select("doc_id")
    )
    copied = inside.withColumn("is_inside", F.lit(True)).unionByName(equal.withColumn("is_inside", F.lit(False)))
    marked = files.join(copied, "doc_id", "left").withColumn("depth", F.size(F.split("path", "/")))
    every = marked.groupBy("letters").agg(
        F.count_if(F.col("is_inside").isNull()).alias("others"), F.min("depth").alias("least")
    )
    folders = marked.join(every, "letters").where(
        "is_inside OR is_inside IS NOT NULL AND (others > 0 OR depth > least)"
    )
    return folders.select("doc_id", F.lit(1).alias("copied"))


def _added(files: DataFrame, origins: Sequence[Aligned]) -> DataFrame:
    """Rows (doc_id, copied) of the files added by forks: none of their originals holds them."""
    files_held = _held(files, origins).groupBy("doc_id").agg(F.max("is_held").alias("is_held"))
    return files_held.where("NOT is_held").select("doc_id", F.lit(-1).alias("copied"))
