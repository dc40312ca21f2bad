"""Repositories are what is really installed, or directories; their facts are those of their metadata."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.repositories.repositories import (
    dependency_names,
    directory_repositories,
    installed_repositories,
    normalised_name,
    stable_path,
)


def test_facts_of_a_real_distribution_are_those_of_its_metadata() -> None:
    """rich: name, version, licence, home page and requirements, against importlib.metadata."""
    (repository,) = installed_repositories(["Rich"])
    facts = repository.facts
    assert (facts.repository, facts.licence) == ("rich", "MIT")
    assert facts.version == facts.revision == importlib.metadata.version("rich")
    assert facts.home_page == "https://github.com/Textualize/rich"
    assert facts.dependencies == ["markdown-it-py", "pygments"]  # ipywidgets belongs to an extra
    assert facts.metadata["requires_python"].startswith(">=3")


def test_files_of_a_real_distribution_are_those_of_its_record() -> None:
    """Every file that rich installed: Python's with its size on disk, the others with why they are left out."""
    (repository,) = installed_repositories(["rich"])
    other = Refusal(Reason.OTHER_KIND, "no Python")
    listed = list(repository.files(lambda path: None if path.endswith(".py") else other))
    files = {file.path: file for file, refusal in listed if refusal is None}
    recorded = [str(f) for f in importlib.metadata.files("rich") or []]
    assert sorted(file.path for file, _ in listed) == sorted(recorded)
    assert set(files) == {path for path in recorded if path.endswith(".py") and ".." not in path} and len(files) > 50
    assert all(file.byte_count == Path(file.location).stat().st_size for file in files.values())


def test_unknown_distributions_are_told_all_at_once() -> None:
    """One line with every name, so that a list is mended in one go."""
    with pytest.raises(InputError, match=r"^not installed: no-such-a, no-such-b; install them"):
        installed_repositories(["no_such.B", "rich", "No-Such-A"])


@pytest.mark.nightly
def test_all_installed_distributions_are_listed_once_in_order() -> None:
    """Without a list: every one, by its normalised name."""
    names = [repository.facts.repository for repository in installed_repositories(None)]
    installed = {normalised_name(d.metadata["Name"]) for d in importlib.metadata.distributions()}
    assert names == sorted(installed)


def test_a_star_makes_every_subdirectory_a_repository(tmp_path: Path) -> None:
    """Files beside the directories are none; facts come out of pyproject.toml where it can be read."""
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "one" / "pyproject.toml").write_text(
        '[project]\nname = "whatever"\nversion = "1.2"\nlicense = {text = "mit"}\n'
        'dependencies = ["NumPy>=2", "a.b; extra == \'x\'"]\n'
        'classifiers = ["Topic :: Text Processing"]\n[project.urls]\nHomepage = "https://example.org"\n'
    )
    (tmp_path / "two" / "pyproject.toml").write_text("not = toml = at all")
    one, three, two = (repository.facts for repository in directory_repositories([f"{tmp_path}/*"]))
    assert (one.repository, three.repository, two.repository) == ("one", "three", "two")
    assert (one.version, one.licence, one.home_page) == ("1.2", "MIT", "https://example.org")
    assert (one.dependencies, one.topics) == (["numpy"], ["Text Processing"])
    assert (two.version, two.dependencies, three.version) == (None, [], None)


def test_directories_that_are_not_there_or_share_a_name_are_errors(tmp_path: Path) -> None:
    """Both are told before anything is read."""
    (tmp_path / "x" / "same").mkdir(parents=True)
    (tmp_path / "y" / "same").mkdir(parents=True)
    for pattern in (f"{tmp_path}/absent", f"{tmp_path}/absent/*"):
        with pytest.raises(InputError, match="no such directory"):
            directory_repositories([pattern])
    with pytest.raises(InputError, match="are both named same"):
        directory_repositories([f"{tmp_path}/x/*", f"{tmp_path}/y/same"])
    assert len(directory_repositories([f"{tmp_path}/x/*", f"{tmp_path}/x/same/"])) == 1


def test_dependencies_are_names_without_versions_markers_and_extras() -> None:
    """Golden requirement strings as core metadata writes them."""
    requirements = [
        "Foo_Bar (>=1.0)",
        "baz[fast,extra]>=2; python_version < '3.12'",
        "qux @ https://example.org/qux.whl",
        "only-extra; extra == 'dev'",
        "foo-bar; sys_platform == 'win32'",
        "not-an-extra; implementation_name == 'extra'",
        "",
    ]
    assert dependency_names(requirements) == ["baz", "foo-bar", "not-an-extra", "qux"]


@pytest.mark.parametrize(
    ("path", "stable"),
    [
        ("rich-15.0.0.dist-info/METADATA", "rich.dist-info/METADATA"),
        ("ruamel.yaml-0.19.1.dist-info/licenses/LICENSE", "ruamel.yaml.dist-info/licenses/LICENSE"),
        ("types_grpcio-1.85.0.20261028.dist-info/METADATA", "types_grpcio.dist-info/METADATA"),
        ("torch-2.13.0+cpu.dist-info/METADATA", "torch.dist-info/METADATA"),
        ("old-1.0-py3.11.egg-info/PKG-INFO", "old.egg-info/PKG-INFO"),
        ("rich/a-1.dist-info/x", "rich/a-1.dist-info/x"),
        ("rich/console.py", "rich/console.py"),
    ],
)
def test_an_upgrade_does_not_move_the_files_of_an_info_directory(path: str, stable: str) -> None:
    """The version is a revision, not a part of the path."""
    assert stable_path(path) == stable


@given(st.text("aB1", min_size=1), st.text("-_.", min_size=1), st.text("aB1", min_size=1))
def test_normalised_names_ignore_case_and_separators(head: str, separators: str, tail: str) -> None:
    """PEP 503: runs of -, _ and . are one hyphen, letters are lower case."""
    assert normalised_name(head + separators + tail) == f"{head}-{tail}".lower()
