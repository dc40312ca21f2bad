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
                                               twice the stars; else the lesser one, of which the larger has .7, since a
                                               fork adds; else neither
    else: the larger has .7 of the lesser      files with the letters of the lesser one are copies

    hiredis  a.c b.c      redis  deps/hiredis/a.c  deps/hiredis/b.c  src/1.c .. 9.c      two files of redis are copies
    request  r.js t.js    postman-request  r.js t.js extra.js                            a fork

Where facts name a fork, they decide. Releases of one name (`lib-1.0`, `lib-2.0`) are no copies of each other: `newest`
decides between them. For letters that many repositories share, only the eight lightest holders are compared with the
others, so that the work is linear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_LEADING = r"^(?:(?:src|lib|source|python|packages|include)/)?([^/.]+)"
_DECLARES_NAME, _DECLARES_ADDRESS = 2, 3


class Related(NamedTuple):
    """Two repositories that share files; `a` is the lesser one, and the fields of `b` are those of `a`.

    Attributes:
        a: the lesser one, as `repository_key` names it.
        a_size: its files with letters.
        a_depth: 0 an original, 1 a fork, 2 a fork of a fork, as facts say.
        a_stars: stars; None where unknown.
        a_named: whether its first folders or files have its name.
        a_folder: its folder that is aligned with one of `b`, with the last slash; empty where that is its root.
        a_below: its files in this folder.
        held: files of `a` that `b` has.
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
        files: rows (doc_id) of files that are copies of another repository's; None where there are none.
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
    forks, copies = judge(related, declared)
    return Copies(forks, _copied(files, copies) if copies else None)


def judge(related: Sequence[Related], declared: Mapping[str, int]) -> tuple[dict[str, int], list[Copy]]:
    """Tell forks and copies from pairs of repositories.

    Args:
        related: pairs that share files, each once.
        declared: by repository, 2 where a manifest declares its name, 3 where one has its address as well.

    Returns:
        The depth of each fork, 1 or 2, by repository; and the copies inside other repositories.
    """
    originals: dict[str, set[str]] = {}
    depths = {one: depth for pair in related for one, depth in ((pair.a, pair.a_depth), (pair.b, pair.b_depth))}
    copies = []
    for pair in related:
        if _base(pair.a) == _base(pair.b):
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
    is_copy = {one for one, depth in depths.items() if depth} | originals.keys()
    forks = {one: max(depths[one], 2 if is_copy & of else 1) for one, of in originals.items()}
    return forks, copies


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
        F.max("named").alias("named"),
    )
    held = files.groupBy("letters", "repo").agg(F.min("path").alias("path"), F.count("*").alias("files"))
    sized = held.join(sizes, "repo").select("letters", "path", "files", F.struct("size", "repo").alias("by"))
    rank = F.row_number().over(Window.partitionBy("letters").orderBy("by.size", "by.repo"))
    light = sized.withColumn("rank", rank).where(F.col("rank") <= _LIGHTEST).alias("one")
    met = light.join(sized.alias("other"), "letters").where("one.by < other.by")
    pairs = (
        met.groupBy(
            F.col("one.by.repo").alias("a"), F.col("other.by.repo").alias("b"), F.col("one.by.size").alias("a_size")
        )
        .agg(
            F.sum(F.least("one.files", "other.files")).alias("shared"),
            F.coalesce(F.mode(_alignment(F.col("one.path"), F.col("other.path")), True), F.lit("\n")).alias("aligned"),
        )
        .where("10 * shared >= 3 * a_size AND a_size >= 2")
        .select("a", "b", F.expr("split(aligned, '\n')[0] AS a_folder"), F.expr("split(aligned, '\n')[1] AS b_folder"))
    )
    told = [tuple(row) for row in pairs.collect()]
    if not told:
        return []
    pairs = F.broadcast(
        files.sparkSession.createDataFrame(told, "a string, b string, a_folder string, b_folder string")
    )
    paths = files.select("repo", "path", "letters")
    moved = F.when(F.expr("startswith(path, a_folder)"), F.expr("b_folder || substring(path, length(a_folder) + 1)"))
    there = paths.select(F.col("repo").alias("b"), F.col("path").alias("moved"), F.lit(True).alias("there")).distinct()
    equal = held.select(F.col("repo").alias("b"), "letters", F.lit(True).alias("equal"))
    found = (
        pairs.join(paths.withColumnRenamed("repo", "a"), "a")
        .withColumn("moved", moved)
        .join(there, ["b", "moved"], "left")
        .join(equal, ["b", "letters"], "left")
        .groupBy(*pairs.columns)
        .agg(F.count_if(F.coalesce("there", "equal", F.lit(False))).alias("held"), _below("a"))
    )
    theirs = pairs.join(paths.withColumnRenamed("repo", "b"), "b").groupBy("a", "b").agg(_below("b"))
    found = found.join(theirs, ["a", "b"])
    for side in ("a", "b"):
        about = {name: f"{side}_{name}" for name in ("size", "depth", "stars", "named")}
        found = found.join(sizes.withColumnsRenamed({"repo": side, **about}), side)
    return [Related(**row) for row in found.select(*Related._fields).toArrow().to_pylist()]


def _below(side: str) -> Column:
    """How many of the rows' paths lie in the folder of a side."""
    return F.count_if(F.expr(f"startswith(path, {side}_folder)")).alias(f"{side}_below")


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
    """Rows (doc_id): the files of the copies' folders, and those with letters of the original."""
    spark = files.sparkSession
    columns = zip(*copies, strict=True)
    found = spark.createDataFrame(
        pa.table([pa.array(one, pa.string()) for one in columns], names=["original", "repo", "folder"])
    )
    inside = files.join(found, "repo").where("startswith(path, folder)").select("doc_id")
    held = files.select(F.col("repo").alias("original"), "letters").join(found.select("original", "repo"), "original")
    equal = files.join(held.select("repo", "letters").distinct(), ["repo", "letters"], "left_semi").select("doc_id")
    return inside.unionByName(equal).distinct()
