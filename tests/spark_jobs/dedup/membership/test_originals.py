"""Originals and copies among repositories without facts, in corpora whose truth is known as they are made."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_jobs.dedup.membership.exact_duplicates import exact_duplicates
from spark_jobs.dedup.membership.members import MembersConfig, members
from spark_jobs.dedup.membership.originals import Copy, Related, judge
from spark_jobs.lake.declare.step import NoConfig
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDERS = ("deps", "packages", "lib", "contrib", "subprojects", "src/ext", "a/b/c", "vendor", "tools/x")


@dataclass
class Made:
    """Repositories by name, files by path, and what is true of them.

    Attributes:
        repositories: contents by path, by repository.
        copies: files (repository, path) that are copies of another repository's.
        forks: by fork, its original.
        added: files (repository, path) that a fork has beside its original's.
        torn: pairs of repositories with the same files of which nothing tells the original: one has all, or the other.
    """

    repositories: dict[str, dict[str, str]] = field(default_factory=dict)
    copies: set[tuple[str, str]] = field(default_factory=set)
    forks: dict[str, str] = field(default_factory=dict)
    torn: list[tuple[str, str]] = field(default_factory=list)
    added: set[tuple[str, str]] = field(default_factory=set)


def corpus(seed: int) -> Made:
    """Originals; forks with files added or a manifest that names the original; mirrors; vendored copies; a monorepo."""
    draw = random.Random(seed)
    made = Made()

    def write(name: str, count: int, folders: tuple[str, ...] = ("", "src/", "src/net/")) -> dict[str, str]:
        return {f"{draw.choice(folders)}f{n}.c": f"{seed} {name} {n}" for n in range(count)}

    def edited(files: Mapping[str, str], share: float, by: str) -> dict[str, str]:
        return {path: f"{text} {by}" if draw.random() < share else text for path, text in files.items()}

    licence = {"LICENSE": "a licence"}
    libraries = [f"own{n}/lib{seed}{n}" for n in range(4)]
    for name in libraries:
        made.repositories[name] = write(name, draw.randint(5, 30)) | licence
    for n, name in enumerate(libraries[:2]):
        container, folder = f"big{seed}{n}", f"{draw.choice(FOLDERS)}/{draw.choice(('x', 'lib'))}"
        copied = {f"{folder}/{path}": text for path, text in edited(made.repositories[name], 0.1, "here").items()}
        made.repositories[container] = write(container, 80) | copied
        made.copies |= {(container, path) for path in copied}
    mono = f"mono{seed}"
    made.repositories[mono] = write(mono, 30) | {"package.json": json.dumps({"name": mono})}
    for name in libraries[2:]:
        copied = {f"parts/{name[5:]}/{path}": text for path, text in made.repositories[name].items()}
        made.repositories[mono] |= copied
        made.copies |= {(mono, path) for path in copied}
    first = f"first{seed}"
    made.repositories[first] = write(first, 40) | licence
    added = write("added", 9, ("more/",))
    made.repositories[f"grown{seed}"] = edited(made.repositories[first], 0.2, "grown") | added
    made.forks[f"grown{seed}"] = first
    named = f"a/said{seed}"
    made.repositories[named] = write(named, 20) | {"package.json": f'{{"name": "said{seed}", "version": "1"}}'}
    made.repositories[f"z/zaid{seed}"] = edited(made.repositories[named], 0.1, "zaid") | {
        "package.json": f'{{"name": "said{seed}", "version": "2"}}'
    }
    made.forks[f"z/zaid{seed}"] = named
    before = f"chain{seed}"
    made.repositories[before] = write(before, 30)
    for number in range(draw.randint(2, 3)):
        fork, extra = f"{before}-{'abc'[number]}", write(f"chain {number}", draw.randint(4, 9), (f"new{number}/",))
        made.repositories[fork] = edited(made.repositories[before], 0.1, fork) | extra
        made.forks[fork], before = before, fork
        made.added |= {(fork, path) for path in extra}
    taken = {f"{draw.choice(FOLDERS)}/y/{path}": text for path, text in made.repositories[before].items()}
    made.repositories[f"taker{seed}"] = write("taker", 90) | taken
    made.copies |= {(f"taker{seed}", path) for path in taken}
    named, same = f"a/tool{seed}", f"b/tool{seed}"
    made.repositories[named] = write(named, 20)
    extra = write("plugin", 9, (f"tool{seed}/", f"src/tool{seed}/"))
    made.repositories[same] = edited(made.repositories[named], 0.2, "same") | extra
    made.forks[same] = named
    made.added |= {(same, path) for path in extra}
    left, right = f"left{seed}", f"right{seed}"
    for name in (left, right):
        made.repositories[name] = write(name, draw.randint(8, 60)) | licence
    own = {name: dict(made.repositories[name]) for name in (left, right)}
    for name, other in ((left, right), (right, left)):
        folder = f"{draw.choice(FOLDERS)}/{other}"
        copied = {f"{folder}/{path}": text for path, text in edited(own[other], 0.1, name).items()}
        made.repositories[name] |= copied
        made.copies |= {(name, path) for path in copied}
    mirror = f"one{seed}", f"two{seed}"
    made.repositories[mirror[0]] = write(mirror[0], 12)
    made.repositories[mirror[1]] = dict(made.repositories[mirror[0]])
    made.torn.append(mirror)
    return made


def test_originals_win_and_no_repository_is_torn(spark: SparkSession) -> None:
    """Over exact duplicates: copies and forks go for their originals, and one of two mirrors has all files."""
    worlds = [corpus(seed) for seed in range(1, 1 + tries(20, 1))]
    contents = {
        (name, path): text
        for made in worlds
        for name, files in made.repositories.items()
        for path, text in files.items()
    }
    rows = [
        ("code", 0, sha(f"{name} {path}"), name, path, 0, 0, "code", None, text, sha(text), len(text), None)
        for (name, path), text in contents.items()
    ]
    documents = spark.createDataFrame(
        rows,
        "dataset string, dataset_increment int, doc_id string, repository string, path string, increment int, "
        "shard int, kind string, language string, content string, content_sha256 string, byte_count bigint, "
        "licence string",
    )
    texts = documents.selectExpr("dataset", "doc_id", "content", "content_sha256 as letters_sha256")
    verdicts = documents.selectExpr("dataset", "doc_id", "path <> 'package.json' as kept")
    entered = members(documents, texts, verdicts, MembersConfig(datasets=("code",))).selectExpr("0 AS increment", "*")
    entered = entered.cache()
    depth = {row.repository: row.fork_depth for row in entered.collect()}
    for made in worlds:
        assert {name for name in made.repositories if depth[name]} == set(made.forks)
    known = spark.createDataFrame([], "doc_id string, witness_doc_id string")
    gone = {row.doc_id for row in exact_duplicates(entered, known, 0, NoConfig()).frames["exact_duplicates"].collect()}
    kept = {one for one in contents if sha(" ".join(one)) not in gone and one[1] != "package.json"}
    assert {contents[one] for one in kept} == {text for one, text in contents.items() if one[1] != "package.json"}
    for made in worlds:
        originals = set(made.repositories) - set(made.forks) - {name for pair in made.torn for name in pair}
        for name in originals:
            own = {path for path in made.repositories[name] if (name, path) not in made.copies}
            assert {path for path in own if (name, path) not in kept} <= {"LICENSE", "package.json"}, name
        assert {one for one in made.added if one not in kept} == set()
        for pair in made.torn:
            assert sorted(len([one for one in kept if one[0] == name]) for name in pair)[0] == 0


def sha(text: str) -> str:
    """A hash in hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def related(**changes: object) -> Related:
    """Two repositories of 10 files each, 8 of them shared, at the same places."""
    plain = Related("d\na", "d\nb", 10, 10, 0, 0, None, None, False, False, "", "", 10, 10, 8)
    return plain._replace(**changes)  # type: ignore[arg-type]


