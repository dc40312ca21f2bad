"""Git repositories as a source: what lands is what checkouts of selected revisions hold, and nothing is executed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import DocumentsConfig, GitSource
from spark_jobs.sources.git.store import BlobReaders, RefusedRepositoryError, open_store
from spark_jobs.sources.licences.texts import known_text
from spark_jobs.sources.listing.changes import discover
from tests.tiers import sampled

from .conftest import ARRIVAL_ROWS
from .git_repositories import Repository, random_history

Row = dict[str, Any]
Configs = Callable[..., DocumentsConfig]


@pytest.fixture
def git_config(tmp_path: Path) -> Configs:
    """Configs of kind `git` over `tmp_path / "repos"`."""

    def make(**source: object) -> DocumentsConfig:
        given = {"kind": "git", "repositories": [f"{tmp_path}/repos/*"], "cache": f"{tmp_path}/cache", **source}
        return DocumentsConfig.model_validate({"dataset": "code", "source": given, "max_document_bytes": 10_000})

    return make


def pairs(documents: list[Row], repository: str) -> set[tuple[str, str]]:
    """Path and SHA-256 of the documents of a repository."""
    return {(row["path"], row["content_sha256"]) for row in documents if row["repository"] == repository}


def pairs_of_paths(documents: list[Row]) -> set[tuple[str, str]]:
    """Repository and path of documents."""
    return {(row["repository"], row["path"]) for row in documents}


def hashed(*checkouts: dict[str, bytes]) -> set[tuple[str, str]]:
    """The same of the files of checkouts."""
    return {(path, hashlib.sha256(data).hexdigest()) for files in checkouts for path, data in files.items()}


def reasons(rows: list[Row]) -> dict[str, str]:
    """Reasons by path, or by location where there is no path; without those of files left out by their path."""
    told = [row for row in rows if row["reason"] not in (None, "hidden", "other_kind")]
    return {row["path"] or Path(row["location"]).name: row["reason"] for row in told}


@sampled()
@pytest.mark.parametrize("seed", [1, 2])
def test_what_lands_is_what_checkouts_of_the_selected_revisions_hold(
    tmp_path: Path, git_config: Configs, landing: Any, seed: int
) -> None:
    """For each way to select revisions, over a history with branches, merges, renames and returns."""
    made = random_history(tmp_path / "repos" / "r", seed, 40)
    line = made.revisions("--first-parent", "--reverse", "HEAD")
    wanted = {
        "latest": ["HEAD"],
        "all": made.revisions("HEAD"),
        "tags": made.git("tag").decode().split(),
        "every": [revision for n, revision in enumerate(line, 1) if n % 3 == 0] + [line[-1]],
    }
    for name, revisions in wanted.items():
        config = git_config(revisions={"every": 3} if name == "every" else name)
        documents, _ = type(landing)().land(config)
        assert pairs(documents, "r") == hashed(*(made.checkout(revision, ".py") for revision in revisions)), name
        assert len(pairs(documents, "r")) == len(documents)  # each version once
        for row in documents:  # and in the revision that it names
            found = made.git("show", f"{row['revision']}:{row['path']}")
            assert hashlib.sha256(found).hexdigest() == row["content_sha256"]


def test_a_repository_gives_the_documents_of_its_checkout(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """The same rows as `python_code` over a plain copy of the work tree, but for the revision and where they were."""
    made = Repository(tmp_path / "repos" / "r")
    made.write_paths(
        {"go.mod": "module x\n", ".hidden/a.py": "1\n", "node_modules/b.js": "1\n", "a b/ü#1.py": "é = 1\n"}
    )
    made.commit(src__a_py="a\n", web__x_html="<p>\n", README_md="text\n", empty_py="", data_bin=b"\0")
    documents, _ = landing.land(git_config())
    plain = tmp_path / "plain" / "r"
    shutil.copytree(made.root, plain, ignore=shutil.ignore_patterns(".git"))
    source = {"kind": "python_code", "directories": [str(plain)]}
    other, _ = type(landing)().land(DocumentsConfig.model_validate({"dataset": "code", "source": source}))
    own = {"revision", "location", "metadata"}
    kept = [{key: value for key, value in row.items() if key not in own} for row in documents]
    assert sorted(kept, key=str) == sorted(
        [{key: value for key, value in row.items() if key not in own} for row in other], key=str
    )
    assert {row["path"]: row["metadata"] for row in documents if row["metadata"]} == {
        row["path"]: row["metadata"] for row in other if row["metadata"]
    }


def test_bare_repositories_work_trees_linked_ones_and_bundles_give_the_same(
    tmp_path: Path, git_config: Configs, landing: Any
) -> None:
    """A repository in every form, packed and loose."""
    made = random_history(tmp_path / "made", 3, 12)
    repos = tmp_path / "repos"
    repos.mkdir()
    made.git("tag", "-f", "here")
    made.git("clone", "-q", "--bare", ".", str(repos / "bare.git"))
    made.git("-C", str(repos / "bare.git"), "gc", "-q")
    made.git("bundle", "create", "-q", str(repos / "packed.bundle"), "HEAD", "--all")
    shutil.copytree(made.root, repos / "tree")
    made.git("-C", str(repos / "tree"), "worktree", "add", "-q", "--detach", str(repos / "linked"))
    documents, arrivals = landing.land(git_config(revisions="all"))
    truth = pairs(documents, "tree")
    assert truth
    assert {name: pairs(documents, name) == truth for name in ("bare", "packed", "linked")} == {
        "bare": True,
        "packed": True,
        "linked": True,
    }
    assert not reasons(arrivals)
    assert landing.land(git_config(revisions="all")) is None


def test_what_is_no_content_has_a_row_with_the_reason(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """Submodules, links, pointers of LFS, binary, large, generated and vendored files, names that are none."""
    made = Repository(tmp_path / "repos" / "r")
    (made.root / "sub").mkdir()
    made.write_paths(
        {
            ".gitattributes": "gen.py linguist-generated\nlib/** linguist-vendored=true\nlock.json -diff\n",
            "deep/.gitattributes": "*.py linguist-generated=true\nmine.py linguist-generated=false\n",
            "deep/its.py": "1\n",
            "deep/mine.py": "1\n",
            "gen.py": "1\n",
            "lib/x/v.py": "1\n",
            "lock.json": "{}\n",
            "large.py": "#" * 20_000,
            "binary.py": b"a\0b",
            "latin.py": b"\xe9",
            "model.py": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
            "good.py": "1\n",
            "two\nlines.py": "1\n",
        }
    )
    os.symlink("/etc/passwd", made.root / "link.py")
    made.commit()
    made.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    made.git("commit", "-q", "-m", "submodule")
    blob = made.git("hash-object", "-w", "--stdin", given=b"evil = 1\n").decode().strip()
    foreign = b"".join(
        b"100644 " + name + b"\0" + bytes.fromhex(blob) for name in (b"..", b"..py", b"\xff.py", b"a/b.py")
    )
    tree = made.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", given=foreign).decode().strip()
    top = [
        *made.git("ls-tree", "-z", "HEAD").split(b"\0")[:-1],
        *(f"40000 tree {tree}\t{n}".encode() for n in ("..", "z..py")),
    ]
    raw = b"".join(_entry(line) for line in sorted(top, key=lambda line: line.split(b"\t")[1]))
    whole = made.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", given=raw).decode().strip()
    commit = made.git("commit-tree", whole, "-p", "HEAD", "-m", "hostile").decode().strip()
    made.git("update-ref", "refs/heads/main", commit)
    documents, arrivals = landing.land(git_config())
    said = reasons(arrivals)
    assert {path: said[path] for path in sorted(said) if "z..py" not in path and ".." not in path} == {
        "binary.py": "binary",
        "deep/its.py": "marked",
        "gen.py": "marked",
        "large.py": "too_large",
        "latin.py": "undecodable",
        "lib/x/v.py": "marked",
        "link.py": "not_a_file",
        "lock.json": "marked",
        "model.py": "lfs_pointer",
        "sub": "not_a_file",
    }
    assert said["z..py/\\xff.py"] == "bad_name"
    assert said["../a/b.py"] == "bad_name"
    landed = {row["path"] for row in documents}
    assert landed == {"deep/mine.py", "good.py", "two\nlines.py", "z..py/a/b.py"}
    taken, _ = type(landing)().land(git_config(marked="take"))
    assert {row["path"] for row in taken} == landed | {"deep/its.py", "gen.py", "lib/x/v.py", "lock.json"}


def _entry(line: bytes) -> bytes:
    """A line of `git ls-tree` as it is in a tree object."""
    about, _, name = line.partition(b"\t")
    mode, _, oid = about.split()
    return mode.lstrip(b"0") + b" " + name + b"\0" + bytes.fromhex(oid.decode())


def test_nothing_that_a_repository_names_is_executed(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """Hooks, monitors, pagers, signatures, transports for missing objects and filters: none leaves its trace."""
    made = Repository(tmp_path / "repos" / "r")
    trace = tmp_path / "executed"
    made.write_paths({".gitattributes": "*.py filter=evil diff=evil\n"})
    made.commit(a_py="1\n", b_py="2\n")
    evil = f"touch {trace};"
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "core.gitProxy",
        "core.editor",
        "gpg.program",
        "diff.external",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
    ]:
        made.git("config", key, evil)
    made.git("config", "log.showSignature", "true")
    made.git("config", "core.repositoryFormatVersion", "1")
    made.git("config", "extensions.partialClone", "origin")
    made.git("config", "remote.origin.promisor", "true")
    made.git("config", "remote.origin.url", f"ext::touch {trace}")
    made.git("config", "protocol.ext.allow", "always")
    made.git("config", "include.path", str(tmp_path / "other"))
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = made.root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{evil}\n")
        hook.chmod(0o755)
    blob = made.git("rev-parse", "HEAD:b.py").decode().strip()
    (made.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    documents, arrivals = landing.land(git_config(revisions="all"))
    assert [row["path"] for row in documents] == ["a.py"]
    assert reasons(arrivals) == {"b.py": "missing_object"}
    assert not trace.exists()
    with pytest.raises(subprocess.CalledProcessError):
        made.git("cat-file", "blob", blob)  # plain git does ask the remote, and so executes it
    assert trace.exists()


def test_damaged_repositories_are_rows_and_the_others_land(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """No repository, an empty one, missing and damaged objects, borrowed objects, a damaged bundle, a missing path."""
    repos = tmp_path / "repos"
    for name in ("good", "no_tree", "bad_blob", "borrows", "piped"):
        made = Repository(repos / name)
        made.commit(a_py=f"{name} = 1\n")
        made.commit(b_py=f"{name} = 2\n")
    Repository(repos / "unborn")
    (repos / "folder").mkdir()
    (repos / "notes.txt").write_text("no bundle")
    (repos / "bad.bundle").write_bytes(b"# v2 git bundle\n" + b"1" * 40 + b" HEAD\n\nPACK damaged")
    _object(repos / "no_tree", "HEAD^{tree}").unlink()
    damaged = _object(repos / "bad_blob", "HEAD:b.py")
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:12] + b"damaged")
    (repos / "borrows" / ".git" / "objects" / "info" / "alternates").write_text("/etc\n")
    (repos / "piped" / ".git" / "HEAD").unlink()
    os.mkfifo(repos / "piped" / ".git" / "HEAD")
    config = git_config(repositories=[f"{repos}/*", f"{tmp_path}/nowhere.git"])
    documents, arrivals = landing.land(config)
    said = reasons(arrivals)
    damage = said.pop("b.py")
    assert damage in ("unreadable", "missing_object")
    assert said == {
        "no_tree": "corrupt_repository",
        "bad.bundle": "corrupt_repository",
        "unborn": "empty",
        "folder": "no_repository",
        "notes.txt": "no_repository",
        "borrows": "no_repository",
        "piped": "no_repository",
        "nowhere.git": "no_repository",
    }
    assert {(row["repository"], row["path"]) for row in documents} == {
        ("good", "a.py"),
        ("good", "b.py"),
        ("bad_blob", "a.py"),
    }
    shutil.rmtree(repos / "bad_blob")
    landing.land(config)
    assert landing.land(config) is None  # the same faults again are no news


@pytest.mark.nightly
@pytest.mark.parametrize("is_newest", [True, False])
def test_a_tree_that_unfolds_to_ten_billion_files_is_refused(
    tmp_path: Path, git_config: Configs, landing: Any, is_newest: bool
) -> None:
    """Ten levels of ten entries, each the same tree, in the newest commit or in one before it."""
    made = Repository(tmp_path / "repos" / "bomb")
    made.commit(a_py="1\n")
    oid, kind = made.git("rev-parse", "HEAD:a.py").decode().strip(), "100644 blob"
    for _ in range(10):
        lines = "".join(f"{kind} {oid}\t{number}.py\n" for number in range(10))
        oid, kind = made.git("mktree", given=lines.encode()).decode().strip(), "040000 tree"
    commit = made.git("commit-tree", oid, "-p", "HEAD", "-m", "bomb").decode().strip()
    if not is_newest:
        commit = made.git("commit-tree", "HEAD^{tree}", "-p", commit, "-m", "after").decode().strip()
    made.git("update-ref", "refs/heads/main", commit)
    documents, arrivals = landing.land(git_config(revisions="all"))
    assert (documents, reasons(arrivals)) == ([], {"bomb": "corrupt_repository"})


def _object(root: Path, name: str) -> Path:
    """The file of a loose object."""
    oid = subprocess.check_output(["git", "-C", str(root), "rev-parse", name], text=True).strip()
    return root / ".git" / "objects" / oid[:2] / oid[2:]


def test_a_shallow_clone_and_sha256_ids_are_read(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """Parents that were not fetched are no damage; object ids may be longer."""
    made = random_history(tmp_path / "made", 4, 8)
    repos = tmp_path / "repos"
    repos.mkdir()
    made.git("clone", "-q", "--depth=2", f"file://{made.root}", str(repos / "shallow"))
    subprocess.run(["git", "init", "-q", "--object-format=sha256", "-b", "main", str(repos / "long")], check=True)
    long = Repository.__new__(Repository)
    long.root, long.seconds = repos / "long", made.seconds
    long.commit(a_py="1\n")
    documents, arrivals = landing.land(git_config(revisions="all"))
    assert not reasons(arrivals)
    assert pairs(documents, "long") == hashed(long.checkout("HEAD", ".py"))
    assert hashed(made.checkout("HEAD", ".py")) <= pairs(documents, "shallow")


def test_commits_without_a_date_are_read(tmp_path: Path, git_config: Configs, empty_arrivals: pa.Table) -> None:
    """Git takes them for the first second of 1970; other repositories beside them are read too."""
    made = Repository(tmp_path / "repos" / "made")
    made.commit(a_py="a = 1\n")
    tree, head = (made.git("rev-parse", name).decode().strip() for name in ("HEAD^{tree}", "HEAD"))
    for person in ("A <a@x>", "A <a@x> then", "", "A <a@x> 99999999999999999999 +0000"):
        commit = f"tree {tree}\nparent {head}\nauthor {person}\ncommitter {person}\n\nx\n".encode()
        written = made.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", given=commit)
        head = written.decode().strip()
    made.git("update-ref", "HEAD", head)
    assert _facts(discover(git_config(revisions="all"), empty_arrivals))["made"]["metadata"]["commits"] == "5"


def test_facts_tell_licences_forks_and_quality(tmp_path: Path, git_config: Configs, empty_arrivals: pa.Table) -> None:
    """Counts of the history, the licence's text, and the original by who goes on in it."""
    repos = tmp_path / "repos"
    mit = Path(__file__).parents[3] / "LICENSE"
    first = Repository(repos / "upstream")
    first.commit(a_py="a = 1\n" * 10, tests__test_a_py="t = 1\n" * 10, vendor__v_py="v = 1\n" * 20)
    shutil.copytree(first.root, repos / "stale")
    shutil.copytree(first.root, repos / "fork")
    first.commit(a_py="a = 2\n" * 10, LICENSE=mit.read_text())
    fork = Repository.__new__(Repository)
    fork.root, fork.seconds = repos / "fork", first.seconds
    for number in range(3):
        fork.commit(author="bob@example.org", a_py=f"a = {number}0\n", package_json='{"license": "Apache-2.0"}')
    Repository(repos / "other").commit(author="eve@example.org", a_py="1\n")
    facts = _facts(discover(git_config(), empty_arrivals))
    assert {name: one["fork_of"] for name, one in facts.items()} == {
        "upstream": None,
        "stale": "upstream",
        "fork": "upstream",
        "other": None,
    }
    assert facts["upstream"]["licence"] == known_text(mit.read_bytes())
    assert facts["fork"]["licence"] == "Apache-2.0"
    told = facts["stale"]["metadata"]
    assert (told["commits"], told["authors"], told["files"], told["bytes"]) == ("1", "1", "3", "240")
    assert (told["tests_share"], told["vendored_share"]) == ("0.2500", "0.5000")
    assert told["first_commit"] == told["last_commit"] == "2023-11-14"
    assert told["root_commits"] == facts["fork"]["metadata"]["root_commits"]


