"""What lies outside of the repositories that a source names is not read, whichever file of them leads there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.git.store import BlobReaders
from spark_jobs.sources.kinds import kind_of
from tests.tiers import sampled, tries

from .git_repositories import Repository

_SECRET = "magenta-walrus-of-1729"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private repository with a secret in a file, a linked work tree and a pack, and a public one."""
    folder = tmp_path_factory.mktemp("made")
    private = Repository(folder / "private")
    private.commit(secret_py=f"{_SECRET} = 1\n")
    private.git("gc", "-q")
    private.commit(other_py=f"{_SECRET} = 2\n")
    private.git("worktree", "add", "-q", "--detach", str(folder / "private-linked"))
    public = Repository(folder / "public")
    public.commit(public_py="public = 1\n")
    return folder


def _pointer(where: Path, target: Path | str, draw: random.Random) -> None:
    """A `.git` file that names a folder, absolutely or by a way up."""
    shown = str(target) if draw.random() < 0.5 else os.path.relpath(target, where.parent)
    where.write_text(f"gitdir: {shown}{draw.choice(['', chr(10)])}")


def _empty(where: Path, private: Path) -> Path:
    """A folder that looks like a repository, with the refs of the private one."""
    where.mkdir(parents=True)
    (where / "HEAD").write_text((private / ".git" / "refs" / "heads" / "main").read_text())
    (where / "refs").mkdir()
    return where


def _git_file(evil: Path, private: Path, draw: random.Random) -> None:
    target = draw.choice([private / ".git", private.parent / "private" / ".git" / "worktrees" / "private-linked"])
    _pointer(evil / ".git", target, draw)


def _commondir(evil: Path, private: Path, draw: random.Random) -> None:
    own = _empty(evil / ".git", private)
    target = private / ".git"
    (own / "commondir").write_text(draw.choice([str(target), os.path.relpath(target, own)]) + "\n")


def _git_link(evil: Path, private: Path, draw: random.Random) -> None:
    (evil / ".git").symlink_to(private / ".git")


def _git_file_to_link(evil: Path, private: Path, draw: random.Random) -> None:
    (evil / "inner").symlink_to(private / ".git")
    _pointer(evil / ".git", evil / "inner", draw)


def _git_file_link(evil: Path, private: Path, draw: random.Random) -> None:
    (evil / ".git").symlink_to(private.parent / "private-linked" / ".git")


def _objects_link(evil: Path, private: Path, draw: random.Random) -> None:
    (_empty(evil / ".git", private) / "objects").symlink_to(private / ".git" / "objects")


def _inner_links(evil: Path, private: Path, draw: random.Random) -> None:
    objects = _empty(evil / ".git", private) / "objects"
    objects.mkdir()
    for entry in (private / ".git" / "objects").iterdir():
        if draw.random() < 0.5 or not any(entry.iterdir()):
            (objects / entry.name).symlink_to(entry)
        else:
            (objects / entry.name).mkdir()
            for file in entry.iterdir():
                (objects / entry.name / file.name).symlink_to(file)


def _link_to_link(evil: Path, private: Path, draw: random.Random) -> None:
    objects = _empty(evil / ".git", private) / "objects"
    (evil / "hidden").mkdir()
    for entry in (private / ".git" / "objects").iterdir():
        (evil / "hidden" / entry.name).symlink_to(entry)
    objects.symlink_to(evil / "hidden")


def _alternates(evil: Path, private: Path, draw: random.Random) -> None:
    objects = _empty(evil / ".git", private) / "objects"
    (objects / "info").mkdir(parents=True)
    (objects / "info" / "alternates").write_text(f"{private / '.git' / 'objects'}\n")
    (objects / "info" / "http-alternates").write_text(f"{private / '.git' / 'objects'}\n")


def _config(evil: Path, private: Path, draw: random.Random) -> None:
    own = _empty(evil / ".git", private)
    (own / "objects").mkdir()
    (own / "config").write_text(f"[core]\n\tworktree = {private}\n[include]\n\tpath = {private / '.git' / 'config'}\n")


def _shallow(evil: Path, private: Path, draw: random.Random) -> None:
    own = _empty(evil / ".git", private)
    (own / "objects").mkdir()
    (own / "shallow").symlink_to(private / "secret.py")
    (own / "packed-refs").symlink_to(private / "secret.py")


def _root_link(evil: Path, private: Path, draw: random.Random) -> None:
    evil.rmdir()
    evil.symlink_to(draw.choice([private, private / ".git", private.parent / "private-linked"]))


_WAYS = [_git_file, _commondir, _git_link, _git_file_to_link, _git_file_link, _objects_link, _inner_links]
_WAYS += [_link_to_link, _alternates, _config, _shallow, _root_link]


