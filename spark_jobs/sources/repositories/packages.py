"""Packages as registries give them: what they are called, what is known of them, and which of a name is taken.

    sdist   name-1.0.tar.gz or .zip   name-1.0/PKG-INFO              name-1.0/src/a.py is src/a.py
    wheel   name-1.0-py3-none-any.whl name-1.0.dist-info/METADATA    a.py is a.py
    npm     name-1.0.tgz              package/package.json           package/a.js is a.js
    crate   name-1.0.crate            name-1.0/Cargo.toml            name-1.0/src/a.rs is src/a.rs

A package is a repository, named by its metadata, and its version is the revision. Of packages of one name the one of
the newest version is taken, and of one version the sdist.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from spark_jobs.sources import linguist
from spark_jobs.sources.config.source_config import DocumentsConfig, PackagesSource
from spark_jobs.sources.kinds import Listing
from spark_jobs.sources.languages import PLAIN_TEXT, language_columns, language_of
from spark_jobs.sources.licences.statements import LICENCE_FILE, MAX_LICENCE_BYTES, of_repository
from spark_jobs.sources.listing.changes import Earlier, LatestArrivals, Listed, ListedKind, located
from spark_jobs.sources.opening.archives import Unpacking, archive_members
from spark_jobs.sources.opening.file_trees import FoundFile, absolute, find_files, open_file, same_file, unreadable
from spark_jobs.sources.opening.streams import HashedFile, read_up_to
from spark_jobs.sources.records.facts import Facts, facts_json
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.repositories.package_versions import version_key
from spark_jobs.sources.repositories.repositories import distribution_facts, normalised_name, stable_path
from spark_jobs.sources.taken import left_out, taken

_METADATA: Final = {
    ".whl": ("wheel", re.compile(r"[^/]+\.dist-info/METADATA")),
    ".tgz": ("npm", re.compile(r"[^/]+/package\.json")),
    ".crate": ("crate", re.compile(r"[^/]+/Cargo\.toml")),
    ".gz": ("sdist", re.compile(r"[^/]+/PKG-INFO")),
    ".bz2": ("sdist", re.compile(r"[^/]+/PKG-INFO")),
    ".zip": ("sdist", re.compile(r"[^/]+/PKG-INFO")),
}
"""What a package is by its extension, and where its metadata is."""
_NAME = re.compile(r"(?:@[\w.~-]+/)?[\w.~-]+")
_REQUIREMENTS = re.compile(r".*\.egg-info/requires\.txt")
_LICENCES = re.compile(rf"(?:[^/]+/|[^/]+\.dist-info/licen[cs]es/(?:.*/)?){LICENCE_FILE.pattern}", re.IGNORECASE)
_INFO = re.compile(r"(?:^|/)[^/]+\.(?:dist|egg)-info/")
_PURE = re.compile(r"^[^/]+\.data/(?:pure|plat)lib/")
_MAX_METADATA_BYTES = 4 << 20
_READ: Final = (None, str(Reason.EMPTY), str(Reason.NO_USABLE_RECORD))
"""Reasons of packages that were read to their end."""


class PackageFacts(NamedTuple):
    """What is known of a package: a row of `repositories`, and what kind it is."""

    facts: Facts
    kind: str


class PackagesKind(ListedKind[PackagesSource]):
    """Packages, each the repository of the files in it."""

    takes_manifests = by_repository = True

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed]:
        """Every file of the source, as a package or with the reason why it is none that is taken."""
        packages = list_packages(self.source, earlier)
        return located(config, (Listed(file, ".", "package", PLAIN_TEXT, facts, why) for file, facts, why in packages))

    def changes(self, config: DocumentsConfig, arrivals: pa.Table, reread: bool, lake: Catalog | None) -> Listing:
        """See `ListedKind`; packages with other members taken than would be now are read again."""
        taking = self.taking()
        again = [
            location
            for location, last in LatestArrivals(arrivals.filter(pc.field("path") == ".")).items()
            if last["reason"] in _READ and not (last["detail"] or "").endswith(taking)
        ]
        is_read = pc.field("location").isin(pa.array(again, pa.string()))
        rest = arrivals.filter(~is_read | (pc.field("reason") == str(Reason.DELETED))) if again else arrivals
        return super().changes(config, rest, reread, lake)

    def taking(self) -> str:
        """By kinds, and whose languages they are of."""
        by = f"by {linguist.tables().source}" + "; the rest by magika" * (self.source.unknown == "detect")
        return f"{taken(self.source.kinds)} {by}"

    def member(self, name: str, location: str) -> dict[str, Any] | Refusal:
        """Columns of the listing for a member of the package at a location, or why it is left out."""
        path = _PURE.sub("", name) if location.lower().endswith(".whl") else name.partition("/")[2]
        if not path:
            return Refusal(Reason.OTHER_KIND, "beside the folder of the package")
        if _INFO.search(path):
            return Refusal(Reason.OTHER_KIND, "it describes the package, and is none of its sources")
        return left_out(path, self.source.kinds) or {"path": path} | language_columns("text", language_of(path))

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """The reader of packages."""
        return language_columns("package", PLAIN_TEXT)


def list_packages(
    source: PackagesSource, earlier: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[FoundFile, Facts | None, Refusal | None]]:
    """The files of a source, with what is known of a package and why it is not taken.

    A package is read where it is new or changed, or where another one of its name is new, changed or gone; of the
    others only the name is known. The path of a package in arrivals is `.`, the root of its repository.

    Args:
        source: where they are.
        earlier: the latest arrival at each location.
    """
    files = {file.location: file for file in find_files(absolute(source.path), links=source.links)}
    package_rows = {location: before for location, before in earlier.items() if before["path"] == "."}
    before_of = {location: package_rows[location] for location in files.keys() & package_rows.keys()}
    as_before = {
        location: before["repository"]
        for location, before in before_of.items()
        if before["status"] != "gone" and before["repository"] is not None and same_file(files[location], before)
    }
    packages, refused = dict[str, PackageFacts](), dict[str, Refusal]()

    def read(location: str) -> None:
        package = read_package(location, files[location].byte_count, source)
        if isinstance(package, PackageFacts):
            packages[location] = package
        else:
            refused[location] = package

    for location, file in files.items():
        if _extension(file.path) not in _METADATA:
            refused[location] = Refusal(Reason.UNKNOWN_FORMAT, "no package: .tar.gz, .zip, .whl, .tgz or .crate")
        elif location not in as_before and file.refusal is None:
            read(location)
    touched = {package.facts.repository for package in packages.values()}
    touched |= {before["repository"] for location, before in package_rows.items() if location not in files}
    for location, repository in as_before.items():
        if repository in touched:
            read(location)
    refused |= taken_packages(packages)
    for location, file in files.items():
        facts, refusal = None, refused.get(location)
        if location in packages:
            facts = packages[location].facts
        elif location in as_before and refusal is None:
            facts, before = Facts(as_before[location]), before_of[location]
            refusal = Refusal(Reason(before["reason"]), before["detail"]) if before["reason"] else None
        yield file, facts, refusal


def _extension(path: str) -> str:
    return os.path.splitext(path.lower())[1]


def read_package(location: str, byte_count: int | None, source: PackagesSource) -> PackageFacts | Refusal:
    """The facts in the metadata of a package, and the texts of its licences where its metadata name no licence."""
    kind, pattern = _METADATA[_extension(location)]
    metadata_files, licences, fault = dict[str, bytes](), dict[str, bytes | None](), None
    try:
        with open_file(location) as file, HashedFile(file) as whole:
            for member in archive_members(whole, byte_count, Unpacking(source.archives)):
                if member.stream is None:
                    fault = member.refusal if member.name is None else fault
                    continue
                name = (member.name or "").removeprefix("./")
                size = member.byte_count or 0
                if (pattern.fullmatch(name) or _REQUIREMENTS.fullmatch(name)) and size <= _MAX_METADATA_BYTES:
                    metadata_files[os.path.basename(name)] = read_up_to(member.stream, _MAX_METADATA_BYTES)
                elif _LICENCES.fullmatch(name):
                    large = size >= MAX_LICENCE_BYTES
                    licences[stable_path(name) if kind == "wheel" else name.partition("/")[2]] = (
                        None if large else read_up_to(member.stream, MAX_LICENCE_BYTES)
                    )
    except OSError as error:
        fault = unreadable(error)
    metadata = next((metadata_files[key] for key in metadata_files if key != "requires.txt"), None)
    if metadata is None:
        where = pattern.pattern.replace("[^/]+", "*").replace("\\", "")
        return fault or Refusal(Reason.NO_PACKAGE, f"no {kind}: it has no file {where}, which would say what it is")
    try:
        facts = _facts(kind, metadata, metadata_files.get("requires.txt", b""), licences)
        facts_json(facts or Facts("")).encode()
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Refusal(Reason.NO_PACKAGE, f"its metadata cannot be read: {type(error).__name__}: {error}"[:300])
    if facts is None or not _NAME.fullmatch(facts.repository):
        return Refusal(Reason.NO_PACKAGE, "its metadata state no name, or one that no package can have")
    return PackageFacts(facts, kind)


def taken_packages(packages: Mapping[str, PackageFacts]) -> dict[str, Refusal]:
    """Why packages are not taken, by location: there is a better one of their name."""
    best = {package.facts.repository: location for location, package in sorted(packages.items(), key=_rank)}
    refused = {}
    for location, package in packages.items():
        if (taken := best[package.facts.repository]) != location:
            other = packages[taken]
            detail = f"{package.kind} {package.facts.version}; {other.kind} {other.facts.version} at {taken} is taken"
            refused[location] = Refusal(Reason.OTHER_PACKAGE, detail)
    return refused


def _rank(entry: tuple[str, PackageFacts]) -> tuple[object, ...]:
    """A key to order packages of one name by their location and what they are, the best last."""
    location, package = entry
    return version_key(package.kind, package.facts.version or ""), package.kind == "sdist", location


class _CoreMetadata(importlib.metadata.Distribution):
    """A distribution of nothing but metadata."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def read_text(self, filename: str) -> str | None:
        """The text of a file of its metadata, or None."""
        return self._texts.get(filename) or None

    def locate_file(self, path: Any) -> Any:
        """Where a file of it is: nowhere, but the base class requires it."""
        return path


