"""Find repositories of Python sources and the facts about them: installed distributions, or directories.

A distribution is one repository, named as the package index normalises names (PEP 503). Its files are those its RECORD
lists; its facts come out of its METADATA. A directory is one repository named after it; its facts come out of the
`[project]` table of its pyproject.toml, where there is one.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.file_reading import FACTS_FILE
from spark_jobs.sources.config.source_config import DocumentsConfig, PythonCodeSource, PythonDocsSource
from spark_jobs.sources.languages import PLAIN_TEXT, language_columns, language_of
from spark_jobs.sources.licences.statements import (
    LICENCE_FILE,
    MAX_LICENCE_BYTES,
    of_distribution,
    of_repository,
    strings_in,
)
from spark_jobs.sources.listing.changes import Earlier, Listed, ListedKind, facts_files, located
from spark_jobs.sources.opening.file_trees import FoundFile, Links, absolute, find_files, leads_out, stat_file
from spark_jobs.sources.records.facts import Facts
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.taken import left_out

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(.*)", re.DOTALL)
_NAME = re.compile(r"^Name:[ \t]*(\S.*)$", re.MULTILINE)
_EXTRA = re.compile(r"\bextra\s*==")
_INFO_DIRECTORY = re.compile(r"^([^/]+?)-[^/-]+(?:-py[0-9.]+)?\.(dist|egg)-info/")

_LICENCE_TEXTS = r"(?:LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|CONTRIBUTORS)[^/]*"
_README_OR_CHANGES = r"(?:README|CHANGE|HISTORY|NEWS|RELEASE)[^/.]*(?:\.txt)?"
_PROSE = re.compile(
    rf"(?i)(?:\.(?:mdx?|markdown|rst)$|(?:^|/)(?:{_LICENCE_TEXTS}|{_README_OR_CHANGES})$|\.dist-info/licenses/)"
)
_DESCRIPTION = re.compile(r"(?:\.dist-info/METADATA|\.egg-info/PKG-INFO)$")
_INFO = re.compile(r"^[^/]+\.(?:dist|egg)-info/")
_OUTSIDE = Refusal(Reason.OTHER_KIND, "outside of site-packages; none of the sources of its distribution")
_DESCRIBES = Refusal(Reason.OTHER_KIND, "it describes the distribution, and is none of its sources")
_NO_PROSE = Refusal(Reason.OTHER_KIND, "no prose by its name")


@dataclass(frozen=True)
class ListedRepository:
    """A repository with its files, listed when asked for."""

    facts: Facts
    root: str
    distribution: importlib.metadata.Distribution | None = None
    links: Links = "inside"
    refusal: Refusal | None = None  # of the whole, where its directory is a link that leads out

    def files(self, left_out: Callable[[str], Refusal | None]) -> Iterator[tuple[FoundFile, Refusal | None]]:
        """Every file and what could not be listed, with why it is left out; paths are below the root (site-packages).

        Of a hidden folder there is one entry for all that is in it.

        Args:
            left_out: why a file is left out, by its path.
        """
        if self.refusal is not None:
            yield FoundFile(self.root, "/", None, None, self.refusal), self.refusal
        elif self.distribution is None:
            for file in find_files(self.root, tells_hidden=True, links=self.links):
                yield file, file.refusal if file.path.endswith("/") else left_out(file.path)
        else:
            yield from _distribution_files(self.distribution, self.root, left_out)


def normalised_name(name: str) -> str:
    """A distribution's name as package indexes compare it: `Foo._bar` is `foo-bar` (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_repositories(names: Sequence[str] | None) -> list[ListedRepository]:
    """The installed distributions, or those named, in order of their normalised names.

    Raises:
        InputError: some of the names are not installed; the message lists all of them.
    """
    installed: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        name = _declared_name(distribution)
        if name:
            installed.setdefault(normalised_name(name), distribution)  # the first on the path is what gets imported
    wanted = sorted(installed) if names is None else sorted({normalised_name(name) for name in names})
    unknown = [name for name in wanted if name not in installed]
    if unknown:
        raise InputError(
            f"not installed: {', '.join(unknown)}; install them, or take them off the list of distributions"
        )
    return [
        ListedRepository(
            distribution_facts(name, distribution, _licence_texts(distribution)),
            str(distribution.locate_file("")),
            distribution,
        )
        for name, distribution in ((name, installed[name]) for name in wanted)
    ]


def _declared_name(distribution: importlib.metadata.Distribution) -> str | None:
    """The name in the core metadata, without parsing the whole of it where it is a file METADATA, as it mostly is."""
    match = _NAME.search(distribution.read_text("METADATA") or "")
    return match[1].strip() if match else _header(distribution.metadata, "Name")


