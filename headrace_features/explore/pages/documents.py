"""The documents of a dataset: a list that is sorted, filtered, sampled and searched; the address is its whole state."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from pydantic import Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.addresses import DAGSTER, address_of
from dagster_project.exceptions import CommandError
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.browser_left import while_asked
from headrace_features.explore.charts import histogram
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.row_index import PAGE, RowIndex
from headrace_features.explore.row_query import FACETS, RowQuery, Within
from headrace_features.explore.text_search import Found, SearchWords, search_texts
from headrace_features.explore.texts import inline
from headrace_features.explore.vector_map import PREFIX

Places = tuple[str | None, str | None]
Hit = TypeVar("Hit")
_SortValue: TypeAdapter[Any] = TypeAdapter(Annotated[int, Field(strict=True, lt=1 << 63)] | float | str | None)
_QUICK_ROWS = 20_000  # the index of so few is built while the page waits
_LONG_SECONDS = 60.0  # for counts, which come late
_WAIT_SECONDS = 0.7  # for an index that is being built; then the page shows what there is
_WALK_SECONDS = 2.0  # for the neighbours of a hit, which may be on other pages of a search
_STATE = (
    "after",
    "at",
    "case",
    "from",
    "inside",
    "seed",
    "sort",
    "way",
    "q",
    "path",
    "removed",
    "rule",
    "tag",
    "map",
    "since",
    "until",
    "passed",
)  # fields of an address that filter no column


def documents(request: Request) -> Response:
    """A page of the list; counts and histograms come later, by `facets`."""
    dataset = request.path_params["dataset"]
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    explorer.reads(principal, dataset)
    index = explorer.index(dataset, query.get("at"))
    whole = index.wait(_WAIT_SECONDS * explorer.patience if index.total < _QUICK_ROWS else 0)
    shown: dict[str, Any] = {
        "dataset": dataset, "at": str(index.version), "total": index.total, "whole": whole, "progress": index.progress,
        "hidden": explorer.hides_text(dataset), "numeric": index.numeric, "facets": FACETS,
        "newest": str(type(index.version).newest(explorer.catalogue, dataset)),
    }  # fmt: skip
    searched: Found | None = None
    removed = explorer.removed(principal, query.get("removed", ""))
    wanted = wanted_of(query, index, removed, explorer.within(principal, dataset, query))
    if query.get("q", "").strip():
        if shown["hidden"]:
            raise CommandError(shown["hidden"])
        searched = search_texts(explorer.catalogue, index, wanted, words_of(query))
        rows = searched.rows
    else:
        rows = index.rows(wanted) if whole else index.first_rows(wanted)
    previews, tags = index.texts.previews(rows), explorer.tags(dataset)
    tagged = tags.of(row["doc_id"] for row in rows)
    for row in rows:
        row["tags"] = tagged.get(row["doc_id"], [])
        excerpt = searched.excerpts.get(row["doc_id"]) if searched is not None else None
        row["excerpt"] = excerpt or inline(" ".join(previews.get(row["n"], "").split())[:200])
    more = whole and searched is None and len(rows) == PAGE and "seed" not in query
    changed: dict[str, Any] = {}
    if more:
        changed["after"] = json.dumps([rows[-1]["sort_key"] if query.get("sort") else None, rows[-1]["doc_id"]])
    elif searched is not None and searched.read < searched.total:
        changed["from"] = searched.read
    shown |= {
        "rows": rows,
        "tags": tags.counts(),
        "_map": any(name.startswith(PREFIX) for _, name in explorer.catalogue.list_tables(dataset)),
        "_state": urlencode({**query, "at": str(index.version)}),
        "searched": searched and {**vars(searched), "rows": len(rows), "excerpts": None},
        "texts_read": index.text_progress if whole and not shown["hidden"] and not index.wait_for_texts(0) else None,
        "_dagster": address_of(DAGSTER),
        "_here": address(request.url.path.removesuffix(".json"), query, at=str(index.version)),
        "earlier": None if whole or index.earlier is None else str(index.earlier),
        "next": address(request.url.path, query, at=str(index.version), **changed) if changed else None,
    }
    return answer(request, "documents.html", shown)


def places(explorer: Explorer, principal: str, dataset: str, query: dict[str, str], doc_id: str) -> Places:
    """The documents before and after one in a list, which may be a search; None where there is none."""
    index = explorer.index(dataset, query.get("at"))
    removed, fields = explorer.removed(principal, query.get("removed", "")), {**query, "after": ""}
    wanted = wanted_of(fields, index, removed, explorer.within(principal, dataset, query))
    if query.get("q", "").strip():
        hides = explorer.hides_text(dataset)  # whose neighbours would tell which texts have the words
        return (None, None) if hides else _places_of_hit(explorer, index, wanted, words_of(query), doc_id)
    rows = index.rows(replace(wanted, ids=(doc_id,), seed=""), 1) if index.wait(0) else []
    if not rows:
        return None, None
    return beside(index, wanted, rows[0], False), beside(index, wanted, rows[0], True)


def _places_of_hit(explorer: Explorer, index: RowIndex, wanted: RowQuery, words: SearchWords, doc_id: str) -> Places:
    """The hits before and after one in a search, of whichever page of it; None too where looking takes too long."""
    number = index.texts.number(doc_id) if index.wait_for_texts(0) else None
    if number is None:
        rows = search_texts(explorer.catalogue, index, wanted, words).rows
        return among([row["doc_id"] for row in rows], doc_id)
    deadline = time.monotonic() + _WALK_SECONDS * explorer.patience

    def hits(start: int) -> Iterator[str]:
        while start < index.texts_total and time.monotonic() < deadline:
            found = search_texts(explorer.catalogue, index, wanted, replace(words, start=start))
            yield from (row["doc_id"] for row in found.rows)
            start = found.read

    walk, before = hits(number), None
    if next(walk, None) != doc_id:
        return None, None
    for start in dict.fromkeys((words.start, 0)):  # before the first of a page is the last of the pages before
        if before is None and start <= number:
            for hit, other in itertools.pairwise(hits(start)):
                if other == doc_id:
                    before = hit
                    break
    return before, next(walk, None)


def beside(index: RowIndex, wanted: RowQuery, row: Mapping[str, Any], behind: bool) -> str | None:
    """The document after a row of a list, or the one before it."""
    if wanted.seed:
        return among([one["doc_id"] for one in index.rows(wanted, PAGE)], row["doc_id"])[behind]
    descending = wanted.descending if behind else not wanted.descending
    after = (row["sort_key"], row["doc_id"])
    rows = index.rows(replace(wanted, descending=descending, after=after), 1)
    if wanted.sort and not behind:  # documents without a value are last in both directions
        if row["sort_key"] is None and not rows:
            rows = [row for row in index.rows(replace(wanted, descending=descending), 1) if row["sort_key"] is not None]
        elif row["sort_key"] is not None and rows and rows[0]["sort_key"] is None:
            return None
    return str(rows[0]["doc_id"]) if rows else None


def among(hits: Sequence[Hit], hit: Hit) -> tuple[Hit | None, Hit | None]:
    """The hits before and after one of them; None where there is none."""
    if hit not in hits:
        return None, None
    at = hits.index(hit)
    return (hits[at - 1] if at else None), (hits[at + 1] if at + 1 < len(hits) else None)


def words_of(query: Mapping[str, str]) -> SearchWords:
    """The words that an address searches."""
    start = int(_number(query.get("from"), "from") or 0)
    if not 0 <= start < 1 << 40:
        raise CommandError(f"from={query['from'][:40]} is no number of texts; leave it out")
    return SearchWords(query["q"], query.get("case") == "exact", bool(query.get("inside")), start)


def facets(request: Request) -> Response:
    """Counts and histograms of a selection, a piece of the page that may come late."""
    dataset = request.path_params["dataset"]
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    explorer.reads(principal, dataset)
    index = explorer.index(dataset, query.get("at"))
    removed = query.get("removed", "")
    wanted = wanted_of(query, index, explorer.removed(principal, removed), explorer.within(principal, dataset, query))
    is_whole = index.wait(_LONG_SECONDS if index.total < _QUICK_ROWS or wanted.needs_rows(index.narrow) else 0)
    if not index.wait_for_counts(_LONG_SECONDS) or (wanted.needs_rows(index.narrow) and not is_whole):
        raise CommandError(f"{dataset}: its rows are still being read; counts come when that is done")
    counted = index.counts(wanted)
    base = f"/datasets/{dataset}/documents"
    answered: dict[str, Any] = {"dataset": dataset, "total": index.total, "late": [], "selected": counted.total}
    values, charts = {}, {}
    for name in FACETS:
        values[name], others = counted.facet(name)
        if others:
            values[name].append(("", others))
    values["removed"] = []
    for corpus in explorer.corpora(principal) if is_whole else ():
        if dataset in corpus.datasets and "survivors" in corpus.tables and removed in ("", corpus.name):
            try:
                gone = replace(wanted, removed=explorer.removed(principal, corpus.name))
                values["removed"].append((corpus.name, index.counts(gone).total))
            except CommandError as error:
                answered["late"].append(str(error))
    for name in dict.fromkeys([*(column for column in (query.get("sort"),) if column in index.numeric), *index.narrow]):

        def link(low: float | None, high: float | None, name: str = name) -> str:
            bounds = {f"{name}.min": low, f"{name}.max": high}
            fields = {key: None if value is None else f"{value:.6g}" for key, value in bounds.items()}
            return address(base, query, after=None, **fields)

        try:
            edges, counts, rejected = counted.histogram(name)
        except CommandError as error:
            answered["late"].append(str(error))
            continue
        chart = histogram(edges, counts, rejected, link, name)
        charts[name] = {"edges": edges, "counts": counts, "rejected": rejected, "_svg": chart}
    return answer(request, "facets.html", {**answered, "facets": values, "histograms": charts, "_base": base})


def jump(request: Request) -> Response:
    """The list from a quantile of the sorted column on, in place of page numbers."""
    dataset = request.path_params["dataset"]
    explorer, query = explorer_of(request), dict(request.query_params)
    explorer.reads(principal_of(request), dataset)
    index = explorer.index(dataset, query.get("at"))
    share = _number(query.pop("quantile", "0.5"), "quantile") or 0.0
    value = index.quantile(query.get("sort", ""), 1 - share if query.get("way") == "down" else share)
    edge = "f" * 32 if query.get("way") == "down" else "0" * 32
    after = json.dumps([value, edge]) if value is not None else None
    return RedirectResponse(address(f"/datasets/{dataset}/documents", query, after=after), 303)


def wanted_of(
    query: Mapping[str, str], index: RowIndex, removed: Path | None = None, within: tuple[Within, ...] = ()
) -> RowQuery:
    """The selection and order that an address says.

    Raises:
        CommandError: a value cannot be read.
    """
    ranges: dict[str, tuple[float | None, float | None]] = {}
    for name in index.numeric:
        low, high = (_number(query.get(f"{name}.{end}"), f"{name}.{end}") for end in ("min", "max"))
        if (low, high) != (None, None):
            ranges[name] = (low, high)
    fields = {*FACETS, *_STATE, "quantile", *(f"{name}.{end}" for name in index.numeric for end in ("min", "max"))}
    if unknown := sorted(set(query) - fields):
        raise CommandError(f"{unknown[0]} is no field of this list; it has {', '.join(sorted(fields))}")
    after = None
    if query.get("after"):
        try:
            value, doc_id = json.loads(query["after"])
            bytes.fromhex(doc_id)
            after = (_SortValue.validate_python(value), doc_id)
        except (ValueError, TypeError) as error:
            raise CommandError(f"after={query['after'][:80]} is no place in this list; leave it out") from error
    return RowQuery(
        equal={name: query[name] for name in FACETS if name != "rule" and query.get(name)},
        rule=query.get("rule", ""),
        ranges=ranges,
        path=query.get("path", ""),
        removed=removed,
        within=within,
        sort=query.get("sort", ""),
        descending=query.get("way") == "down",
        after=after,
        seed=query.get("seed", ""),
    )


def _number(text: str | None, name: str) -> float | None:
    if text is None or text == "":
        return None
    try:
        if math.isfinite(number := float(text)):
            return number
    except ValueError:
        pass
    raise CommandError(f"{name}={text[:40]} is no number")


PATHS = {
    "/datasets/{dataset}/documents": documents,
    "/datasets/{dataset}/facets": while_asked(facets),
    "/datasets/{dataset}/jump": jump,
}
