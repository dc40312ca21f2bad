"""The field at the top of every page: a document by its doc_id, the first digits of it or its path, else a search.

A search ranks the texts of all datasets that a reader may see. Each is ranked by its own frequencies of words (BM25),
so no rank tells of a dataset that is hidden, and the lists are put together by rank. A dataset whose words are still
being read is named, and left out till then.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.search import around
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.browser_left import while_asked
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.documents import Places, among
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.text_search import excerpt, whole_words
from headrace_features.explore.word_index import units_of

_MOST: Final = 200
_PAGE: Final = 20  # each excerpt is read from a row group of its own
MOST: Final = 1000  # hits that can be listed; all are counted
SHOWN: Final = ("verdict", "kind", "language", "licence")
_WAIT_SECONDS: Final = 0.7


def find(request: Request) -> Response:
    """The document that is named, a list where there are several; else what has the words, the best first."""
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    words, start = query.get("q", "").strip(), query.get("from", "")
    if not words:
        raise CommandError("say what to find: words, a doc_id, its first 6 or more digits, or a path")
    filters = {name: query[name] for name in ("dataset", *SHOWN) if query.get(name)}
    documents = [] if filters or start else explorer.named(principal, words)
    if documents:
        explorer.reads(principal, *{document.dataset for document in documents})
        if len(documents) == 1 and not request.url.path.endswith(".json"):
            return RedirectResponse(f"/documents/{documents[0].doc_id}", 303)
        facts = [document.facts() for document in documents[:_MOST]]
        return answer(request, "find.html", {"given": words, "count": len(documents), "documents": facts})
    ranking = rank(explorer, principal, query)
    first = int(start) if start.isdecimal() and len(start) < 6 else 0
    hits = ranking.hits[first : first + _PAGE]
    explorer.reads(principal, *{dataset for dataset, _ in hits})
    more = first + _PAGE if first + _PAGE < len(ranking.hits) else None
    values = {
        "words": words, "count": ranking.total, "facets": ranking.facets, "late": ranking.late, "start": first,
        "documents": shown(explorer, hits, words), "_filters": filters,
        "next": address(request.url.path, query, **{"from": more}) if more else None,
        "_here": address(request.url.path, query),
    }  # fmt: skip
    return answer(request, "search.html", values)


@dataclass(frozen=True)
class Ranking:
    """What a search matches.

    Attributes:
        total: documents that have all words and phrases.
        facets: values of columns with their documents, the most frequent first; `dataset` among them.
        hits: dataset and number of the text, the best first.
        late: datasets that are left out, with the reason of each.
    """

    total: int
    facets: Mapping[str, list[tuple[str, int]]]
    hits: list[tuple[str, int]]
    late: Mapping[str, str]


def rank(explorer: Explorer, principal: str, query: Mapping[str, str]) -> Ranking:
    """Rank what the words of an address match, under its filters.

    Raises:
        CommandError: it has no words.
    """
    units, wanted = units_of(query.get("q", "")), RowQuery({name: query[name] for name in SHOWN if query.get(name)})
    facets: dict[str, Counter[str]] = {name: Counter() for name in ("dataset", *SHOWN)}
    late, lists = dict[str, str](), list[tuple[float, str, int]]()
    deadline = time.monotonic() + _WAIT_SECONDS * explorer.patience
    for dataset in explorer.datasets(principal):
        if query.get("dataset") not in (None, "", dataset):
            continue
        try:
            texts, ranks, counts = _matches(explorer, dataset, units, wanted, deadline)
        except CommandError as error:
            late[dataset] = str(error)
            continue
        facets["dataset"][dataset] = counts.total
        for name in SHOWN:
            facets[name].update(dict(counts.facet(name)[0]))
        best = np.lexsort((texts, ranks))[:MOST]
        lists += zip(ranks[best].tolist(), [dataset] * len(best), texts[best].tolist(), strict=True)
    hits = [(dataset, number) for _, dataset, number in sorted(lists)[:MOST]]
    total = facets["dataset"].total()
    return Ranking(total, {name: (+values).most_common() for name, values in facets.items()}, hits, late)


def _matches(
    explorer: Explorer, dataset: str, units: list[str], wanted: RowQuery, deadline: float
) -> tuple[Any, Any, Any]:
    """Numbers of the texts of one dataset, the rank of each, counts of their documents.

    Raises:
        CommandError: its texts are hidden, or its words are still being read.
    """
    if hidden := explorer.hides_text(dataset):
        raise CommandError(hidden)
    index = explorer.index(dataset)
    if not (index.wait_for_texts(_left(deadline)) and index.words.wait(_left(deadline))):
        failure = index.failure or index.words.failure
        raise CommandError(failure or f"its words are being read, {index.words.progress:.0%}")
    rows = index.words.ranked(units)
    mask = np.zeros(index.total, np.bool_)
    mask[rows["n"] - 1] = True
    counts = index.counts(wanted, mask)
    assert counts.mask is not None
    rows = rows[counts.mask[rows["n"] - 1]]
    return rows["t"], rows["rank"], counts


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def shown(explorer: Explorer, hits: list[tuple[str, int]], words: str) -> list[dict[str, Any]]:
    """Rows of some hits, each with its dataset and the words with what is around them."""
    pattern = re.compile("|".join(whole_words(unit) for unit in units_of(words)), re.IGNORECASE)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for dataset in {dataset for dataset, _ in hits}:
        index = explorer.index(dataset)
        some = index.texts.numbered([number for of, number in hits if of == dataset])
        texts = index.texts.read([(number, row["file"], row["row"]) for number, row in some.items()])
        for number, row in some.items():
            rows[dataset, number] = {**row, "dataset": dataset, "excerpt": excerpt(*around(texts[number], pattern))}
    return [rows[hit] for hit in hits if hit in rows]


def places(explorer: Explorer, principal: str, query: Mapping[str, str], dataset: str, doc_id: str) -> Places:
    """The documents before and after a hit in the ranking; None where there is none."""
    hits, number = rank(explorer, principal, query).hits, explorer.index(dataset).texts.number(doc_id)
    before, behind = among(hits, (dataset, number or 0))
    return _doc_id(explorer, before), _doc_id(explorer, behind)


def _doc_id(explorer: Explorer, hit: tuple[str, int] | None) -> str | None:
    return None if hit is None else str(explorer.index(hit[0]).texts.numbered([hit[1]])[hit[1]]["doc_id"])


PATHS = {"/find": while_asked(find)}
