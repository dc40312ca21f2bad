"""`headrace blend` works on the lake itself; the client side needs no lake at all."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import TextSpec
from blender_service.exceptions import BlendNotFoundError, CatalogueError, InvalidBlendError
from dagster_project.cli.train.blend import blend
from dagster_project.cli.train.blend_syntax import parse_change, parse_texts
from dagster_project.exceptions import CommandError
from headrace.tables.cells import cell_text
from tests.blender_service.packed_tables import TOKENIZER, VOCABULARY_SIZE, PackedFixture, create_packed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a directory with nothing but ./warehouse, without PyIceberg settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> str:
    """Run a command and give what it prints."""
    result = CliRunner().invoke(blend, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_prewarm_fills_the_cache_of_each_server(here: Path, lake: Catalog, code: PackedFixture, serve: Any) -> None:
    """A read of the rows then reads nothing from the lake; a cache that is too small says where it stopped."""
    create = ("create", "mix", "--source", f"{code.identifier},max_epochs=0")
    run(*create)
    servers = [serve(), serve(cache_bytes=1000)]
    addresses = [option for server in servers for option in ("--server", server.address)]
    first, second = run("prewarm", "mix", *addresses, "--offset", "10", "--rows", "5000").splitlines()
    assert re.match(rf"{servers[0].address}: rows 10 to 5,010 of mix are in its cache \([\d.]+ s\)$", first)
    assert re.match(rf"{servers[1].address}: rows 10 to 4,106 of mix are in its cache .*: its cache is full", second)
    with pytest.raises(BlendNotFoundError):
        run("prewarm", "none", *addresses)


def test_create_list_and_show_agree(here: Path, lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """What create prints as JSON is what list and show print; creating again gives the same id."""
    assert "no blend yet" in run("show")
    arguments = (
        "create",
        "mixed",
        "--source",
        f"{code.identifier}=0.7",
        "--source",
        f"{prose.identifier}=0.3",
        "--json",
    )
    created = json.loads(run(*arguments))
    assert json.loads(run(*arguments)) == created
    assert json.loads(run("show", "--json")) == [created]
    assert json.loads(run("show", "mixed", "--json")) == json.loads(run("show", created["id"][:6], "--json")) == created
    assert created["names"] == ["mixed"]
    assert created["rows"] == 335  # the 101st turn of prose is slot 335: 33 cycles of 10 hold 99, then slots 1 and 5
    assert created["id"] in run("show", "mixed")
    assert "mixed" in run("show")


def test_delete_frees_a_name_and_the_snapshots(here: Path, lake: Catalog, code: PackedFixture) -> None:
    """It says what is freed; afterwards nothing is listed and the name may be bound again."""
    run("create", "mine", "--source", code.identifier)
    (tag,) = (name for name in code.table.refs() if name != "main")
    printed = run("delete", "mine")
    assert "(mine)" in printed and f"freed: {code.identifier} {tag}" in printed
    assert "no blend yet" in run("show") and set(code.table.refs()) == {"main"}
    run("create", "mine", "--source", code.identifier, "--seed", "2")


def test_update_follows_and_plan_foretells(
    here: Path, lake: Catalog, code: PackedFixture, prose: PackedFixture
) -> None:
    """A plan says what the blend will say once it is made; an update shows what it follows."""
    names = (f"{code.identifier}=3,name=code", f"{prose.identifier}=1,name=prose,max_epochs=2")
    sources = [word for name in names for word in ("--source", name)]
    planned = json.loads(run("create", *sources, "--then", "200: code=1 prose=1", "--dry-run", "--json"))
    assert json.loads(run("show", "--json")) == []
    assert planned["end"] == planned["rows"] == 501  # by 200 prose has given 50 of 200, the rest comes every other row
    assert [(s["rows"], s["runs_out_at"]) for s in planned["sources"]] == [(301, None), (200, 501)]
    assert [s["unread_rows"] for s in planned["sources"]] == [399, 0]
    run("create", "base", *sources)
    change = ("--at", "200", "--change", "code=1", "--change", "prose=1")
    foreseen = json.loads(run("update", "base", *change, "--dry-run", "--json"))
    made = json.loads(run("update", "base", "later", *change, "--json"))
    assert made["id"] == foreseen["id"] == planned["id"]
    assert json.loads(run("show", "later", "--plan", "--json")) == planned
    assert [update["from_offset"] for update in made["updates"]] == [0, 200]
    assert "follows" in run("show", "later")
    for printed in (run("show", "later"), run("show", "later", "--plan")):
        assert "prose runs out at row 501: the blend ends" in printed
        assert "399 rows stay unread: 399 of code" in printed
    assert "runs out at" in run("show", "later", "--tokens", "1600")
    assert "the first 100 rows, 1,600 tokens" in run("show", "later", "--tokens", "1600")
    removed = json.loads(run("update", "later", "--at", "300", "--remove", "prose", "--align", "--json"))
    assert [source["name"] for source in removed["sources"]] == ["code"]


def test_the_commands_of_the_docs_run(here: Path, lake: Catalog) -> None:
    """Every `headrace blend` line of docs/feed/blends.md does what it says, every change in its tables can be read."""
    text = (Path(__file__).parents[2] / "docs" / "feed" / "blends.md").read_text()
    for table in ("python_code", "python_docs", "web", "code"):
        create_packed(lake, f"main.packed_{table}_2048").append(40, seed=1)
    cells = {cell_text({"length_class": length}): 70 for length in (512, 8192)}
    create_packed(lake, "main.packed_web_8192", cells=True).append_cells(1, 0, cells)
    lines = re.findall(r"^    headrace blend (.*)$", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert [shlex.split(line)[0] for line in lines] == ["create", "show", "update", "create", "create"]
    for line in lines:
        words = shlex.split(line.replace("_000_000_000", "").replace("400000", "30"))
        assert run(*[re.sub(r"^\d000000:", lambda at: f"{at[0][0]}0:", word) for word in words])
    changes = re.findall(r"`--change (\S+?)[` ]", text)
    assert {parse_change(change).name for change in changes} == {"code", "news", "docs"}


def test_live_sources_on_the_command_line(here: Path, lake: Catalog, code: PackedFixture) -> None:
    """A live source has no epochs, also where --max-epochs speaks for all others; it can be pinned later."""
    made = json.loads(
        run("create", "news", "--source", f"{code.identifier},name=code,live", "--max-epochs", "0", "--json")
    )
    assert made["rows"] is None
    assert "as it grows" in run("show", "news")
    pinned = json.loads(run("update", "news", "--at", "50", "--change", "code,pinned", "--json"))
    assert (pinned["rows"], pinned["sources"][0]["rows"]) == (700, 700)


def test_texts_are_read_as_they_are_written() -> None:
    """Each setting by its name; one that is not known, or no number, says what to write."""
    expected = TextSpec("main.tokenizer", 512, 8, whole=True, text="body", doc_id="id")
    assert parse_texts("main.tokenizer,window_tokens=512,group_documents=8,whole,text=body,doc_id=id") == expected
    for wrong in ("window_tokens=x", "whole=1", "text=", "live"):
        with pytest.raises(CommandError, match="is not understood; write TOKENIZER"):
            parse_texts(f"main.tokenizer,{wrong}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "--source", "a.b=1,epochs=2"), "'epochs=2' is not understood"),
        (("create", "--source", "a.b=1,max_epochs=two"), "'max_epochs=two' is not understood"),
        (("create", "--source", "a.b", "--then", "code=1"), "write OFFSET: CHANGE"),
        (("update", "base", "--change", "code=1"), "--at OFFSET"),
        (("create", "--source", "a.b", "--rows", "9"), "--rows and --tokens are of a plan; give --dry-run too"),
        (("show", "--plan"), "blend show --plan: of which one"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(
    here: Path, lake: Catalog, arguments: tuple[str, ...], message: str
) -> None:
    """One line that shows the form."""
    with pytest.raises(CommandError, match=message):
        run(*arguments)


def test_mistakes_are_blender_errors(here: Path, lake: Catalog, code: PackedFixture) -> None:
    """The main command turns these into one line and exit status 2."""
    with pytest.raises(InvalidBlendError):
        run("create", "--source", "main.nothing=0")
    with pytest.raises(BlendNotFoundError):
        run("show", "nothing")


def test_a_directory_without_a_lake_says_so(here: Path) -> None:
    """No lake is an error that says what to do, and makes no empty one."""
    with pytest.raises(CatalogueError, match="headrace run"):
        run("show")
    assert not (here / "warehouse").exists()


def test_client_needs_neither_lake_nor_compiler() -> None:
    """A training job imports the client without PyIceberg, Arrow, pydantic, numba, Spark or Dagster."""
    root = Path(__file__).parents[2]
    heavy = ["pyiceberg", "pyarrow", "pydantic", "numba", "pyspark", "dagster", "torch"]
    script = (
        f"import sys; sys.path[:0] = [{str(root)!r}]\n"
        "import blender_service.client, blender_service.client.window_layout\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"


def test_inspect_shows_documents_licences_and_text(here: Path, lake: Catalog, prose: PackedFixture) -> None:
    """Every segment of the rows is the written one, with the facts of its document and the text of its tokens."""
    run("create", "mixed", "--source", prose.identifier)
    bare = json.loads(run("show", "mixed", "7", "--rows", "3", "--json"))
    assert [row["offset"] for row in bare] == [7, 8, 9]
    for row in bare:
        written = prose.rows[row["ordinal"]]
        assert row["token_count"] == written.token_count
        found = [(s["doc_id"], s["document_start"], s["token_count"], s["window_start"]) for s in row["segments"]]
        assert tuple(found) == written.segments
        assert {s["licence"] for s in row["segments"]} == {s["text"] for s in row["segments"]} == {None}
    assert "not known" in run("show", "mixed", "7")

    doc_id = bare[0]["segments"][0]["doc_id"]
    documents = pa.table({"doc_id": [doc_id], "path": ["a/b.txt"], "licence": ["MIT"], "repository": ["r"]})
    lake.create_namespace("prose")
    lake.create_table("prose.documents", schema=documents.schema).append(documents)
    file = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(VOCABULARY_SIZE)}, "unk_token": "w0"},
        }
    )
    tokenizers = pa.table({"sha256": [TOKENIZER], "file": [file]})
    lake.create_table("main.tokenizer", schema=tokenizers.schema).append(tokenizers)
    first = json.loads(run("show", "mixed", "7", "--json"))[0]
    segment = first["segments"][0]
    assert (segment["licence"], segment["path"], segment["repository"]) == ("MIT", "a/b.txt", "r")
    for i, part in enumerate(first["segments"]):
        ids = prose.rows[first["ordinal"]].input_ids[part["window_start"] :][: part["token_count"]]
        assert part["text"] == " ".join(f"w{token}" for token in ids), i
    shown = run("show", "mixed", "7", "--characters", "5")
    assert "MIT" in shown
    assert "a/b.txt" in shown
    with pytest.raises(CommandError, match="ends at row 100"):
        run("show", "mixed", "100")


def test_turns_on_the_command_line(here: Path, lake: Catalog, code: PackedFixture) -> None:
    """`--turn-rows` is kept in the config, its rest is counted, and packed tables have no longer rows."""
    made = json.loads(run("create", "turns", "--source", f"{code.identifier},name=code", "--turn-rows", "64", "--json"))
    assert (made["turn_rows"], made["rows"], made["ends"]["code"]["unread_rows"]) == (64, 640, 60)
    assert "60 rows stay unread: 60 of code" in run("show", "turns")
    with pytest.raises(InvalidBlendError, match="inside a turn of 64 rows; give 64 or 128"):
        run("update", "turns", "--at", "100", "--change", "code=1")
    with pytest.raises(InvalidBlendError, match="is of tables of text; packed rows have one length"):
        run("update", "turns", "--at", "128", "--window-tokens", "64")