def _facts(listing: pa.Table | None) -> dict[str, Any]:
    """Facts about repositories by name."""
    assert listing is not None
    said = (json.loads(facts) for facts in listing["repository_facts"].to_pylist() if facts)
    return {one["repository"]: one for one in said}


def test_select_refuses_repositories_with_the_reason(tmp_path: Path, git_config: Configs, landing: Any) -> None:
    """Each rule refuses one; a rule that is added takes away what had landed, and one that goes brings it back."""
    repos = tmp_path / "repos"
    for name in ("good", "young", "copied", "unlicensed", "fork"):
        made = Repository(repos / name)
        text = {"package_json": '{"license": "(MIT OR GPL-3.0-only)"}'} if name != "unlicensed" else {}
        vendored = {"vendor__x_py": "x = 1\n" * 90} if name == "copied" else {}
        made.commit(a_py=f"{name} = 1\n", **text, **vendored)
        if name != "young":
            made.commit(b_py=f"{name} = 2\n")
    shutil.rmtree(repos / "fork")
    shutil.copytree(repos / "good", repos / "fork")
    select = {"min_commits": 2, "max_vendored_share": 0.5, "licences": ["mit"], "forks": False}
    documents, arrivals = landing.land(git_config(select=select))
    assert {row["repository"] for row in documents} == {"fork"}  # of equals the first by name is the original
    assert {row["repository"]: row["detail"] for row in arrivals if row["reason"]} == {
        "young": "1 commits; min_commits is 2",
        "copied": "vendored_share 0.9030; max_vendored_share is 0.5",
        "unlicensed": "licence not recognised; licences are MIT",
        "good": "a fork of fork; forks is false",
    }
    assert landing.land(git_config(select=select)) is None
    narrowed = discover(
        git_config(select={"min_files": 99}), pa.Table.from_pylist(landing.arrivals, ARRIVAL_ROWS), True
    )
    assert narrowed is not None
    gone = {(row["repository"], row["path"]) for row in narrowed.to_pylist() if row["gone"]}
    assert gone == pairs_of_paths(documents)
    with pytest.raises(ValueError, match="no SPDX id"):
        git_config(select={"licences": ["BSD"]})


