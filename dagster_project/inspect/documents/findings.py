"""The findings of tables about a document, and the witness of a removal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts


@dataclass(frozen=True)
class TableFinding:
    """What one table says about the document.

    Attributes:
        table: identifier.
        outcome: one word: landed, kept, rejected, member, removed, survivor, missing, ...
        sentence: the finding for people.
        facts: the finding for programs.
    """

    table: str
    outcome: str
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Witness:
    """The kept document behind a removal at the applied threshold.

    Attributes:
        corpus: of the removal.
        doc_id: the witness.
        why: bytes, letters, near, or the name of a selection.
        shared_weight: numerator of J or of the cosine; 1 for exact duplicates.
        united_weight: its denominator; 1 for exact duplicates.
    """

    corpus: str
    doc_id: str
    why: str
    shared_weight: int = 1
    united_weight: int = 1


def missing(table: str) -> TableFinding:
    """The finding of a table without the document so far."""
    return TableFinding(table, "missing", f"says nothing of it yet; bring it up to date: headrace run {table}")


def named(catalogue: Catalog, corpus: CorpusFacts, doc_id: str) -> str:
    """A doc_id with its dataset, repository and path."""
    about = members_named(catalogue, corpus, [doc_id]).get(doc_id)
    if about is None:
        return doc_id
    repository = "" if about["repository"] is None else f", repository {about['repository']},"
    return f"{doc_id} ({about['dataset']}{repository} {about['path']})"
