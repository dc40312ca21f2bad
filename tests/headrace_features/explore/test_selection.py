"""What is taken out of a list: tags and files have exactly its documents, and nobody else's."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from headrace.tables.settings import settings_at
from headrace_features.explore import chosen as chosen_module
from headrace_features.explore import export as export_module
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, note_act
from spark_jobs.lake.plan.excisions import SUPERSEDE_PREFIX, record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.headrace_features.explore.judged_lake import judged_rows, make, pages
from tests.headrace_features.explore.planted import drawn, plant
from tests.headrace_features.explore.served import pages as pages_for
from tests.tiers import sampled

ROWS = judged_rows(60)
BY_ID = {row["doc_id"]: row for row in ROWS}
PLACE = "/datasets/notes"
LISTS = (
    {},
    {"rule": "too_many_digits", "sort": "distance"},
    {"kind": "code", "byte_count.min": "1000"},
    {"seed": "3"},
    {"q": "text 1"},
    {"path": "p1", "verdict": "kept", "after": '[null, "00000000000000000000000000000000"]'},
    {"rule": "no_such_rule"},
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a judged dataset."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    return opened


@pytest.fixture
def catalogue(lake: Catalog) -> Catalog:
    """The same without tags and excisions."""
    for table in (AUDIT_TABLE, "system.excisions"):
        if lake.table_exists(table):
            lake.drop_table(table)
    return lake


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its indexes are."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def client(catalogue: Catalog, folder: Path) -> TestClient:
    """Its pages, whose index is whole."""
    made = pages(catalogue, folder)
    assert made.get(f"{PLACE}/facets").status_code == 200
    return made


def listed(client: TestClient, query: dict[str, str]) -> list[str]:
    """The documents of a list, page by page."""
    path = f"{PLACE}/documents?{urlencode({k: v for k, v in query.items() if k != 'after'})}"
    ids: list[str] = []
    while path:
        page = client.get(path.replace("/documents?", "/documents.json?")).json()
        ids += [row["doc_id"] for row in page["rows"]]
        path = page["next"]
    return ids


def exported(client: TestClient, fields: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of an exported file, read back, and what lies beside them."""
    sent = client.post(f"{PLACE}/export", data=fields)
    assert sent.status_code == 200, sent.text
    with zipfile.ZipFile(io.BytesIO(sent.content)) as archive:
        form = fields.get("format", "jsonl")
        assert archive.testzip() is None and archive.namelist() == [f"notes.{form}", "selection.json"]
        file, about = archive.read(f"notes.{form}"), json.loads(archive.read("selection.json"))
    if form == "csv":
        return list(csv.DictReader(io.StringIO(file.decode(), newline=""))), about
    if form == "parquet":
        return pq.read_table(io.BytesIO(file)).to_pylist(), about
    return [json.loads(line) for line in file.decode().split("\n")[:-1]], about


@sampled(3)
@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("query", LISTS, ids=str)
def test_a_file_has_the_list(client: TestClient, query: dict[str, str], form: str, monkeypatch: Any) -> None:
    """Exactly its documents with their texts, in every format, and beside it what it is of."""
    monkeypatch.setattr(chosen_module, "_PART", 7)
    monkeypatch.setattr(export_module, "_FLUSH_BYTES", 2000)
    wanted = listed(client, query)
    rows, about = exported(client, {"state": urlencode(query), "all": "1", "format": form})
    assert sorted(row["doc_id"] for row in rows) == sorted(wanted) and about["count"] == len(wanted)
    assert (len(wanted) > 2) == (query.get("rule") != "no_such_rule")
    for row in rows:
        assert row["text"] == BY_ID[row["doc_id"]]["content"]
        assert int(row["byte_count"]) == BY_ID[row["doc_id"]]["byte_count"]
        assert bool(row["failed"]) == (row["kept"] in (False, "False"))
    assert (about["dataset"], about["exported_by"], about["ticked"]) == ("notes", "ann", None)
    assert {**query, "at": about["filter"]["at"]} == about["filter"] and len(about["versions"]) == 4


