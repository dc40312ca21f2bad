"""requirements.lock is what pyproject.toml asks for, whole and pinned."""

import importlib.metadata
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


@pytest.fixture(scope="module")
def lock_script(repository: Path) -> ModuleType:
    """setup/lock.py as a module."""
    spec = importlib.util.spec_from_file_location("headrace_lock", repository / "setup" / "lock.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, object]:
    """The project table of pyproject.toml."""
    return tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def locked(repository: Path) -> dict[str, str]:
    """Every package of the lock with its version: of two versions that which is for this Python."""
    lines = (repository / "requirements.lock").read_text("utf-8").splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if re.match("[A-Za-z0-9._-]+==", line)]
    pins.sort(key=lambda pin: pin.marker is None or pin.marker.evaluate())
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def _requirements(project: dict[str, object]) -> Iterator[Requirement]:
    yield from map(Requirement, project["dependencies"])
    for extra in project["optional-dependencies"].values():
        yield from map(Requirement, extra)


def test_lock_was_made_for_this_pyproject(lock_script: ModuleType, repository: Path) -> None:
    """Whoever edits the requirements and forgets `make lock` is told so, without a network."""
    first_line = (repository / "requirements.lock").read_text("utf-8").split("\n", 1)[0]
    assert first_line == lock_script.header(), "requirements.lock is out of date; run: make lock"


def test_lock_satisfies_every_requirement_and_extra(project: dict[str, object], locked: dict[str, str]) -> None:
    """Each requirement of pyproject.toml, core or extra, is met by the version in the lock."""
    for requirement in _requirements(project):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in requirements.lock"
        assert requirement.specifier.contains(Version(version)), f"{requirement} is locked at {version}"


def test_lock_is_closed_under_dependencies(project: dict[str, object], locked: dict[str, str]) -> None:
    """Whatever a locked package needs on this platform is locked too, at a version that it accepts."""
    waiting = [(requirement, extra) for requirement in _requirements(project) for extra in ("", *requirement.extras)]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add((name, extra))
        for line in importlib.metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                version = locked.get(canonicalize_name(needed.name))
                assert version is not None, f"{name} needs {needed}, which is not locked"
                assert needed.specifier.contains(version, prereleases=True), f"{name} needs {needed}, not {version}"
                needed.marker = None
                waiting += [(needed, each) for each in ("", *needed.extras)]
    assert len(seen) > len(project["dependencies"])


def test_everything_locked_has_a_hash_and_no_address(repository: Path) -> None:
    """A package is installed only if its content is the locked one, from whichever index the machine is set to."""
    text = (repository / "requirements.lock").read_text("utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)[1:]
    assert entries
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.split("\n", 1)[0]
    assert "://" not in text
    assert "--index-url" not in text and "--find-links" not in text


def test_this_environment_is_the_locked_one(locked: dict[str, str]) -> None:
    """The tests run on the versions that users get."""
    installed = {canonicalize_name(each.name): each.version for each in importlib.metadata.distributions()}
    other = {name: version for name, version in locked.items() if installed.get(name, version) != version}
    assert other == {}, "run: make setup"


@pytest.mark.parametrize("extra", ["platform", "torch", "postgres", "s3", "bench", "dev"])
def test_extra_exists(project: dict[str, object], extra: str) -> None:
    """The extras that the documentation names are there."""
    assert project["optional-dependencies"][extra]


def test_torch_is_only_in_its_extra(project: dict[str, object]) -> None:
    """4 GB of torch and CUDA are for whoever asks for them."""
    asking = {"torch", "accelerate", "lightning", "torchdata"}  # and what asks for it
    holders = {
        name: {Requirement(line).name for line in extra} & asking
        for name, extra in {"": project["dependencies"], **project["optional-dependencies"]}.items()
    }
    assert {name for name, held in holders.items() if held} == {"torch", "frameworks"}


def test_extras_of_readers_are_parts_of_ingest(project: dict[str, object]) -> None:
    """Whoever installs one for a format gets what `ingest` has for it; each is named by the refusal of a file."""
    from spark_jobs.sources.reading.built_in import PARTS, READERS

    extras = project["optional-dependencies"]
    for extra in {of.extra for of in (*READERS.values(), *PARTS.values())} - {"ocr"}:
        assert set(extras[extra]) <= set(extras["ingest"]), extra
