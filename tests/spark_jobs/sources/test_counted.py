"""Every file of a repository is counted: it gives a document, or an arrival with the reason why it does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sources import linguist
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.refusals import LEFT_OUT, Reason
from tests.spark_jobs.sources.conftest import Landing
from tests.spark_jobs.sources.git_repositories import Repository
from tests.spark_jobs.sources.repositories.test_packages import CORE, packed
from tests.spark_jobs.sources.test_git_increments import Lake
from tests.tiers import sampled, tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = {
    "logo.png": b"\x89PNG\r\n\0\0",
    "data.unheard": b"nothing\n",
    "notes": b"nothing\n",
    "run": b"#!/usr/bin/env bash\necho\n",
    "net.h": b"@interface Net : NSObject\n@end\n",
    "qt_de.ts": b'<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de"></TS>\n',
    "node_modules/x.js": b"1\n",
    "deep/__pycache__/x.py": b"1\n",
    ".github/workflows/w.yml": b"a: 1\n",
    "deep/.hidden": b"x\n",
    "empty.py": b"",
    "binary.py": b"a\0b",
    "guide.rst": b"prose\n",
}


def tree(seed: int) -> dict[str, bytes]:
    """A file of each of some languages, and odd ones."""
    extensions = sorted(linguist.tables().extensions)
    some = random.Random(seed).sample(extensions, 40)
    return {f"src/net{extension}": f"net {seed}\n".encode() for extension in some} | ODD


def git(folder: Path, files: dict[str, bytes], **source: object) -> tuple[DocumentsConfig, set[str]]:
    """A source of one repository with these files, and the paths of its HEAD."""
    made = Repository(folder / "r")
    made.write_paths(dict(files))
    made.git("add", "-fA")
    made.commit()
    head = {name.decode() for name in made.git("ls-files", "-z").split(b"\0")[:-1]}
    config = {"dataset": "d", "source": {"kind": "git", "repositories": [str(folder / "r")], **source}}
    return DocumentsConfig.model_validate(config), head


def packages(folder: Path, files: dict[str, bytes], **source: object) -> tuple[DocumentsConfig, set[str]]:
    """A source of one package with these files, and the names of its members."""
    members = {"PKG-INFO": CORE.format("net", "1.0").encode(), "net.egg-info/requires.txt": b"", **files}
    folder.mkdir()
    (folder / "net-1.0.tar.gz").write_bytes(packed({f"net-1.0/{name}": data for name, data in members.items()}))
    config = {"dataset": "d", "source": {"kind": "packages", "path": str(folder), **source}}
    return DocumentsConfig.model_validate(config), set(members)


def directories(folder: Path, files: dict[str, bytes], **source: object) -> tuple[DocumentsConfig, set[str]]:
    """A source of one directory with these files, and its files and hidden folders."""
    for name, data in files.items():
        path = folder / "net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    hidden = {"node_modules/", "deep/__pycache__/", ".github/"}
    below = {name for name in files for start in hidden if name.startswith(start)}
    config = {"dataset": "d", "source": {"kind": "python_code", "directories": [str(folder / "net")], **source}}
    return DocumentsConfig.model_validate(config), (files.keys() - below) | hidden


MADE: dict[str, Callable[..., tuple[DocumentsConfig, set[str]]]] = {"git": git, "packages": packages}


def told(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Reasons by path of the files that are arrivals alone."""
    place = "net-1.0.tar.gz#net-1.0/"
    found = {row["location"].partition(place)[2] or row["path"]: row["reason"] for row in rows if row["reason"]}
    return {path: reason for path, reason in found.items() if path is not None}


@sampled(2)
@pytest.mark.parametrize("kind", sorted(MADE))
@pytest.mark.parametrize(
    "kinds", [["code", "markup", "data"], ["code"], ["prose"], ["code", "markup", "data", "prose"]]
)
def test_documents_and_arrivals_are_all_files(tmp_path: Path, landing: Landing, kind: str, kinds: list[str]) -> None:
    """None twice, none missing; what the declaration leaves out is no fault; nothing changed, no row."""
    config, files = MADE[kind](tmp_path / "made", tree(len(kinds)), kinds=kinds)
    documents, arrivals = landing.land(config) or ([], [])
    paths, reasons = [row["path"] for row in documents], told(arrivals)
    assert sorted([*paths, *reasons]) == sorted(files)
    assert {row["kind"] for row in documents} == set(kinds) - ({"data"} if kinds == ["code"] else set())
    faults = {path: reason for path, reason in reasons.items() if Reason(reason) not in LEFT_OUT}
    assert faults == ({"binary.py": "binary"} if "code" in kinds else {})
    assert reasons["notes"] == reasons["logo.png"] == reasons["data.unheard"] == "unknown_format"
    assert {path for path, reason in reasons.items() if reason == "hidden"} == {
        "node_modules/x.js",
        "deep/__pycache__/x.py",
        ".github/workflows/w.yml",
        "deep/.hidden",
    }
    languages = {row["path"]: row["language"] for row in documents}
    if "code" in kinds:
        assert (languages["run"], languages["net.h"]) == ("Shell", "Objective-C")
    assert ("qt_de.ts" in languages) == ("markup" in kinds) == (reasons.get("qt_de.ts") is None)
    assert landing.land(config) is None


@pytest.mark.parametrize("kind", ["python_code", "python_docs"])
def test_files_of_directories_are_counted_too(tmp_path: Path, landing: Landing, kind: str) -> None:
    """Of a hidden folder there is one row: build tools and version control keep thousands of files there."""
    declared, files = directories(tmp_path / "made", tree(7), kind=kind)
    documents, arrivals = landing.land(declared) or ([], [])
    paths = [row["path"].partition("#")[0] for row in documents]
    refused = [row["path"].partition("#")[0] for row in arrivals if row["reason"]]
    assert sorted([*paths, *refused]) == sorted(files)
    assert landing.land(declared) is None


