"""Every token of a packed table leads back to the bytes it came from, and every document to its windows."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.cli import run_command
from dagster_project.inspect.documents.trace import TokenTracer, file_bytes
from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.plan.excisions import EXCISIONS, excised_documents, record_excisions
from tests.dagster_project.traced_lake import PACKED, SIZE, SOURCES, TracedLake, make, pack
from tests.tiers import is_nightly

Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TracedLake:
    """The lake, made once; nobody changes it."""
    return make(tmp_path_factory.mktemp("traced"))


@pytest.fixture(autouse=True)
def here(lake: TracedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands look into that lake."""
    for name, value in lake.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    monkeypatch.setenv("COLUMNS", "200")


EXCISED = EqualTo("act", "excise")


def printed(capfd: Said, *arguments: str) -> str:
    """What a good command prints."""
    capfd.readouterr()
    status = run_command(list(arguments))
    out, err = capfd.readouterr()
    assert (status, err) == (0, ""), f"{out}\n{err}"
    return out


def windows(lake: TracedLake) -> list[dict[str, Any]]:
    """The packed table by ordinal."""
    found = lake.catalogue.load_table(PACKED).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["ordinal"]))


@pytest.mark.nightly
def test_every_place_of_every_window_is_what_the_trace_says(lake: TracedLake) -> None:
    """Ids agree; the traced spans of a document cover its file from end to end; the rest is specials and padding."""
    tracer = TokenTracer(lake.catalogue, PACKED)
    spans: dict[str, list[tuple[int, int]]] = {}
    texts: dict[str, dict[int, tuple[int, int]]] = {}
    for window in windows(lake):
        for position, token in enumerate(window["input_ids"]):
            found = tracer.trace(window["ordinal"], position)
            if position >= window["token_count"]:
                assert (found.what, found.doc_id) == ("padding", None)
            elif found.what == "end_of_document":
                assert token == 0
                assert found.document_token == len(lake.ids[str(found.path)])
            else:
                path = str(found.path)
                assert (found.what, found.token_id) == ("token", token)
                assert lake.ids[path][int(found.document_token or 0)] == token
                assert (found.repository, found.revision, found.licence) == ("pages", "r1", "MIT")
                assert found.doc_id == lake.doc_ids[path]
                spans.setdefault(path, []).append((int(found.source_start or 0), int(found.source_end or 0)))
                place = (int(found.text_start or 0), int(found.text_end or 0))
                texts.setdefault(path, {})[int(found.document_token or 0)] = place
    for path, (data, encoding) in SOURCES.items():
        own = sorted(spans[path])
        assert own[0][0] == (3 if encoding == "utf-8-sig" else 0)
        assert own[-1][1] == len(data)
        for left, right in itertools.pairwise(own):
            assert data[left[1] : right[0]] in (b"", b"\r"), "only what normalization dropped is left out"
        ends = [texts[path][number] for number in sorted(texts[path])]
        assert all(left[1] == right[0] for left, right in itertools.pairwise(ends))


@pytest.mark.nightly
def test_the_bytes_of_a_token_are_its_text(lake: TracedLake) -> None:
    """Where nothing was normalized, the file's bytes decode to the token."""
    from tokenizers import Tokenizer

    file = lake.catalogue.load_table("main.tokenizer").scan().to_arrow().column("file")[0].as_py()
    tokenizer = Tokenizer.from_str(file)
    tracer = TokenTracer(lake.catalogue, PACKED)
    checked = 0
    for window in windows(lake):
        for position in range(0, window["token_count"], 1 if is_nightly() else 2):
            found = tracer.trace(window["ordinal"], position)
            if found.what != "token" or found.path not in ("plain.py", "long.py"):
                continue
            data = SOURCES[str(found.path)][0]
            assert data[found.source_start : found.source_end].decode() == tokenizer.decode([found.token_id or 0])
            checked += 1
    assert checked > 50


def test_other_encodings_count_in_the_bytes_of_the_file() -> None:
    """Characters that a span cuts are taken in whole; two bytes a character, and a mark at the start, in UTF-16."""
    assert file_bytes("café au", "iso-8859-1", 3, 5) == (3, 4)
    assert file_bytes("café au", "iso-8859-1", 4, 6) == (3, 5)
    assert file_bytes("ab", "utf-16", 1, 2) == (4, 6)
    assert file_bytes("xé", "utf-8-sig", 1, 3) == (4, 6)


@pytest.mark.nightly
def test_a_warm_trace_takes_less_than_a_tenth_of_a_second(lake: TracedLake) -> None:
    """The second question to a tracer, median of eleven."""
    tracer = TokenTracer(lake.catalogue, PACKED)
    tracer.trace(0, 0)
    seconds = []
    for position in range(11):
        started = time.perf_counter()
        tracer.trace(position % 3, position % 8)
        seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[5] < 0.1


