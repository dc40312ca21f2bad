"""What waits: it is released by decisions about its rows alone, and read in no other way."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from blender_service.auth.access import Access
from blender_service.auth.visibility import QUARANTINE, Visibility, recorded_visibility
from blender_service.tables.packed_table import load_table as load_packed
from dagster_project.cli import run_command
from dagster_project.cli.run.execution import _fetch
from dagster_project.exceptions import CommandError, DefinitionError
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import lake_status
from dagster_project.project.loading import load_definitions, select
from dagster_project.restrictions import note_read, record_visibility, refuse_forbidden_reads
from dagster_project.table_asset import Presentation, table_asset
from headrace_features.privacy import quarantine
from headrace_features.privacy.quarantine import apply_rules, passing
from headrace_features.privacy.scans.release_rules import ReleaseRules
from spark_jobs.exceptions import InputError, LeaseError
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.decisions import (
    REFUSE,
    RELEASE,
    decide,
    increments_of,
    refuse_around_quarantine,
    refuse_files_of_quarantine,
)
from spark_jobs.lake.plan.plan import tasks
from spark_jobs.lake.plan.reads import reads_of, refuse_quarantined_path
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.run.registry import entries
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.waiting_lake import SEEN, TEXTS, carry, land, publish
from tests.tiers import sampled

Said = pytest.CaptureFixture[str]


def dataset(name: str = "web", more: str = "trust: quarantine") -> str:
    """A dataset in YAML."""
    return (
        "type: headrace.Dataset\nattributes:\n"
        f"  name: {name}\n  source: {{kind: files, path: /data/{name}}}\n  {more}\n"
    )


def corpus(*datasets: str, more: str = "") -> str:
    """A corpus in YAML."""
    return f"type: headrace.Corpus\nattributes:\n  name: small\n  datasets: [{', '.join(datasets)}]\n  {more}\n"


@pytest.fixture
def lake(waiting: Catalog) -> Catalog:
    """A lake in which two increments of `web` wait."""
    return waiting


def ledger_of(catalogue: Catalog) -> Ledger:
    """The ledger, read anew."""
    ledger = Ledger(catalogue)
    ledger.refresh()
    return ledger


def states(catalogue: Catalog) -> dict[int, str]:
    """What was decided, by increment."""
    return {one.increment: one.state for one in increments_of(ledger_of(catalogue), "web")}


def acts(catalogue: Catalog) -> list[tuple[str, str, int | None, str | None]]:
    """Rows of `system.audit`: act, subject, increment, why."""
    if not catalogue.table_exists(AUDIT_TABLE):
        return []
    rows = catalogue.load_table(AUDIT_TABLE).scan().to_arrow().sort_by("at").to_pylist()
    return [(row["act"], row["subject"], row["increment"], row["why"]) for row in rows]


@pytest.mark.nightly
def test_the_newest_decision_about_the_rows_counts(lake: Catalog) -> None:
    """Refused, released later; each a row with its reason, and not of other rows under the same number."""
    assert states(lake) == {0: "waits", 1: "waits"}
    decide(lake, "web", [0, 1], REFUSE, "from whom?")
    decide(lake, "web", [0], RELEASE, "from them")
    decide(lake, "web", [0], RELEASE, "once more")
    assert states(lake) == {0: RELEASE, 1: REFUSE}
    said = [("refuse", "web", 0, "from whom?"), ("refuse", "web", 1, "from whom?"), ("release", "web", 0, "from them")]
    assert acts(lake) == said, "a decision that stands is not written again"
    for table in ("documents", "arrivals", "scans"):
        lake.drop_table(f"web_quarantine.{table}")
    land(lake, 0, ["something else"])
    assert states(lake) == {0: "waits"}
    lake.drop_table("web_quarantine.documents")
    assert states(lake) == {}, "nothing is known of what is not there"


@sampled(2)
@pytest.mark.parametrize(
    ("name", "increment", "act", "why", "said"),
    [
        ("web", 0, RELEASE, "  ", "the reason is empty"),
        ("web", 7, RELEASE, "x", "there is no increment 7; there are 0, 1, 2"),
        ("wbe", 0, RELEASE, "x", "did you mean 'web'"),
        ("web", 2, RELEASE, "x", "is not scanned yet; first: headrace run web"),
        ("web", 0, REFUSE, "x", "headrace doc excise --increment web:0"),
    ],
)
def test_a_decision_that_cannot_be_made_writes_nothing(
    lake: Catalog, name: str, increment: int, act: str, why: str, said: str
) -> None:
    """Without a reason, an increment, a scan; and what has left is not refused."""
    land(lake, 2, ["four"], scanned=False)
    publish(
        lake, "web", TEXTS, 0, [{"doc_id": "a", "content": "one"}]
    )  # as by a run that was killed before it published `arrivals`
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        decide(lake, name, [increment], act, why)
    assert acts(lake) == []


def copying(gate: bool) -> Binding:
    """A step of `web` that copies documents out of quarantine, as `released` does or as anybody might."""

    def copied(landed: Any) -> Any:
        return landed

    made = step(version="1", scope=Scope.INCREMENT, tables=(TEXTS,), gate="person" if gate else "")(copied)
    inputs = {"landed": "web_quarantine.documents"}
    return Binding(made, "web", inputs, made.config(), driving_table="web_quarantine.scans")


def test_only_released_increments_have_a_task(lake: Catalog) -> None:
    """In any order; the key holds the decision, not who made it or when."""
    binding = copying(gate=True)

    def keys() -> dict[int | None, str]:
        return {task.increment: task.key for task in tasks(ledger_of(lake), binding)}

    assert keys() == {}
    decide(lake, "web", [1], RELEASE, "b")
    (one,) = keys().items()
    decide(lake, "web", [1], REFUSE, "no")
    assert keys() == {}
    decide(lake, "web", [0, 1], RELEASE, "after all")
    assert keys()[1] == one[1] and keys().keys() == {0, 1}


def test_no_other_step_reads_it(lake: Catalog) -> None:
    """Of its own dataset, of another, in a union, as a file, under another name, with a gate of another dataset."""
    ledger = ledger_of(lake)
    reads_of(copying(gate=True), ledger, 0)
    lake.create_namespace_if_not_exists("web")
    for binding in (
        copying(gate=False),
        Binding(
            copying(False).step,
            "mine",
            {"landed": ("mine.documents", "web_quarantine.documents")},
            copying(False).config,
            only=0,
        ),
        Binding(copying(True).step, "mine", {"landed": "web_quarantine.documents"}, copying(True).config, only=0),
    ):
        with pytest.raises(InputError, match=r"is quarantined|mine\.documents has not"):
            reads_of(binding, ledger, 0)
    lake.rename_table("web_quarantine.documents", "web.innocent")
    moved = Binding(copying(False).step, "web", {"landed": "web.innocent"}, copying(False).config, only=0)
    with pytest.raises(InputError, match=r"web\.innocent is quarantined"):
        reads_of(moved, ledger_of(lake), 0)
    with pytest.raises(CommandError, match="web_quarantine is quarantined"):
        note_read(lake, ["web.innocent"])
    assert load_packed(lake, "web.innocent") is None and load_packed(lake, "web_quarantine.scans") is None
    file = next(Path(ledger.warehouse, "web_quarantine").rglob("*.parquet"))
    for path in (file, file.parent, ledger.warehouse):
        with pytest.raises(InputError, match="is a file of a quarantine"):
            refuse_quarantined_path(ledger.warehouse, "mine.texts", str(path))


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("s3a://lake/wh/web_quarantine/documents", True),
        ("s3://lake/wh/web/../web_quarantine", True),
        ("s3n://lake//wh/./web_quarantine", True),
        ("s3://lake/wh/web_quar*/documents/data", True),
        ("s3://lake/w*/web_quarantine/documents", True),
        ("s3a://lake", True),
        ("file:///data/wh/web_quar[a-z]*/documents", True),
        ("s3://lake/wh/web/documents/*.parquet", False),
        ("s3://lake/whole/*.parquet", False),
        ("s3://other/wh/web_quarantine", False),
    ],
)
def test_a_place_is_known_however_it_is_written(path: str, refused: bool) -> None:
    """As Hadoop writes the scheme, with dots, with globs, or as a folder above that Spark would list."""
    warehouse = "/data/wh" if path.startswith("file") else "s3://lake/wh"
    if not refused:
        refuse_quarantined_path(warehouse, "output", path)
        return
    with pytest.raises(InputError, match=r"is a file of a quarantine|holds quarantines"):
        refuse_quarantined_path(warehouse, "output", path)


def test_a_link_into_a_quarantine_is_no_source(lake: Catalog, tmp_path: Path) -> None:
    """Neither a linked folder nor a linked file of a source that lies elsewhere lands what waits."""
    ledger = ledger_of(lake)
    source = tmp_path / "elsewhere"
    source.mkdir()
    config = DocumentsConfig.model_validate({"dataset": "own", "source": {"kind": "files", "path": str(source)}})
    landing = Binding(documents, "own", {}, config, driving_table="own.arrivals")
    (source / "good.txt").write_text("good")
    listing = pa.table({"location": [str(source / "good.txt")]})
    refuse_files_of_quarantine(ledger, landing, listing)
    held = next(Path(ledger.warehouse, "web_quarantine").rglob("*.parquet"))
    fetched = pa.table({"location": [str(held)]})  # a page of an API, or of a stream, that waits with its dataset
    refuse_files_of_quarantine(ledger, Binding(documents, "web_quarantine", {}, config), fetched)
    (source / "folder").symlink_to(held.parent)
    (source / "file.parquet").symlink_to(held)
    for location in (source / "folder" / held.name, source / "file.parquet"):
        with pytest.raises(InputError, match="is in a quarantine"):
            refuse_files_of_quarantine(ledger, landing, pa.table({"location": [str(location)]}))


def test_a_declaration_is_no_way_around(lake: Catalog) -> None:
    """Declared trusted again, under another name with the same source, or a quarantine of what landed as trusted."""

    def landing(space: str, path: str) -> Binding:
        config = DocumentsConfig.model_validate({"dataset": space, "source": {"kind": "files", "path": path}})
        return Binding(documents, space, {}, config, driving_table=f"{space}.arrivals")

    for space, path, said in (
        ("web", "/data/web", "web_quarantine holds what landed in quarantine"),
        ("other", "/data/web", "is that of web, of which increment 0 is in quarantine"),
        ("other", "/data", "is that of web"),
        ("other", "/data/web/part", "is that of web"),
        ("trusted_quarantine", "/data/t", "landed as trusted"),
    ):
        if space == "trusted_quarantine":
            publish(lake, "trusted", SEEN, 0, [{"location": "x", "status": "landed"}])
            lake.load_table("system.materializations").overwrite(
                _renamed_steps(lake.load_table("system.materializations").scan().to_arrow())
            )
        with pytest.raises(InputError, match=said):
            refuse_around_quarantine(ledger_of(lake), landing(space, path))
    for increment in (0, 1):
        decide(lake, "web", [increment], RELEASE, "looked at")
    refuse_around_quarantine(ledger_of(lake), landing("other", "/data/web"))
    refuse_around_quarantine(ledger_of(lake), landing("elsewhere", "/data/website"))


def _renamed_steps(rows: Any) -> Any:
    found = [{**row, "step": "documents"} for row in rows.to_pylist()]
    return pa.Table.from_pylist(found, rows.schema)


@pytest.mark.parametrize(("space", "url"), [("web", "https://one.example"), ("other", "https://one.example/part")])
def test_nothing_is_fetched_around_a_quarantine(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, space: str, url: str
) -> None:
    """The pages of an API that waits are not asked for in another way: no request, so nothing of them is kept."""
    waiting = Ledger(lake)
    waiting.refresh()
    row = waiting.increments("web_quarantine.arrivals")[1]
    source = {"source": {"kind": "api", "url": "https://one.example"}}
    Ledger(lake).record([dataclasses.replace(row, config=json.dumps(source), step_key="of an API")])
    fetching = dataclasses.replace(documents, fetch=lambda *_: pytest.fail("it was fetched"))
    reads = {"kind": "api", "url": url, "text_column": "text", "id_column": "id", "endpoints": {"all": {}}}
    config = DocumentsConfig.model_validate({"dataset": space, "source": reads})
    opened = Lake(lake, ledger_of(lake), lambda: pytest.fail("no Spark is needed"), "run")
    binding = Binding(fetching, space, {}, config, driving_table=f"{space}.arrivals")
    with pytest.raises(InputError, match=r"holds what landed in quarantine|is that of web"):
        materialize(opened, binding)
    monkeypatch.setattr("dagster_project.lake_asset.declared_source", lambda *_: binding)
    (line,) = _fetch(dg.Definitions().resolve_asset_graph(), Ledger.fresh(lake), f"{space}.documents")
    assert line.status == "failed"


def data_file(lake: Catalog) -> str:
    """A data file of a table in quarantine."""
    file = next(iter(lake.load_table("web_quarantine.documents").scan().plan_files())).file.file_path
    return file.removeprefix("file://")


def test_a_file_that_waits_is_no_benchmark(declare: WriteDefs, lake: Catalog, tmp_path: Path, capfd: Said) -> None:
    """Neither by a link to its folder, nor where it came from, until it is released; the registry stays as it was."""
    declare("web", dataset())
    (tmp_path / "link").symlink_to(Path(data_file(lake)).parent)
    (tmp_path / "items.jsonl").write_text('{"question": "which wheel turns the mill"}\n')
    sha256 = hashlib.sha256((tmp_path / "items.jsonl").read_bytes()).hexdigest()
    publish(lake, "web_quarantine", SEEN, 1, [{"location": "/a", "status": "landed", "content_sha256": sha256}])
    add = ["evals", "add", "bench", "--columns", "question,content", "--from"]
    for file in (tmp_path / "link" / Path(data_file(lake)).name, tmp_path / "items.jsonl"):
        assert run_command([*add, str(file)]) == 2
        assert "belongs to web_quarantine" in capfd.readouterr().err
    assert entries(lake, "eval_set") == []
    assert run_command(["quarantine", "release", "web", "--increment", "1", "--reason", "looked at"]) == 0
    add[4] = "question"
    assert run_command([*add, str(tmp_path / "items.jsonl")]) == 0, capfd.readouterr().err
    assert len(entries(lake, "eval_set")) == 1


def test_commands_show_nothing_of_it(declare: WriteDefs, lake: Catalog, capfd: Said) -> None:
    """But for the flag, which leaves a row; decisions and status are told."""
    declare("web", dataset())
    doc_id = hashlib.sha256(b"three").hexdigest()[:32]
    for arguments in (
        ["table", "show", "web_quarantine.documents", "--rows", "1"],
        ["diff", "web_quarantine", "web_quarantine"],
        ["dataset", "show", "--card", "web_quarantine"],
        ["release", "now", "--dataset", "web_quarantine"],
        ["doc", "trace", "web_quarantine.documents", "0", "0"],
        ["doc", "why", doc_id],
        ["doc", "excise", "--increment", "web:1", "--yes"],
        ["evals", "add", "theirs", "--from", data_file(lake), "--columns", "content"],
    ):
        assert run_command(arguments) == 2, arguments
        out, err = capfd.readouterr()
        assert "three" not in out + err and err.startswith("headrace: "), arguments
    assert acts(lake) == []
    assert run_command(["table", "show", "web_quarantine.documents", "--rows", "9", "--quarantined", "--json"]) == 0
    assert {row["content"] for row in json.loads(capfd.readouterr().out)} == {"one", "two", "three"}
    assert [act[:2] for act in acts(lake)] == [("read", "web_quarantine")]
    assert run_command(["quarantine", "release", "web", "--increment", "0", "--reason", "looked at"]) == 0
    assert run_command(["quarantine", "refuse", "web", "--increment", "1", "--reason", "malware"]) == 0
    assert run_command(["quarantine", "show", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out.partition("\n[")[2].join(["[", ""]))
    assert [(row["state"], row["why"]) for row in listed] == [
        ("released, not carried over yet", "looked at"),
        ("refused", "malware"),
    ]
    assert run_command(["quarantine", "show", "web", "--increment", "1", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["findings"] == {"malware.some": {"documents": 1, "times": 1}} and "three" not in json.dumps(shown)


def test_status_says_what_waits(lake: Catalog) -> None:
    """How many documents and bytes, since when; an alert where they wait for too long."""
    decide(lake, "web", [1], REFUSE, "malware")
    carry(lake, 5, ["unrelated"])
    (one,) = lake_status(lake, Thresholds(waiting_hours=0))
    assert one.waiting == (2, 1) and one.waiting_bytes == 20 and one.waiting_since is not None
    assert [alert.name for alert in one.alerts] == ["waiting"]


def test_rules_release_what_nobody_decided(lake: Catalog) -> None:
    """Never what a person refused, nor what is not scanned."""
    land(lake, 2, ["four"], scanned=False)
    assert passing(lake, "web", ReleaseRules(malware=0)).keys() == {0}
    assert passing(lake, "web", ReleaseRules()).keys() == {0, 1}
    decide(lake, "web", [0], REFUSE, "no")
    assert passing(lake, "web", ReleaseRules()).keys() == {1}
    apply_rules(lake, "web", ReleaseRules())
    apply_rules(lake, "web", ReleaseRules())
    assert states(lake) == {0: REFUSE, 1: RELEASE, 2: "waits"}
    assert acts(lake)[1:] == [("release", "web", 1, "rules: no rule asks anything")]


def test_rules_and_people_do_not_decide_at_once(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person refuses while rules look is not released by them: they look again while nobody else decides."""
    looks = []

    def looked(*given: Any) -> Any:
        found = passing(*given)
        looks.append(found.keys())
        if len(looks) == 1:
            decide(lake, "web", [0], REFUSE, "no")
        else:
            with pytest.raises(LeaseError), table_leases(lake, ["web.documents"], wait_seconds=0):
                pass
        return found

    monkeypatch.setattr(quarantine, "passing", looked)
    apply_rules(lake, "web", ReleaseRules())
    assert states(lake) == {0: REFUSE, 1: RELEASE} and looks == [{0, 1}, {1}]