def test_what_tells_the_original() -> None:
    """Facts, then names, then stars, then what was added; else nothing."""
    a, b = "d\na", "d\nb"
    cases: list[tuple[Related, dict[str, int], dict[str, int]]] = [
        (related(), {}, {}),
        (related(b_size=12), {}, {b: 1}),
        (related(b_size=12, b_depth=1), {}, {}),
        (related(b_named=True), {}, {a: 1}),
        (related(b_named=True), {a: 2}, {b: 1}),
        (related(a_stars=500, b_stars=100), {}, {b: 1}),
        (related(a_stars=500, b_stars=400), {}, {}),
        (related(a="d\nlib-1.0", b="d\nlib-2.0", b_size=12), {}, {}),
        (related(a="d\nx/r", b="d\ny/r"), {"d\nx/r": 3, "d\ny/r": 2}, {"d\ny/r": 1}),
    ]
    for pair, declared, forks in cases:
        assert judge([pair], declared)[:2] == (forks, []), pair
    chain = [related(b_size=12), related(a=b, b="d\nc", a_size=12, b_size=14, held=11)]
    assert judge(chain, {})[0] == {b: 1, "d\nc": 2}


def test_a_folder_that_is_the_lesser_part_of_its_repository_is_the_copy() -> None:
    """Whichever of the two is larger; a folder with much else goes only by its letters."""
    a, b = "d\na", "d\nb"
    inside = related(b_size=100, b_folder="x/", b_below=10)
    assert judge([inside], {})[:2] == ({}, [Copy(a, b, "x/")])
    assert judge([inside._replace(b_below=50)], {})[:2] == ({}, [Copy(a, b, None)])
    assert judge([inside._replace(held=4, b_below=50)], {})[:2] == ({}, [])
    assert judge([inside._replace(b_size=11, b_below=8)], {})[:2] == ({b: 1}, [Copy(a, b, "x/")])
    partly = related(b_size=100, b_below=100, a_folder="x/", a_below=6, held=6)
    assert judge([partly], {})[:2] == ({}, [Copy(b, a, "x/")])


def test_two_that_vendor_one_another_are_no_forks() -> None:
    """Both folders are copies; whether one alone is, the rules of copies say."""
    a, b = "d\na", "d\nb"
    both = related(b_folder="deps/a/", b_below=5, a_copy="x/b/", b_copy="deps/a/", held=10)
    assert judge([both], {}) == ({}, [Copy(b, a, "x/b/"), Copy(a, b, "deps/a/")], [])
    assert judge([both._replace(a_copy=None)], {})[0] == {b: 1}