@sampled(4)
@pytest.mark.parametrize("way", _WAYS)
def test_nothing_of_a_private_repository_lands(
    way: Callable[..., None], made: Path, tmp_path: Path, landing: Any
) -> None:
    """By none of the ways in which a file can lead there; the reason says where it leads, and the neighbour lands."""
    for seed in range(tries(20, 2)):
        source = tmp_path / str(seed) / "repos"
        (source / "evil").mkdir(parents=True)
        shutil.copytree(made / "public", source / "public")
        way(source / "evil", made / "private", random.Random(seed))
        named = [[f"{source}/*"], [str(source)], [f"{source.parent}/r*/*"]][seed % 3]
        config = _of(named, tmp_path)
        documents, arrivals = type(landing)().land(config)
        assert [row["path"] for row in documents] == ["public.py"] and _SECRET not in str(arrivals)
        refused = [row for row in arrivals if row["location"].endswith("evil")]
        assert [row["status"] for row in refused] == ["rejected"]
        if way not in (_alternates, _config, _shallow):
            assert "outside of what the source names" in refused[0]["detail"], refused
        blob = _at(made / "private").git("rev-parse", "HEAD:other.py").decode().strip()
        with kind_of(config.source).opening() as opens, pytest.raises(OSError):
            opens(f"{source}/evil@{blob}:other.py", 100)


def _of(repositories: list[str], tmp_path: Path) -> DocumentsConfig:
    source = {"kind": "git", "repositories": repositories, "cache": f"{tmp_path}/cache"}
    return DocumentsConfig.model_validate({"dataset": "code", "source": source})


def _at(root: Path) -> Repository:
    """A repository that is there already."""
    found = Repository.__new__(Repository)
    found.root, found.seconds = root, 1_800_000_000
    return found


def test_links_inside_of_the_source_are_followed(made: Path, tmp_path: Path, landing: Any) -> None:
    """A linked work tree of a repository that the source names, a module of one, a link from name to name."""
    source = tmp_path / "repos"
    main = shutil.copytree(made / "public", source / "main")
    _at(main).git("worktree", "add", "-q", "--detach", str(source / "linked"))
    modules = main / ".git" / "modules"
    shutil.copytree(made / "public" / ".git", modules / "part")
    (source / "module").mkdir()
    (source / "module" / ".git").write_text("gitdir: ../main/.git/modules/part\n")
    (source / "other-name").symlink_to("main")
    shared = source / "shared"
    shutil.copytree(main, shared, symlinks=True)
    shutil.rmtree(shared / ".git" / "objects")
    (shared / ".git" / "objects").symlink_to(os.path.relpath(main / ".git" / "objects", shared / ".git"))
    documents, arrivals = landing.land(_of([f"{source}/*"], tmp_path))
    assert not [row for row in arrivals if row["reason"]]
    names = ["linked", "main", "module", "other-name", "shared"]
    assert sorted(row["repository"] for row in documents) == names


def test_what_a_source_names_itself_may_lie_anywhere(made: Path, tmp_path: Path, landing: Any) -> None:
    """A link that is named without a pattern is somebody's choice; a linked tree wants its repository named too."""
    (tmp_path / "link").symlink_to(made / "public")
    _at(made / "public").git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    documents, _ = landing.land(_of([str(tmp_path / "link")], tmp_path))
    assert [row["repository"] for row in documents] == ["link"]
    _, arrivals = type(landing)().land(_of([str(tmp_path / "linked")], tmp_path))
    assert "name the repository that it is of in `repositories` too" in arrivals[0]["detail"]
    documents, _ = type(landing)().land(_of([str(tmp_path / "linked"), str(made / "public")], tmp_path))
    assert sorted(row["repository"] for row in documents) == ["linked", "public"]
    with pytest.raises(OSError, match="outside of what the source names"):
        BlobReaders(str(tmp_path)).read(str(tmp_path / "linked"), "0" * 40, 1)


def test_head_may_name_a_tag_or_another_name_and_nothing_else(tmp_path: Path, landing: Any) -> None:
    """A tag of a commit and a chain of names lead to it; other objects are refused, and the repository beside lands."""
    made = {name: Repository(tmp_path / name) for name in ("tag", "chain", "loop", "tree", "blob", "plain")}
    for one in made.values():
        one.commit(a_py="a = 1\n")
    for name in ("chain", "loop"):
        made[name].git("symbolic-ref", "refs/heads/alias", "refs/heads/main" if name == "chain" else "HEAD")
        made[name].git("symbolic-ref", "HEAD", "refs/heads/alias")
    made["tag"].git("tag", "-a", "t", "-m", "t")
    for name, said in {"tag": "t", "tree": "HEAD^{tree}", "blob": "HEAD:a.py"}.items():
        (made[name].root / ".git" / "HEAD").write_bytes(made[name].git("rev-parse", said))
    source = {"kind": "git", "repositories": [str(tmp_path / "*")], "cache": str(tmp_path / "cache")}
    documents, arrivals = landing.land(DocumentsConfig.model_validate({"dataset": "d", "source": source}))
    assert [row["repository"] for row in documents] == ["chain", "plain", "tag"]
    refused = {row["repository"]: row["reason"] for row in arrivals if row["reason"]}
    assert refused == {"blob": "corrupt_repository", "loop": "empty", "tree": "corrupt_repository"}
