"""Small Git repositories as bundles: two with a permitted licence, a fork, one with another licence, one without."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from dagster_project.cli.begin.recipes.sample_texts import read_files
from dagster_project.exceptions import CommandError

_FORKS = {"ledger-euro": "ledger"}
_DATES = {f"GIT_{who}_DATE": "2026-10-01T12:00:00Z" for who in ("AUTHOR", "COMMITTER")}
_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **_DATES}  # the same commits everywhere


def write_repositories(folder: Path) -> None:
    """Write `repositories/NAME.bundle`, the whole history of each repository in one file.

    Raises:
        CommandError: there is no git, or it failed.
    """
    bundles = folder / "repositories"
    with tempfile.TemporaryDirectory() as scratch:
        for place, text in read_files("repositories.txt").items():
            file = Path(scratch) / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("MINIFIED", "var wheel=1;" * 120), "utf-8")
        for name in sorted(path.name for path in Path(scratch).iterdir()):
            _bundle(Path(scratch), name, bundles / f"{name}.bundle")


def _bundle(scratch: Path, name: str, bundle: Path) -> None:
    """Commit the files of a repository and bundle it; the commit of a fork follows its origin's history."""
    work = scratch / name
    if name in _FORKS:
        _git(scratch, "clone", "--quiet", "--no-checkout", _FORKS[name], f"{name}.git")
        (scratch / f"{name}.git" / ".git").rename(work / ".git")
        _git(work, "read-tree", "HEAD")
    else:
        _git(work, "init", "--quiet", "--initial-branch=main")
    _git(work, "add", "--ignore-removal", ".")
    author = "A. Baker" if name in _FORKS else "A. Miller"
    who = ("-c", f"user.name={author}", "-c", f"user.email={author[3:].lower()}@example.org")
    _git(work, *who, "commit", "--quiet", "--message", "as it is")
    bundle.parent.mkdir(parents=True, exist_ok=True)  # only now, so that a failing git leaves no folder
    _git(work, "bundle", "create", "--quiet", str(bundle), "--all")


def _git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    command = ["git", "-C", str(folder), *words]
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, env={**others, **_ENVIRONMENT}, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CommandError("git: there is no such program; install git 2.33 or newer, and run this again") from error
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: {done.stderr.strip()}; install git 2.33 or newer")
