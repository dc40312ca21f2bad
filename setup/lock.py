"""Write requirements.lock: every package of headrace with all its extras, at one version, with hashes.

Versions that are locked already stay, as long as pyproject.toml allows them; `--upgrade` takes the newest instead. The
first line sums up what pyproject.toml asks for, so that a test (and a person) sees without a network when the lock is
out of date. No index is named in the file: it installs from whichever one pip and uv are set to.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
COMPILE = (
    *("pip", "compile", "--quiet", "pyproject.toml", "--all-extras", "--universal", "--generate-hashes"),
    *("--no-annotate", "--no-header", "--no-emit-index-url", "--python-version", "3.11"),
)


def header() -> str:
    """The first line of a lock that belongs to the pyproject.toml of now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = [
        project["build-system"]["requires"],
        project["project"]["requires-python"],
        project["project"]["dependencies"],
        project["project"]["optional-dependencies"],
    ]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return f"# make lock; for the requirements of pyproject.toml with SHA-256 {digest}"


def find_uv() -> Path | None:
    """The uv of the set-up: the one on the PATH, else the one that setup/install.sh fetched."""
    on_path = shutil.which("uv")
    return Path(on_path) if on_path else next(ROOT.glob(".uv/*/bin/uv"), None)


def main() -> int:
    """Solve and write the lock; what uv has to say about a conflict goes to standard error as it is."""
    uv = find_uv()
    if uv is None:
        print("make lock: no uv here; run make setup first, or put uv on the PATH", file=sys.stderr)
        return 2
    output = ("--output-file", str(LOCK.relative_to(ROOT)))
    done = subprocess.run([str(uv), *COMPILE, *output, *sys.argv[1:]], cwd=ROOT, check=False)
    if done.returncode:
        return done.returncode
    LOCK.write_text(f"{header()}\n{LOCK.read_text('utf-8')}", "utf-8")
    print(
        f"make lock: {sum(line[0].isalnum() for line in LOCK.read_text('utf-8').splitlines())} packages in {LOCK.name}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
