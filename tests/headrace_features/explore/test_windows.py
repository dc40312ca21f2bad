"""A window shows every token as what it is and leads to its source; blends and runs that read it are found."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.blend.store import open_store
from blender_service.server.blender import Blender
from blender_service.server.run_register import RunRegister
from dagster_project.inspect.documents.document_lookup import find_document, read_text
from dagster_project.inspect.documents.trace import TokenTracer
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.tokens.token_bytes import Spelling
from tests.dagster_project.traced_lake import PACKED, SIZE, SOURCES, TracedLake, add_masks, make
from tests.headrace_features.explore.served import asked, pages


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TracedLake:
    """Documents, tokens and windows; nobody changes it."""
    made = make(tmp_path_factory.mktemp("windows"))
    ensure_table(made.catalogue, "main.members", MEMBERS, {})
    return made


@pytest.fixture(scope="module")
def client(lake: TracedLake, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(lake.catalogue, tmp_path_factory.mktemp("pages"))


def test_a_window_shows_the_tokens_of_its_row(lake: TracedLake, client: TestClient) -> None:
    """Ids, segments and bytes are those of the packed table; every token is a link, in order; padding is counted."""
    rows = lake.catalogue.load_table(PACKED).scan().to_arrow().sort_by("ordinal").to_pylist()
    file = lake.catalogue.load_table("main.tokenizer").scan().to_arrow()["file"][0].as_py()
    tokenizer = Tokenizer.from_str(file)
    for row in rows:
        found = asked(client, f"/windows/{PACKED}/{row['ordinal']}")
        assert (found["input_ids"], found["segments"]) == (row["input_ids"], row["segments"])
        assert found["specials"] == [at for at, one in enumerate(row["input_ids"][: row["token_count"]]) if one == 0]
        for one in row["segments"]:
            ids = row["input_ids"][one["window_start"] :][: one["token_count"]]
            texts = found["texts"][one["window_start"] :][: one["token_count"]]
            joined = "".join(texts).encode(errors="surrogateescape").decode(errors="replace")
            assert joined == tokenizer.decode(ids, skip_special_tokens=False)
        page = client.get(f"/windows/{PACKED}/{row['ordinal']}").text
        positions = [int(at) for at in re.findall(rf'<a href="{row["ordinal"]}/(\d+)"', page)]
        assert positions == list(range(row["token_count"]))
        assert ("padding to position" in page) == (row["token_count"] < SIZE)
        assert (found["previous"] is None, found["next"] is None) == (row["ordinal"] == 0, row is rows[-1])


def test_tokens_without_a_loss_are_marked(tmp_path: Path) -> None:
    """Of a table with masks, on the page and in its values; special tokens keep their own mark."""
    lake = make(tmp_path / "lake")
    ensure_table(lake.catalogue, "main.members", MEMBERS, {})
    masks = add_masks(lake)
    client = pages(lake.catalogue, tmp_path)
    for ordinal, mask in masks.items():
        found = asked(client, f"/windows/{PACKED}/{ordinal}")
        assert found["trainable"] == mask
        page = client.get(f"/windows/{PACKED}/{ordinal}").text
        drawn = {
            int(at): kinds.split()
            for at, kinds in re.findall(rf'<a href="{ordinal}/(\d+)"[^>]*?(?: class="([^"]*)")?>', page)
        }
        assert drawn == {
            at: ["special"] * (at in found["specials"]) + ["untrained"] * (not mask[at])
            for at in range(found["token_count"])
        }


@pytest.mark.nightly
def test_a_token_leads_to_the_byte_of_its_source(lake: TracedLake, client: TestClient) -> None:
    """What the page says is what the trace says, and the mark is the token's own text."""
    tracer, marked = TokenTracer(lake.catalogue, PACKED), 0
    for position in range(SIZE):
        found = asked(client, f"/windows/{PACKED}/0/{position}")
        assert found["token"] == tracer.trace(0, position).facts()
        page = client.get(f"/windows/{PACKED}/0/{position}").text
        shown = re.search(r'<mark class="hit"[^>]*>(.*?)</mark>', page)
        if shown is None or found["token"]["path"] not in ("plain.py", "long.py") or "class=" in shown[1]:
            continue
        data = SOURCES[found["token"]["path"]][0]
        text = data[found["token"]["source_start"] : found["token"]["source_end"]].decode()
        assert html.unescape(shown[1]) == text.strip("\n")
        start = int(found["document"].rpartition("from=")[2])
        document = read_text(lake.catalogue, find_document(lake.catalogue, found["token"]["doc_id"])) or ""
        assert document[start : start + len(text)] == text
        marked += 1
    assert marked


