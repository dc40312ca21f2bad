"""Find a document by its doc_id, the first digits of it, or its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or, StartsWith

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.counted import documents_that_count
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, namespaces_with
from headrace.tables.quarantine import SUFFIX, is_quarantine
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.files.wide_values import read_wide_value
from spark_jobs.progress import tell
from spark_jobs.sources.config.paged_source import PAGE_MARK
from spark_jobs.sources.languages import EXTRACTED_BY, PAGE

_DIGITS = re.compile(r"[0-9a-f]{6,32}")
_SHOWN = 5
LANDING_COLUMNS = ("location", "object", "repository", "path", "content_sha256", "byte_count", "modified", "increment")


@dataclass(frozen=True)
class FoundDocument:
    """A row of `documents` without its content, and its dataset."""

    doc_id: str
    dataset: str
    increment: int
    shard: int
    repository: str | None
    path: str
    kind: str
    language: str | None
    licence: str | None
    byte_count: int
    content_sha256: str

    @property
    def partition(self) -> BooleanExpression:
        """Partition of its rows in the other tables of its dataset."""
        return And(EqualTo("increment", self.increment), EqualTo("shard", self.shard))

    @property
    def row(self) -> BooleanExpression:
        """Its rows in the other tables of its dataset."""
        return And(self.partition, EqualTo("doc_id", self.doc_id))

    def facts(self) -> dict[str, Any]:
        """All facts, ready for JSON."""
        return asdict(self)


FOUND_COLUMNS = tuple(name for name in FoundDocument.__dataclass_fields__ if name != "dataset")
"""The columns of `documents` that a `FoundDocument` is made of."""


def extraction_place(metadata: Mapping[str, str]) -> str | None:
    """What extracted a document's text, and from where, by the document's metadata; None where nothing did."""
    extracted_by = metadata.get(EXTRACTED_BY)
    if extracted_by is None:
        return None
    place = "the file"
    for name, where in (("offset", "the file"), ("member_offset", "the member of the archive")):
        if name in metadata:
            place = f"the record at byte {metadata[name]} of {where}"
    return f"the text that {extracted_by} extracted from {place}"


def documents_named(
    catalogue: Catalog, name: str, datasets: Iterable[str], where: BooleanExpression = EVERYTHING
) -> list[FoundDocument]:
    """The documents of some datasets behind a user's words.

    Args:
        catalogue: of the lake.
        name: a doc_id, the first 6 or more digits of one, or a path.
        datasets: that are looked in.
        where: a condition on them, best on their partitions.
    """
    names = list(datasets)
    documents: list[FoundDocument] = []
    if is_prefix(name):
        documents = _matching(catalogue, names, And(where, _starts_with(name.lower())))
    return documents or _matching(catalogue, names, And(where, EqualTo("path", name)))


def is_prefix(text: str) -> bool:
    """Whether these may be the first digits of a doc_id: 6 at least."""
    return _DIGITS.fullmatch(text.lower()) is not None


def find_document(catalogue: Catalog, name: str, increment: int | None = None) -> FoundDocument:
    """The one document behind a user's words; of an edited path the latest, with a notice.

    Args:
        catalogue: of the lake.
        name: its doc_id, the first 6 or more digits of that, or its path.
        increment: of its arrival; None for the latest.

    Raises:
        CommandError: no document is named so, or several are; the message lists them.
    """
    datasets = namespaces_with(catalogue, "documents")
    documents = documents_named(catalogue, name, datasets)
    if documents and increment is not None:
        there = sorted({doc.increment for doc in documents})
        documents = [doc for doc in documents if doc.increment == increment]
        if not documents:
            numbers = ", ".join(map(str, there))
            raise CommandError(f"document {name} did not land in increment {increment}, but in {numbers}")
    if not documents:
        _say_where_it_waits(catalogue, name)
        _say_that_it_was_deleted(catalogue, name)
        _say_that_it_was_refused(catalogue, name)
        raise CommandError(
            f"document {name} is in no table of documents ({', '.join(datasets) or 'no dataset was run'}); give a "
            "doc_id, its first 6 or more hex digits, or a path as in NAME.documents"
        )
    latest = latest_of(catalogue, documents)
    if latest is None:
        listed = ", ".join(f"{doc.doc_id} ({doc.dataset}, increment {doc.increment})" for doc in documents[:_SHOWN])
        more = f" and {len(documents) - _SHOWN} more" if len(documents) > _SHOWN else ""
        raise CommandError(f"document {name} may be any of {len(documents)}: {listed}{more}; give one doc_id")
    if len(documents) > 1:
        others = ", ".join(f"{doc.increment} ({doc.doc_id[:12]})" for doc in documents[:_SHOWN] if doc != latest)
        tell(
            f"{name}: the latest of {len(documents)}, of increment {latest.increment}; others by --increment: {others}"
        )
    return latest


def latest_of(catalogue: Catalog, documents: Sequence[FoundDocument]) -> FoundDocument | None:
    """Of documents at one path the one that counts, else that of the newest increment; None where paths differ."""
    if len({(doc.dataset, doc.repository, doc.path) for doc in documents}) != 1:
        return None
    if len(documents) == 1:
        return documents[0]
    first = documents[0]
    counts = set(documents_that_count(catalogue, first.dataset, path=first.path)["doc_id"].to_pylist())
    return min(documents, key=lambda doc: (doc.doc_id not in counts, -doc.increment, doc.doc_id))


def _say_where_it_waits(catalogue: Catalog, name: str) -> None:
    """Say of a quarantined document: it waits there.

    Raises:
        CommandError: it does.
    """
    for space in sorted(space[0] for space in catalogue.list_namespaces() if is_quarantine(space[0])):
        for row in read_rows(catalogue, f"{space}.documents", ("increment",), EqualTo("doc_id", name.lower())):
            raise CommandError(
                f"document {name} is in quarantine ({space}, increment {row['increment']}); see headrace quarantine "
                f"show {space.removesuffix(SUFFIX)} --increment {row['increment']}"
            )


def _say_that_it_was_deleted(catalogue: Catalog, name: str) -> None:
    """Name the increment of a document deleted for good.

    Raises:
        CommandError: it was.
    """
    deleted = And(EqualTo("status", "deleted"), Or(EqualTo("doc_id", name.lower()), EqualTo("path", name)))
    for dataset in namespaces_with(catalogue, "arrivals"):
        for row in read_rows(catalogue, f"{dataset}.arrivals", ("increment",), deleted):
            raise CommandError(
                f"document {name} was deleted for good with increment {row['increment']} of {dataset}; "
                "headrace table show system.audit says by whom and why"
            )


def _say_that_it_was_refused(catalogue: Catalog, name: str) -> None:
    """Say why a file or record never became a document; it is named by its path or location.

    Raises:
        CommandError: it was refused when it was seen last.
    """
    columns = ("increment", "location", "status", "reason", "detail")
    for dataset in namespaces_with(catalogue, "arrivals"):
        named = Or(EqualTo("path", name), EqualTo("location", name))
        rows = read_rows(catalogue, f"{dataset}.arrivals", columns, named)
        last = max(rows, key=lambda row: int(row["increment"]), default=None)
        if last is not None and last["reason"] and last["status"] != "gone":
            raise CommandError(
                f"{last['location']} is no document of {dataset}: it was refused in increment {last['increment']} "
                f"({last['reason']}: {last['detail']})"
            )


def _starts_with(digits: str) -> BooleanExpression:
    return EqualTo("doc_id", digits) if len(digits) == 32 else StartsWith("doc_id", digits)


def _matching(catalogue: Catalog, datasets: Iterable[str], condition: BooleanExpression) -> list[FoundDocument]:
    """Documents of all datasets under a condition."""
    return [
        FoundDocument(**row, dataset=dataset)
        for dataset in datasets
        for row in read_rows(catalogue, f"{dataset}.documents", FOUND_COLUMNS, condition)
    ]


def landings_of(catalogue: Catalog, document: FoundDocument) -> list[dict[str, Any]]:
    """The arrivals of a document's possible files; only reading them tells which, where there are several.

    Of the files that landed in its increment these are the one at the document's path, those at the start of it before
    a `#` (the longest first), or the package (at `.`) of its repository. A path may have landed more than once: pages
    of an endpoint, versions, locations. Those with the document's own bytes or repository, or of the page that its
    metadata names, are left then, if any.
    """
    landed = And(EqualTo("increment", document.increment), EqualTo("status", "landed"))
    parts = document.path.split("#")
    at_path: BooleanExpression = In("path", {"#".join(parts[:count]) for count in range(len(parts), 0, -1)})
    of_package = And(EqualTo("path", "."), EqualTo("repository", document.repository or ""))
    rows: list[dict[str, Any]] = []
    for wanted in (at_path, of_package):
        rows = rows or read_rows(catalogue, f"{document.dataset}.arrivals", LANDING_COLUMNS, And(landed, wanted))
    for name in ("content_sha256", "repository"):
        same = [row for row in rows if row[name] == getattr(document, name)]
        rows = same or rows
    if len(rows) > 1 and PAGE_MARK in rows[0]["location"]:
        for row in read_rows(catalogue, f"{document.dataset}.documents", ("metadata",), document.row):
            mark = PAGE_MARK + dict(row["metadata"]).get(PAGE, "").partition("#")[0]
            rows = [row for row in rows if row["location"].endswith(mark)] or rows
    return sorted(rows, key=lambda row: (-len(row["path"]), row["location"]))


def landing_of(catalogue: Catalog, document: FoundDocument) -> dict[str, Any] | None:
    """The arrival of a document's file, or None where there may be several."""
    rows = landings_of(catalogue, document)
    return rows[0] if len(rows) == 1 else None


def other_revisions(catalogue: Catalog, document: FoundDocument) -> list[FoundDocument]:
    """Documents of the same dataset, repository and path, the newest first as `members` orders them."""
    at_path = _matching(catalogue, [document.dataset], EqualTo("path", document.path))
    same = [other for other in at_path if other.repository == document.repository and other.doc_id != document.doc_id]
    return sorted(same, key=lambda revision: (-revision.increment, revision.doc_id))


def members_named(catalogue: Catalog, corpus: CorpusFacts, doc_ids: Iterable[str]) -> Mapping[str, dict[str, Any]]:
    """Dataset, repository, path and increment of members, by doc_id."""
    wanted = sorted(set(doc_ids))
    if not wanted:
        return {}
    columns = ("increment", "dataset", "doc_id", "repository", "path")
    rows = read_rows(catalogue, corpus.own("members"), columns, In("doc_id", wanted))
    return {row["doc_id"]: row for row in rows}


def read_text(catalogue: Catalog, document: FoundDocument) -> str | None:
    """The text of a document after normalization; None where it has none yet."""
    text = read_wide_value(catalogue, f"{document.dataset}.texts", "content", document.doc_id, document.partition)
    return None if text is None else str(text)
