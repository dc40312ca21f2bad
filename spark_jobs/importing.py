"""Import packages in a process of their own, and say what mends one that is there and cannot be imported.

A package is found by its name, and may yet lack one of its own requirements: pip before 23.3 installs no extra whose
name another package writes otherwise, such as `lxml[html_clean]` of justext.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Sequence
from importlib import metadata
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SECONDS: Final = 120  # for all imports together: torch alone takes 10 on a cold disk
_PROGRAM: Final = """
import contextlib, importlib, json, os, sys
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
    faults = {}
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except BaseException as error:
            faults[name] = f"{type(error).__name__}: {error}"
print(json.dumps(faults))
"""
_importable: Final = set[str]()  # what was imported once; a fault is looked at anew, for it may be mended meanwhile


class ImportFault(NamedTuple):
    """A package that cannot be imported.

    Attributes:
        package: its name as a module.
        text: why, in a line.
        mend: the command that mends it; empty where the package is not there at all.
    """

    package: str
    text: str
    mend: str


def import_faults(packages: Collection[str]) -> list[ImportFault]:
    """Those of some packages that this Python cannot import, in their order; each is imported in another process."""
    untried = [name for name in dict.fromkeys(packages) if name not in _importable]
    there = [name for name in untried if importlib.util.find_spec(name) is not None]
    faults = {name: ImportFault(name, "it is not installed", "") for name in untried if name not in there}
    for name, error in (_tried(there) if there else {}).items():
        text = " ".join(error.split())[:300]
        faults[name] = ImportFault(name, f"it cannot be imported ({text})", _mend(name))
    _importable.update(name for name in there if name not in faults)
    return [faults[name] for name in untried if name in faults]


def _tried(packages: Sequence[str]) -> dict[str, str]:
    """The errors of imports by package."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _PROGRAM, *packages]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return {}  # slow is no fault
    if done.returncode and len(packages) > 1:  # one of them ends the process
        return {name: error for each in packages for name, error in _tried([each]).items()}
    if done.returncode:
        return {packages[0]: f"the process ended with status {done.returncode}"}
    faults: dict[str, str] = json.loads(done.stdout)
    return faults


def _mend(package: str) -> str:
    holders = metadata.packages_distributions().get(package.partition(".")[0], [])
    lacking = [requirement for holder in holders for requirement in unmet_requirements(holder)]
    if lacking:
        return shlex.join(["pip", "install", *dict.fromkeys(lacking)])
    return f"pip install --force-reinstall --no-deps {holders[0]}" if holders else ""


def unmet_requirements(distribution: str) -> list[str]:
    """Requirements of an installed distribution, and of what it requires, that nothing installed meets."""
    waiting, seen, unmet = [Requirement(distribution)], set[tuple[str, frozenset[str]]](), dict[str, None]()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        try:
            there = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:
            unmet[f"{wanted.name}{wanted.specifier}"] = None
            continue
        if not wanted.specifier.contains(there.version, prereleases=True):
            unmet[f"{wanted.name}{wanted.specifier}"] = None
        if key in seen:
            continue
        seen.add(key)
        for requirement in map(Requirement, there.requires or ()):
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in (*wanted.extras, "")
            ):
                waiting.append(requirement)
    return list(unmet)
