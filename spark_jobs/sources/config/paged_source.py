"""The common fields of sources with records kept page by page, and the pace of requests to a server.

Pages are brought by kinds of features: of an API, of a stream, of the answers of a model, of executed code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from spark_jobs.credentials import is_plain, secret_of
from spark_jobs.exceptions import ConfigError
from spark_jobs.sources.config.declared import Declared, WithoutSecrets

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading

PAGE_MARK = "#page:"
"""What stands in the location of a page between the address of its list and its number."""

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


def header_secret_of(setting: str, variable: str) -> str:
    """The value of an environment variable for a header of HTTP, without white space around it.

    Raises:
        ConfigError: it is not set, or no header can hold it.
    """
    value = secret_of(setting, variable).strip()
    if not value.isprintable():
        raise ConfigError(f"{setting}: {variable} holds a line end or another control character; set the key alone")
    return value


def _is_variable(name: str) -> str:
    """Refuse what looks like a secret where the name of its variable belongs."""
    if not is_plain(name):
        raise ValueError("is the name of an environment variable, and this looks like a secret; set one, and name it")
    return name


Variable = Annotated[str, Field(pattern=VARIABLE), AfterValidator(_is_variable)]
"""The name of an environment variable that holds a secret."""


class RequestLimits(Declared):
    """How hard the server is asked; the rate grows by one request a second each second, and is halved at 429 or 5xx."""

    start_per_second: float = Field(2, gt=0, description="requests a second at first")
    min_per_second: float = Field(0.05, gt=0, description="lowest rate, requests a second")
    max_per_second: float = Field(20, gt=0, description="highest rate, requests a second")
    connections: int = Field(4, ge=1, le=64, description="most requests at a time")
    tries: int = Field(6, ge=1, description="most tries of a page before it is refused")
    backoff_seconds: float = Field(1, gt=0, description="longest wait after the first fault; twice that after the next")
    max_wait_seconds: float = Field(300, gt=0, description="longest wait; a longer Retry-After ends the fetch")
    timeout_seconds: float = Field(60, gt=0, description="longest wait for a whole answer, to its last byte")
    max_page_bytes: int = Field(64_000_000, ge=1, description="larger answers are refused")
    fetch_seconds: float = Field(
        3600, gt=0, description="longest fetch; then what came lands, and the next run goes on"
    )
    readings: int = Field(3, ge=1, description="most readings of an endpoint whose pages move meanwhile")


class PagedSource(WithoutSecrets):
    """Common fields of all sources with pages of records: the meaning of a record's columns."""

    if TYPE_CHECKING:
        kind: Any  # each declares a literal of its own
    text_column: str = Field(min_length=1, description="column of the text; a record without it is refused")
    id_column: str = Field(min_length=1, description="column of the record's id; a record without it is refused")
    repository_column: str | None = Field(None, description="column of the repository that a record belongs to")
    language_column: str | None = Field(None, description="column of the language")
    licence_column: str | None = Field(None, description="column of the licence, read as an SPDX expression")
    kind_column: str | None = Field(None, description="column of the kind: code, prose, markup or data")
    metadata_columns: tuple[str, ...] = Field((), description="columns kept in the map `metadata`, as text or JSON")
    record_kind: Literal["code", "prose", "markup", "data"] = Field(
        "prose", description="kind of the documents where no kind_column says another"
    )
    unknown_fields: Literal["ignore", "metadata"] = Field(
        "ignore", description="what becomes of a record's fields that no column names"
    )

    @property
    def is_fetched(self) -> bool:
        """Whether a run asks the source for what is new before it can list it."""
        return True

    def records_path(self, endpoint: str) -> str:
        """Where the records of an endpoint stand in its pages; empty where a page is their list."""
        return ""

    def address(self, endpoint: str) -> str:
        """What the locations of an endpoint's pages begin with."""
        return endpoint

    @property
    def mapping(self) -> FileReading:
        """The mapping of columns, in the form for readers of files."""
        from spark_jobs.sources.config.file_reading import FileReading

        roles = ("text", "id", "repository", "language", "licence", "kind")
        columns = {f"{role}_column": getattr(self, f"{role}_column") for role in roles}
        others = {"metadata_columns": self.metadata_columns, "record_kind": self.record_kind}
        return FileReading.model_validate({**columns, **others})