@pytest.mark.parametrize("kind", sorted(MADE))
def test_a_kind_that_becomes_wanted_is_read(tmp_path: Path, landing: Landing, kind: str) -> None:
    """And what was known stays: a row is written again only where it says something else."""
    some = tree(9)
    config, files = MADE[kind](tmp_path / "made", some, kinds=["code"])
    first, _ = landing.land(config) or ([], [])
    every = ["code", "markup", "data", "prose"]
    wider = config.model_copy(update={"source": config.source.model_copy(update={"kinds": tuple(every)})})
    more, arrivals = landing.land(wider) or ([], [])
    assert {"data", "markup"} <= {row["kind"] for row in more} and "code" not in {row["kind"] for row in more}
    paths = {row["path"] for row in (*first, *more)}
    assert not paths & {path for path, reason in told(arrivals).items() if reason == "other_kind"} - {"PKG-INFO"}
    assert paths | told(landing.arrivals).keys() == files
    assert landing.land(wider) is None


def test_of_a_git_repository_what_is_as_before_has_no_row(tmp_path: Path, landing: Landing) -> None:
    """A commit gives rows for what it changes: of files that are left out by their path, only those new or gone."""
    config, _ = git(tmp_path / "made", tree(5), kinds=["code"], revisions="all")
    landing.land(config)
    made = Repository.__new__(Repository)
    made.root, made.seconds = tmp_path / "made" / "r", 1_800_000_000
    made.write_paths({"new.rst": "other\n", ".github/workflows/w.yml": "b: 1\n", "deep/.hidden": None, "notes": None})
    made.commit(n_py="1\n")
    documents, arrivals = landing.land(config) or ([], [])
    assert [row["path"] for row in documents] == ["n.py"]
    assert {(row["path"], row["status"], row["reason"]) for row in arrivals if row["path"]} == {
        ("n.py", "landed", None),
        ("new.rst", "rejected", "other_kind"),
        ("deep/.hidden", "gone", None),
        ("notes", "gone", None),
    }
    assert landing.land(config) is None


def test_a_file_that_is_left_out_now_is_gone(tmp_path: Path, landing: Landing) -> None:
    """Of directories too: the row says why, and comes once."""
    (tmp_path / "net").mkdir()
    for name in ("a.py", "a.json", "a.rst"):
        (tmp_path / "net" / name).write_text("1\n")

    def config(*kinds: str) -> DocumentsConfig:
        source = {"kind": "python_code", "directories": [str(tmp_path / "net")], "kinds": kinds}
        return DocumentsConfig.model_validate({"dataset": "d", "source": source})

    documents, arrivals = landing.land(config("code", "data")) or ([], [])
    assert {row["path"] for row in documents} == {"a.py", "a.json"}
    assert told(arrivals) == {"a.rst": "other_kind"}
    documents, arrivals = landing.land(config("code")) or ([], [])
    assert [(row["path"], row["status"], row["reason"]) for row in arrivals] == [("a.json", "gone", "other_kind")]
    assert landing.land(config("code")) is None
    documents, arrivals = landing.land(config("code", "data", "prose")) or ([], [])
    assert [row["path"] for row in documents] == ["a.rst"]
    assert {row["path"] for row in arrivals} == {"a.rst", "a.json"}
    assert landing.land(config("code", "data", "prose")) is None


@pytest.mark.parametrize("kind", sorted(MADE))
def test_a_model_names_what_linguist_does_not(tmp_path: Path, landing: Landing, kind: str) -> None:
    """Once `unknown: detect` is declared the files that were left out are read again; pictures stay refused."""
    pytest.importorskip("magika")
    code = b"import os\n\n\ndef main(path: str) -> None:\n    for name in os.listdir(path):\n        print(name)\n" * 3
    some = {"a.py": b"1\n", "net.unheard": code, "logo.png": b"\x89PNG\r\n\0\0"}
    config, files = MADE[kind](tmp_path / "made", some)
    landing.land(config)
    assert told(landing.arrivals)["net.unheard"] == "unknown_format"
    detects = config.model_copy(update={"source": config.source.model_copy(update={"unknown": "detect"})})
    documents, _ = landing.land(detects) or ([], [])
    assert {row["path"]: row["language"] for row in documents}["net.unheard"] == "Python"
    assert "a.py" not in {row["path"] for row in documents}
    assert {row["path"] for row in landing.documents} | told(landing.arrivals).keys() == files
    assert landing.land(detects) is None


@sampled()
@pytest.mark.parametrize("kind", ["directories", "packages"])
def test_what_stands_is_what_is_declared_now(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """Whatever kinds were taken before, what stands at last is what a fresh dataset has; unchanged, nothing lands."""
    config, files = (packages if kind == "packages" else directories)(tmp_path / "made", tree(3))
    lake, chosen = Lake(spark, config), random.Random(3)
    every = ["code", "markup", "data", "prose"]
    for _ in range(tries(20, 4)):
        kinds = chosen.sample(every, chosen.randrange(1, 5))
        declared = config.model_copy(update={"source": config.source.model_copy(update={"kinds": tuple(kinds)})})
        lake.config, fresh = declared, Lake(spark, declared)
        lake.land()
        fresh.land()
        assert lake.latest() == fresh.latest()
        assert {path for _, path in fresh.latest()} | told(fresh.arrivals).keys() == files
        assert lake.land() is None
