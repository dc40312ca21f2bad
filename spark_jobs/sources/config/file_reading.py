"""How files become documents: the common fields of all sources of files."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.plugins import load
from spark_jobs.sources.config.declared import Declared, WithoutSecrets
from spark_jobs.sources.config.reader import OWN_FORMATS, ColumnReading, require_reader
from spark_jobs.sources.opening.limits import ArchiveLimits

Kind = Literal["code", "prose", "markup", "data"]
KINDS: tuple[str, ...] = get_args(Kind)
RepositoryFact = Literal["revision", "version", "licence", "home_page", "fork_of", "stars", "topics", "dependencies"]
FACTS_FILE = "repositories.jsonl"
_OF_MESSAGES = ("messages_column", "tools_column", "messages_rule")


class Described(WithoutSecrets):
    """A source with an optional file of facts about its repositories."""

    repositories: str | None = Field(
        None,
        min_length=1,
        description="file with one JSON object about a repository on each line (repository, fork_of, stars, licence, "
        "topics, ..); without it, repositories.jsonl in the root of the source where there is one",
    )


class OcrRules(Declared):
    """Pages of PDF files and pictures for recognition of text, and its engine; docs/prepare/ingest_ocr.md."""

    engine: str = Field(
        "none", description="what recognises text: none, rapidocr, or package.module:function of your own"
    )
    min_layer_score: float = Field(
        0.6, ge=0, le=1, description="a page whose text layer scores lower is recognised; the better text counts"
    )
    min_confidence: float = Field(
        0.9, ge=0, le=1, description="text recognised with less, such as in a foreign script, is not taken"
    )
    hidden_layers: Literal["keep", "replace"] = Field(
        "keep", description="invisible text over a scan, from an earlier recogniser: keep it, or recognise anew"
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


class FileReading(Described):
    """How files become documents: their formats, encodings and columns; every source of files has these fields."""

    format: str = Field(
        "auto",
        description=f"format of every file: {', '.join(OWN_FORMATS)}, or a reader that a package brings, or "
        "package.module:name of yours; auto tells it from the extension",
    )
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
        "continue", description="lines of a log that the pattern does not match: part of the entry before, or refused"
    )
    csv_escape: Literal["auto", "quote", "backslash"] = Field(
        "auto",
        description="how a quote in a quoted field of CSV is written: twice (quote, RFC 4180), or behind a backslash "
        "as Spark, Hive and MySQL do, which makes \\N null and in TSV \\t a tab; auto tells it by the rows",
    )
    extractor: Literal["both", "resiliparse", "trafilatura", "none"] = Field(
        "both",
        description="who says which blocks of a page of HTML are its text: both is nearest to what people take for it, "
        "and the fastest (docs/start/performance.md); none leaves pages outside of archives as markup",
    )
    ruby: Literal["brackets", "omit"] = Field(
        "brackets", description="readings of East Asian words in pages: in brackets behind the word, or left out"
    )
    extract_seconds: int = Field(
        20, ge=1, description="processor time for the text of one page; one that takes more is refused (too_complex)"
    )
    ocr: OcrRules = Field(OcrRules(), description="recognition of text in scans; an engine alone stands for its rules")
    text_column: str | None = Field(None, description="column of the text; required where there are files of records")
    messages_column: str | None = Field(
        None,
        min_length=1,
        description="instead of text_column: column of a conversation, a list of messages or its JSON; the text is "
        "theirs, and `metadata` keeps them as `messages`; docs/prepare/conversations.md",
    )
    tools_column: str | None = Field(
        None, min_length=1, description="beside messages_column: column of definitions of tools, kept as `tools`"
    )
    messages_rule: str | None = Field(
        None, description="version of the rule that reads messages, filled in where there is a messages_column"
    )
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

    @field_validator("format")
    @classmethod
    def _format_is_known(cls, name: str) -> str:
        """Refuse what is neither a format nor a reader."""
        if name in ("auto", *OWN_FORMATS):
            return name
        try:
            return require_reader(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @field_validator("ocr", mode="before")
    @classmethod
    def _engine_alone(cls, ocr: object) -> object:
        """Take the name of an engine for rules with that name."""
        return {"engine": ocr} if isinstance(ocr, str) else ocr

    @model_validator(mode="after")
    def _fields_have_what_they_need(self) -> FileReading:
        """Refuse facts without a repository or from two origins, and formats without their field."""
        for wanted, field in (("xml", "xml_element"), ("log", "line_pattern")):
            if self.format == wanted and getattr(self, field) is None:
                raise ValueError(f"format is {wanted}, {field} is missing; add it")
        self._check_messages()
        if self.fact_columns and self.repository_column is None:
            raise ValueError(f"fact_columns names {sorted(self.fact_columns)}, repository_column is missing; add it")
        if self.fact_columns and self.repositories is not None:
            raise ValueError("facts come from fact_columns or from the file `repositories`, not from both; choose one")
        return self

    def _check_messages(self) -> None:
        """Refuse a column of messages beside one of text, and fill in the rule that reads it.

        Raises:
            ValueError: it is.
        """
        if self.messages_column is None:
            if self.tools_column is not None:
                raise ValueError("tools_column has no messages_column beside it; name the column of the messages")
            return
        if self.text_column is not None:
            raise ValueError("a document has one text: text_column, or messages_column; leave one out")
        if taken := sorted({"messages", "tools"}.intersection(self.metadata_columns)):
            raise ValueError(f"metadata_columns: messages_column fills {taken[0]!r} of `metadata`; leave it out there")
        try:
            reading = load("columns", "messages", ColumnReading)
        except ConfigError as error:
            raise ValueError(f"messages_column: {error}") from error
        object.__setattr__(self, "messages_rule", reading.version)

    @model_serializer(mode="wrap")
    def _without_messages(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave fields of messages out where none are read: the step keys of other sources stay what they were."""
        fields = handler(self)
        return {name: value for name, value in fields.items() if value is not None or name not in _OF_MESSAGES}

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

    @property
    def extractors(self) -> tuple[str, ...]:
        """Packages for the extraction of a page's text; pages of web archives are never left as markup."""
        return ("resiliparse", "trafilatura") if self.extractor in ("both", "none") else (self.extractor,)

    @property
    def body_column(self) -> str | None:
        """The column of the text or of the messages."""
        return self.text_column if self.messages_column is None else self.messages_column

    @property
    def mapped_columns(self) -> tuple[str, ...]:
        """Every input column of a file of records, each once."""
        named = (*self.role_columns.values(), *self.fact_columns.values(), *self.metadata_columns)
        return tuple(dict.fromkeys(named))

    @property
    def role_columns(self) -> dict[str, str]:
        """The columns mapped to one property of a document each, by the field of this config."""
        roles = ("text", "messages", "tools", "id", "repository", "language", "licence", "kind")
        named = {f"{role}_column": getattr(self, f"{role}_column") for role in roles}
        return {field: name for field, name in named.items() if name is not None}
