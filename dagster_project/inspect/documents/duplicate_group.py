"""The group of duplicates of a document, and why one of two was kept.

A group is a component at the threshold that is applied, with the exact duplicates of its documents and those that mean
the same. What links two is a verified pair (J of their bags), that one repeats the other (J = 1), or a cosine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In, Or

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.neighbours import (
    applied_removals,
    pairs_reaching,
    removed_of,
    representative_of,
)
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.dedup.membership.keep_priority import HASH_BITS
from spark_jobs.lake.files.lookups import read_rows

_COLUMNS = ("doc_id", "dataset", "repository", "path", "kind", "byte_count", "increment", "place")


@dataclass(frozen=True)
class GroupMember:
    """A document of a group; fields as in the table `members`.

    Attributes:
        removed: exact, near, repository or the name of a selection; None where it was kept.
    """

    doc_id: str
    dataset: str
    repository: str | None
    path: str
    kind: str
    byte_count: int
    increment: int
    place: int
    removed: str | None

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sort key of the order of consideration for keeping."""
        return self.increment, self.place, self.doc_id


@dataclass(frozen=True)
class Link:
    """What two documents of a group share.

    Attributes:
        first: one of them, the better.
        second: the other.
        match: the link between them: bytes, letters, near or a selection of duplicates.
        shared_weight: numerator of J, or of the cosine; 1 for exact duplicates.
        united_weight: its denominator.
    """

    first: str
    second: str
    match: str
    shared_weight: int = 1
    united_weight: int = 1

    @property
    def similarity(self) -> float:
        """J, or the cosine."""
        return self.shared_weight / self.united_weight


@dataclass(frozen=True)
class DuplicateGroup:
    """Documents linked by duplicates.

    Attributes:
        members: in the order of consideration for keeping; at most so many as were asked for.
        links: between them.
        total: documents of the component, without exact duplicates.
        threshold: least J of a link; None where no near-duplicates go.
        witness: the document kept in place of the requested one; None where that was kept.
    """

    members: tuple[GroupMember, ...]
    links: tuple[Link, ...]
    total: int
    threshold: float | None
    witness: str | None


def duplicate_group(catalogue: Catalog, corpus: CorpusFacts, doc_id: str, most: int = 200) -> DuplicateGroup:
    """The group of a document.

    Args:
        catalogue: of the lake.
        corpus: of the document.
        doc_id: a member of the corpus.
        most: examined documents of the component: this one, its witness, those of the lowest ids.

    Raises:
        CommandError: the document is no member of the corpus.
    """
    own = read_rows(catalogue, corpus.own("members"), ("kind",), EqualTo("doc_id", doc_id))
    if not own:
        raise CommandError(
            f"document {doc_id} is no member of corpus {corpus.name}; headrace doc why {doc_id} says more"
        )
    representative = representative_of(catalogue, corpus, doc_id)
    threshold = corpus.applied.of(own[0]["kind"]) if corpus.applied is not None else None
    linked = _component(catalogue, corpus, representative, threshold)
    witnesses = _witnesses(catalogue, corpus, {doc_id, representative})
    chosen = {representative, *witnesses.values(), *sorted(linked)[: most - 1]}
    meant = _meant(catalogue, corpus, chosen, most)
    chosen |= {end for link in meant for end in (link.first, link.second)}
    columns = ("doc_id", "witness_doc_id", "matched")
    repeats = read_rows(catalogue, corpus.own("exact_duplicates"), columns, In("witness_doc_id", chosen))
    repeats = sorted(repeats, key=lambda row: (row["doc_id"] != doc_id, row["doc_id"]))[:most]
    links = [*meant, *(Link(row["witness_doc_id"], row["doc_id"], row["matched"]) for row in repeats)]
    if threshold is not None:
        links += _pairs(catalogue, corpus, chosen, threshold)
    everyone = sorted(chosen | {row["doc_id"] for row in repeats})
    removed = removed_of(catalogue, corpus, everyone)
    rows = read_rows(catalogue, corpus.own("members"), _COLUMNS, In("doc_id", everyone))
    members = sorted((GroupMember(**row, removed=removed.get(row["doc_id"])) for row in rows), key=lambda one: one.rank)
    witness = representative if removed.get(doc_id) == "exact" else witnesses.get(doc_id)
    return DuplicateGroup(tuple(members), tuple(links), max(len(linked), 1), threshold, witness)


def _witnesses(catalogue: Catalog, corpus: CorpusFacts, doc_ids: set[str]) -> dict[str, str]:
    """Kept document by removed one, of the level near, else of a selection, at the applied threshold."""
    those, columns = In("doc_id", doc_ids), ("doc_id", "witness_doc_id")
    rows = [row for one in corpus.repeating for row in read_rows(catalogue, corpus.own(one.reasons), columns, those)]
    rows += applied_removals(catalogue, corpus, those)
    return {row["doc_id"]: row["witness_doc_id"] for row in rows}


def why_first(better: GroupMember, other: GroupMember, corpus: CorpusFacts) -> str:
    """Why one of two is considered for keeping before the other."""
    if better.increment != other.increment:
        return f"it came first: increment {better.increment}, the other {other.increment}"
    one, two = better.place >> HASH_BITS, other.place >> HASH_BITS
    if one == two:
        return f"both have priority {one}, so their hashes decide, which favour nobody"
    criteria = ", ".join(one.replace("_", " ") for one in corpus.keep_first)
    said = f"its priority is {one}, the other's {two}; the lowest goes first"
    if better.dataset != other.dataset and corpus.keep_first[:1] == ("dataset",):
        return f"{said} ({better.dataset} stands before {other.dataset} in the corpus)"
    return f"{said} (by {criteria})" if criteria else said


def _component(catalogue: Catalog, corpus: CorpusFacts, doc_id: str, threshold: float | None) -> set[str]:
    """Documents of its component, by the newest row; an increment writes every component that its pairs reach whole."""
    if threshold is None:
        return set()
    at, table = EqualTo("threshold", threshold), corpus.own("components")
    rows = read_rows(catalogue, table, ("increment", "component"), And(at, EqualTo("doc_id", doc_id)))
    newest: Mapping[str, Any] | None = max(rows, key=lambda row: int(row["increment"]), default=None)
    if newest is None:
        return set()
    same = And(at, EqualTo("increment", newest["increment"]), EqualTo("component", newest["component"]))
    return {row["doc_id"] for row in read_rows(catalogue, table, ("doc_id",), same)}


def _meant(catalogue: Catalog, corpus: CorpusFacts, chosen: set[str], most: int) -> list[Link]:
    """Links of selections of duplicates, from or to some documents."""
    columns = ("witness_doc_id", "doc_id", "shared_weight", "united_weight")
    either = Or(In("doc_id", chosen), In("witness_doc_id", chosen))
    return [
        Link(row["witness_doc_id"], row["doc_id"], stage.name, row["shared_weight"], row["united_weight"])
        for stage in corpus.repeating
        for row in sorted(
            read_rows(catalogue, corpus.own(stage.reasons), columns, either), key=lambda row: str(row["doc_id"])
        )[:most]
    ]


def _pairs(catalogue: Catalog, corpus: CorpusFacts, chosen: set[str], threshold: float) -> Sequence[Link]:
    """Verified pairs between some documents."""
    return [
        Link(row["better_doc_id"], row["doc_id"], "near", row["shared_weight"], row["united_weight"])
        for row in pairs_reaching(catalogue, corpus, In("doc_id", chosen), threshold)
        if row["better_doc_id"] in chosen
    ]