def test_the_source_must_name_repositories_with_distinct_names(tmp_path: Path, git_config: Configs) -> None:
    """Nothing that matches, and two of one name, are mistakes of the declaration."""
    with pytest.raises(InputError, match="no repository matches"):
        discover(git_config(), ARRIVAL_ROWS.empty_table())
    Repository(tmp_path / "repos" / "a").commit(a_py="1\n")
    Repository(tmp_path / "more" / "a.git").commit(a_py="1\n")
    with pytest.raises(InputError, match="both named a"):
        discover(git_config(repositories=[f"{tmp_path}/repos/a", f"{tmp_path}/more/a.git"]), ARRIVAL_ROWS.empty_table())


def test_blobs_are_cut_at_the_limit_and_readers_close(tmp_path: Path) -> None:
    """A blob longer than the limit gives one byte more than that; the next one is whole."""
    roots = []
    for number in range(6):
        made = Repository(tmp_path / f"r{number}")
        made.commit(a_py="x" * 1000, b_py=f"{number}")
        roots.append((made, [made.git("rev-parse", f"HEAD:{name}").decode().strip() for name in ("a.py", "b.py")]))
    readers = BlobReaders(str(tmp_path / "cache"))
    for number, (made, (large, small)) in enumerate(roots):
        assert len(readers.read(str(made.root), large, 10)) == 11
        assert readers.read(str(made.root), small, 10) == str(number).encode()
        with pytest.raises(OSError, match="no blob"):
            readers.read(str(made.root), "0" * 40, 10)
    readers.close()
    with pytest.raises(RefusedRepositoryError, match="no git repository"):
        open_store(str(tmp_path), str(tmp_path / "cache"))


