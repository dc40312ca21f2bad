"""The config of a dataset, and of sources: one model for each kind of source that a user can declare.

source: {kind: python_code, distributions: [attrs, rich]}
source: {kind: python_docs, directories: [~/src/*]}
source: {kind: files, path: ~/crawl, text_column: body, id_column: url, metadata_columns: [fetched]}
source: {kind: git, repositories: [~/mirrors/*.git], revisions: tags, select: {min_commits: 10}}
source: {kind: packages, path: ~/wheels}
source: {kind: api, url: https://host.example/v1/items, records: data, text_column: body, id_column: id}
source: {kind: files, path: ~/code, text_column: text, repository_column: repo, fact_columns: {fork_of: parent}}

Facts about repositories may also be in a file of their own (see `stated_facts`): the one that `repositories` names,
else `repositories.jsonl` in the root of the source, which is `path` or the folder of the directories.
"""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from spark_jobs.exceptions import did_you_mean
from spark_jobs.sources.api.api_config import VARIABLE, ApiSource, Limits, PagedSource
from spark_jobs.sources.repositories.licences import spdx_expression

Kind = Literal["code", "prose", "markup", "data"]
KINDS: tuple[str, ...] = get_args(Kind)
RepositoryFact = Literal["revision", "version", "licence", "home_page", "fork_of", "stars", "topics", "dependencies"]
FACTS_FILE = "repositories.jsonl"
COLUMN_READERS = ("parquet", "jsonl", "csv", "tsv")
"""Readers of files of records with named columns, of which one holds the text."""
ARCHIVE_READERS = ("archive", "package")
"""Readers of files that hold files."""
RECORD_READERS = (*COLUMN_READERS, "warc", "mbox", "xml", "log", "page", *ARCHIVE_READERS, "detect")
"""Readers of files that hold any number of documents; what `detect` finds out by content may be one of the others."""
RECODED_READERS = ("jsonl", "csv", "tsv", "log")
"""Readers of records for which `encoding: detect` finds the encoding of the file from its beginning."""
PAGED_READERS = ("pdf", "picture")
"""Readers of files of pages, whose text may be recognised."""
EXTRACTING_READERS = ("html", "docx", "mail", "notebook", *PAGED_READERS)
"""Readers of files that are one document, whose text is extracted."""


class ArchiveLimits(BaseModel):
    """How much of an archive is unpacked: what is above is refused as decompression_bomb, what is before it lands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_ratio: int = Field(
        200,
        ge=1,
        le=100_000,
        description="most bytes that a packed byte may become, for each packed stream or member above 16 MB",
    )
    max_members: int = Field(
        200_000, ge=1, le=1_000_000, description="most members, those of archives in the archive included"
    )
    max_depth: int = Field(3, ge=1, le=8, description="archives in archives; 1 refuses every archive in another")
    max_unpacked_bytes: int = Field(
        1 << 36, ge=1, le=1 << 44, description="most bytes unpacked of one archive, at all depths together"
    )
    max_temporary_bytes: int = Field(
        1 << 30,
        ge=1,
        le=1 << 40,
        description="largest zip or Parquet file inside of an archive, which is copied to a temporary file",
    )


class _Described(BaseModel):
    """A source with an optional file of facts about its repositories."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repositories: str | None = Field(
        None,
        min_length=1,
        description="file with one JSON object about a repository on each line (repository, fork_of, stars, licence, "
        "topics, ..); without it, repositories.jsonl in the root of the source where there is one",
    )