def test_ticked_documents_alone_leave(client: TestClient) -> None:
    """Whatever the list shows; but no document that its filter does not hold."""
    few = sorted(BY_ID)[5:9]
    rows, about = exported(client, {"state": "sort=path", **{f"doc.{one}": "1" for one in few}})
    assert sorted(row["doc_id"] for row in rows) == few == sorted(about["ticked"])
    code = {one for one in few if BY_ID[one]["kind"] == "code"}
    rows, _ = exported(client, {"state": "kind=code", **{f"doc.{one}": "1" for one in few}})
    assert {row["doc_id"] for row in rows} == code


def test_what_people_took_out_never_leaves(client: TestClient, catalogue: Catalog) -> None:
    """Excised documents, of one table or of all; those that a revision replaced do."""
    first, second, third = sorted(BY_ID)[:3]
    record_excisions(catalogue, None, [first], "run")
    record_excisions(catalogue, "main.packed_x_512", [second], "run")
    record_excisions(catalogue, "main.packed_x_512", [third], f"{SUPERSEDE_PREFIX}run")
    rows, about = exported(client, {"all": "1"})
    assert {row["doc_id"] for row in rows} == BY_ID.keys() - {first, second}
    assert about["left_out"] == {"excised": 2, "personal_data": 0}


def test_cells_are_no_formulas(catalogue: Catalog, tmp_path: Path) -> None:
    """In CSV each text that a spreadsheet would compute has a mark before it; the other formats have it as it is."""
    evil = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "plain", 'quo"te,\nline', "'=x", "'twas"]
    rows = judged_rows(len(evil), seed=8)
    for row, text in zip(rows, evil, strict=True):
        row |= {"path": text, "content": text}
    if not catalogue.table_exists("evil.documents"):
        make(catalogue, rows, "evil")
    client = pages(catalogue, tmp_path)
    for form in ("csv", "jsonl"):
        sent = client.post("/datasets/evil/export", data={"all": "1", "format": form})
        file = zipfile.ZipFile(io.BytesIO(sent.content)).read(f"evil.{form}").decode()
        if form == "jsonl":
            assert sorted(json.loads(line)["text"] for line in file.split("\n")[:-1]) == sorted(evil)
            continue
        cells = [*csv.DictReader(io.StringIO(file, newline=""))]
        assert sorted(row["text"].removeprefix("'") for row in cells) == sorted(evil)
        for row in cells:
            assert row["text"] == row["path"]
            assert not re.match(r"[=+\-@\t\r]", row["text"])


@sampled()
@pytest.mark.parametrize("query", LISTS, ids=str)
def test_a_tag_is_given_to_the_list(client: TestClient, catalogue: Catalog, query: dict[str, str]) -> None:
    """To each of its documents once, by name and time; the list of the tag is these; taking it off undoes it."""
    wanted = listed(client, query)
    fields = {"state": urlencode(query), "all": "1", "tag": "broken_ocr", "act": "tag", "why": "<i>why</i>"}
    for _ in range(2):
        sent = client.post(f"{PLACE}/tag", data=fields)
        assert sent.status_code == 303 and sent.headers["location"].startswith(f"{PLACE}/documents")
    acts = catalogue.load_table(AUDIT_TABLE).scan().to_arrow().to_pylist() if wanted else []
    assert sorted(act["doc_id"] for act in acts) == sorted(wanted), "a form that is sent twice is one"
    assert {(act["who"], act["act"], act["subject"], act["tag"]) for act in acts} <= {
        ("ann", "tag", "notes", "broken_ocr")
    }
    assert sorted(listed(client, {"tag": "broken_ocr"})) == sorted(wanted)
    assert listed(client, {"tag": "other"}) == []
    rows, _ = exported(client, {"state": "tag=broken_ocr", "all": "1"})
    assert sorted(row["doc_id"] for row in rows) == sorted(wanted) and all(r["tags"] == ["broken_ocr"] for r in rows)
    few = wanted[:2]
    if few:
        off = {**{f"doc.{one}": "1" for one in few}, "tag": "broken_ocr", "act": "untag"}
        assert client.post(f"{PLACE}/tag", data=off, headers={"Authorization": "Bearer bob"}).status_code == 303
        shown = client.get(f"{PLACE}/tags.json").json()
        assert shown["tags"].get("broken_ocr", 0) == len(wanted) - len(few)
        assert [(act["who"], act["act"], act["count"]) for act in shown["acts"]] == [
            ("bob", "untag", len(few)), ("ann", "tag", len(wanted)),
        ]  # fmt: skip
        page = client.get(f"{PLACE}/tags").text
        assert "<i>why" not in page and "&lt;i&gt;why" in page
        for act, left in ((shown["acts"][0], len(wanted)), (shown["acts"][1], 0)):
            undone = {name: act[name] for name in ("at", "who", "tag")}
            assert client.post(f"{PLACE}/tags/undo", data=undone).status_code == 303
            assert client.get(f"{PLACE}/tags.json").json()["tags"].get("broken_ocr", 0) == left


