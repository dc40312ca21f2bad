"""Make git repositories for tests, and say by `git archive` what a checkout of a revision holds."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


class Repository:
    """A work tree in which tests commit; time goes on by an hour with every commit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seconds = 1_700_000_000
        root.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, given: bytes | None = None, author: str = "ada@example.org") -> bytes:
        """What a git command prints."""
        date = f"{self.seconds} +0000"
        environment = {
            **_ENVIRONMENT,
            "GIT_AUTHOR_EMAIL": author,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
            "HOME": str(self.root),
        }
        done = subprocess.run(
            ["git", "-C", str(self.root), *arguments], input=given, capture_output=True, env=environment, check=True
        )
        return done.stdout

    def write(self, **files: str | bytes | None) -> None:
        """Put files into the work tree; None deletes one, `__` in a name is a slash and `_` a dot."""
        self.write_paths({name.replace("__", "/").replace("_", "."): content for name, content in files.items()})

    def write_paths(self, files: dict[str, str | bytes | None]) -> None:
        """Put files into the work tree by their paths; None deletes one."""
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, author: str = "ada@example.org", **files: str | bytes | None) -> str:
        """Commit files and whatever else is in the work tree; gives the commit's id."""
        self.write(**files)
        self.seconds += 3600
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x", author=author)
        return self.head()

    def head(self) -> str:
        """The commit of HEAD."""
        return self.git("rev-parse", "HEAD").decode().strip()

    def revisions(self, *arguments: str) -> list[str]:
        """Commits that `git rev-list` prints."""
        return self.git("rev-list", *arguments).decode().split()

    def checkout(self, revision: str, *extensions: str) -> dict[str, bytes]:
        """Files of a revision with one of the extensions, by path, as `git archive` packs them."""
        files = {}
        with tarfile.open(fileobj=io.BytesIO(self.git("archive", "--format=tar", revision))) as packed:
            for member in packed:
                opened = packed.extractfile(member) if member.isfile() else None
                if opened is not None and member.name.endswith(extensions):
                    files[member.name] = opened.read()
        return files


def random_history(root: Path, seed: int, commits: int) -> Repository:
    """A repository with edits, reverts, renames, deletions, branches, merges and tags."""
    chosen, repository = random.Random(seed), Repository(root)
    repository.commit(a_py="a = 0\n", README_md="read me\n")
    for number in range(commits):
        action = chosen.choice(["edit", "edit", "edit", "revert", "rename", "delete", "add", "branch", "merge", "tag"])
        here = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py") if path.is_file())
        target = chosen.choice(here) if here else "a.py"
        if action == "branch":
            repository.git("checkout", "-q", "-b", f"b{number}", chosen.choice(repository.revisions("HEAD")))
        elif action == "merge":
            branches = repository.git("branch", "--format=%(refname:short)").decode().split()
            repository.seconds += 3600
            _merge(repository, chosen.choice(branches))
        elif action == "tag":
            repository.git("tag", f"t{number}")
            repository.git("tag", "-a", "-m", "x", f"annotated{number}", chosen.choice(repository.revisions("--all")))
        elif action == "rename" and here:
            (root / f"r{number}.py").write_bytes((root / target).read_bytes())
            (root / target).unlink()
            repository.commit()
        elif action == "delete" and len(here) > 1:
            (root / target).unlink()
            repository.commit()
        else:
            text = f"x = {chosen.randrange(4)}\n" if action == "revert" else f"x = {number}\n"
            repository.write_paths({target if action != "add" else f"d/{number}.py": text})
            repository.commit()
    return repository


def _merge(repository: Repository, branch: str) -> None:
    """Merge a branch where that goes without a conflict."""
    try:
        repository.git("merge", "-q", "--no-ff", "-X", "ours", "-m", "m", branch)
    except subprocess.CalledProcessError:
        repository.git("reset", "-q", "--hard")
