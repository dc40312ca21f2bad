"""Search: by a scan and by the index of words, beside plain Python's."""

from __future__ import annotations

import random
import re
import sqlite3
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.tables.settings import settings_at
from headrace_features.explore import text_search, word_index
from headrace_features.explore.row_index import RowIndex
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.text_search import Found, SearchWords, search_texts, terms_of
from tests.headrace_features.explore.planted import Planted, plant
from tests.tiers import sampled, tries

PIECES = [
    "mill", "Mill", "MILLS", "mill_race", "race", "don't", "C++", "foo-bar", "NOT", "AND", '"', "'", "*", "é", "É",
    "naïve", "straße", "日本", "日本語", "本", "語", "ไทย", "한국어", "дом", "ДОМ", "ﬁ", "a\u0323b", "x\0y", "42", "4",
    "²", "_", "😀", "NEAR(", "col:", "^", "-", "^mill", "😀mill", "\U0001e900mill", "\ue000mill",
]  # fmt: skip
GAPS = [" ", " ", "\n", "  ", "\t", "\u00a0", "\u3000", "", "-", "."]


def drawn_texts(count: int) -> list[str]:
    """Texts of pieces that words of a search may be cut from."""
    chance = random.Random(5)
    texts = [
        "".join(chance.choice(PIECES) + chance.choice(GAPS) for _ in range(chance.randrange(12))) for _ in range(count)
    ]
    return [unicodedata.normalize("NFC", text) for text in texts]


TEXTS = drawn_texts(400)
IDS = [f"{random.Random(number).getrandbits(128):032x}" for number in range(len(TEXTS))]
ALL = RowQuery()
CLOSE = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """The texts, in two shards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings_at(tmp_path_factory.mktemp("lake")).properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        made = plant(tmp_path_factory.mktemp("index"))
        rows = [
            {"doc_id": one, "path": one, "shard": at % 2, "kind": ("code", "prose")[at % 3 == 0], "content": text}
            for at, (one, text) in enumerate(zip(IDS, TEXTS, strict=True))
        ]
        made.add("notes", rows)
    return made


@pytest.fixture(scope="module")
def scanned(planted: Planted) -> RowIndex:
    """An index without words, as of a small dataset."""
    return planted.index()


@pytest.fixture(scope="module")
def worded(planted: Planted) -> RowIndex:
    """An index with words, as of a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_index, "WORDS_FROM_BYTES", 0)
        index = replace_folder(planted).index()
    assert index.words.wait(60)
    return index


def replace_folder(planted: Planted) -> Planted:
    """The same lake with indexes of its own."""
    return replace(planted, folder=planted.folder / "words")


def everything(planted: Planted, index: RowIndex, words: SearchWords, wanted: RowQuery = ALL) -> tuple[set[str], Found]:
    """All hits, from page to page."""
    hits: set[str] = set()
    while True:
        found = search_texts(planted.catalogue, index, wanted, words)
        assert not hits & {row["doc_id"] for row in found.rows}
        assert set(found.excerpts) >= {row["doc_id"] for row in found.rows}
        hits |= {row["doc_id"] for row in found.rows}
        assert words.start < found.read <= found.total == len(TEXTS)
        if found.read == found.total:
            return hits, found
        words = replace(words, start=found.read)


def truth(words: str, whole: bool, exact: bool) -> set[str]:
    """Documents that hold the words, letter by letter."""

    def plain(text: str) -> str:
        return " ".join(re.split(r"\s+", text if exact else "".join(one.lower() for one in text)))

    looked = plain(unicodedata.normalize("NFC", words)).strip()
    return {one for one, text in zip(IDS, TEXTS, strict=True) if _holds(plain(text), looked, whole)}


def _holds(text: str, words: str, whole: bool) -> bool:
    def joins(at: int, own: str) -> bool:
        inside = 0 <= at < len(text) and whole
        return inside and _is_letter(own) and not CLOSE.match(own) and _is_letter(text[at])

    at = text.find(words)
    while at >= 0:
        if not joins(at - 1, words[0]) and not joins(at + len(words), words[-1]):
            return True
        at = text.find(words, at + 1)
    return False


def _is_letter(one: str) -> bool:
    return one.isalnum() or unicodedata.category(one) == "Co" or "\u0300" <= one <= "\u036f"


def asked() -> list[str]:
    """Pieces, parts of them and phrases that the texts hold, and some that they do not."""
    chance = random.Random(9)
    found = [
        *PIECES,
        "mil",
        "ill",
        "本語 日",
        "nothing",
        "mill race",
        "NOT mill",
        "mill AND",
        '"mill"',
        "mill*",
        "^mill",
        "col:mill",
    ]
    for _ in range(tries(60, 20)):
        text = chance.choice([one for one in TEXTS if len(one) > 8])
        start = chance.randrange(len(text) - 3)
        found.append(text[start : start + chance.randrange(1, 8)])
    return [one for one in found if one.strip()]


@sampled()
@pytest.mark.parametrize("exact", [False, True])
def test_a_scan_finds_what_plain_python_finds(planted: Planted, scanned: RowIndex, exact: bool) -> None:
    """Anywhere in a text, parts of words too, whatever signs the words hold."""
    for words in asked():
        hits, found = everything(planted, scanned, SearchWords(words, exact))
        assert hits == truth(words, whole=False, exact=exact), repr(words)
        assert not found.whole_words and found.at_most is None


