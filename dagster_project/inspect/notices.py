"""What features tell of work that waits for people, and of documents: the entry points of the group `notices`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.documents.findings import TableFinding
from spark_jobs.features import brought
from spark_jobs.plugins import load


class Waiting(NamedTuple):
    """Work that waits: its name in metrics, what it is, how much there is, since when, and the command that ends it."""

    name: str
    text: str
    number: int
    since: datetime | None
    mend: str


class Notices(NamedTuple):
    """What a feature tells: of work that waits (None where it has none to tell of), and of a document."""

    waiting: Callable[[Catalog], Waiting | None]
    findings: Callable[[Catalog, FoundDocument], Iterator[TableFinding]]


def waiting_work(catalogue: Catalog) -> list[Waiting]:
    """The work of all features that waits."""
    return [work for notices in _all() if (work := notices.waiting(catalogue)) is not None]


def noticed_findings(catalogue: Catalog, document: FoundDocument) -> Iterator[TableFinding]:
    """What features say of a document."""
    for notices in _all():
        yield from notices.findings(catalogue, document)


def _all() -> list[Notices]:
    return [load("notices", name, Notices) for name in brought("notices")]
