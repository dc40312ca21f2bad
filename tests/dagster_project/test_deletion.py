"""A dataset is deleted whole, in one command that may be killed, and nothing else goes with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from blender_service.auth.visibility import recorded_visibility
from dagster_project.cli import run_command
from dagster_project.deletion import datasets as deletion
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import load_definitions
from dagster_project.restrictions import record_visibility
from headrace_features.apis.streams import follower_state
from spark_jobs.lake.plan.decisions import RELEASE, decide
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.sources.paged.checkpoints import Checkpoints, Reading
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.waiting_lake import SEEN, carry, land, publish
from tests.headrace_features.privacy.test_quarantine import acts, dataset, lake, ledger_of, states
from tests.main_path.services import PASSWORD, object_store
from tests.tiers import sampled

__all__ = ["lake"]
Said = pytest.CaptureFixture[str]


@pytest.mark.nightly
def test_a_deletion_that_was_killed_is_finished_by_the_same_command(
    declare: WriteDefs, lake: Catalog, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned first, refused without a reason; afterwards neither tables nor files are there, and who did it is."""
    declare("web", dataset())
    carry(lake, 0, ["one", "two"])
    record_visibility(lake, load_definitions().resolve_asset_graph())
    warehouse = Path(ledger_of(lake).warehouse)
    follower_state("web").mkdir(parents=True)
    assert run_command(["dataset", "delete", "web", "--plan"]) == 0
    assert "web_quarantine.documents" in capfd.readouterr().out
    assert run_command(["dataset", "delete", "web", "--yes"]) == 2
    assert "give --yes --reason" in capfd.readouterr().err and acts(lake) == []
    calls = iter(range(100))
    drop = type(lake).drop_table

    def dies(self: Catalog, identifier: str) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        drop(self, identifier)

    monkeypatch.setattr(type(lake), "drop_table", dies)
    assert run_command(["dataset", "delete", "web", "--yes", "--reason", "asked to"]) == 130
    assert run_command(["dataset", "delete", "web", "--yes", "--reason", "asked to"]) == 0
    assert not [space for space in ("web", "web_quarantine") if lake.list_tables(space)]
    assert not (warehouse / "web").exists() and not (warehouse / "web_quarantine").exists()
    assert not follower_state("web").exists()
    assert {act[0] for act in acts(lake)} == {"delete"} and recorded_visibility(lake) == {}
    assert run_command(["dataset", "delete", "web", "--plan"]) == 2
    assert "holds nothing of it" in capfd.readouterr().err
    assert states(lake) == {}


