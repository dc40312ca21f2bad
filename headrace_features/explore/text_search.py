"""Search the texts of a dataset for words that stand there as they are, in any script.

Below 1 GB of text, and for parts of words, texts are read one after the other; above it an index of words gives
candidates, whose texts are looked at. Either way a search stops at a page of hits or after .7 s, says how far
it came, and goes on from there.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.search import Scan, around, pattern_of
from headrace_features.explore.index_files import apart, is_close
from headrace_features.explore.row_index import PAGE, RowIndex
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.texts import Mark, inline
from headrace_features.explore.word_index import TOKENIZER

SECONDS: Final = 0.7
_WORD: Final = "[^\\W_]|[\u0300-\u036f\ue000-\uf8ff]"  # what is one word with a letter beside it, as for SQLite
_CANDIDATES: Final = 64  # texts that are read between two looks at the clock


@dataclass(frozen=True)
class SearchWords:
    """What is searched.

    Attributes:
        words: with any white space between them.
        exact_case: whether upper and lower case differ.
        inside: whether parts of words are found too, also where there is an index of words.
        start: how many texts an earlier search has read.
        most: documents that end a search.
    """

    words: str
    exact_case: bool = False
    inside: bool = False
    start: int = 0
    most: int = PAGE


@dataclass(frozen=True)
class Found:
    """Documents that have the words.

    Attributes:
        rows: of the list.
        excerpts: the words with what is around them, by doc_id.
        read: texts that were read or ruled out, with those of the searches before.
        total: texts of the dataset.
        at_most: texts that have all the words somewhere; None where that is not known.
        whole_words: whether parts of words were left out.
    """

    rows: list[dict[str, Any]]
    excerpts: dict[str, Markup]
    read: int
    total: int
    at_most: int | None
    whole_words: bool


def search_texts(catalogue: Catalog, index: RowIndex, wanted: RowQuery, search: SearchWords) -> Found:
    """A page of documents of a selection whose texts have the words.

    Raises:
        CommandError: a condition of the selection is not known.
    """
    terms = [] if search.inside else terms_of(search.words)
    deadline = time.monotonic() + SECONDS
    if terms and index.has_words:
        return _by_words(index, wanted, search, terms, deadline)
    scan, rows, ids = Scan(catalogue, index.dataset, index.version.texts), list[dict[str, Any]](), dict[str, Markup]()
    plain, read = pattern_of(search.words), search.start
    pattern = re.compile(plain, 0 if search.exact_case else re.IGNORECASE)
    for read, increment, matches in scan.matches(plain, not search.exact_case, search.start):
        if wanted.equal.get("increment", str(increment)) == str(increment):  # few of the documents are looked up then
            within = replace(wanted, equal={**wanted.equal, "increment": str(increment)})
            here = _rows(index, within, [doc_id for _, doc_id, _ in matches])[: search.most - len(rows)]
        else:
            here = []
        rows += here
        shown = {row["doc_id"] for row in here}
        ids |= {doc_id: excerpt(*around(text, pattern)) for _, doc_id, text in matches if doc_id in shown}
        if len(rows) == search.most:
            read = next(number for number, doc_id, _ in matches if doc_id == rows[-1]["doc_id"])  # noqa: PLW2901
            break
        if time.monotonic() > deadline:
            break
    return Found(rows, ids, read, max(scan.total, read), None, False)


def terms_of(words: str) -> list[str]:
    """The terms of words, as SQLite cuts a text into them; none of signs alone."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE VIRTUAL TABLE w USING fts5(words, tokenize='{TOKENIZER}')")
        database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(w, row)")
        database.execute("INSERT INTO w VALUES (?)", [apart(unicodedata.normalize("NFC", words))])
        return [term for (term,) in database.execute("SELECT term FROM v")]


def whole_words(words: str) -> str:
    """A regular expression of words that are not parts of longer ones; scripts without spaces have no longer ones."""
    before = "" if _is_open(words.strip()[0]) else f"(?<!{_WORD})"
    behind = "" if _is_open(words.strip()[-1]) else f"(?!{_WORD})"
    return before + pattern_of(words) + behind


def _is_open(character: str) -> bool:
    return is_close(character) or re.match(_WORD, character) is None


def _by_words(index: RowIndex, wanted: RowQuery, search: SearchWords, terms: list[str], deadline: float) -> Found:
    pattern = re.compile(whole_words(search.words), 0 if search.exact_case else re.IGNORECASE)
    total = index.texts_total
    ids: list[str] = []
    excerpts: dict[str, Markup] = {}
    at = search.start
    while len(ids) < search.most and time.monotonic() < deadline:
        candidates = index.words.candidates(terms, wanted, at, _CANDIDATES)
        texts = index.texts.read([(row["t"], row["file"], row["row"]) for row in candidates])
        for row in candidates:
            at, text = row["t"] + 1, texts[row["t"]]
            if pattern.search(text) is not None:
                ids.append(row["doc_id"])
                excerpts[row["doc_id"]] = excerpt(*around(text, pattern))
                if len(ids) == search.most:
                    break
        if len(candidates) < _CANDIDATES and len(ids) < search.most:
            at = total
            break
    try:
        at_most = index.words.count(terms)
    except CommandError:
        at_most = None
    return Found(_rows(index, wanted, ids), excerpts, min(at, total), total, at_most, True)


def _rows(index: RowIndex, wanted: RowQuery, ids: list[str]) -> list[dict[str, Any]]:
    """Rows of documents in the order of the ids; those of the selection."""
    if not ids:
        return []
    chosen = replace(wanted, ids=tuple(ids), sort="", after=None, seed="")
    listed = index.rows(chosen, len(ids)) if index.wait(0) else index.first_rows(chosen, len(ids))
    rows = {row["doc_id"]: row for row in listed}
    return [rows[doc_id] for doc_id in ids if doc_id in rows]


def excerpt(before: str, words: str, behind: str) -> Markup:
    """Words with what is around them, marked."""
    return inline(before + words + behind, [Mark(len(before), len(before) + len(words), "hit")])