def directory_repositories(patterns: Iterable[str], links: Links = "inside") -> list[ListedRepository]:
    """The directories named, with `PATH/*` standing for every subdirectory of PATH, in order of their names.

    Args:
        patterns: as the source names them.
        links: whether those below PATH, and what is in a directory, may be links out of it.

    Raises:
        InputError: a pattern finds no directory, or two directories have one name.
    """
    path_of_name: dict[str, str] = {}
    refusals: dict[str, Refusal | None] = {}
    for pattern in patterns:
        full = absolute(pattern)
        paths = [path for path in sorted(glob.glob(full)) if os.path.isdir(path)] if "*" in full else [full]
        if not paths or not all(map(os.path.isdir, paths)):
            raise InputError(f"{pattern}: no such directory; check the directories of the source")
        for path in paths:
            name = os.path.basename(path)
            if path_of_name.setdefault(name, path) != path:
                raise InputError(
                    f"{path_of_name[name]} and {path} are both named {name}; a dataset needs distinct names"
                )
            if links == "inside" and "*" in full:
                refusals[path] = leads_out(path, os.path.dirname(full.partition("*")[0]))
    return [
        ListedRepository(Facts(name), path, None, links, refusal)
        if (refusal := refusals.get(path))
        else ListedRepository(_project_facts(name, path, links), path, None, links)
        for name, path in sorted(path_of_name.items())
    ]


def distribution_facts(
    name: str, distribution: importlib.metadata.Distribution, texts: Mapping[str, bytes | None]
) -> Facts:
    """Facts out of the core metadata of a distribution, and the texts of its licences by their paths."""
    metadata = distribution.metadata  # parsed anew by each access
    header = partial(_header, metadata)
    classifiers = metadata.get_all("Classifier") or []
    others = {"summary": header("Summary"), "requires_python": header("Requires-Python")}
    licence = of_distribution(header("License-Expression"), classifiers, header("License"), texts)
    return Facts(
        repository=name,
        revision=header("Version"),
        version=header("Version"),
        licence=licence.licence,
        home_page=_home_page(header("Home-page"), metadata.get_all("Project-URL") or []),
        topics=sorted({c.removeprefix("Topic :: ") for c in classifiers if c.startswith("Topic :: ")}),
        dependencies=dependency_names(distribution.requires or []),
        metadata={key: value for key, value in others.items() if value} | licence.metadata,
    )


def _licence_texts(distribution: importlib.metadata.Distribution) -> dict[str, bytes | None]:
    """The texts of licences in the info directory of an installed distribution, by their paths."""
    texts = dict[str, bytes | None]()
    for path in distribution.files or ():
        if _INFO.match(str(path)) and LICENCE_FILE.fullmatch(path.name):
            with contextlib.suppress(OSError):  # listed, but taken away
                texts[stable_path(str(path))] = _small_file(str(distribution.locate_file(path)))
    return texts


def _small_file(path: str) -> bytes | None:
    """The bytes of a file; None where it is larger than texts of licences and manifests may be."""
    with open(path, "rb") as file:
        data = file.read(MAX_LICENCE_BYTES)
    return data if len(data) < MAX_LICENCE_BYTES else None


def _header(metadata: importlib.metadata.PackageMetadata, name: str) -> str | None:
    """A field of the core metadata, or None; several fields of one name give the first."""
    return next(iter(metadata.get_all(name) or []), None)


def dependency_names(requirements: Iterable[str]) -> list[str]:
    """Normalised names of requirements, sorted, without those of extras."""
    names = set()
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and not _EXTRA.search(match[2]):
            names.add(normalised_name(match[1]))
    return sorted(names)


def _home_page(home_page: str | None, project_urls: Sequence[str]) -> str | None:
    """`Home-page`, else the project URL most likely one."""
    if home_page and home_page.upper() != "UNKNOWN":
        return home_page
    labelled = (url.partition(",") for url in project_urls)
    urls = {label.strip().lower().replace("-", "").replace(" ", ""): url.strip() for label, _, url in labelled}
    wanted = ("homepage", "home", "repository", "source", "sourcecode", "github", "documentation")
    return next((urls[label] for label in wanted if label in urls), None)


def _project_facts(name: str, path: str, links: Links) -> Facts:
    """Facts out of a directory's pyproject.toml, where it can be read; the licence as for repositories of git."""

    def is_out(file_name: str) -> bool:
        return links == "inside" and leads_out(os.path.join(path, file_name), path) is not None

    def content(file_name: str) -> bytes | None:
        try:
            return None if is_out(file_name) else _small_file(os.path.join(path, file_name))
        except OSError:
            return None

    names = sorted(entry.name for entry in os.scandir(path) if entry.is_file() and not is_out(entry.name))
    licence = of_repository(content, names)
    try:
        project = tomllib.loads((content("pyproject.toml") or b"").decode("utf-8-sig")).get("project", {})
    except ValueError:
        project = {}
    if not isinstance(project, dict):
        project = {}
    version = project.get("version") if isinstance(project.get("version"), str) else None
    urls = project.get("urls")
    classifiers = strings_in(project.get("classifiers"))
    return Facts(
        repository=name,
        revision=version,
        version=version,
        licence=licence.licence,
        home_page=_home_page(None, [f"{key}, {url}" for key, url in urls.items()] if isinstance(urls, dict) else []),
        topics=sorted({c.removeprefix("Topic :: ") for c in classifiers if c.startswith("Topic :: ")}),
        dependencies=dependency_names(strings_in(project.get("dependencies"))),
        metadata=licence.metadata,
    )


