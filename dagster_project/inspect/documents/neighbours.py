"""Find a document's similar ones in a corpus: its exact duplicates and its verified pairs.

Exact duplicates are removed before bags are made, so a document that repeats another has no pairs of its own: its
neighbours are those of its representative, the kept document repeated by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, Or

from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.lake.files.lookups import read_rows

_ROUNDING = 1e-9  # `similarity` is rounded; the exact comparison of the weights follows


@dataclass(frozen=True)
class Neighbour:
    """A similar document.

    Attributes:
        doc_id: its identity.
        dataset: its dataset.
        repository: its repository.
        path: its path there.
        match: what the two share: bytes, letters, or near (J of their bags).
        shared_weight: numerator of J; 1 for exact duplicates.
        united_weight: denominator of J; 1 for exact duplicates.
        similarity: J.
        removed: at the applied threshold: exact, near, repository; None where it was kept.
    """

    doc_id: str
    dataset: str
    repository: str | None
    path: str
    match: str
    shared_weight: int
    united_weight: int
    similarity: float
    removed: str | None

    @property
    def fraction(self) -> Fraction:
        """J, exactly."""
        return Fraction(self.shared_weight, self.united_weight)


def representative_of(catalogue: Catalog, corpus: CorpusFacts, doc_id: str) -> str:
    """The representative of this document among the members without exact duplicates: its witness, or itself."""
    rows = read_rows(catalogue, corpus.own("exact_duplicates"), ("witness_doc_id",), EqualTo("doc_id", doc_id))
    return str(rows[0]["witness_doc_id"]) if rows else doc_id


def find_neighbours(catalogue: Catalog, corpus: CorpusFacts, doc_id: str, threshold: float | None) -> list[Neighbour]:
    """Exact duplicates and pairs of J >= threshold, the most similar first, equal ones by doc_id.

    Args:
        catalogue: of the lake.
        corpus: of the document.
        doc_id: a member of the corpus.
        threshold: least J; None for all stored pairs.
    """
    representative = representative_of(catalogue, corpus, doc_id)
    matches = {
        **_near(catalogue, corpus, representative, threshold),
        **_exact(catalogue, corpus, representative, doc_id),
    }
    about = members_named(catalogue, corpus, matches)
    removed = removed_of(catalogue, corpus, matches)
    found = [
        Neighbour(
            doc_id=other,
            dataset=about[other]["dataset"],
            repository=about[other]["repository"],
            path=about[other]["path"],
            match=match,
            shared_weight=shared,
            united_weight=united,
            similarity=shared / united,
            removed=removed.get(other),
        )
        for other, (match, shared, united) in matches.items()
    ]
    return sorted(found, key=lambda one: (one.match == "near", -one.fraction, one.doc_id))


def duplicates_of(catalogue: Catalog, corpus: CorpusFacts, doc_ids: Collection[str]) -> dict[str, str | None]:
    """The duplicates of some documents in a corpus, without these themselves, each with the level of its removal.

    These are the exact duplicates of each document, its pairs at the applied threshold, and their exact
    duplicates; not the duplicates of duplicates, of which similarity says nothing.

    Returns:
        By doc_id: exact, near or repository; None where it was kept.
    """
    given = set(doc_ids)
    others = _representatives(catalogue, corpus, given)
    if corpus.applied is not None and others:
        either = Or(In("doc_id", sorted(others)), In("better_doc_id", sorted(others)))
        least = corpus.applied.distinct[0]
        condition = And(either, GreaterThanOrEqual("similarity", least - _ROUNDING))
        for row in read_rows(catalogue, corpus.own("pairs"), ("kind", *_PAIR), condition):
            if row["shared_weight"] >= exact(corpus.applied.of(row["kind"])) * row["united_weight"]:
                others |= {row["doc_id"], row["better_doc_id"]}
    repeated = In("witness_doc_id", sorted(others))
    others |= {row["doc_id"] for row in read_rows(catalogue, corpus.own("exact_duplicates"), _ID, repeated)}
    removed = removed_of(catalogue, corpus, others - given)
    return {doc_id: removed.get(doc_id) for doc_id in sorted(others - given)}


def _representatives(catalogue: Catalog, corpus: CorpusFacts, doc_ids: Collection[str]) -> set[str]:
    """The representatives of the members among some documents."""
    members = set(members_named(catalogue, corpus, doc_ids))
    those = In("doc_id", sorted(members))
    columns = ("doc_id", "witness_doc_id")
    witness = {
        row["doc_id"]: row["witness_doc_id"]
        for row in read_rows(catalogue, corpus.own("exact_duplicates"), columns, those)
    }
    return {str(witness.get(doc_id, doc_id)) for doc_id in members}


def removed_of(catalogue: Catalog, corpus: CorpusFacts, doc_ids: Iterable[str]) -> Mapping[str, str]:
    """The level of each of these members' removal at the applied threshold; kept ones are left out."""
    wanted = sorted(set(doc_ids))
    if not wanted:
        return {}
    those = In("doc_id", wanted)
    gone: dict[str, str] = {}
    for row in applied_removals(catalogue, corpus, those):
        gone[row["doc_id"]] = "near" if row.get("repository") is None else "repository"
    for stage in corpus.repeating:
        gone |= {row["doc_id"]: stage.name for row in read_rows(catalogue, corpus.own(stage.reasons), _ID, those)}
    exact_ones = {row["doc_id"] for row in read_rows(catalogue, corpus.own("exact_duplicates"), _ID, those)}
    return gone | dict.fromkeys(exact_ones - stand_ins(catalogue, corpus, exact_ones), "exact")


