"""What the command lines of all benchmarks share: a small size, and going on without what a machine lacks."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

SMALL = "--small"
Item = TypeVar("Item")


class MissingError(Exception):
    """Data or a tool that this machine lacks; the message says which."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows `--small`; `description` is the docstring of the benchmark."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(SMALL, action="store_true", help="the same tables of little data, in seconds: does it still run?")
    return made


def read(arguments: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """Parse the command line; with `--small` the defaults are these.

    Tables are made by Spark, which the pages speak of, and small ones by Sail, which starts fast, unless
    HEADRACE_ENGINE names one.
    """
    is_small = SMALL in sys.argv[1:]
    os.environ.setdefault("HEADRACE_ENGINE", "sail" if is_small else "spark")
    if is_small:
        arguments.set_defaults(**small)
    return arguments.parse_args()


def attempt(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a part gives; None, after a line with the reason, where this machine lacks what it needs."""
    try:
        return work(*arguments)
    except MissingError as reason:
        print(f"left out: {reason}", flush=True)


def readable(items: Iterable[Item]) -> Iterator[Item]:
    """The items up to the first that needs what this machine lacks, and a line with the reason."""
    try:
        yield from items
    except MissingError as reason:
        print(f"left out: {reason}", flush=True)


def run_parts(parts: dict[str, Callable[..., Any]], chosen: Iterable[str] | None, *arguments: Any) -> None:
    """Run the parts that are chosen, all without a choice, each under its name."""
    for name in chosen or parts:
        print(f"-- {name}", flush=True)
        attempt(parts[name], *arguments)


def again(file: str, *arguments: str) -> Any:
    """Run a benchmark once more in a process of its own, and read the JSON that its last line is."""
    done = subprocess.run([sys.executable, file, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def peer(python: str, *arguments: str, given: str | None = None) -> str:
    """What another tool's Python prints for `given` on its standard input.

    Raises:
        MissingError: it fails; the message is its last line.
    """
    try:
        done = subprocess.run([python, *arguments], input=given or "", capture_output=True, text=True, check=False)
    except OSError as error:
        raise MissingError(f"the peer does not start: {error}") from error
    if done.returncode:
        raise MissingError(f"the peer failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with some packages in a folder, by `uv` where it is there, else by pip; gives its Python.

    Raises:
        MissingError: the packages cannot be installed.
    """
    python = folder / "bin" / "python"
    try:
        if shutil.which("uv"):
            subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, folder], check=True)
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)
        else:
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    except subprocess.CalledProcessError as error:
        raise MissingError(f"{', '.join(packages)} cannot be installed") from error
    return python