class _Repositories(_Described):
    """Installed Python distributions, or directories, each of them a repository."""

    distributions: tuple[str, ...] | None = Field(
        None, description="names of installed distributions; without it and without directories: all that are installed"
    )
    directories: tuple[str, ...] = Field(
        (), description="directories, each one repository named after it; PATH/* makes every subdirectory of PATH one"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> _Repositories:
        """Refuse distributions together with directories: two repositories could have one name."""
        if self.distributions is not None and self.directories:
            raise ValueError("name distributions or directories, not both; declare a dataset for each")
        if self.distributions is not None and not self.distributions:
            raise ValueError("distributions is empty; leave it out to take every installed one")
        return self


class PythonCodeSource(_Repositories):
    """Source files of repositories."""

    kind: Literal["python_code"] = "python_code"
    kinds: tuple[Kind, ...] = Field(
        ("code", "markup", "data"),
        min_length=1,
        description="kinds of files taken, told by their extension; manifests (go.mod, package.json, ..) of other "
        "kinds land too, for `dependencies` alone",
    )


class PythonDocsSource(_Repositories):
    """READMEs, long descriptions, change logs, licence texts and module docstrings of repositories, as prose."""

    kind: Literal["python_docs"] = "python_docs"
    docstrings: bool = Field(True, description="whether each module's docstring is a document of its own")


class RepositorySelection(BaseModel):
    """What a git repository must be like to be taken; one that is not is an arrival with the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        """Refuse what is no SPDX id; letters are made canonical."""
        known = tuple(spdx_expression(licence) or "" for licence in licences)
        for said, licence in zip(licences, known, strict=True):
            if not licence or " " in licence:
                raise ValueError(f"{said} is no SPDX id that headrace knows; write one such as MIT or Apache-2.0")
        return known


class EveryNth(BaseModel):
    """Every Nth commit of the line of first parents, counted from the root, and the newest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(ge=1, description="1 takes each commit of that line")


class GitSource(BaseModel):
    """Source files of git repositories, in one revision or in many; docs/ingest_git.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["git"] = "git"
    repositories: tuple[str, ...] = Field(
        min_length=1, description="bare repositories, work trees and .bundle files; PATH/*.git takes each that matches"
    )
    revisions: Literal["latest", "tags", "all"] | EveryNth = Field(
        "latest",
        description="which commits are read: that of HEAD, those of tags, all behind HEAD, or {every: N} on its line "
        "of first parents",
    )
    kinds: tuple[Kind, ...] = Field(
        ("code", "markup", "data"), min_length=1, description="kinds of files taken, as for python_code"
    )
    marked: Literal["leave_out", "take"] = Field(
        "leave_out", description="files that .gitattributes calls linguist-generated, linguist-vendored or -diff"
    )
    select: RepositorySelection = Field(RepositorySelection(), description="which repositories are taken")
    cache: str = Field(
        "~/.cache/headrace/git",
        min_length=1,
        description="folder on each machine where bundles are unpacked",
        json_schema_extra={"affects_rows": False},
    )


class PackagesSource(BaseModel):
    """Source files of packages as registries give them: sdist, wheel, npm, crate; docs/ingest_archives.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["packages"] = "packages"
    path: str = Field(min_length=1, description="package or directory of packages, or a URI that PyArrow opens")
    kinds: tuple[Kind, ...] = Field(
        ("code", "markup", "data"), min_length=1, description="kinds of files taken, as for python_code"
    )
    archives: ArchiveLimits = Field(ArchiveLimits(), description="how much of a package is unpacked")


class OcrRules(BaseModel):
    """Which pages of PDF files and pictures have their text recognised, by what, and its limits; docs/ingest_ocr.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field(
        "none", description="what recognises text: none, rapidocr, or package.module:function of your own"
    )
    min_layer_score: float = Field(
        0.6, ge=0, le=1, description="a page whose text layer scores lower is recognised, and has the better text"
    )
    min_confidence: float = Field(
        0.9, ge=0, le=1, description="what was recognised with less confidence, such as a foreign script, is not taken"
    )
    hidden_layers: Literal["keep", "replace"] = Field(
        "keep", description="unpainted text over a scan, made by an earlier recogniser: believed, or recognised anew"
    )
    page_seconds: int = Field(60, ge=1, description="processor time for the recognition of one page")
    max_pages: int = Field(500, ge=1, description="pages of one file that are recognised; the others are counted")
    max_side_pixels: int = Field(2000, ge=200, le=10_000, description="longer side of the picture of a page, pixels")
    memory_mb: int = Field(2560, ge=512, description="address space of the process that recognises, MB")

    @field_validator("engine")
    @classmethod
    def _engine_is_known(cls, engine: str) -> str:
        """Refuse what names neither an engine nor a function."""
        if engine not in ("none", "rapidocr") and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", engine):
            near = did_you_mean(engine, ("none", "rapidocr"))
            raise ValueError(f"ocr: there is no engine {engine!r}{near}; or write package.module:function for your own")
        return engine


class FilesSource(_Described):
    """Files of records, web archives, pages, PDF, scans, Word, mails, texts and archives of them under one path."""

    kind: Literal["files"] = "files"
    path: str = Field("", description="file or directory, or a URI that PyArrow opens (s3://bucket/folder)")
    urls: str | None = Field(
        None, min_length=1, description="instead of path: file of web addresses, one a line; docs/ingest.md"
    )
    limits: Limits = Field(
        Limits(start_per_second=1, max_per_second=4),
        description="how hard the hosts of `urls` are asked, each by itself",
        json_schema_extra={"affects_rows": False},
    )
    glob: str | None = Field(
        None, min_length=1, description="only files whose path below `path` matches, e.g. *.jsonl.gz or 2026/**/part-*"
    )
    stall_seconds: float = Field(
        60,
        gt=0,
        description="longest wait for the next bytes of a web server; a file that stalls is refused (no_answer)",
        json_schema_extra={"affects_rows": False},
    )
    format: Literal[
        "auto",
        "parquet",
        "jsonl",
        "csv",
        "tsv",
        "text",
        "markdown",
        "html",
        "warc",
        "pdf",
        "picture",
        "docx",
        "mail",
        "archive",
        "mbox",
        "notebook",
        "xml",
        "log",
    ] = Field("auto", description="format of every file; auto tells it from the extension")
    unknown: Literal["refuse", "detect"] = Field(
        "refuse",
        description="files whose extension says nothing: refuse them, or detect by their content what they are",
    )
    archives: ArchiveLimits = Field(ArchiveLimits(), description="how much of .zip, .tar and .tar.* is unpacked")
    encoding: str = Field(
        "strict",
        description="what becomes of text that is neither UTF-8 nor in the encoding it declares: strict refuses it, "
        "detect looks for the encoding in its bytes, and the name of a Python codec (cp1252) says which it is in",
    )
    front_matter: Literal["keep", "metadata"] = Field(
        "keep", description="YAML or TOML at the head of Markdown: it stays in the text, or goes to `metadata` instead"
    )
    xml_element: str | None = Field(
        None,
        min_length=1,
        description="name of the elements of XML files that are a document each; columns are paths below it then "
        "(revision/text, @id); without it, .xml is markup",
    )
    line_pattern: str | None = Field(
        None,
        min_length=1,
        description="RE2 pattern that the lines of .log files begin with; its named groups are columns",
    )
    lines_by: str = Field(
        "line",
        min_length=1,
        description="what makes a document of a log: a `line`, all up to a `blank_line`, or lines in a row that have "
        "the same value in the group of this name",
    )
    unmatched_lines: Literal["continue", "refuse"] = Field(
        "continue", description="lines of a log that the pattern does not match: they continue the line before, or not"
    )
    extractor: Literal["both", "resiliparse", "trafilatura", "none"] = Field(
        "both",
        description="what extracts the main text of HTML: resiliparse is fastest, both is nearest to what people take "
        "for the text (docs/ingest.md); none leaves pages outside of archives as markup",
    )
    extract_seconds: int = Field(
        20, ge=1, description="processor time for the text of one page; one that takes more is refused (too_complex)"
    )
    ocr: OcrRules = Field(OcrRules(), description="recognition of text in scans; an engine alone stands for its rules")
    text_column: str | None = Field(None, description="column of the text; required where there are files of records")
    id_column: str | None = Field(None, description="column of the record's id; without it, the hash of the text")
    repository_column: str | None = Field(None, description="column of the repository that a record belongs to")
    language_column: str | None = Field(
        None, description="column of the language; without it, of code the one that the id tells as a path"
    )
    licence_column: str | None = Field(None, description="column of the licence, read as an SPDX expression")
    fact_columns: dict[RepositoryFact, str] = Field(
        default_factory=dict,
        description="columns of what is known about the record's repository, by fact: {fork_of: parent, stars: stars}",
    )
    metadata_columns: tuple[str, ...] = Field((), description="columns kept in the map `metadata`, as text or JSON")
    kind_column: str | None = Field(None, description="column of the kind: code, prose, markup or data")
    record_kind: Kind = Field(
        "prose", description="kind of the documents in files of records, where no kind_column says another"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> FilesSource:
        """Refuse a source without files, or with two kinds of them."""
        if bool(self.path) == bool(self.urls):
            raise ValueError("path is missing; write it, or urls" if not self.path else "name path or urls, not both")
        return self

    @field_validator("ocr", mode="before")
    @classmethod
    def _engine_alone(cls, ocr: object) -> object:
        """Take the name of an engine for rules that name it."""
        return {"engine": ocr} if isinstance(ocr, str) else ocr

    @model_validator(mode="after")
    def _facts_have_a_repository_and_one_origin(self) -> FilesSource:
        """Refuse columns of facts without a column of the repository, or together with a file of facts."""
        if self.fact_columns and self.repository_column is None:
            raise ValueError(f"fact_columns names {sorted(self.fact_columns)}, repository_column is missing; add it")
        if self.fact_columns and self.repositories is not None:
            raise ValueError("facts come from fact_columns or from the file `repositories`, not from both; choose one")
        return self

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, encoding: str) -> str:
        """Refuse what is neither a policy nor a codec of texts."""
        try:
            "" if encoding in ("strict", "detect") else "".encode(encoding)
        except (LookupError, UnicodeError) as error:
            raise ValueError(
                f"{encoding} is no codec; write strict, detect or one of Python's: cp1252, gb18030"
            ) from error
        return encoding

    @model_validator(mode="after")
    def _formats_have_what_they_need(self) -> FilesSource:
        """Refuse formats that are read by a name or pattern which is missing."""
        for wanted, field in (("xml", "xml_element"), ("log", "line_pattern")):
            if self.format == wanted and getattr(self, field) is None:
                raise ValueError(f"format is {wanted}, {field} is missing; add it")
        return self

    @property
    def mapped_columns(self) -> tuple[str, ...]:
        """Every column that is read from a file of records, each once."""
        named = (*self.role_columns.values(), *self.fact_columns.values(), *self.metadata_columns)
        return tuple(dict.fromkeys(named))

    @property
    def role_columns(self) -> dict[str, str]:
        """The columns that are mapped to one property of a document each, by the field of this config."""
        roles = ("text", "id", "repository", "language", "licence", "kind")
        named = {f"{role}_column": getattr(self, f"{role}_column") for role in roles}
        return {field: name for field, name in named.items() if name is not None}


class KafkaLogin(BaseModel):
    """Who a follower is, by SASL; the name and the password are those of environment variables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="as the broker has it")
    user: str = Field(pattern=VARIABLE, description="environment variable of the user's name")
    password: str = Field(pattern=VARIABLE, description="environment variable of the password")


