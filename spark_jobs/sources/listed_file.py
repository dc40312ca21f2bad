"""A file to be read: its row of the listing with types, and what becomes known of it on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_jobs.sources.opening.streams import Stream

if TYPE_CHECKING:
    from spark_jobs.sources.opening.archives import Unpacking


class Enclosing(NamedTuple):
    """What archives in one archive share.

    Attributes:
        unpacking: the limits left.
        doc_ids: of documents so far.
        depth: of the archive read, from 1.
    """

    unpacking: Unpacking
    doc_ids: set[str]
    depth: int


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file, or a member of an archive, before it is read; columns as in `listing_rows.LISTING`.

    Attributes:
        detected: what its content is taken for, and by whom, where its name says nothing.
        stream: bytes of a member.
        enclosing: of a member.
    """

    location: str
    path: str = ""
    reader: str = ""
    repository: str | None = None
    revision: str | None = None
    licence: str | None = None
    kind: str | None = None
    language: str | None = None
    media_type: str | None = None
    byte_count: int | None = None
    modified: datetime | None = None
    unchanged: bool = False
    content_sha256: str | None = None
    object: str | None = None
    reason: str | None = None
    detail: str | None = None
    blob: str | None = None
    past: bool | None = None
    detected: str | None = None
    stream: Stream | None = None
    enclosing: Enclosing | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ListedFile:
        """The file of a row of the listing or of `arrivals`; columns other than fields say nothing about reading."""
        return cls(**{name: row[name] for name in row.keys() & _FIELDS})


_FIELDS: Final = frozenset(field.name for field in fields(ListedFile))