def test_commands_agree_with_each_other(lake: TracedLake, capfd: Said) -> None:
    """`doc show --windows` lists the parts of a document; `doc trace` at each of them leads back to it."""
    said = json.loads(printed(capfd, "doc", "show", "--windows", "long.py", "--json"))
    parts = said["windows"]
    assert [part["document_start"] for part in parts] == [SIZE * number for number in range(len(parts))]
    assert sum(part["token_count"] for part in parts) == len(lake.ids["long.py"]) + 1
    for part in parts:
        traced = json.loads(
            printed(capfd, "doc", "trace", part["table"], str(part["ordinal"]), str(part["window_start"]), "--json")
        )
        assert traced["doc_id"] == lake.doc_ids["long.py"]
        assert traced["document_token"] == part["document_start"]
    shown = printed(capfd, "doc", "trace", PACKED, str(parts[0]["ordinal"]), str(parts[0]["window_start"]))
    assert "code pages: long.py" in shown and "bytes 0 to" in shown and "MIT" in shown
    assert PACKED in printed(capfd, "doc", "show", "--windows", lake.doc_ids["plain.py"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("doc", "trace", "main.nowhere", "0", "0"), "main.nowhere is not in the lake"),
        (("doc", "trace", "main.tokens", "0", "0"), "main.tokens: is not packed"),
        (("doc", "trace", PACKED, "100000", "0"), "ordinal 100000 is not in the table; it has 0.."),
        (("doc", "trace", PACKED, "0", str(SIZE)), f"position {SIZE} is outside of a window"),
        (("doc", "excise", "--yes", "abc"), "give whole doc_ids of 32 hex digits"),
        (("doc", "excise", "--yes"), "nothing is given"),
    ],
)
def test_mistakes_are_told_in_one_line(capfd: Said, arguments: tuple[str, ...], message: str) -> None:
    """Exit status 2 and what to do instead."""
    capfd.readouterr()
    assert run_command(list(arguments)) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err


def test_a_document_that_no_table_holds_is_kept_out_of_those_to_come(lake: TracedLake, capfd: Said) -> None:
    """`doc excise` lists it for all packed tables, or for the one that is named, and says that none holds it."""
    everywhere, here = "0" * 31 + "e", "0" * 31 + "f"
    assert f"{PACKED}: holds none of them" in printed(capfd, "doc", "excise", "--yes", "--table", PACKED, here)
    assert "in no packed table" in printed(capfd, "doc", "excise", "--yes", "--reason", "asked to", everywhere)
    assert excised_documents(lake.catalogue, None) == {everywhere}
    assert excised_documents(lake.catalogue, PACKED) == {everywhere, here}
    rows = read_rows(lake.catalogue, AUDIT_TABLE, ("subject", "why"), EXCISED)
    said = [(row["subject"], row["why"]) for row in rows]
    assert [(subject, why.partition(",")[0]) for subject, why in sorted(said)] == [
        ("all packed tables", "asked to; 1 documents"),
        (PACKED, "no reason given; 1 documents"),
    ]


def test_windows_of_an_older_generation_are_found(tmp_path: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a blend pins is served, so it is told beside the head, and why a document is gone from it."""
    made = make(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    table = made.catalogue.load_table(PACKED)
    table.overwrite(table.scan().to_arrow(), snapshot_properties={"headrace.generation": "first"})
    pinned = table.current_snapshot()
    assert pinned is not None
    Blender(made.catalogue).create(BlendSpec((SourceSpec(PACKED),), seed=1, name="running"))
    documents = [(made.doc_ids[path], ids) for path, ids in made.ids.items() if path != "plain.py"]
    again = pa.Table.from_pylist(pack(documents), schema=table.schema().as_arrow())
    table.refresh()
    table.overwrite(again, snapshot_properties={"headrace.generation": "second"})
    table.transaction().set_properties({"headrace.generation": "second"}).commit_transaction()
    held = {
        path: {
            part["snapshot"]
            for part in json.loads(printed(capfd, "doc", "show", "--windows", path, "--json"))["windows"]
        }
        for path in ("plain.py", "latin.py")
    }
    assert held == {"plain.py": {str(pinned.snapshot_id)}, "latin.py": {"head", str(pinned.snapshot_id)}}
    blends = dependent_blends(made.catalogue, [PACKED])[PACKED]
    assert effect_of_repacking(blends) == "blends running go on with the rows that they pinned"

    gone = made.doc_ids["plain.py"]
    record_excisions(made.catalogue, PACKED, [gone], "headrace doc excise by somebody, 1")
    (said,) = [
        one for one in json.loads(printed(capfd, "doc", "why", gone, "--json"))["findings"] if one["table"] == EXCISIONS
    ]
    assert said["outcome"] == "excised"
    assert said["sentence"].startswith(f"taken out of {PACKED} on 20")
    assert said["sentence"].endswith(" by headrace doc excise by somebody, 1")


def test_a_tokenizer_that_spells_no_bytes_is_traced_by_its_offsets(tmp_path: Path) -> None:
    """Offsets of an encoding lead to the same bytes; a foreign list of ids is refused."""
    import numpy as np
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    from spark_jobs.exceptions import TableMismatchError
    from spark_jobs.tokens.token_bytes import encoded_bounds, token_byte_lengths

    made = Tokenizer(models.WordLevel({"caf\u00e9": 0, "au": 1, "lait": 2, "?": 3}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.normalizer = normalizers.Lowercase()
    file = str(made.to_str())
    assert token_byte_lengths(file) is None
    starts, ends = encoded_bounds(file, "Caf\u00e9 au lait", np.array([0, 1, 2], dtype=np.int32))
    assert (starts.tolist(), ends.tolist()) == ([0, 6, 9], [5, 8, 13])
    with pytest.raises(TableMismatchError, match="encodes to 3 tokens other than the 2"):
        encoded_bounds(file, "Caf\u00e9 au lait", np.array([0, 1], dtype=np.int32))