@pytest.mark.nightly
def test_real_histories(real_data: Path, tmp_path: Path, landing: Any) -> None:
    """A project and its fork: the versions of Go files in the trees of tags, as `git ls-tree` has them; who forked."""
    source = {"kind": "git", "repositories": [f"{real_data}/git/*.bundle"], "cache": str(tmp_path / "cache")}
    config = DocumentsConfig.model_validate({"dataset": "jwt", "source": {**source, "revisions": "tags"}})
    assert isinstance(config.source, GitSource)
    documents, _ = landing.land(config)
    for name in ("jwt", "jwt-go"):
        clone = tmp_path / name
        subprocess.run(["git", "clone", "-q", "--bare", f"{real_data}/git/{name}.bundle", str(clone)], check=True)
        truth = set()
        for tag in subprocess.check_output(["git", "-C", str(clone), "tag"], text=True).split():
            listed = subprocess.check_output(["git", "-C", str(clone), "ls-tree", "-r", tag], text=True)
            truth |= {tuple(line.split()[2:]) for line in listed.splitlines() if line.endswith(".go")}
        found = {
            (row["location"].split("@")[1].split(":")[0], row["path"])
            for row in documents
            if row["repository"] == name and row["path"].endswith(".go")
        }
        assert found == truth
    facts = _facts(discover(config, ARRIVAL_ROWS.empty_table()))
    assert {name: one["fork_of"] for name, one in facts.items()} == {"jwt": "jwt-go", "jwt-go": None}
    assert {one["licence"] for one in facts.values()} == {"MIT"}


def test_of_a_folder_of_repositories_each_is_taken(tmp_path: Path, git_config: Configs) -> None:
    """Work trees and bare ones right below it; of a folder without any its own row says that it is none."""
    for name in ("a", "b"):
        Repository(tmp_path / "repos" / name).commit(m_py=f"print('{name}')")
    subprocess.run(["git", "clone", "-q", "--bare", "a", "c.git"], cwd=tmp_path / "repos", check=True)
    (tmp_path / "repos" / "other").mkdir()
    empty = ARRIVAL_ROWS.empty_table()
    listed = discover(git_config(repositories=[f"{tmp_path}/repos"]), empty, False)
    assert listed is not None
    assert {row["repository"] for row in listed.to_pylist() if row["path"]} == {"a", "b", "c"}
    alone = discover(git_config(repositories=[f"{tmp_path}/repos/other"]), empty, False)
    assert alone is not None and alone["reason"].to_pylist() == ["no_repository"]
