"""The config of a dataset, and of sources: one model for each kind of source.

source: {kind: python_code, distributions: [attrs, rich]}
source: {kind: python_docs, directories: [~/src/*]}
source: {kind: files, path: ~/crawl, text_column: body, id_column: url, metadata_columns: [fetched]}
source: {kind: git, repositories: [~/mirrors/*.git], revisions: tags, select: {min_commits: 10}}
source: {kind: packages, path: ~/wheels}
source: {kind: generated, parents: {dataset: notes}, templates: [questions], endpoint: {url: .., model: ..}}
source: {kind: executed, parents: {dataset: code}}
source: {kind: api, url: https://host.example/v1/items, records: data, text_column: body, id_column: id}
source: {kind: files, path: ~/code, text_column: text, repository_column: repo, fact_columns: {fork_of: parent}}

Facts about repositories may also be in a file of their own (see `stated_facts`): the one named in `repositories`, else
`repositories.jsonl` in the root of the source: `path` or the folder of the directories.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Union, get_args

from pydantic import Field, SerializeAsAny, WrapValidator, field_validator, model_validator

from spark_jobs.credentials import VARIABLE, refuse_secrets
from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.features import brought
from spark_jobs.plugins import attribute, load, reference
from spark_jobs.sources.config.declared import NO_ROWS, Declared, WithoutSecrets
from spark_jobs.sources.config.file_reading import Described, Kind
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.config.iceberg_source import IcebergSource
from spark_jobs.sources.config.paged_source import PagedSource, RequestLimits
from spark_jobs.sources.licences.names import required_ids
from spark_jobs.sources.opening.file_trees import (
    ABOUT_LINKS,
    FoundFile,
    Links,
    absolute,
    find_files,
    glob_pattern,
    open_file,
)
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.table_folders import without_engine_files


class _OfKinds(Declared):
    """The choice of files in a repository."""

    kinds: tuple[Kind, ...] = Field(
        ("code", "markup", "data"),
        min_length=1,
        description="kinds of files taken, by name and content; manifests (go.mod, package.json, ..) of other kinds "
        "land too, for `dependencies` alone",
    )
    unknown: Literal["refuse", "detect"] = Field(
        "refuse",
        description="files for which Linguist has no language, or several: leave them out or take the likeliest, or "
        "detect by magika what they are",
    )


class _Repositories(Described):
    """Installed Python distributions, or directories, each of them a repository."""

    distributions: tuple[str, ...] | None = Field(
        None, description="names of installed distributions; without it and without directories: all that are installed"
    )
    directories: tuple[str, ...] = Field(
        (), description="directories, each one repository named after it; PATH/* makes every subdirectory of PATH one"
    )

    links: Links = Field("inside", description=ABOUT_LINKS, json_schema_extra=NO_ROWS)  # a listing has what follows

    @model_validator(mode="after")
    def _one_origin(self) -> _Repositories:
        """Refuse distributions together with directories: two repositories could have one name."""
        if self.distributions is not None and self.directories:
            raise ValueError("name distributions or directories, not both; declare a dataset for each")
        if self.distributions is not None and not self.distributions:
            raise ValueError("distributions is empty; leave it out to take every installed one")
        return self


class PythonCodeSource(_Repositories, _OfKinds):
    """Source files of repositories."""

    kind: Literal["python_code"] = "python_code"


class PythonDocsSource(_Repositories):
    """READMEs, long descriptions, change logs, licence texts and module docstrings of repositories, as prose."""

    kind: Literal["python_docs"] = "python_docs"
    docstrings: bool = Field(True, description="whether each module's docstring is a document of its own")


class RepositorySelection(Declared):
    """The conditions on a git repository; one against them is an arrival with the reason."""

    min_commits: int = Field(0, ge=0, description="fewest commits in its history")
    min_authors: int = Field(0, ge=0, description="fewest authors in its history, by e-mail address")
    min_files: int = Field(0, ge=0, description="fewest files in its newest revision")
    min_tests_share: float = Field(0, ge=0, le=1, description="least share of bytes that are tests, by their paths")
    max_vendored_share: float = Field(1, ge=0, le=1, description="largest share of bytes that are other people's code")
    active_since: datetime.date | None = Field(None, description="day on or after which its last commit was made")
    licences: tuple[str, ...] = Field(
        (), description="SPDX ids, one of which its licence allows to choose; without them any licence or none will do"
    )
    forks: bool = Field(True, description="whether forks of other repositories of the dataset are taken")

    @field_validator("licences")
    @classmethod
    def _licences_are_ids(cls, licences: tuple[str, ...]) -> tuple[str, ...]:
        """Check that each name is an SPDX id, and spell it as SPDX does."""
        return required_ids(licences)


class EveryNth(Declared):
    """Every Nth commit of the line of first parents, counted from the root, and the newest."""

    every: int = Field(ge=1, description="N; 1 takes each commit of that line")


class GitSource(_OfKinds):
    """Source files of git repositories, in one revision or in many; docs/prepare/ingest_git.md."""

    kind: Literal["git"] = "git"
    repositories: tuple[str, ...] = Field(
        min_length=1, description="bare repositories, work trees and .bundle files; PATH/*.git takes each that matches"
    )
    revisions: Literal["latest", "tags", "all"] | EveryNth = Field(
        "latest",
        description="which commits are read: that of HEAD, those of tags, all behind HEAD, or {every: N} on its line "
        "of first parents",
    )
    marked: Literal["leave_out", "take"] = Field(
        "leave_out", description="files that .gitattributes calls linguist-generated, linguist-vendored or -diff"
    )
    select: RepositorySelection = Field(RepositorySelection(), description="which repositories are taken")
    cache: str = Field(
        "~/.cache/headrace/git",
        min_length=1,
        description="folder on each machine where bundles are unpacked",
        json_schema_extra=NO_ROWS,
    )


class PackagesSource(_OfKinds, WithoutSecrets):
    """Source files of packages as registries give them: sdist, wheel, npm, crate; docs/prepare/ingest_archives.md."""

    kind: Literal["packages"] = "packages"
    path: str = Field(min_length=1, description="package or directory of packages, or a URI that PyArrow opens")
    archives: ArchiveLimits = Field(ArchiveLimits(), description="how much of a package is unpacked")
    links: Links = Field("inside", description=ABOUT_LINKS, json_schema_extra=NO_ROWS)


def _require_kind(name: str) -> None:
    """Refuse a kind without its feature."""
    try:
        reference("kinds", name, ())
    except ConfigError as error:
        raise ValueError(str(error)) from error


class FilesSource(FileSource):
    """Files of records, web archives, pages, PDF, scans, Word, mails, texts and archives of them under one path."""

    kind: Literal["files"] = "files"
    path: str = Field("", description="file or directory, or a URI that PyArrow opens (s3://bucket/folder)")
    urls: str | None = Field(
        None, min_length=1, description="instead of path: file of web addresses, one a line; docs/prepare/ingest.md"
    )
    limits: RequestLimits = Field(
        RequestLimits(start_per_second=1, max_per_second=4),
        description="how hard each host of `urls` is asked",
        json_schema_extra=NO_ROWS,
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="hosts in private networks, with :port where it is not the usual one, that addresses of `urls` and "
        "redirects may lead to",
        json_schema_extra=NO_ROWS,
    )
    glob: str | None = Field(
        None, min_length=1, description="only files whose path below `path` matches, e.g. *.jsonl.gz or 2026/**/part-*"
    )
    links: Links = Field("inside", description=ABOUT_LINKS, json_schema_extra=NO_ROWS)
    stall_seconds: float = Field(
        60,
        gt=0,
        description="longest wait for the next bytes of a web server; then the file is refused (no_answer)",
        json_schema_extra=NO_ROWS,
    )

    @model_validator(mode="after")
    def _one_origin(self) -> FilesSource:
        """Refuse a source without files, or with two kinds of them."""
        if bool(self.path) == bool(self.urls):
            raise ValueError("path is missing; write it, or urls" if not self.path else "name path or urls, not both")
        if self.urls:
            _require_kind("addresses")
        if self.path.startswith(("http://", "https://")) and VARIABLE.search(self.path):
            raise ValueError("path: no credentials are sent to a web server; take ${..} out, or fetch it as an api")
        return self

    @property
    def is_fetched(self) -> bool:
        """Whether a run asks for addresses before it can list them."""
        return self.urls is not None

    @property
    def listed_as(self) -> str:
        """Files of a tree, or web addresses."""
        return "files" if self.urls is None else "addresses"

    def entries(self) -> Iterator[FoundFile]:
        """Files below the path with matching names."""
        wanted = None if self.glob is None else glob_pattern(self.glob)
        for file in without_engine_files(find_files(absolute(self.path), self.stall_seconds, links=self.links)):
            if wanted is None or wanted.fullmatch(file.path) or file.path.endswith("/"):
                yield file

    def open(self, location: str) -> IO[bytes] | Any:
        """The file at a path or URI."""
        return open_file(location, self.stall_seconds)


_OfFiles = PythonCodeSource | PythonDocsSource | FilesSource | IcebergSource | PackagesSource | GitSource
if TYPE_CHECKING:
    _Own = _OfFiles | PagedSource
else:  # the models that features bring for their kinds are headrace's own
    _Own = Union[_OfFiles, *map(attribute, brought("sources").values())]
_OWN_KINDS = tuple(str(model.model_fields["kind"].default) for model in get_args(_Own))


def _of_its_kind(value: Any, validate: Any) -> Any:
    """The source behind a declared value: one of headrace's, or of a package's class for its kind."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _OWN_KINDS:
        return value if isinstance(value, FileSource) else validate(value)
    try:
        kind_model = load("sources", kind, FileSource, _OWN_KINDS)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    model: Any = kind_model
    if model.model_fields["kind"].annotation is not str:
        raise ValueError(f"{kind}: {model.__name__} declares a field `kind`; leave it out, it is what YAML says")
    if unknown := sorted(set(value) - set(model.model_fields)):
        raise ValueError(f"{unknown[0]}: there is no such field{did_you_mean(unknown[0], model.model_fields)}")
    return model.model_validate(value)