def test_nothing_is_dropped_where_windows_could_not_be_rewritten(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because `documents` says what is to be excised."""
    from dagster_project.deletion import excised_tables
    from dagster_project.deletion.excised_tables import TableExcision
    from spark_jobs.packing.excise import Excised

    carry(lake, 0, ["one", "two"])
    plan = deletion.Deletion("web", {"web.documents": 2}, (), 2, {"small": ["small.packed_web_16"]})
    monkeypatch.setattr(
        excised_tables,
        "excise_documents",
        lambda lake, tables, ids: [TableExcision(Excised(tables[0]), failure="away")],
    )
    opened = Lake(lake, ledger_of(lake), lambda: pytest.fail("no Spark is needed"), "run")
    with pytest.raises(CommandError, match="away; nothing else was deleted"):
        list(deletion.delete_dataset(opened, plan, "why"))
    assert lake.table_exists("web.documents") and lake.load_table("system.excisions").scan().count() == 2


@pytest.mark.nightly
def test_a_deletion_ends_what_was_decided(declare: WriteDefs, lake: Catalog, capfd: Said) -> None:
    """The same files that land again after it wait again, and an API is fetched from its first page."""
    declare("web", dataset())
    decide(lake, "web", [0], RELEASE, "looked at")
    fetched = {name: Checkpoints(lake, name) for name in ("web", "web_two")}
    for one in fetched.values():
        one.begin("news", "first", Reading(0, True, None, None))
    assert run_command(["dataset", "delete", "web", "--yes", "--reason", "the owner asked"]) == 0
    assert fetched["web"].reading("news", "first") is None and fetched["web_two"].reading("news", "first") is not None
    land(lake, 0, ["one", "two"])
    assert states(lake) == {0: "waits"}
    decide(lake, "web", [0], RELEASE, "once more")
    assert states(lake) == {0: RELEASE}


@sampled(2)
@pytest.mark.parametrize("name", ["..", ".", "", "web/../web", "web_quarantine", "small", "dagster", "system"])
def test_only_a_dataset_is_deleted(declare: WriteDefs, lake: Catalog, capfd: Said, name: str) -> None:
    """No path, corpus, quarantine alone, or folder that lies in the warehouse beside the tables."""
    declare("web", dataset())
    publish(lake, "small", SEEN, 0, [{"location": "x", "status": "landed"}])
    lake.rename_table("small.arrivals", "small.members")
    warehouse = Path(ledger_of(lake).warehouse)
    (warehouse / "dagster").mkdir(exist_ok=True)
    before = sorted(warehouse.parent.rglob("*"))
    assert run_command(["dataset", "delete", name, "--yes", "--reason", "x"]) == 2
    assert capfd.readouterr().err.startswith(f"headrace: dataset delete {name}: ")
    assert sorted(warehouse.parent.rglob("*")) == before and acts(lake) == []


def test_a_deletion_finds_its_packed_tables(lake: Catalog) -> None:
    """Those of a corpus that has begun anew without the dataset too, and none of a dataset whose name begins alike."""
    carry(lake, 0, ["one"])
    names = ("packed_web_64", "packed_web_128", "packed_web_two_64", "packed_web_64_old", "tokens")
    rows = pa.table({"doc_id": ["a"]})
    lake.create_namespace("small")
    for name in names:
        lake.create_table(f"small.{name}", rows.schema).append(rows)
    members = pa.table({"doc_id": ["of web", "of another"], "dataset": ["web", "web_two"]})
    lake.create_table("small.members", members.schema).append(members)
    plan = deletion.plan_deletion(lake, "web")
    assert plan.corpora == {"small": ["small.packed_web_128", "small.packed_web_64"]}
    assert list(deletion._doc_ids(lake, plan)) == [{hashlib.sha256(b"one").hexdigest()[:32]}, {"of web"}]


@pytest.mark.nightly
def test_documents_are_excised_part_by_part(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of any size is taken out in sets of a bounded size, each document once."""
    carry(lake, 0, [str(number) for number in range(200)])
    carry(lake, 1, ["x", "y"])
    monkeypatch.setattr(deletion, "_PART_DOCUMENTS", 20)
    plan = deletion.plan_deletion(lake, "web")
    found = list(deletion._doc_ids(lake, plan))
    assert len(set().union(*found)) == sum(map(len, found)) == 202 and max(map(len, found)) < 45


def test_a_folder_goes_from_a_store_that_is_kept_in_folders(tmp_path: Path) -> None:
    """Such a store refuses to remove a folder before what is in it; other prefixes stay."""
    with object_store(tmp_path) as store:
        properties = {
            "s3.endpoint": f"http://127.0.0.1:{store.port}",
            "s3.region": "us-east-1",
            "s3.access-key-id": "lake",
            "s3.secret-access-key": PASSWORD,
        }
        files = PyArrowFileIO(properties).fs_by_scheme("s3", "lake")
        for name in ("feed/a/b/c/1", "feed/a/2", "feed/3", "feeds/4"):
            with files.open_output_stream(f"lake/{name}") as stream:
                stream.write(b"rows")
        deletion._remove("s3://lake/feed", properties)
        left = files.get_file_info(FileSelector("lake", recursive=True))
        assert sorted(one.path for one in left if one.is_file) == ["lake/feeds/4"]