def _distribution_files(
    distribution: importlib.metadata.Distribution, root: str, left_out: Callable[[str], Refusal | None]
) -> Iterator[tuple[FoundFile, Refusal | None]]:
    """The files of a distribution, with why they are left out; scripts outside of site-packages are not its sources."""
    recorded = distribution.files
    if recorded is None:
        name = distribution.metadata["Name"]
        refusal = Refusal(Reason.NO_FILE_LIST, f"{name} has no RECORD; reinstall it from a wheel")
        yield FoundFile(f"{root}/{name}", f"{name}/", None, None, refusal), None
        return
    for path in dict.fromkeys(str(file) for file in recorded):
        location = os.path.join(root, path)
        why = _OUTSIDE if path.startswith(("../", "/")) else left_out(path)
        yield (FoundFile(location, path, None, None), why) if why else (stat_file(location, path), None)


def stable_path(path: str) -> str:
    """The path without the version in the name of an info directory, so that a file keeps its path at an upgrade.

    `rich-15.0.0.dist-info/METADATA` is `rich.dist-info/METADATA`.
    """
    return _INFO_DIRECTORY.sub(r"\1.\2-info/", path)


P = TypeVar("P", bound=PythonCodeSource | PythonDocsSource)


class _PythonKind(ListedKind[P]):
    """Files of installed distributions or of directories, repository by repository."""

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed]:
        """Files of facts (the named one, else those in the folders of directories), then all others."""
        source = self.source
        roots = sorted({os.path.dirname(absolute(pattern)) for pattern in source.directories})
        files = [
            file
            for root in roots
            for file in [f"{root}/{FACTS_FILE}"]
            if os.path.isfile(file) and not (source.links == "inside" and leads_out(file, root))
        ]
        facts = facts_files(*(files if source.repositories is None else (source.repositories,)))
        named = source.directories
        repositories = (
            directory_repositories(named, source.links) if named else installed_repositories(source.distributions)
        )
        return located(config, (*facts, *(listed for repository in repositories for listed in self.listed(repository))))

    def listed(self, repository: ListedRepository) -> Iterator[Listed]:
        """The taken files of a repository."""
        raise NotImplementedError

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of the listing with the reader a part is named after (`x.py#docstring`), else as text."""
        part = arrival["path"].rpartition("#")[2]
        reader = part if part in ("docstring", "description") else "text"
        return language_columns(reader, language_of(arrival["path"]) or PLAIN_TEXT)


class CodeKind(_PythonKind[PythonCodeSource]):
    """Source files, by their kinds, and manifests; files about the distribution are left out."""

    takes_manifests = True

    def listed(self, repository: ListedRepository) -> Iterator[Listed]:
        """Every file: those of the kinds taken by the source and manifests, and why the others are left out."""
        for file, refusal in repository.files(
            lambda path: _DESCRIBES if _INFO.match(path) else left_out(path, self.source.kinds)
        ):
            yield Listed(file, file.path, "text", language_of(file.path), repository.facts, refusal)


class DocsKind(_PythonKind[PythonDocsSource]):
    """Prose files, the long description, and the docstring of each module."""

    def listed(self, repository: ListedRepository) -> Iterator[Listed]:
        """The prose in each file: the file itself, its docstring or its description."""

        def without_prose(path: str) -> Refusal | None:
            reader = _prose_reader(path)
            if reader == "docstring" and not self.source.docstrings:
                return Refusal(Reason.OTHER_KIND, "a module; docstrings is false")
            return _NO_PROSE if reader is None else None

        for file, refusal in repository.files(without_prose):
            path, reader = stable_path(file.path), _prose_reader(file.path)
            part = "" if reader in ("text", None) else f"#{reader}"
            language = language_of(path) if reader == "text" else None
            yield Listed(file, path + part, reader, language or PLAIN_TEXT, repository.facts, refusal)


def _prose_reader(path: str) -> str | None:
    """The reader for the prose in a file of a repository, or None where there is none in it."""
    if path.endswith(".py"):
        return "docstring"
    if _DESCRIPTION.search(path):
        return "description"
    language = language_of(path)
    return "text" if _PROSE.search(path) and (language is None or language.kind == "prose") else None