Source = Annotated[SerializeAsAny[Annotated[_Own, Field(discriminator="kind")]], WrapValidator(_of_its_kind)]


class Provenance(Declared):
    """Where a dataset is from, as people state it; it is written into the table `provenance`."""

    licence: str | None = Field(None, min_length=1, description="licence of the whole, in SPDX or in words")
    licence_evidence: str | None = Field(None, min_length=1, description="where that is written, e.g. an address")
    collected_by: str | None = Field(None, min_length=1, description="person or team who answers for it")


class DocumentsConfig(Declared):
    """A dataset: its name, its source, and how it is laid out."""

    dataset: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$", description="name of the dataset; part of every doc_id")
    source: Source = Field(description="where the documents come from")
    landing: Literal["reference", "copy"] = Field(
        "reference",
        description="copy keeps the bytes of every file that is read, named by their SHA-256, and reads those; "
        "reference notes the hash and leaves the file where it is",
    )
    provenance: Provenance = Field(Provenance(), description="where the data is from", json_schema_extra=NO_ROWS)
    shards: int = Field(1, ge=1, le=65536, description="shards of every table of the dataset, a power of two")
    max_document_bytes: int = Field(
        100_000_000, ge=1, le=1_000_000_000, description="larger documents are refused (arrivals.reason too_large)"
    )
    allow_empty: bool = Field(
        False,
        description="take a source without any file for one whose files were all deleted; else it is an error",
        json_schema_extra=NO_ROWS,
    )

    @property
    def is_fetched(self) -> bool:
        """Whether a run asks the source for what is new before it can list it."""
        return bool(getattr(self.source, "is_fetched", False))

    @model_validator(mode="after")
    def _evidence_holds_no_secret(self) -> DocumentsConfig:
        """Refuse addresses of the provenance with parts unfit for tables."""
        refuse_secrets(self.provenance, getattr(self.source, "public", ()))
        return self

    @model_validator(mode="after")
    def _can_be_copied(self) -> DocumentsConfig:
        """Refuse `landing: copy` of pages, since they are always copied, and of git, since its files never change."""
        if self.landing == "copy" and isinstance(self.source, PagedSource):
            raise ValueError("landing: copy is what APIs and streams always do; leave it out")
        if self.landing == "copy" and isinstance(self.source, GitSource):
            raise ValueError("landing: copy has no use for git, which names files by their hash; leave it out")
        return self

    @field_validator("shards")
    @classmethod
    def _power_of_two(cls, shards: int) -> int:
        """Only powers of two can be doubled by splitting every shard in two."""
        if shards & (shards - 1):
            raise ValueError(f"{shards} is no power of two")
        return shards