def stand_ins(catalogue: Catalog, corpus: CorpusFacts, repeats: Collection[str]) -> set[str]:
    """Those exact duplicates, kept because the document they repeat went with its repository."""
    here = In("witness_doc_id", sorted(repeats))
    return {row["witness_doc_id"] for row in applied_removals(catalogue, corpus, here)} if repeats else set()


def applied_removals(catalogue: Catalog, corpus: CorpusFacts, condition: BooleanExpression) -> list[dict[str, Any]]:
    """Rows of `removals` under a condition, at the applied threshold of the document's kind."""
    if corpus.applied is None:
        return []
    here = And(condition, In("threshold", corpus.applied.distinct))
    columns = ("threshold", "doc_id", "witness_doc_id", "repository")
    rows = read_rows(catalogue, corpus.own("removals"), columns, here)
    if corpus.applied.is_one or not rows:
        return rows
    those = In("doc_id", sorted({row["doc_id"] for row in rows}))
    kinds = {
        row["doc_id"]: row["kind"] for row in read_rows(catalogue, corpus.own("members"), ("doc_id", "kind"), those)
    }
    return [row for row in rows if row["threshold"] == corpus.applied.of(kinds[row["doc_id"]])]


_ID = ("doc_id",)
_PAIR = ("doc_id", "better_doc_id", "shared_weight", "united_weight")
_Match = tuple[str, int, int]


def _exact(catalogue: Catalog, corpus: CorpusFacts, representative: str, doc_id: str) -> dict[str, _Match]:
    """All exact duplicates of a document, by doc_id, without the document itself."""
    columns = ("doc_id", "matched")
    rows = read_rows(catalogue, corpus.own("exact_duplicates"), columns, EqualTo("witness_doc_id", representative))
    matched = {row["doc_id"]: row["matched"] for row in rows}
    # Two that repeat a third share bytes for certain only if both share its bytes.
    own = matched.get(doc_id, "bytes")
    found = {other: ("bytes" if how == own == "bytes" else "letters", 1, 1) for other, how in matched.items()}
    found[representative] = (own, 1, 1)
    del found[doc_id]
    return found


def _near(catalogue: Catalog, corpus: CorpusFacts, doc_id: str, threshold: float | None) -> dict[str, _Match]:
    """Verified pairs of a document."""
    found: dict[str, _Match] = {}
    for row in pairs_reaching(
        catalogue, corpus, Or(EqualTo("doc_id", doc_id), EqualTo("better_doc_id", doc_id)), threshold
    ):
        other = row["better_doc_id"] if row["doc_id"] == doc_id else row["doc_id"]
        found[other] = ("near", row["shared_weight"], row["united_weight"])
    return found


def pairs_reaching(
    catalogue: Catalog, corpus: CorpusFacts, condition: BooleanExpression, threshold: float | None
) -> list[dict[str, Any]]:
    """Verified pairs under a condition and a threshold, by exact arithmetic; None for all stored ones."""
    if threshold is None:
        return read_rows(catalogue, corpus.own("pairs"), _PAIR, condition)
    about = And(condition, GreaterThanOrEqual("similarity", threshold - _ROUNDING))
    least, rows = exact(threshold), read_rows(catalogue, corpus.own("pairs"), _PAIR, about)
    return [row for row in rows if row["shared_weight"] >= least * row["united_weight"]]