def test_bytes_that_tokens_cut_are_shown_as_bytes(lake: TracedLake) -> None:
    """A token of one byte of a character has that byte; all bytes there are have a token that gives them back."""
    file = lake.catalogue.load_table("main.tokenizer").scan().to_arrow()["file"][0].as_py()
    spelling, tokenizer = Spelling(file), Tokenizer.from_str(file)
    text = "snow \u2603, \U0001f40d, caf\u00e9\u00a0\n\t" + bytes(range(32)).decode()
    ids = tokenizer.encode(text).ids
    spelled = [spelling.text(one).encode(errors="surrogateescape") for one in ids]
    assert b"".join(spelled) == text.encode()
    assert any("\udc80" <= spelling.text(one)[0] <= "\udcff" for one in ids)


def test_invisible_characters_cannot_hide(lake: TracedLake, client: TestClient) -> None:
    """Line ends are drawn, and no text of a token is markup."""
    pages_of_windows = [client.get(f"/windows/{PACKED}/{ordinal}").text for ordinal in range(3)]
    assert all("↵" in page for page in pages_of_windows)
    assert all("<script>" not in page for page in pages_of_windows)


def test_reads_of_a_window_are_the_rows_that_hold_it(lake: TracedLake, client: TestClient) -> None:
    """Every offset that the page names holds the window, those before it in the blend do not; so do the runs."""
    count = asked(client, f"/windows/{PACKED}/0")["window_count"]
    blender = Blender(lake.catalogue)
    blend = blender.create(BlendSpec(sources=(SourceSpec(PACKED, "1", "code", max_epochs=0),), seed=5, name="mixed"))
    register = RunRegister(open_store(lake.catalogue).objects)
    facts = {"blend": blend.blend_id, "first": 0, "end": count, "consumed": count - 2, "began": "2026-01-01T00:00:00"}
    facts |= {"principal": "ann", "world_size": 1, "step_rows": 0, "code_version": "", "notes": ""}
    register.write("run-1", "20260101T000000000000-00000001.began", facts)
    resolved = blender.order(blend.blend_id).resolve(np.arange(4 * count))
    for ordinal in (0, count - 1):
        reads = asked(client, f"/windows/{PACKED}/{ordinal}/about")["reads"]
        offsets = np.flatnonzero(resolved.ordinal == ordinal).tolist()
        assert [one["offset"] for one in reads] == offsets
        assert [one["epoch"] for one in reads] == resolved.epoch[offsets].tolist()
        assert [bool(one["runs"]) for one in reads] == [offset < count - 2 for offset in offsets]
        assert reads[0]["names"] == ["mixed"]
    doc_id = lake.doc_ids["long.py"]
    held = asked(client, f"/documents/{doc_id}/reads")
    windows = {one["ordinal"] for one in held["reads"]}
    rows = lake.catalogue.load_table(PACKED).scan().to_arrow().to_pylist()
    assert windows == {row["ordinal"] for row in rows if any(one["doc_id"] == doc_id for one in row["segments"])}


def test_texts_that_are_not_to_be_shown_are_not(lake: TracedLake, tmp_path: Path) -> None:
    """Neither tokens nor ids, which are the text in another alphabet; the documents are still listed."""
    hidden = pages(lake.catalogue, tmp_path, shown=lambda dataset: False)
    found = asked(hidden, f"/windows/{PACKED}/0")
    assert (found["texts"], found["input_ids"]) == (None, None)
    assert found["segments"]
    for path in (f"/windows/{PACKED}/0", f"/windows/{PACKED}/0/2"):
        assert "samples: text" in hidden.get(path).text
        assert "<mark" not in hidden.get(path).text


def test_tables_of_others_do_not_exist(lake: TracedLake, tmp_path: Path) -> None:
    """Who may not read the dataset sees no window of it, and who may not read the corpus neither."""
    for allowed in ("main", "code"):
        few = pages(lake.catalogue, tmp_path, reader=lambda who, one=allowed: lambda table: table.startswith(one))
        for path in (f"/windows/{PACKED}/0", f"/windows/{PACKED}/0/about", f"/windows/{PACKED}/0/2"):
            answer = few.get(path)
            assert answer.status_code == 404
            assert "is not here" in answer.text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/windows/{PACKED}/99999", "has no window 99999"),
        (f"/windows/{PACKED}/0?at=12", "has no snapshot 12"),
        (f"/windows/{PACKED}/0?at=x", "is no snapshot"),
        (f"/windows/{PACKED}x/0", "is not in the lake"),
        ("/windows/main.tokens/0", "is not packed"),
        (f"/windows/{PACKED}/0/99", "position 99 is outside of a window"),
    ],
)
def test_mistakes_are_told_in_one_line(client: TestClient, path: str, said: str) -> None:
    """What is wrong, on a page."""
    answer = client.get(path)
    assert answer.status_code == 404
    assert said in html.unescape(answer.text)
    where, mark, query = path.partition("?")
    assert list(json.loads(client.get(f"{where}.json{mark}{query}").text)) == ["error"]