def test_a_review_and_counts_hold_for_a_tag(client: TestClient) -> None:
    """The filter goes wherever lists are filtered."""
    ids = sorted(BY_ID)[:9]
    client.post(f"{PLACE}/tag", data={**{f"doc.{one}": "1" for one in ids}, "tag": "a", "act": "tag"})
    assert client.get(f"{PLACE}/facets.json?tag=a").json()["selected"] == len(ids)
    failed = [one for one in ids if one in listed(client, {"rule": "too_few_words"})]
    assert client.get(f"{PLACE}/review.json?rule=too_few_words&tag=a").json()["total"] == len(failed) > 0
    page = client.get(f"{PLACE}/documents?tag=a").text
    assert page.count('name="doc.') == len(ids) and "<script>alert" not in page


def test_a_deletion_ends_tags(client: TestClient, catalogue: Catalog) -> None:
    """What is landed anew under the name begins without any; the deletion of an increment leaves them."""
    give = {f"doc.{sorted(BY_ID)[0]}": "1", "tag": "a", "act": "tag"}
    client.post(f"{PLACE}/tag", data=give)
    note_act(catalogue, "delete", "notes", increment=0)
    assert client.get(f"{PLACE}/tags.json").json()["tags"] == {"a": 1}
    note_act(catalogue, "delete", "notes")
    assert client.get(f"{PLACE}/tags.json").json()["tags"] == {}
    client.post(f"{PLACE}/tag", data=give)
    assert client.get(f"{PLACE}/tags.json").json()["tags"] == {"a": 1}


def test_mistakes_and_strangers_are_refused(client: TestClient, catalogue: Catalog, tmp_path: Path) -> None:
    """Markup for a tag, nothing chosen, another site, another person's dataset, hidden texts; nothing is written."""
    doc = {f"doc.{sorted(BY_ID)[0]}": "1"}
    good = {**doc, "tag": "a", "act": "tag"}
    for wrong in (
        {**good, "tag": "<script>alert(1)</script>"}, {**good, "tag": ""}, {**good, "tag": "x" * 65},
        {**good, "tag": "a b"}, {**good, "act": "delete"}, {"tag": "a", "act": "tag"}, {**good, "doc.x": "1"},
        {**good, "state": "nothing=1"}, {**good, "state": "at=1-2-3-4"},
    ):  # fmt: skip
        sent = client.post(f"{PLACE}/tag", data=wrong)
        assert sent.status_code == 404 and "<script>alert" not in sent.text, wrong
    other = {"authorization": "", "cookie": "headrace_explore=ann", "origin": "http://evil.example"}
    closed = pages_for(catalogue, tmp_path / "closed", reader=lambda principal: lambda table: False)
    for path, fields in (("tag", good), ("export", doc), ("tags/undo", {"at": "", "who": "ann", "tag": "a"})):
        assert client.post(f"{PLACE}/{path}", data=fields, headers=other).status_code == 403
        assert client.get(f"{PLACE}/{path}").status_code in (404, 405)
        assert "notes is not here" in closed.post(f"{PLACE}/{path}", data=fields).text
    assert "there is no such act" in client.post(f"{PLACE}/tags/undo", data={"at": "x", "who": "ann", "tag": "a"}).text
    assert client.post(f"{PLACE}/export", data={**doc, "format": "xlsx"}).status_code == 404
    hidden = pages(catalogue, tmp_path / "hidden", lambda dataset: False)
    hidden.get(f"{PLACE}/facets")
    assert "texts are not shown" in hidden.post(f"{PLACE}/tag", data=good).text
    assert not catalogue.table_exists(AUDIT_TABLE)
    rows, about = exported(hidden, {"all": "1"})
    assert len(rows) == len(ROWS) and "text" not in rows[0] and "text" not in about["columns"]