@sampled()
@pytest.mark.parametrize("exact", [False, True])
def test_the_index_of_words_finds_what_plain_python_finds(planted: Planted, worded: RowIndex, exact: bool) -> None:
    """Whole words in any script, phrases and case exact; signs alone by a scan; no word is a command of FTS5."""
    assert worded.has_words
    for words in asked():
        hits, found = everything(planted, worded, SearchWords(words, exact))
        whole = bool(terms_of(words))
        assert hits == truth(words, whole, exact), repr(words)
        assert found.whole_words == whole
        assert not whole or (found.at_most or 0) >= len(hits)
        assert everything(planted, worded, SearchWords(words, exact, inside=True))[0] == truth(words, False, exact)


def test_a_search_is_of_the_selection(planted: Planted, scanned: RowIndex, worded: RowIndex) -> None:
    """A page of hits is full where there are enough in the selection, not in the dataset."""
    wanted, prose = RowQuery(equal={"kind": "prose"}), set(IDS[::3])
    for index in (scanned, worded):
        hits, _ = everything(planted, index, SearchWords("mill"), wanted)
        assert hits == truth("mill", index is worded, exact=False) & prose


def test_a_search_stops_after_its_time_and_goes_on(
    planted: Planted, scanned: RowIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a batch at the latest, and says how far it came; what is found from there on is the rest."""
    monkeypatch.setattr(text_search, "SECONDS", 0)
    first = search_texts(planted.catalogue, scanned, RowQuery(), SearchWords("nothing at all"))
    assert first.rows == [] and 0 < first.read < first.total
    hits, _ = everything(planted, scanned, SearchWords("mill"))
    assert hits == truth("mill", whole=False, exact=False)


def test_the_page_says_what_it_searched(planted: Planted, scanned: RowIndex) -> None:
    """How far, in which case of letters, with the hit marked, and a link that goes on."""
    client = planted.client()
    page = client.get("/datasets/notes/documents.json?q=mill").json()
    assert len(page["rows"]) == 50 and page["searched"]["read"] < len(TEXTS) and "from=" in page["next"]
    text = client.get("/datasets/notes/documents?q=mill").text
    assert '<mark class="hit">' in text and "In any case of letters" in text and "go on" in text
    assert 'href="/find?q=mill&amp;dataset=notes"' in text
    assert client.get("/datasets/notes/documents?q=%20").status_code == 200
    assert client.get("/datasets/notes/documents?q=mill&from=x").status_code == 404
    assert client.get("/datasets/notes/documents.json?q=mill&from=100000").json()["rows"] == []


def test_rows_come_from_the_table_while_the_index_is_built(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of a table of any size, its hits too; what needs the index waits."""
    monkeypatch.setattr(RowIndex, "wait", lambda self, seconds: False)
    client = replace_folder(planted).client()
    page = client.get("/datasets/notes/documents.json?kind=prose").json()
    assert not page["whole"] and {row["doc_id"] for row in page["rows"]} <= set(IDS[::3]) and len(page["rows"]) == 50
    assert client.get("/datasets/notes/documents.json?sort=path").json()["rows"] == []
    assert client.get("/datasets/notes/documents.json?q=mill&kind=prose").json()["rows"]
    assert "being read" in client.get("/datasets/notes/documents").text


def test_the_index_of_words_keeps_no_text(planted: Planted, worded: RowIndex) -> None:
    """Of FTS5 the terms and their places, which is what its size is measured for."""
    (file,) = (planted.folder / "words").glob(f"notes.{worded.version}.words.*")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as opened:
        assert opened.execute("SELECT count(*) FROM words WHERE words MATCH 'mill'").fetchone()[0] > 0
        assert opened.execute("SELECT content FROM words WHERE words MATCH 'mill'").fetchone() == (None,)
    opened.close()


def test_words_that_cannot_be_read_are_told(planted: Planted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with a full disk: why, on the page of a search, and no half of a file stays."""
    monkeypatch.setattr(word_index, "apart", _full)
    page = replace(planted, folder=tmp_path / "full").client().get("/find?q=mill")
    assert page.status_code == 200 and "notes is left out: OSError: No space left on device" in page.text
    assert not [*(tmp_path / "full").glob("*.words.*")]


def _full(text: str) -> str:
    raise OSError("No space left on device")


def test_texts_of_places_are_read_by_row_groups(planted: Planted, worded: RowIndex, tmp_path: Path) -> None:
    """Any rows of any files, with many row groups in each."""
    with planted.catalogue.load_table("notes.texts").transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-limit": "7"})
    rows: list[dict[str, Any]] = [
        {"doc_id": f"{n:032x}", "path": "p", "content": f"text {n}", "shard": 0} for n in range(40)
    ]
    planted.add("notes", rows, increment=1)
    index = replace(planted, folder=tmp_path).index()
    found = index._ask("SELECT t, file, row, doc_id FROM texts JOIN rows USING (n)", [], index._texts)
    texts = index.texts.read([(one["t"], one["file"], one["row"]) for one in found[::3]])
    truth_of = dict(zip(IDS, TEXTS, strict=True)) | {row["doc_id"]: row["content"] for row in rows}
    assert texts == {one["t"]: truth_of[one["doc_id"]] for one in found[::3]}
