"""Originals: which repositories of an increment copy others of it, and which files are such copies, told by the files.

Facts say of few repositories what they are forks of (`fork_of`); a dump of code says it of none. What the files say: a
file is *held* by another repository that has its letters, or has a file at its place where the two are aligned. They
are aligned by the two folders below which most of the files that they share have equal paths. Repositories are compared
where three tenths of the lesser one's files have their letters in the larger one.

    one's folder is a lesser part of it than   that folder is a copy, and so are all files with the letters of the
    the other's, and the larger has .7 of      other; whatever the folder is called
    the lesser, or half of the folder is held
    else: half of the larger one is held       one is a fork, a mirror or another state of the other: of these two the
                                               original is the one whose manifest or paths say its name; else that has
                                               twice the stars; else that with the less deep folder; else the lesser
                                               one, of which the larger has .7, since a fork adds; else neither
    else: the larger has .7 of the lesser      files with the letters of the lesser one are copies
    each has a folder that lies deeper than    the two vendor one another: both folders are copies, and nothing else
    where the other has half of its files

    hiredis  a.c b.c      redis  deps/hiredis/a.c  deps/hiredis/b.c  src/1.c .. 9.c      two files of redis are copies
    request  r.js t.js    postman-request  r.js t.js extra.js                            a fork

What a repository has as a copy gives it no letters: they are those of the original. Of a fork, the files that its
original does not hold are its own. A name counts that stands in files which both have: a fork may add a folder `redis`.
Where facts name a fork, they decide. Releases of one name (`lib-1.0`, `lib-2.0`) are no copies of each other: `newest`
decides between them. For letters that many repositories share, only the eight lightest holders are compared with the
others, so that the work is linear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa

from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import Column, DataFrame, F

FORK_DEPTHS: Final = 3
"""Classes of repositories: an original, a fork of one, a fork of a fork."""
# `requests-2.31.0`, `requests@v2` and `requests` are releases of one name.
RELEASE: Final = r"[-_@ ]v?[0-9]+(\.[0-9A-Za-z]+)*$"
_LIGHTEST = 8
_MOST_STARS = 2  # times those of the other one
_MANIFESTS = r"^(package\.json|composer\.json|Cargo\.toml|pyproject\.toml|setup\.(cfg|py)|go\.mod|pubspec\.yaml)$"
_DECLARED = r"""(?m)(?:^\s*(?:name|module)|"name")\s*[:=]?\s*["']?([^"'\s,]+)"""
_SOURCE_ROOT = r"^(?:(?:src|lib|source|python|packages|include)/)?"
_LEADING = _SOURCE_ROOT + r"([^/.]+)"
_ALIGNED = "repo string, other string, folder string, other_folder string, copy string, other_copy string"
_BELOW = "startswith(path, folder)"
_ALIGNMENTS = 16  # of two repositories, those of the most files
_DECLARES_NAME, _DECLARES_ADDRESS = 2, 3


class Related(NamedTuple):
    """Two repositories that share files; `a` is the lesser one, and the fields of `b` are those of `a`.

    Attributes:
        a: the lesser one, as `repository_key` names it.
        a_size: its files with letters.
        a_depth: 0 an original, 1 a fork, 2 a fork of a fork, as facts say.
        a_stars: stars; None where unknown.
        a_named: whether its first folders or files have its name, and `b` holds half of those.
        a_folder: its folder that is aligned with one of `b`, with the last slash; empty where that is its root.
        a_below: its files in this folder.
        held: files of `a` that `b` has.
        a_copy: its folder that lies deeper than where `b` has half of these files, and more than one of them; None
            unless there are such folders in both.
    """

    a: str
    b: str
    a_size: int
    b_size: int
    a_depth: int
    b_depth: int
    a_stars: int | None
    b_stars: int | None
    a_named: bool
    b_named: bool
    a_folder: str
    b_folder: str
    a_below: int
    b_below: int
    held: int
    a_copy: str | None = None
    b_copy: str | None = None

    @property
    def is_close(self) -> bool:
        """Whether each has half of the other."""
        return 2 * self.held >= self.b_size

    @property
    def is_contained(self) -> bool:
        """Whether `b` has seven tenths of `a`."""
        return 10 * self.held >= 7 * self.a_size

    @property
    def copy(self) -> Copy | None:
        """The copy of one in a folder of the other, which is a clearly lesser part of it than the other one's is."""
        a, b = self.a_below * self.b_size, self.b_below * self.a_size
        if 5 * min(a, b) >= 4 * max(a, b):
            return None
        if b < a:
            copy, below, in_order = Copy(self.a, self.b, self.b_folder), self.b_below, self.a_depth <= self.b_depth
        else:
            copy, below, in_order = Copy(self.b, self.a, self.a_folder), self.a_below, self.b_depth <= self.a_depth
        mostly = 2 * self.held >= below
        found = copy if mostly else copy._replace(folder=None)
        return found if in_order and (mostly or self.is_contained) else None


class Copy(NamedTuple):
    """A copy of a repository inside a larger one.

    Attributes:
        original: the lesser repository.
        container: the larger one.
        folder: the folder that is the copy; None where its files are spread, or lie among as many others.
    """

    original: str
    container: str
    folder: str | None


@dataclass(frozen=True)
class Copies:
    """What was found.

    Attributes:
        forks: by repository (`repository_key`), 1 for a fork and 2 for a fork of a fork; originals are left out.
        files: rows (doc_id, copied) of judged files: 1 a copy of another repository's, -1 what a
            fork has and its originals have not; None where there are none.
    """

    forks: Mapping[str, int]
    files: DataFrame | None


class Aligned(NamedTuple):
    """Two repositories, and the folders below which most of the files that they share have equal paths.

    Attributes:
        copy: a folder of the first that may be a copy, where the other may have one too; else None.
    """

    repo: str
    other: str
    folder: str
    other_folder: str
    copy: str | None = None
    other_copy: str | None = None

    @property
    def turned(self) -> Aligned:
        """The same with the other one first."""
        return Aligned(self.other, self.repo, self.other_folder, self.folder, self.other_copy, self.copy)


class Judged(NamedTuple):
    """Verdicts on pairs of repositories.

    Attributes:
        forks: as in `Copies`.
        copies: those inside other repositories.
        origins: forks with their originals.
    """

    forks: dict[str, int]
    copies: list[Copy]
    origins: list[Aligned]


def repository_key() -> Column:
    """A repository of any dataset as one string."""
    return F.concat_ws("\n", "dataset", "repository")


def find_copies(members: DataFrame, documents: DataFrame, texts: DataFrame) -> Copies:
    """Find the forks and copies among the repositories of an increment.

    Args:
        members: rows (dataset, repository, path, doc_id, letters_sha256, fork_depth, stars) of the increment; the last
            two are what facts say of the repository.
        documents: rows of `documents`, whose manifests are looked up where nothing else decides; also those that are
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
    unclear = {one for pair in related if pair.is_close and pair.a_depth == pair.b_depth for one in (pair.a, pair.b)}
    declared = _declared(sorted(unclear), documents, texts) if unclear else {}
    forks, copies, origins = judge(related, declared)
    told = [*([_copied(files, copies)] if copies else []), *([_own(files, origins)] if origins else [])]
    if not told:
        return Copies(forks, None)
    copied = F.max("copied").alias("copied")
    return Copies(forks, reduce(lambda one, more: one.unionByName(more), told).groupBy("doc_id").agg(copied))


def judge(related: Sequence[Related], declared: Mapping[str, int]) -> Judged:
    """Tell forks and copies from pairs of repositories.

    Args:
        related: pairs that share files, each once.
        declared: by repository, 2 where a manifest declares its name, 3 where one has its address as well.
    """
    originals: dict[str, set[str]] = {}
    origins = []
    depths = {one: depth for pair in related for one, depth in ((pair.a, pair.a_depth), (pair.b, pair.b_depth))}
    copies = []
    for pair in related:
        if _base(pair.a) == _base(pair.b):
            continue
        if pair.a_copy is not None and pair.b_copy is not None:
            copies += [Copy(pair.b, pair.a, pair.a_copy), Copy(pair.a, pair.b, pair.b_copy)]
            continue
        copy = pair.copy
        if copy is None and pair.is_contained and not pair.is_close and pair.a_depth <= pair.b_depth:
            copy = Copy(pair.a, pair.b, None)
        copies += [] if copy is None else [copy]
        if copy is not None:
            original = copy.original if 10 * pair.held >= 7 * pair.b_size else None
        else:
            original = _original(pair, declared) if pair.is_close else None
        if original is not None:
            originals.setdefault(pair.b if original == pair.a else pair.a, set()).add(original)
        elif copy is None and pair.is_close and pair.a_depth != pair.b_depth:
            original = pair.a if pair.a_depth < pair.b_depth else pair.b
        if original is not None:
            aligned = Aligned(pair.a, pair.b, pair.a_folder, pair.b_folder)
            origins.append(aligned.turned if original == pair.a else aligned)
    is_copy = {one for one, depth in depths.items() if depth} | originals.keys()
    forks = {one: max(depths[one], 2 if is_copy & of else 1) for one, of in originals.items()}
    return Judged(forks, copies, origins)


def _original(pair: Related, declared: Mapping[str, int]) -> str | None:
    """The original of two close repositories, None where nothing tells it or facts say it already."""
    if pair.a_depth != pair.b_depth:
        return None
    a, b = (declared.get(one, int(named)) for one, named in ((pair.a, pair.a_named), (pair.b, pair.b_named)))
    if not ("/" in pair.a and "/" in pair.b):
        a, b = min(a, _DECLARES_NAME), min(b, _DECLARES_NAME)
    if a != b:
        return pair.a if a > b else pair.b
    a, b = pair.a_stars or 0, pair.b_stars or 0
    if pair.a_stars is not None and pair.b_stars is not None and max(a, b) > _MOST_STARS * min(a, b):
        return pair.a if a > b else pair.b
    deeper = _depth(pair.a_folder) - _depth(pair.b_folder)
    if deeper:
        return pair.b if deeper > 0 else pair.a
    return pair.a if pair.is_contained and pair.a_size < pair.b_size else None


def _name(repository: str) -> str:
    """The last part of a repository's name in lower case, without release and punctuation."""
    last = re.sub(r"\.git$", "", repository.lower().rpartition("\n")[2].rstrip("/").rpartition("/")[2])
    return re.sub(r"[-_.]", "", re.sub(RELEASE, "", last))


def _base(repository: str) -> str:
    """What releases of one name share: dataset, owner and name, without the version."""
    return re.sub(RELEASE, "", repository.lower())


def _has_its_name() -> Column:
    """Whether the first folder or file of a path has the name of the row's repository."""
    last = F.regexp_replace(F.substring_index(F.lower("repository"), "/", -1), r"\.git$", "")
    name = F.regexp_replace(F.regexp_replace(last, RELEASE, ""), "[-_.]", "")
    first = F.regexp_replace(F.regexp_extract(F.lower("path"), _LEADING, 1), "[-_]", "")
    return first == name


def _related(files: DataFrame) -> list[Related]:
    """Compare repositories by their files (repo, path, letters, fork_depth, stars, named)."""
    from pyspark.sql import Window

    sizes = files.groupBy("repo").agg(
        F.count("*").alias("size"),
        F.max("fork_depth").alias("depth"),
        F.max("stars").alias("stars"),
    )
    shallowest = F.min_by("path", F.struct(F.size(F.split("path", "/")), "path"))
    held = files.groupBy("letters", "repo").agg(shallowest.alias("path"), F.count("*").alias("files"))
    sized = held.join(sizes, "repo").select("letters", "path", "files", F.struct("size", "repo").alias("by"))
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
    told = [_aligned(*row) for row in alignments.collect()]
    if not told:
        return []
    both = [*told, *(one.turned for one in told)]
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
    found = {(row["repo"], row["other"]): row.asDict() for row in sides.collect()}
    fields = ("size", "depth", "stars", "named", "folder", "below", "copy")
    return [
        Related(
            one.repo,
            one.other,
            held=found[one.repo, one.other]["held"],
            **{f"a_{name}": found[one.repo, one.other][name] for name in fields},
            **{f"b_{name}": found[one.other, one.repo][name] for name in fields},
        )
        for one in told
    ]


def _aligned(repo: str, other: str, alignments: Sequence[tuple[int, str]]) -> Aligned:
    """Two repositories with the folders below which most of their files are equal.

    Where one's folder lies deeper than the other's, and for other files it is the other way round, each may have a
    copy, unless more files lie in the roots of both, as those of forks do.

    Args:
        repo: one.
        other: the other.
        alignments: minus the number of files that two folders align, and the folders, a line each; most files first.
    """
    counts = {(folders.split("\n")[0], folders.split("\n")[1]): -fewer for fewer, folders in alignments if folders}
    folder, other_folder = next(iter(counts), ("", ""))
    copy = next((two for two in counts if _depth(two[0]) > _depth(two[1])), None)
    other_copy = next((two for two in counts if _depth(two[0]) < _depth(two[1])), None)
    if copy is None or other_copy is None or counts[copy] + counts[other_copy] < counts.get(("", ""), 0):
        return Aligned(repo, other, folder, other_folder)
    return Aligned(repo, other, folder, other_folder, copy[0], other_copy[1])


def _depth(folder: str) -> int:
    """How many folders deep a folder lies, below those that are a usual place of all sources."""
    return re.sub(_SOURCE_ROOT, "", folder).count("/")


def _held(files: DataFrame, pairs: Sequence[Aligned]) -> DataFrame:
    """The files of the first of each pair, with `is_held`: whether the other has their letters, or a file there."""
    found = F.broadcast(files.sparkSession.createDataFrame(pairs, _ALIGNED))
    moved = F.when(F.expr(_BELOW), F.expr("other_folder || substring(path, length(folder) + 1)"))
    there = files.select(F.col("repo").alias("other"), F.col("path").alias("moved"), F.lit(True).alias("there"))
    equal = files.select(F.col("repo").alias("other"), "letters", F.lit(True).alias("equal"))
    return (
        found.join(files.select("repo", "path", "letters", "doc_id", "named"), "repo")
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
    """What the manifests at the roots of some repositories say: 2 where one declares its name, 3 with its address."""
    spark = documents.sparkSession
    listed = spark.createDataFrame(pa.table({"repo": list(wanted)}))
    manifests = documents.where(F.col("path").rlike(_MANIFESTS)).select(
        "dataset", "doc_id", "repository", repository_key().alias("repo")
    )
    found = (
        manifests.join(listed, "repo")
        .join(texts.select("dataset", "doc_id", "content"), ["dataset", "doc_id"])
        .select(
            "repo",
            F.regexp_extract("content", _DECLARED, 1).alias("name"),
            F.lower("content").contains(F.lower("repository")).alias("has_address"),
        )
    )
    said: dict[str, int] = {}
    for repo, name, has_address in found.collect():
        if _name(re.sub(r"/v[0-9]+$", "", name)) == _name(repo):
            level = _DECLARES_ADDRESS if has_address and "/" in repo else _DECLARES_NAME
            said[repo] = max(said.get(repo, 0), level)
    return said


def _copied(files: DataFrame, copies: Sequence[Copy]) -> DataFrame:
    """Rows (doc_id, copied): the files of the copies' folders, and those with letters of the original's other files.

    Where all that have the letters would be copies of one another, the least deep is none, unless in such a folder.
    """
    spark = files.sparkSession
    columns = zip(*copies, strict=True)
    found = spark.createDataFrame(
        pa.table([pa.array(one, pa.string()) for one in columns], names=["original", "repo", "folder"])
    )
    inside = files.join(found, "repo").where("startswith(path, folder)").select("doc_id").distinct()
    others = files.join(inside, "doc_id", "left_anti").select(F.col("repo").alias("original"), "letters")
    held = others.join(found.select("original", "repo"), "original").select("repo", "letters").distinct()
    equal = files.join(held, ["repo", "letters"], "left_semi").join(inside, "doc_id", "left_anti").select("doc_id")
    copied = inside.withColumn("is_inside", F.lit(True)).unionByName(equal.withColumn("is_inside", F.lit(False)))
    marked = files.join(copied, "doc_id", "left").withColumn("depth", F.size(F.split("path", "/")))
    every = marked.groupBy("letters").agg(
        F.count_if(F.col("is_inside").isNull()).alias("others"), F.min("depth").alias("least")
    )
    found = marked.join(every, "letters").where("is_inside OR is_inside IS NOT NULL AND (others > 0 OR depth > least)")
    return found.select("doc_id", F.lit(1).alias("copied"))


def _own(files: DataFrame, origins: Sequence[Aligned]) -> DataFrame:
    """Rows (doc_id, copied): the files of forks that none of their originals holds."""
    held = _held(files, origins).groupBy("doc_id").agg(F.max("is_held").alias("is_held"))
    return held.where("NOT is_held").select("doc_id", F.lit(-1).alias("copied"))
