"""Every file of HEAD is a document or a refusal, whatever a repository and its declaration become from run to run."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.git.history import LINK, SUBMODULE
from tests.spark_jobs.sources.git_repositories import Repository
from tests.spark_jobs.sources.test_git_increments import Lake
from tests.tiers import sampled, tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark leaves the socket of each collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PATHS = (
    *("a.py", "A.py", "net.h", "src/x.ts", "run", "notes", "data.unheard", "guide.md", "conf.json", "package.json"),
    *(".github/w.yml", "node_modules/x.js", "gen/made.py", "weird \n name.py", "ümlaut.rs", "v.pl", "page.html"),
)
TEXTS = (
    *(b"", b"x = 1\n", b"x = 2\r\n", b"a\0b", b"\xff\xfe\xfa\n", b"#!/bin/sh\necho\n", b"@interface Net\n@end\n"),
    *(b'<?xml version="1.0"?>\n<TS></TS>\n', b"%!PS\n", b"# -*- mode: markdown -*-\n", b"long " * 30),
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
)
KINDS = (["code"], ["code", "markup"], ["code", "markup", "data"], ["prose"], ["code", "markup", "data", "prose"])
NOT_UTF8 = b"caf\xe9.py"


def changed(repository: Repository, chosen: random.Random) -> None:
    """Some changes of files, links, modes and names, in one commit or in several."""
    for _ in range(chosen.randrange(1, 4)):
        for _ in range(chosen.randrange(1, 5)):
            path, text = chosen.choice(PATHS), chosen.choice(TEXTS)
            oid = repository.git("hash-object", "-w", "--stdin", given=text).decode().strip()
            mode = chosen.choice(["100644", "100644", "100644", "100755", LINK, SUBMODULE, "0"])
            raw = NOT_UTF8 if chosen.random() < 0.1 else path.encode()
            if mode == SUBMODULE:
                oid = repository.head()
            line = b"%s %s\t%s\0" % (mode.encode(), (oid if mode != "0" else "0" * 40).encode(), raw)
            repository.git("update-index", "-z", "--index-info", given=line)
        if chosen.random() < 0.3:
            rules = chosen.choice([b"gen/* linguist-generated\n", b"*.h -diff\n", b"\n"])
            oid = repository.git("hash-object", "-w", "--stdin", given=rules).decode().strip()
            repository.git("update-index", "-z", "--index-info", given=b"100644 %s\t.gitattributes\0" % oid.encode())
        repository.seconds += 3600
        repository.git("commit", "-q", "--allow-empty", "-m", "x")
        if chosen.random() < 0.2:
            repository.git("tag", f"t{repository.seconds}")
    if chosen.random() < 0.15 and len(repository.revisions("HEAD")) > 2:
        repository.git("reset", "-q", "--mixed", repository.revisions("HEAD")[1])


def tree(repository: Repository) -> dict[str, str]:
    """The files of HEAD as git lists them: the SHA-256 of each by its path as text, nothing of what is no file."""
    found = {}
    for token in repository.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]:
        about, _, path = token.partition(b"\t")
        mode, _, oid = about.decode().split()
        data = repository.git("cat-file", "blob", oid) if mode not in (LINK, SUBMODULE) else None
        name = path.decode(errors="backslashreplace")
        found[name] = hashlib.sha256(data).hexdigest() if data is not None else ""
    return found


def refused(rows: list[dict[str, Any]], root: Path, repository: Repository) -> dict[str, str]:
    """Why files of HEAD are no documents, by path: what the last arrival says of their bytes, or of the path itself."""
    last: dict[str, dict[str, Any]] = {}
    by_path: dict[str, dict[str, Any]] = {}
    gone: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["increment"]):
        last[row["location"]] = row
        if row["status"] == "gone" and "@" + "0" * 40 in row["location"]:
            gone[row["path"]] = row["increment"]
        elif row["status"] != "gone" and row["path"] is not None:
            says_path = row["reason"] == "hidden" or "by its name" in (row["detail"] or "")
            by_path |= {row["path"]: row} if says_path else {}
            if not says_path:
                by_path.pop(row["path"], None)
    found = {}
    for token in repository.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]:
        about, _, raw = token.partition(b"\t")
        path = raw.decode(errors="backslashreplace")
        row = by_path.get(path) or last.get(f"{root}@{about.decode().split()[2]}:{path}")
        is_there = row is not None and gone.get(path, -1) <= row["increment"]
        if row is not None and is_there and row["status"] == "rejected":
            found[path] = row["reason"]
    return found


def config(root: Path, **source: object) -> DocumentsConfig:
    """A dataset of one repository."""
    limit = source.pop("max_document_bytes", 100)
    declared = {"kind": "git", "repositories": [str(root)], "cache": str(root.parent / "cache"), **source}
    return DocumentsConfig.model_validate({"dataset": "d", "source": declared, "max_document_bytes": limit})


@sampled()
@pytest.mark.parametrize("seed", range(12, 12 + tries(40, 2)))
def test_documents_and_refusals_are_the_files_of_head(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Over increments between which files, marks, kinds, rules and limits change; then nothing is new."""
    chosen = random.Random(seed)
    repository = Repository(tmp_path / "r")
    repository.git("commit", "-q", "--allow-empty", "-m", "x")
    revisions = chosen.choice(["latest", "latest", "all", {"every": 2}])
    lake = Lake(spark, config(tmp_path / "r"))
    for _ in range(tries(6, 4)):
        if chosen.random() < 0.7:
            changed(repository, chosen)
        is_selected = chosen.random() < 0.85
        kinds = chosen.choice(KINDS)
        lake.config = config(
            tmp_path / "r",
            kinds=kinds,
            revisions=revisions,
            marked=chosen.choice(["leave_out", "take"]),
            select={} if is_selected else {"min_commits": 10_000},
            max_document_bytes=chosen.choice([100, 1000]),
        )
        lake.land()
        files = tree(repository) if is_selected else {}
        documents = {path: sha256 for (_, path), sha256 in lake.latest().items()}
        reasons = refused(lake.arrivals, tmp_path / "r", repository) if is_selected else {}
        assert not documents.keys() & reasons.keys()
        assert documents.keys() | reasons.keys() == files.keys()
        assert documents == {path: files[path] for path in documents}
        landed = {row["doc_id"]: row for row in lake.documents}
        at = {row["path"]: row for row in landed.values() if documents.get(row["path"]) == row["content_sha256"]}
        manifests = {"package.json"}
        assert {row["kind"] for path, row in at.items() if path not in manifests} <= set(kinds)
        assert len(landed) == len(lake.documents)
        assert lake.land() is None