def test_definitions_hold_it_apart(declare: WriteDefs, lake: Catalog, capfd: Said) -> None:
    """What lands is quarantined whatever its dataset's visibility; `headrace run web` runs both namespaces."""
    declare("web", dataset(more="trust: quarantine\n  samples: text\n  visibility: {restricted: [one]}"))
    found = load_definitions()
    graph = found.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        if key.path[0] == "web_quarantine":
            assert graph.get(key).metadata["samples"] == "none", key
    assert record_visibility(lake, graph) == {
        "web": Visibility("restricted", frozenset({"one"})),
        "web_quarantine": QUARANTINE,
    }
    assert {key.path[0] for key in select(found, ["web"])} == {"web", "web_quarantine"}
    declare("web", dataset(more="trust: trusted"))
    assert record_visibility(lake, load_definitions().resolve_asset_graph()) == {"web_quarantine": QUARANTINE}
    assert not Access(lake, environment={}).reader("anyone")("web_quarantine.packed_web_16")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("trust: quarantine\n  release: {polcy: {}}", "release: polcy? Write {policy: {..}}"),
        ("trust: quarantine\n  release: {policy: {malwar: 0}}", "malwar"),
        ("trust: quarantine\n  release: {policy: {licences: 0}}", "licences needs scans: {licences_allowed: [..]}"),
        ("trust: quarantine\n  release: {policy: {source_trust: 1}}", "source_trust needs scans"),
        ("trust: quarantine\n  scans: {yara_rules: none.yar}", "is no file"),
        ("trust: quarantine\n  scans: {clamd: 'localhost'}", "clamd"),
        ("release: {policy: {}}", "declare `trust: quarantine`"),
    ],
)
def test_a_mistake_is_found_when_definitions_load(
    declare: WriteDefs, lake_env: Path, capfd: Said, more: str, said: str
) -> None:
    """In one line that names the field."""
    with pytest.raises(DefinitionError, match="31 characters; with `trust: quarantine` a name has 30 at most"):
        quarantine.quarantine_of_yaml("w" * 31, "quarantine", {}, {}, lake_env)
    declare("web", dataset(more=more))
    assert run_command(["plan"]) == 2
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_table_of_ones_own_reads_it_only_inside(lake_env: Path) -> None:
    """Refused elsewhere, also in a union and in the dataset's own namespace; inside it stays quarantined."""
    source = dg.AssetSpec(["web_quarantine", "documents"], metadata={"headrace/visibility": "quarantine"})

    def graph(table: str, *inputs: str) -> Any:
        made = table_asset(table=table, schema=TEXTS, inputs={"landed": inputs}, presentation=Presentation())(
            lambda landed: landed
        )
        resources = {"lake": dg.ResourceDefinition.none_resource()}
        return dg.Definitions([source, made], resources=resources).resolve_asset_graph()

    for table, inputs in (
        ("mine.rows", ("web_quarantine.documents",)),
        ("web.rows", ("web_quarantine.documents",)),
        ("mine.rows", ("web_quarantine.documents", "web_quarantine.documents")),
        ("mine_quarantine.rows", ("web_quarantine.documents",)),
    ):
        with pytest.raises(DefinitionError, match="which is quarantined; read web"):
            refuse_forbidden_reads(graph(table, *inputs))
    inside = graph("web_quarantine.rows", "web_quarantine.documents")
    refuse_forbidden_reads(inside)
    assert inside.get(dg.AssetKey(["web_quarantine", "rows"])).metadata["samples"] == "none"


