"""The smallest way from files to served batches: one run of two datasets and a corpus, and golden versions."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import SourceSpec
from blender_service.client import BlenderClient
from blender_service.server.server import start
from dagster_project.cli import run_command
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.inspect.test_corpus_documents import spelled
from tests.main_path.project import Outcome, point_at, run
from tests.main_path.test_main_path import Rows, rows_of, spark_versions

PACKED = ("main.packed_tools_256", "main.packed_notes_256")
GOLDEN = json.loads(Path(__file__).with_name("golden_versions.json").read_text())


@dataclass(frozen=True)
class Lake:
    """A lake after one run.

    Attributes:
        catalogue: of the lake.
        source: where its files are.
        root: folder of the lake.
        outcome: what the run said.
    """

    catalogue: Catalog
    source: Path
    root: Path
    outcome: Outcome


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Lake]:
    """Files of two repositories and forty notes, run once; commands and servers find the lake while it is in use."""
    root, source = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("source")
    write(source)
    with pytest.MonkeyPatch.context() as patch:
        for name, setting in point_at(root).items():
            patch.setenv(name, setting)
        yield Lake(open_catalogue(settings_at(root)), source, root, run(source))


def write(source: Path) -> None:
    """Two repositories of modules that import each other, one a near copy of the other; notes, some repeated."""
    for repository in ("mill", "race"):
        folder = source / "code" / repository
        folder.mkdir(parents=True)
        for number in range(6):
            lines = [f"import m{number + 1}"] if number < 5 else []
            for part in range(20):
                name = f"turn_{number}_{part}" if part else f"{repository}_{number}"
                lines += ["", f"def {name}(wheel, stone):", f"    return wheel * {part} + stone - {number}"]
            (folder / f"m{number}.py").write_text("\n".join(lines) + "\n")
    draw = random.Random(7)
    words = ["water", "wheel", "mill", "race", "river", "stone", "grain", "flour", "sluice", "dam"]
    bodies = [" ".join(draw.choice(words) for _ in range(30 + number)) for number in range(36)]
    bodies += [bodies[0], bodies[1].upper() + "!", bodies[2] + " dam", "short"]
    notes = source / "notes"
    notes.mkdir()
    lines = [json.dumps({"id": number, "body": body}) for number, body in enumerate(bodies)]
    (notes / "0.jsonl").write_text("\n".join(lines) + "\n")


def test_every_table_is_made_with_the_rows_that_spark_reads(lake: Lake) -> None:
    """Nothing fails, every table has its increment 0, and the versions that were recorded are those of its rows."""
    assert lake.outcome.failures == ()
    assert set(lake.outcome.computed.values()) == {"0"}
    assert lake.outcome.versions == spark_versions(lake.root)


def test_versions_of_known_files_never_change(lake: Lake) -> None:
    """Tables of the whole way; where their rows are meant to change, the assertion shows the new versions."""
    assert {table: lake.outcome.versions[table] for table in GOLDEN} == GOLDEN


def test_duplicates_do_not_go_on(lake: Lake) -> None:
    """The planted ones, in bytes, in letters and nearly, are no survivors; the short note was refused before."""
    assert count(lake, "notes.documents") == 40
    assert count(lake, "main.exact_duplicates") == 2
    names = {row["doc_id"]: row["path"] for row in rows(lake, "main.members")}
    gone = Counter(names[row["doc_id"]].split("/")[0] for row in rows(lake, "main.removals") if row["threshold"] == 0.7)
    assert sum(gone.values()) >= 7, gone
    assert count(lake, "main.survivors") == count(lake, "main.tokens") < len(names) - 7


def count(lake: Lake, table: str) -> int:
    """Rows of a table."""
    return len(rows(lake, table))


def rows(lake: Lake, table: str) -> list[dict[str, object]]:
    """Rows of a table, as PyIceberg reads them."""
    found: list[dict[str, object]] = lake.catalogue.load_table(table).scan().to_arrow().to_pylist()
    return found


def test_documents_in_python_are_those_that_were_tokenized(lake: Lake) -> None:
    """Each once, under its dataset, with the text that its tokens spell."""
    documents = OpenedLake(lake.catalogue).documents("main").to_arrow().to_pylist()
    texts = {(row["dataset"], row["doc_id"]): row["content"] for row in documents}
    assert texts == spelled(lake.catalogue, "main") and len(texts) == len(documents) > 12


def test_a_blend_serves_every_packed_row_once_and_again_from_any_offset(lake: Lake) -> None:
    """One epoch of both tables holds each of their windows once; a later stream goes on where it is asked to."""
    packed = Counter(
        ids.values.to_numpy().astype("<u2").tobytes()
        for table in PACKED
        for ids in lake.catalogue.load_table(table).scan().to_arrow()["input_ids"]
    )
    with start(lake.catalogue) as server, BlenderClient(server.address) as client:
        blend = client.create_blend([SourceSpec(table=table, on_exhausted="CONTINUE") for table in PACKED], seed=5)
        served: Rows = list(rows_of(client, blend.blend_id))
        tail = [row for batch in client.read(blend.blend_id, offset=3) for row in batch.input_ids]
    assert [offset for offset, _ in served] == list(range(sum(packed.values())))
    assert Counter(ids for _, ids in served) == packed
    assert [ids.tobytes() for ids in tail] == [ids for _, ids in served[3:]]


@pytest.mark.nightly
def test_a_second_run_computes_nothing(lake: Lake) -> None:
    """Every key is known."""
    again = run(lake.source)
    assert (again.failures, again.computed) == ((), {})
    assert again.versions == lake.outcome.versions


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a good command prints as JSON."""
    capfd.readouterr()
    assert run_command([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_commands_explain_what_became_of_a_document(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    """`doc why` names the witness of a removal, `doc show --duplicates` both, `--windows` what is packed."""
    removal = max(rows(lake, "main.removals"), key=lambda row: (row["threshold"], str(row["doc_id"])))
    gone, witness = str(removal["doc_id"]), str(removal["witness_doc_id"])
    findings = said(capfd, "doc", "why", gone)["findings"]
    (told,) = (one for one in findings if one["table"] == "main.removals" and one["applied"])
    assert (told["outcome"], told["witness_doc_id"]) == ("removed", witness)
    for one, other in ((gone, witness), (witness, gone)):
        neighbours = said(capfd, "doc", "show", "--duplicates", one, "--limit", "99")["neighbours"]
        assert other in {neighbour["doc_id"] for neighbour in neighbours}
    (survivor,) = (row for row in rows(lake, "main.tokens") if row["doc_id"] == witness)
    windows = said(capfd, "doc", "show", "--windows", witness)["windows"]
    assert sum(part["token_count"] for part in windows) == survivor["token_count"] + 1, "and the end of the document"
    assert said(capfd, "doc", "show", "--windows", gone)["windows"] == []
    table = {part["table"] for part in windows}.pop()
    made = said(capfd, "blend", "create", "thrice", "--source", f"{table},max_epochs=3")
    (read,) = (one for one in said(capfd, "doc", "why", witness)["reads"] if "thrice" in one["names"])
    assert (read["whole"], read["in_part"], read["before"]) == (3, 3, made["rows"])
    assert said(capfd, "doc", "why", gone)["reads"] == []
    assert run_command(["doc", "why", witness]) == 0
    assert "thrice 3 times before row" in capfd.readouterr().out
    stood_for = said(capfd, "blend", "repeats", "thrice", "--document", gone)
    assert (stood_for["whole"], stood_for["is_packed"]) == (0, False)
    assert stood_for["of_cluster"] >= 3 and stood_for["cluster_documents"] >= 2
    assert run_command(["blend", "delete", "thrice"]) == 0


def test_commands_count_what_each_threshold_keeps(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    """`corpus show --thresholds` by plain counting."""
    members = {row["doc_id"] for row in rows(lake, "main.members")}
    exact = rows(lake, "main.exact_duplicates")
    removals = rows(lake, "main.removals")
    for one in said(capfd, "corpus", "show", "--thresholds", "main"):
        near = {row["doc_id"] for row in removals if row["threshold"] == one["threshold"]}
        assert (one["member_count"], one["exact_removed_count"]) == (len(members), len(exact))
        assert (one["near_removed_count"], one["kept_count"]) == (len(near), len(members) - len(exact) - len(near))