def _facts(kind: str, data: bytes, requirements: bytes, texts: Mapping[str, bytes | None]) -> Facts | None:
    """The facts in a package's metadata; None where they state no name.

    Args:
        kind: sdist, wheel, npm or crate.
        data: the metadata.
        requirements: the requires.txt of an sdist.
        texts: of licences, by their paths.

    Raises:
        ValueError, TypeError, AttributeError: the metadata are not what they should be.
    """
    metadata = data.decode("utf-8-sig", errors="replace")
    if kind in ("sdist", "wheel"):
        distribution = _CoreMetadata({"METADATA": metadata, "requires.txt": requirements.decode(errors="replace")})
        name = distribution.metadata["Name"]
        return distribution_facts(normalised_name(name), distribution, texts) if name else None
    declared: Any = json.loads(metadata) if kind == "npm" else tomllib.loads(metadata).get("package", {})
    if not isinstance(declared.get("name"), str):
        return None
    version = next(iter(_texts([declared.get("version")])), None)
    required = declared.get("dependencies") if kind == "npm" else tomllib.loads(metadata).get("dependencies")
    repository = declared.get("repository")
    address = repository.get("url") if isinstance(repository, dict) else repository
    summary = _texts([declared.get("description")])
    manifest = {"package.json" if kind == "npm" else "Cargo.toml": data}
    files = manifest | dict(texts)
    licence = of_repository(files.get, list(files))
    return Facts(
        repository=declared["name"],
        revision=version,
        version=version,
        licence=licence.licence,
        home_page=next(iter(_texts([declared.get("homepage"), address])), None),
        topics=sorted(set(_texts(declared.get("keywords")))),
        dependencies=sorted(required) if isinstance(required, dict) else [],
        metadata=({"summary": summary[0]} if summary else {}) | licence.metadata,
    )


def _texts(values: object) -> list[str]:
    """The nonempty texts among some values."""
    return [value for value in values if isinstance(value, str) and value] if isinstance(values, list) else []
