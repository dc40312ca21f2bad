"""Copies of documents and what was derived from them, to a fixed point: derived of copies, copies of derived.

    named   --exact-->  twin           bytes or letters: as good as the document itself
    named   --near-->   like it        J at the corpus's threshold: its exact copies and derived ones follow, its near
                                       ones do not, as they may have nothing of the first
    named   --passage-> has a part     likewise
    any     --derived-> rephrased      a document of its own, whose copies follow

Copies of what is nobody's own are not followed: empty files, and texts of licences by their names, which a thousand
projects have from one template.
Each round reads a table once, for the documents that the round before reached.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression, GreaterThanOrEqual

from dagster_project.inspect.lake.corpus_facts import CorpusFacts, corpora, namespaces_with
from headrace_features.rights.hits.named import Hits, Reached, rows_among
from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.lake.files.lookups import EVERYTHING, read_batches
from spark_jobs.sources.landing.derivations import derivations, descendants, staying

_ROUNDING = 1e-9  # `similarity` is rounded; the exact comparison of the weights follows
_BLANK = frozenset(hashlib.sha256(blank).hexdigest() for blank in (b"", b"\n", b"\r\n", b"\xef\xbb\xbf"))
_LICENCE = re.compile(
    r"(?i)(?:^|/)(?:(?:un)?licen[cs]es?|copying|notice)(?:[-.](?:mit|apache|bsd|mpl|[al]?gpl|lesser|clause|\d+))*"
    r"(?:\.(?:md|txt|rst))?$"
)
_LIKE = ("near copy", "passage")  # what shares a part


class Link(NamedTuple):
    """That one document leads to another."""

    source: str
    target: str
    how: str
    detail: str = ""


def follow_copies(catalogue: Catalog, hits: Hits) -> None:
    """Add all copies of documents and what was derived from them."""
    there = corpora(catalogue) if hits.documents else []
    hits.not_asked += [line for corpus in there for line in _not_compared(corpus)]
    hits.not_asked += staying("wrote from these") if hits.documents else ()
    frontier, shared = {entry: dict(documents) for entry, documents in hits.documents.items()}, set[str]()
    while frontier:
        by_doc: dict[str, list[tuple[str, bool]]] = defaultdict(list)
        for entry, documents in frontier.items():
            for doc_id, reached in documents.items():
                by_doc[doc_id].append((entry, reached.whole))
        frontier = {}
        for link in _links(catalogue, there, by_doc, shared):
            for entry, is_whole in by_doc[link.source]:
                if link.source == link.target or (link.how in _LIKE and not is_whole):
                    continue
                whole = link.how == "derived" or (link.how not in _LIKE and is_whole)
                reached = Reached(link.how, link.source, link.detail, whole)
                if hits.add(entry, link.target, reached):
                    frontier.setdefault(entry, {})[link.target] = reached
    if shared:
        hits.not_asked.append(f"copies of {len(shared):,} texts of licences and empty files, which are nobody's own")


def _not_compared(corpus: CorpusFacts) -> Iterator[str]:
    """What a corpus does not look for, so that nobody takes it for none."""
    if corpus.applied is None:
        yield f"{corpus.name}: near copies, of which it compares none"
    if "passages" not in corpus.tables:
        yield f"{corpus.name}: copied passages, as it has no selection `passages`"


def _links(
    catalogue: Catalog, there: Collection[CorpusFacts], doc_ids: Collection[str], shared: set[str]
) -> Iterator[Link]:
    """Every link from some documents; `shared` gets those whose copies are not followed."""
    shared |= _nobodys(catalogue, pa.array(sorted(doc_ids), pa.string()))
    written = pa.array(sorted(set(doc_ids) - shared), pa.string())
    yield from _equal(catalogue, written)
    for corpus in there:
        yield from _exact(catalogue, corpus, written)
        yield from _near(catalogue, corpus, written)
        yield from _passages(catalogue, corpus, written)
    yield from _derived(catalogue, doc_ids)


def _rows(
    catalogue: Catalog,
    table: str,
    columns: tuple[str, ...],
    either: tuple[str, ...],
    wanted: pa.Array,
    condition: BooleanExpression = EVERYTHING,
) -> Iterator[dict[str, Any]]:
    """Rows with a wanted value in one of some columns."""
    for batch in read_batches(catalogue, table, columns, condition):
        yield from rows_among(batch, either, wanted).to_pylist()


def _both_ways(rows: Iterator[Link], wanted: pa.Array) -> Iterator[Link]:
    there = set(wanted.to_pylist())
    for link in rows:
        if link.source in there:
            yield link
        if link.target in there:
            yield Link(link.target, link.source, link.how, link.detail)


def _nobodys(catalogue: Catalog, wanted: pa.Array) -> set[str]:
    """Documents of nothing, and texts of licences: an empty `__init__.py`, the MIT licence."""
    names = [f"{dataset}.documents" for dataset in namespaces_with(catalogue, "documents")]
    columns = ("doc_id", "path", "content_sha256")
    rows = (row for name in names for row in _rows(catalogue, name, columns, columns[:1], wanted))
    return {row["doc_id"] for row in rows if row["content_sha256"] in _BLANK or _LICENCE.search(row["path"])}


def _equal(catalogue: Catalog, wanted: pa.Array) -> Iterator[Link]:
    """Documents of equal bytes or letters in any dataset, be they in a corpus or not: the same page elsewhere."""
    here = set(wanted.to_pylist())
    for table, column, how in (("documents", "content_sha256", "(bytes)"), ("texts", "letters_sha256", "(letters)")):
        names = [f"{dataset}.{table}" for dataset in namespaces_with(catalogue, "documents")]
        columns, by_digest = ("doc_id", column), defaultdict[str, list[str]](list)
        for row in (row for name in names for row in _rows(catalogue, name, columns, columns[:1], wanted)):
            by_digest[row[column] or ""].append(row["doc_id"])
        by_digest.pop("", None)  # too few letters to compare
        digests = pa.array(sorted(by_digest), pa.string())
        for row in (row for name in names for row in _rows(catalogue, name, columns, columns[1:], digests)):
            if row["doc_id"] not in here or len(by_digest[row[column]]) > 1:
                yield from (Link(source, row["doc_id"], "exact copy", how) for source in by_digest[row[column]])


def _exact(catalogue: Catalog, corpus: CorpusFacts, wanted: pa.Array) -> Iterator[Link]:
    """A document and the one that it repeats, bytes or letters."""
    columns = ("doc_id", "witness_doc_id", "matched")
    rows = _rows(catalogue, corpus.own("exact_duplicates"), columns, columns[:2], wanted)
    how = "exact copy"
    yield from _both_ways(
        (Link(row["doc_id"], row["witness_doc_id"], how, f"({row['matched']})") for row in rows), wanted
    )


def _near(catalogue: Catalog, corpus: CorpusFacts, wanted: pa.Array) -> Iterator[Link]:
    """Verified pairs at the threshold that the corpus applies to their kind."""
    if corpus.applied is None:
        return
    columns = ("kind", "doc_id", "better_doc_id", "shared_weight", "united_weight", "similarity")
    above = GreaterThanOrEqual("similarity", corpus.applied.distinct[0] - _ROUNDING)
    rows = _rows(catalogue, corpus.own("pairs"), columns, columns[1:3], wanted, above)
    near = (
        Link(row["doc_id"], row["better_doc_id"], "near copy", f"(J = {row['similarity']:.4f})")
        for row in rows
        if row["shared_weight"] >= exact(corpus.applied.of(row["kind"])) * row["united_weight"]
    )
    yield from _both_ways(near, wanted)


def _passages(catalogue: Catalog, corpus: CorpusFacts, wanted: pa.Array) -> Iterator[Link]:
    """Documents with a passage of the others: the first that has it, and all with an overlapping part of that."""
    columns = ("doc_id", "start", "end", "words", "first_doc_id", "first_start", "first_end")
    rows = list(_rows(catalogue, corpus.own("passages"), columns, ("doc_id", "first_doc_id"), wanted))
    if not rows:
        return
    here, spans = set(wanted.to_pylist()), defaultdict[str, list[tuple[int, int, str]]](list)
    for row in rows:
        if row["doc_id"] in here:
            spans[row["first_doc_id"]].append((row["first_start"], row["first_end"], row["doc_id"]))
            yield Link(row["doc_id"], row["first_doc_id"], "passage", f"({row['words']:,} words)")
    firsts = pa.array(sorted({row["first_doc_id"] for row in rows}), pa.string())
    for row in _rows(catalogue, corpus.own("passages"), columns, ("first_doc_id",), firsts):
        detail = f"({row['words']:,} words)"
        if row["first_doc_id"] in here:
            yield Link(row["first_doc_id"], row["doc_id"], "passage", detail)
        for start, end, doc_id in spans.get(row["first_doc_id"], ()):
            if start < row["first_end"] and row["first_start"] < end:
                yield Link(doc_id, row["doc_id"], "passage", detail)


def _derived(catalogue: Catalog, doc_ids: Collection[str]) -> Iterator[Link]:
    """What models wrote and executions gave from documents; each is linked to its parent, else to its root."""
    below = descendants(catalogue, doc_ids) if derivations() else set()
    unlinked, wanted = set(below), pa.array(sorted(below), pa.string())
    for dataset in namespaces_with(catalogue, "documents") if below else ():
        for row in _rows(catalogue, f"{dataset}.documents", ("doc_id", "metadata"), ("doc_id",), wanted):
            parent = dict(row["metadata"]).get("parent", "")
            if parent in doc_ids or parent in below:
                unlinked.discard(row["doc_id"])
                if parent in doc_ids:  # those below are reached by the next round
                    yield Link(parent, row["doc_id"], "derived")
    for doc_id in doc_ids if unlinked else ():
        yield from (Link(doc_id, target, "derived") for target in descendants(catalogue, [doc_id]) & unlinked)