class KafkaSecurity(BaseModel):
    """How brokers are spoken with: TLS where the protocol says SSL, a login where it says SASL."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"] = Field(description="security.protocol of the client")
    ca: str | None = Field(
        None, min_length=1, description="PEM file of the authorities that are trusted; those of Java where left out"
    )
    certificate: str | None = Field(None, min_length=1, description="PEM file of the client's key and certificates")
    key_password: str | None = Field(
        None, pattern=VARIABLE, description="environment variable of the password of that key"
    )
    login: KafkaLogin | None = Field(None, description="who the follower is: {mechanism: .., user: .., password: ..}")

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> KafkaSecurity:
        """Refuse what the protocol would silently leave unused, or lacks."""
        if self.protocol.startswith("SASL") != (self.login is not None):
            mend = "declare login: {mechanism, user, password}" if self.login is None else "write SASL_SSL"
            raise ValueError(f"security.protocol {self.protocol}: {mend}")
        if self.protocol == "SASL_PLAINTEXT" and (self.ca or self.certificate):
            raise ValueError("security.protocol SASL_PLAINTEXT uses no certificates; write SASL_SSL")
        if self.key_password and not self.certificate:
            raise ValueError("security.key_password is that of a key; name its file in certificate")
        return self


class KafkaTopic(BaseModel):
    """A topic of Kafka whose messages are JSON objects."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: str = Field(min_length=1, description="bootstrap servers, host:port with commas between them")
    topic: str = Field(min_length=1, description="the topic")
    messages: int = Field(10_000, ge=1, description="most messages of a micro-batch")
    security: KafkaSecurity | None = Field(
        None,
        description="TLS and SASL: {protocol: SASL_SSL, ca: FILE, login: {..}}",
        json_schema_extra={"affects_rows": False},
    )


