"""The config of a source behind a paged API.

source:
  kind: api
  url: https://host.example/v1/items
  auth: {kind: bearer, token: ITEMS_TOKEN}          # the name of an environment variable, never a secret
  paginator: {kind: cursor, path: meta.next, param: cursor}
  records: data
  text_column: body
  id_column: id

Values inside of an answer or a record are named by a path of keys with dots between them: `meta.next`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.sources.config.declared import NO_ROWS, Declared
from spark_jobs.sources.config.paged_source import PagedSource, RequestLimits, Variable
from spark_jobs.sources.config.permissions import Asking

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class BearerAuth(Declared):
    """A token in the header Authorization."""

    kind: Literal["bearer"] = "bearer"
    token: Variable = Field(description="environment variable of the token")


class KeyAuth(Declared):
    """A key in a header or a parameter."""

    kind: Literal["key"] = "key"
    key: Variable = Field(description="environment variable of the key")
    name: str = Field("X-Api-Key", min_length=1, description="header or parameter that carries it")
    place: Literal["header", "query"] = Field("header", description="where the key goes")


class BasicAuth(Declared):
    """A user and a password."""

    kind: Literal["basic"] = "basic"
    user: Variable = Field(description="environment variable of the user's name")
    password: Variable = Field(description="environment variable of the password")


class OAuth2Auth(Declared):
    """OAuth 2 client credentials (RFC 6749, 4.4): a token is asked for, and a new one when that is refused."""

    kind: Literal["oauth2"] = "oauth2"
    token_url: str = Field(pattern=r"^https?://", description="where tokens are given out")
    client_id: Variable = Field(description="environment variable of the client's id")
    client_secret: Variable = Field(description="environment variable of the client's secret")
    scope: str | None = Field(None, min_length=1, description="scope that is asked for")


Auth = Annotated[BearerAuth | KeyAuth | BasicAuth | OAuth2Auth, Field(discriminator="kind")]


class SinglePage(Declared):
    """All records are in one answer."""

    kind: Literal["single"] = "single"


class CursorPages(Declared):
    """Each answer holds the cursor of the next page; without one it is the last."""

    kind: Literal["cursor"] = "cursor"
    path: str = Field(min_length=1, description="where the next cursor stands in the answer")
    param: str = Field("cursor", min_length=1, description="parameter that carries it")
    more: str | None = Field(None, min_length=1, description="where the answer says whether there are more pages")


class NextUrlPages(Declared):
    """Each answer holds the address of the next page."""

    kind: Literal["next_url"] = "next_url"
    path: str = Field("next", min_length=1, description="where the address stands in the answer")


class LinkHeaderPages(Declared):
    """The header Link of an answer names the next page by rel="next" (RFC 8288)."""

    kind: Literal["link_header"] = "link_header"


class NumberedPages(Declared):
    """Pages are numbered; the first without records, or that is not there, is the end. Read in parallel."""

    kind: Literal["page_number"] = "page_number"
    param: str = Field("page", min_length=1, description="parameter of the number")
    first: int = Field(1, ge=0, description="number of the first page")


class OffsetPages(Declared):
    """A page is asked for by the number of records before it. Read in parallel."""

    kind: Literal["offset"] = "offset"
    param: str = Field("offset", min_length=1, description="parameter of that number")
    limit_param: str = Field("limit", min_length=1, description="parameter of the size of a page")
    limit: int = Field(100, ge=1, description="size of a page that is asked for")


Paginator = Annotated[
    SinglePage | CursorPages | NextUrlPages | LinkHeaderPages | NumberedPages | OffsetPages,
    Field(discriminator="kind"),
]


class Since(Declared):
    """Ask only for what is new: from the largest value of a column in the last whole reading on, less a lag."""

    param: str = Field(min_length=1, description="parameter that carries the value")
    column: str = Field(min_length=1, description="column of records that holds it: a number, or a time in ISO 8601")
    first: str | None = Field(None, min_length=1, description="value of the first reading; without it none is sent")
    lag: float = Field(0, ge=0, description="what is subtracted: seconds from a time, or a part of a number")


class Endpoint(Declared):
    """One of several lists of an API."""

    url: str | None = Field(None, pattern=r"^https?://", description="its address")
    params: dict[str, str] = Field(default_factory=dict, description="its parameters, beside those of the source")
    records: str | None = Field(None, description="where its records stand in an answer; without it as the source says")


class ApiSource(PagedSource):
    """Records of an API, page by page; docs/prepare/ingest_api.md."""

    kind: Literal["api"] = "api"
    url: str | None = Field(None, pattern=r"^https?://", description="address of the list; ${NAME} as in params")
    endpoints: dict[str, Endpoint] = Field(
        default_factory=dict, description="several lists by name, which is the first part of their documents' paths"
    )
    pages: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description="instead of url: package.module:function, called with a cursor, at first None, returns a Page",
    )
    params: dict[str, str] = Field(
        default_factory=dict, description="parameters of each request; ${NAME} for a variable of the environment"
    )
    headers: dict[str, str] = Field(default_factory=dict, description="headers of each request; ${NAME} as in params")
    auth: Auth | None = Field(None, description="how requests are authenticated")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="other hosts, with :port where it is not the usual one, that the address of a next page may lead "
        "to; credentials do not go there",
        json_schema_extra=NO_ROWS,
    )
    paginator: Paginator = Field(SinglePage(), description="how the next page is asked for")
    records: str = Field("", description="where the records stand in an answer; empty: the answer is their list")
    total: str | None = Field(None, description="where the answer says how many records there are in all")
    error: str | None = Field(None, description="where an answer with status 200 has an error, if it has one")
    since: Since | None = Field(None, description="how to ask for what is new only")
    lists_all: bool = Field(
        False, description="whether a record that a whole reading of its list does not have any more is gone"
    )
    limits: RequestLimits = Field(
        RequestLimits(), description="how hard the server is asked", json_schema_extra=NO_ROWS
    )
    rights: Asking = Field(
        Asking(ask="register"),
        description="who is asked what may be taken; docs/operate/rights.md",
        exclude_if=Asking(ask="register").__eq__,
    )

    @model_validator(mode="after")
    def _one_origin(self) -> ApiSource:
        """Refuse a source without an address or with two kinds of them."""
        lacking = [name for name, endpoint in self.endpoints.items() if endpoint.url is None and self.url is None]
        if self.pages is not None and (self.url is not None or self.endpoints):
            raise ValueError("pages stands instead of url and endpoints; leave them out, or leave out pages")
        if self.lists_all and self.since is not None:
            raise ValueError("lists_all and since: what is asked for since a time is not all; take one of them out")
        if lacking:
            raise ValueError(f"endpoints.{lacking[0]}: url is missing; write its address, or url of the source")
        if self.url is None and self.pages is None and not self.endpoints:
            raise ValueError("url is missing; write the address of the list, endpoints, or pages")
        if self.endpoints and not all(map(_NAME.fullmatch, self.endpoints)):
            raise ValueError("names of endpoints are of letters, digits, _, . and -; rename the others")
        return self

    @property
    def lists(self) -> dict[str, Endpoint]:
        """All lists by name, each with its address; a single one is named after the last part of its path."""
        if self.endpoints:
            return {
                name: Endpoint(url=endpoint.url or self.url, params=endpoint.params, records=endpoint.records)
                for name, endpoint in self.endpoints.items()
            }
        if self.pages is not None:
            return {self.pages.rpartition(":")[2]: Endpoint()}
        parts = urlsplit(self.url or "")
        last = re.sub(r"[^A-Za-z0-9_.-]", "_", parts.path.rstrip("/").rpartition("/")[2])
        return {last or parts.hostname or "records": Endpoint(url=self.url)}

    def records_path(self, endpoint: str) -> str:
        """Where an endpoint's records stand in its kept answers; those of Python connectors are kept as a list."""
        records = self.lists.get(endpoint, Endpoint()).records
        return "" if self.pages is not None else self.records if records is None else records

    def address(self, endpoint: str) -> str:
        """The beginning of the locations of a list's pages: its address, or their connector."""
        list_config = self.lists.get(endpoint)
        return (list_config.url if list_config is not None else None) or self.pages or endpoint


def request_digest(source: ApiSource, endpoint: str) -> str:
    """Key of the stored pages and readings of an endpoint: another address or parameter begins a list anew."""
    request_config = source.lists[endpoint]
    names = {"params", "paginator", "since", "pages"}
    deciding = [
        request_config.url,
        request_config.params,
        source.records_path(endpoint),
        source.model_dump(mode="json", include=names),
    ]
    return hashlib.sha256(canonical_json(deciding).encode()).hexdigest()
