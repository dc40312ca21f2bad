"""The documents that somebody chose on a list: those that are ticked, or all that match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import parse_qsl

from dagster_project.exceptions import CommandError
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.documents import wanted_of
from headrace_features.explore.row_index import PAGE, RowIndex
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.text_search import SearchWords, search_texts

_WAIT_SECONDS: Final = 5.0
_PART: Final = 20_000  # texts that one query looks at
_MOST_HITS: Final = 20_000  # documents of a search; SQLite takes so many values in a query
_TICKED: Final = "doc."


@dataclass(frozen=True)
class Chosen:
    """Documents of a list.

    Attributes:
        index: of the dataset, at the version of the list.
        query: the address of the list.
        wanted: which documents.
        ticked: whether they were ticked one by one.
    """

    index: RowIndex
    query: Mapping[str, str]
    wanted: RowQuery
    ticked: bool

    def parts(self) -> Iterator[list[dict[str, Any]]]:
        """Their rows in the order of the files with their texts, then those without; some thousand at a time."""
        end = max(self.index.total, self.index.texts_total) + 1
        step = _PART if self.wanted.ids is None else end
        for some in (self.index.texts.placed, self.index.texts.without_text):
            for start in range(0, end, step):
                yield some(self.wanted, start, step)


def chosen_of(explorer: Explorer, principal: str, dataset: str, fields: Mapping[str, str]) -> Chosen:
    """The documents that a form names: `doc.ID` for each that is ticked, or `all` of the list with the query `state`.

    Raises:
        CommandError: the reader may not see the dataset, nothing is chosen, or the list cannot be read whole.
    """
    explorer.reads(principal, dataset)
    query = dict(parse_qsl(fields.get("state", "")))
    index = explorer.index(dataset, query.get("at"))
    seconds, hidden = _WAIT_SECONDS * explorer.patience, explorer.hides_text(dataset)
    if not index.wait(seconds) or not (hidden or index.wait_for_texts(seconds)):
        raise CommandError(f"{dataset}: its documents are still being read; do this again in a moment")
    query["at"] = str(index.version)
    listed = {name: value for name, value in query.items() if name not in ("after", "from")}
    removed = explorer.removed(principal, query.get("removed", ""))
    wanted = wanted_of(listed, index, removed, explorer.within(principal, dataset, query))
    if not fields.get("all"):
        ids = tuple(name.removeprefix(_TICKED) for name in fields if name.startswith(_TICKED))
        if not ids:
            raise CommandError("nothing is chosen; tick documents, or `all that match`")
        if any(len(doc_id) != 32 or set(doc_id) - set("0123456789abcdef") for doc_id in ids):
            raise CommandError("a document is not named by its id; tick it on the list")
        return Chosen(index, query, replace(wanted, ids=ids, sort="", seed=""), True)
    if query.get("q", "").strip():
        words = SearchWords(query["q"], query.get("case") == "exact", bool(query.get("inside")), most=_MOST_HITS + 1)
        wanted = replace(wanted, ids=_found(explorer, index, wanted, words))
    elif wanted.seed:
        wanted = replace(wanted, ids=tuple(row["doc_id"] for row in index.rows(wanted, PAGE)))
    return Chosen(index, query, replace(wanted, sort="", seed=""), False)


def _found(explorer: Explorer, index: RowIndex, wanted: RowQuery, words: SearchWords) -> tuple[str, ...]:
    """All documents with some words."""
    if hidden := explorer.hides_text(index.dataset):
        raise CommandError(hidden)
    ids: list[str] = []
    while True:
        found = search_texts(explorer.catalogue, index, wanted, words)
        ids += [row["doc_id"] for row in found.rows]
        if len(ids) > _MOST_HITS:
            raise CommandError(f"more than {_MOST_HITS:,} documents have these words; narrow the list by a filter")
        if found.read >= found.total:
            return tuple(ids)
        words = replace(words, start=found.read)