class StreamSource(PagedSource):
    """Records that come one by one: a folder that grows, or a topic; docs/ingest_streams.md."""

    kind: Literal["stream"] = "stream"
    path: str | None = Field(None, min_length=1, description="folder to which files of JSON lines are moved when whole")
    kafka: KafkaTopic | None = Field(None, description="instead of path: a topic")
    seal_records: int = Field(
        10_000,
        ge=1,
        description="records that make an increment",
        json_schema_extra={"affects_rows": False},
    )
    seal_seconds: float = Field(
        300, gt=0, description="age after which one is sealed", json_schema_extra={"affects_rows": False}
    )
    files: int = Field(100, ge=1, description="most files of a micro-batch", json_schema_extra={"affects_rows": False})

    @model_validator(mode="after")
    def _one_origin(self) -> StreamSource:
        """Refuse a stream without an origin, or with two."""
        if (self.path is None) == (self.kafka is None):
            raise ValueError("name path or kafka, one of them")
        return self

    def address(self, endpoint: str) -> str:
        """The folder or the topic."""
        return self.path if self.path is not None else f"kafka://{endpoint}"


TreeSource = PythonCodeSource | PythonDocsSource | FilesSource
Source = Annotated[
    PythonCodeSource | PythonDocsSource | FilesSource | PackagesSource | GitSource | ApiSource | StreamSource,
    Field(discriminator="kind"),
]