def test_test_data_stays_out_of_production(declare: WriteDefs, lake: Catalog, capfd: Said) -> None:
    """When definitions load, by what other projects recorded, and by Blender; a corpus of tests may hold it."""
    declare("made_up", dataset("made_up", "environment: test"))
    declare("real", dataset("real", "environment: production"))
    declare("small", corpus("real", "made_up"))
    assert run_command(["plan", "small"]) == 2
    err = capfd.readouterr().err
    assert "made_up is test data, small is production" in err and "environment: test` for small" in err
    declare("small", corpus("real", "made_up", more="environment: test"))
    graph = load_definitions().resolve_asset_graph()
    record_visibility(lake, graph)
    test = Visibility(test=True)
    assert recorded_visibility(lake) == {"made_up": test, "small": test}
    declare("small", corpus("real", "made_up"))
    declare("made_up", dataset("made_up", "environment: production"))
    with pytest.raises(DefinitionError, match="is test data"):  # another project's dataset, as it recorded it
        refuse_forbidden_reads(_reading("made_up"), recorded_visibility(lake))
    rows = pa.table({"dataset": ["real", "made_up"]})
    for name in ("mixed", "small"):
        lake.create_namespace_if_not_exists(name)
        lake.create_table(f"{name}.increments", rows.schema).append(rows)
    may_read = Access(lake, environment={}).reader("anyone")
    assert may_read is not None and not may_read("mixed.packed_real_16") and may_read("small.packed_real_16")
    assert may_read("other.packed_real_16")


def _reading(space: str) -> Any:
    """A graph in which a table of production reads another project's dataset."""
    made = table_asset(table="mine.rows", schema=TEXTS, inputs={"landed": f"{space}.documents"})(lambda landed: landed)
    resources = {"lake": dg.ResourceDefinition.none_resource()}
    return dg.Definitions([dg.AssetSpec([space, "documents"]), made], resources=resources).resolve_asset_graph()


def test_a_table_made_there_knows_it(lake: Catalog) -> None:
    """So that it is out of reach under another name too."""
    made = ensure_table(lake, "other_quarantine.documents", TEXTS, {})
    assert made.properties["headrace.quarantine"] == "other_quarantine"