@sampled()
@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("texts", ["none", "some"])
def test_documents_without_a_text_leave_too(lake_env: Path, tmp_path: Path, texts: str, form: str) -> None:
    """What has landed and was not cleaned yet is on the list, so it is in the file, without a text."""
    planted = plant(tmp_path)
    rows = drawn(30)
    facts = [{key: value for key, value in row.items() if key not in ("content", "scores")} for row in rows]
    planted.add("notes", rows[:20] if texts == "some" else facts[:20])
    planted.add("notes", facts[20:], increment=1)
    asked = planted.client()
    assert asked.get(f"{PLACE}/facets").status_code == 200
    for query, wanted in (("", rows), ("kind=code", [row for row in rows if row["kind"] == "code"])):
        given, about = exported(asked, {"state": query, "all": "1", "format": form})
        assert about["count"] == len(given) == len(wanted)
        content = {row["doc_id"]: row["content"] if row in rows[:20] and texts == "some" else None for row in wanted}
        assert {row["doc_id"]: row["text"] or None for row in given} == content
    few, _ = exported(asked, {f"doc.{row['doc_id']}": "1" for row in (rows[0], rows[25])})
    assert {row["doc_id"] for row in few} == {rows[0]["doc_id"], rows[25]["doc_id"]}


@sampled()
@pytest.mark.parametrize("most", [59, 60, 20_000])
def test_all_that_a_search_finds_comes_of_few_reads(client: TestClient, most: int, monkeypatch: Any) -> None:
    """Not of a read of files for each page: 20,001 of a million documents took 99 s before they were refused."""
    asked: list[int] = []
    search = chosen_module.search_texts
    monkeypatch.setattr(chosen_module, "_MOST_HITS", most)
    monkeypatch.setattr(chosen_module, "search_texts", lambda *given: asked.append(1) or search(*given))
    sent = client.post(f"{PLACE}/export", data={"state": "q=text", "all": "1"})
    assert len(asked) == 1
    if most < len(ROWS):
        assert sent.status_code == 404 and f"more than {most} documents have these words" in sent.text
    else:
        assert exported(client, {"state": "q=text", "all": "1"})[1]["count"] == len(ROWS)


def test_every_line_is_json(lake_env: Path, tmp_path: Path) -> None:
    """An infinite signal, for which JSON has no number, is null in JSONL, which is said beside it."""
    planted = plant(tmp_path)
    infinite = [float("inf"), float("-inf"), float("nan"), 1.5]
    planted.add(
        "notes", [{**row, "scores": {"mean_word_length": n}} for row, n in zip(drawn(4), infinite, strict=True)]
    )
    client = planted.client()
    assert client.get(f"{PLACE}/facets").status_code == 200
    rows, about = exported(client, {"all": "1"})
    assert sorted(str(row["mean_word_length"]) for row in rows) == ["1.5", "None", "None", "None"]
    assert "null" in about["numbers"]
    rows, _ = exported(client, {"all": "1", "format": "parquet"})
    assert {str(row["mean_word_length"]) for row in rows} == {"inf", "-inf", "None", "1.5"}