class Provenance(BaseModel):
    """What people say of where a dataset is from; it stands in the table `provenance`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    licence: str | None = Field(None, min_length=1, description="licence of the whole, in SPDX or in words")
    licence_evidence: str | None = Field(None, min_length=1, description="where that is written, e.g. an address")
    collected_by: str | None = Field(None, min_length=1, description="person or team who answers for it")


class DocumentsConfig(BaseModel):
    """A dataset: its name, its source, and how it is laid out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$", description="name of the dataset; part of every doc_id")
    source: Source = Field(description="where the documents come from")
    landing: Literal["reference", "copy"] = Field(
        "reference",
        description="copy keeps the bytes of every file that is read, named by their SHA-256, and reads those; "
        "reference notes the hash and leaves the file where it is",
    )
    provenance: Provenance = Field(
        Provenance(), description="where it is from", json_schema_extra={"affects_rows": False}
    )
    shards: int = Field(1, ge=1, le=65536, description="shards of every table of the dataset, a power of two")
    max_document_bytes: int = Field(
        100_000_000, ge=1, le=1_000_000_000, description="larger documents are refused (arrivals.reason too_large)"
    )
    allow_empty: bool = Field(
        False,
        description="take a source without any file for one whose files were all deleted; else it is an error",
        json_schema_extra={"affects_rows": False},
    )

    @property
    def is_fetched(self) -> bool:
        """Whether a run asks the source for what is new before it can list it."""
        return isinstance(self.source, ApiSource) or bool(isinstance(self.source, FilesSource) and self.source.urls)

    @model_validator(mode="after")
    def _can_be_copied(self) -> DocumentsConfig:
        """Refuse copies of what git keeps by hash already."""
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
