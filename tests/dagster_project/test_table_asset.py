"""`@table_asset` as public API: what a declared table does when Dagster runs it on a real lake."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, ROOT_RUN_ID_TAG

from dagster_project import asset_options, lake_asset, resources
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.definitions import build
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.table_asset import table_asset
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger import ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.run.outcomes import TableOutcome
from tests.dagster_project import assets
from tests.dagster_project.assets import (
    DOUBLES,
    NUMBERS,
    doubles_asset,
    follower_asset,
    long_texts_asset,
    numbers_asset,
    parted_asset,
    png,
    total_asset,
)
from tests.dagster_project.project import QUIET, Project, events, failures, key, lake_settings

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for a session fails the run."""

    def refuse(extra: dict[str, Any]) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(resources, "start", refuse)


@pytest.fixture(scope="module")
def chain(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Three tables in a row, materialized once; tests that share it do not change its rows."""
    project = Project(tmp_path_factory.mktemp("chain"), numbers_asset(), doubles_asset(), total_asset())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "_GATHER_SECONDS", float("inf"))
        assert project.run().success
    yield project


def test_the_ledger_has_one_commit_for_a_run(chain: Project) -> None:
    """The rows of all three steps were written together, when the run ended."""
    rows = sorted(chain.rows("system.materializations", "recorded_at", "table"))[:3]
    assert sorted(table for _, table in rows) == ["demo.doubles", "demo.numbers", "demo.total"]
    assert len({at for at, _ in rows}) == 1


def test_rows_are_in_the_lake_for_every_reader(chain: Project) -> None:
    """PyIceberg reads what the functions returned."""
    assert chain.rows("demo.numbers", "n", "text") == [(n, f"name of {n}") for n in range(4)]
    assert chain.rows("demo.doubles", "n") == [(0,), (2,), (4,), (6,)]
    assert chain.rows("demo.total", "sum") == [(12,)]


def test_a_materialization_says_what_it_did(chain: Project) -> None:
    """Row count, bytes, seconds and snapshot, the id as text because JavaScript rounds 64-bit numbers."""
    facts = chain.facts("demo.numbers")
    assert facts["dagster/row_count"] == 4
    assert isinstance(facts["iceberg/snapshot_id"], str) and int(facts["iceberg/snapshot_id"]) > 0
    assert facts["stored_bytes"] > 0 and facts["seconds"] > 0
    assert facts["increments_computed"] == "all" and facts["skipped"] is False
    assert facts["version"] == facts["data_version"] and facts["version"].startswith("v2:4:")


def test_the_schema_is_shown_with_descriptions_and_constraints(chain: Project) -> None:
    """Types without marks, required and unique columns, and the comment of each column."""
    spec = chain.definitions.resolve_asset_graph().get(key("demo.numbers"))
    schema = spec.metadata["dagster/column_schema"]
    shown = [(c.name, c.type, c.description, c.constraints.nullable, c.constraints.unique) for c in schema.columns]
    assert shown == [("n", "long", "the number", False, True), ("text", "string", "its name", True, False)]
    assert spec.metadata["dagster/table_name"] == "demo.numbers"


def test_columns_of_inputs_are_told_as_lineage(chain: Project) -> None:
    """A column comes from those of the same name; one that no input has comes from none."""
    carried = chain.facts("demo.doubles")["dagster/column_lineage"].deps_by_column
    assert {name: [(dep.asset_key.path, dep.column_name) for dep in deps] for name, deps in carried.items()} == {
        "n": [(["demo", "numbers"], "n")]
    }
    assert chain.facts("demo.doubles")["columns_carried"] == "n from demo.numbers"
    assert chain.facts("demo.total")["dagster/column_lineage"].deps_by_column == {}


def test_an_asset_looks_like_an_asset(chain: Project) -> None:
    """Group, kinds, owners, description, domain and the place of its code."""
    spec = chain.definitions.resolve_asset_graph().get(key("demo.numbers"))
    assert spec.group_name == "demo" and spec.kinds == {"iceberg"}
    assert list(spec.owners) == ["team:numbers"] and spec.tags["headrace/domain"] == "text"
    assert spec.description == (
        "One row per number.\n\nCount from 0.\n\n"
        "In a terminal: `headrace run demo.numbers`, then `headrace table show demo.numbers --rows 5`."
    )
    (reference,) = spec.metadata["dagster/code_references"].code_references
    line = Path(reference.file_path).read_text().splitlines()[reference.line_number - 1 :]
    assert any(text.strip().startswith("def numbers(") for text in line[:8])


def test_checks_block_and_are_reported(chain: Project) -> None:
    """Required columns, declared checks and the key are blocking checks, all answered in a good run."""
    specs = chain.definitions.resolve_asset_graph().get(key("demo.numbers")).check_keys
    assert {check.name for check in specs} == {"required_columns", "not_negative", "unique_key"}
    result = chain.run("demo.numbers")
    checks = {e.check_name: (e.passed, e.severity) for e in result.get_asset_check_evaluations()}
    assert {name: passed for name, (passed, _) in checks.items()} == dict.fromkeys(checks, True)
    assert set(checks) == {"required_columns", "not_negative", "unique_key"}


def test_a_plot_is_an_image_inside_markdown(chain: Project) -> None:
    """The UI renders data URIs in Markdown alone."""
    shown = chain.facts("demo.numbers")["plot"]
    assert shown.startswith("![How many](data:image/png;base64,") and shown.endswith(")")
    picture = base64.b64decode(shown.split("base64,")[1][:-1])
    assert picture.startswith(b"\x89PNG")
    assert picture == png(pa.table({"n": range(4)}))


def test_the_picture_of_equal_rows_is_drawn_once(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are computed anew and come out as they were keep their picture; other rows have another."""
    project = Project(tmp_path, numbers_asset())
    assert project.run().success
    picture = project.facts("demo.numbers")["plot"]
    drawn: list[int] = []
    monkeypatch.setattr(assets, "png", lambda rows: drawn.append(rows.num_rows) or png(rows))
    again = project.changed(numbers_asset(version="2"))
    assert again.run().success
    facts = again.facts("demo.numbers")
    assert facts["skipped"] is False and facts["plot"] == picture and drawn == []
    assert again.run(config={"demo.numbers": {"count": 5}}).success
    assert drawn == [5] and again.facts("demo.numbers")["plot"] != picture


def test_an_unchanged_run_repeats_what_was_shown_and_needs_no_spark(chain: Project, no_spark: None) -> None:
    """Materializations with the same versions, samples and plots; a session would fail this test."""
    tables = ("demo.numbers", "demo.doubles", "demo.total")
    before = {table: chain.facts(table) for table in tables}
    again = chain.changed(numbers_asset(), doubles_asset(), total_asset())
    result = again.run()
    assert result.success, failures(result)
    assert sorted(events(result, "ASSET_MATERIALIZATION")) == sorted(tables)
    for table in tables:
        facts = again.facts(table)
        assert facts["skipped"] is True and facts["increments_computed"] == "none"
        kept = ("version", "iceberg/snapshot_id", "dagster/row_count", "sample", "plot", "stored_bytes", "step_key")
        assert 0 < facts["seconds"] <= before[table]["seconds"]
        assert {k: facts.get(k) for k in kept} == {k: before[table].get(k) for k in kept}
        assert again.stale_status(table) == "FRESH"


def test_a_run_that_is_executed_again_asks_its_sources_itself(
    chain: Project, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag that `headrace run` asked them before is copied by who executes the run again."""
    asked, fetched = list[bool](), {lake_asset.FETCHED: "true"}

    def noted(lake: Lake, binding: Binding) -> tuple[TableOutcome, ...]:
        asked.append(lake.fetches)
        return materialize(lake, binding)

    monkeypatch.setattr(asset_options, "materialize", noted)
    again = {PARENT_RUN_ID_TAG: "earlier", ROOT_RUN_ID_TAG: "earlier"}
    with lake_settings(chain.root):
        for tags in ({}, fetched, {**fetched, **again}):
            done = chain.definitions.resolve_job_def("everything").execute_in_process(
                instance=chain.instance, asset_selection=[key("demo.numbers")], run_config=QUIET, tags=tags
            )
            assert done.success
    assert asked == [True, False, True]


def test_new_code_with_equal_rows_leaves_downstream_fresh(chain: Project) -> None:
    """Early cut-off: only the table whose code changed is stale, and after it ran nothing is."""
    changed = chain.changed(numbers_asset(version="2"), doubles_asset(), total_asset())
    before = changed.facts("demo.numbers")
    assert [changed.stale_status(f"demo.{t}") for t in ("numbers", "doubles", "total")] == ["STALE", "FRESH", "FRESH"]
    result = changed.run("demo.numbers")
    assert result.success, failures(result)
    after = changed.facts("demo.numbers")
    assert after["skipped"] is False and after["version"] == before["version"]
    assert after["iceberg/snapshot_id"] == before["iceberg/snapshot_id"]
    assert [changed.stale_status(f"demo.{t}") for t in ("numbers", "doubles", "total")] == ["FRESH"] * 3


@pytest.mark.nightly
def test_config_comes_from_the_run_and_reaches_the_tables_that_follow(spark: object, tmp_path: Path) -> None:
    """Another factor makes other rows; what follows is stale until it is computed, and then only that is."""
    project = Project(tmp_path, numbers_asset(), doubles_asset(), total_asset())
    assert project.run().success
    result = project.run("demo.doubles", config={"demo.doubles": {"factor": 10}})
    assert result.success, failures(result)
    assert project.rows("demo.doubles", "n") == [(0,), (10,), (20,), (30,)]
    assert project.rows("demo.total", "sum") == [(12,)]
    assert [project.stale_status(f"demo.{t}") for t in ("numbers", "doubles", "total")] == ["FRESH", "FRESH", "STALE"]
    result = project.run("demo.total")
    assert result.success, failures(result)
    assert project.rows("demo.total", "sum") == [(60,)]
    assert project.stale_status("demo.total") == "FRESH"


def test_a_refused_value_is_one_line_and_runs_nothing(chain: Project, no_spark: None) -> None:
    """The message names asset, field, reason and value."""
    before = chain.rows("demo.numbers", "n")
    (line,) = failures(chain.run("demo.numbers", config={"demo.numbers": {"count": -3}}))
    assert line == (
        "demo.numbers: config count: Input should be greater than or equal to 0 (got -3); mend it in YAML or run config"
    )
    assert chain.rows("demo.numbers", "n") == before


def test_a_failed_audit_shows_in_red_and_changes_nothing(spark: object, tmp_path: Path) -> None:
    """Check red with its count, no materialization, downstream not executed, main and the ledger as they were."""
    project = Project(tmp_path, numbers_asset(), doubles_asset(), total_asset())
    assert project.run().success
    before = {t: project.facts(t) for t in ("demo.doubles", "demo.total")}
    result = project.run("demo.doubles", "demo.total", config={"demo.doubles": {"factor": 900}})
    assert not result.success
    (line,) = failures(result)
    assert "audit failed" in line and "small: 2 rows" in line and "\n" not in line
    checks = {e.check_name: (e.passed, e.metadata["bad_rows"].value) for e in result.get_asset_check_evaluations()}
    assert checks == {"required_columns": (True, 0), "small": (False, 2), "unique_key": (True, 0)}
    (small,) = (e for e in result.get_asset_check_evaluations() if not e.passed)
    assert [record.data for record in small.metadata["refused"].records] == [{"n": "1800"}, {"n": "2700"}]
    assert line.endswith("such as n 1800; n 2700")
    assert events(result, "ASSET_MATERIALIZATION") == []
    assert not [e for e in result.all_events if e.is_step_start and e.step_key == "demo__total"]
    assert project.rows("demo.doubles", "n") == [(0,), (2,), (4,), (6,)]
    assert project.refs("demo.doubles") == {"main"}
    assert {t: project.facts(t) for t in before} == before
    result = project.run()
    assert result.success, failures(result)
    assert all(project.facts(t)["skipped"] for t in before)


def test_samples_follow_the_policy(spark: object, tmp_path: Path) -> None:
    """Nothing, rows without the texts of documents, or rows with them."""
    shown = {"none": None, "ids": "| n |\n| --- |\n| 0 |", "text": "| text | n |\n| --- | --- |\n| name of 0 | 0 |"}
    project = Project(tmp_path, *(numbers_asset(f"{one}.numbers", samples=Samples(one)) for one in shown))
    result = project.run(config={f"{one}.numbers": {"count": 1} for one in shown})
    assert result.success, failures(result)
    assert {one: project.facts(f"{one}.numbers").get("sample") for one in shown} == shown


def test_inputs_come_from_anywhere_and_several_tables_are_one(spark: object, tmp_path: Path) -> None:
    """`inputs` names tables of other namespaces; a list is their union, the column `dataset` says whose a row is."""
    columns = (Column("dataset!", "string", "namespace"), Column("n!", "long", "the number"))

    @table_asset(
        table="both.all",
        schema=Table(name="all", comment="All numbers.", columns=columns),
        inputs={"numbers": ["left.numbers", "right.numbers"], "other": "left.numbers"},
    )
    def everything(numbers: Any, other: Any) -> Any:
        """Both tables' numbers, twice the left's."""
        return numbers.select("dataset", "n").union(other.selectExpr("'again' AS dataset", "n"))

    project = Project(tmp_path, numbers_asset("left.numbers"), numbers_asset("right.numbers"), everything)
    result = project.run(config={"left.numbers": {"count": 1}, "right.numbers": {"count": 2}})
    assert result.success, failures(result)
    assert project.rows("both.all", "dataset", "n") == [("again", 0), ("left", 0), ("right", 0), ("right", 1)]
    assert {k.to_user_string() for k in project.definitions.resolve_asset_graph().get(key("both.all")).parent_keys} == {
        "left/numbers",
        "right/numbers",
    }


def test_an_input_that_no_asset_defines_fails_at_load() -> None:
    """Dagster alone would make it a silent external asset."""
    with pytest.raises(
        DefinitionError, match=r"demo.doubles reads demo.numbers: no asset defines it; did you mean 'demo.doubles'"
    ):
        build(dg.Definitions(assets=[doubles_asset()]))


def test_tables_that_read_each_other_fail_at_load_with_their_names() -> None:
    """As a selection does that reads the tokens of its corpus; Dagster alone lists every table of the project."""
    reads = {"selected": "tokens", "tokens": "ordered", "ordered": "selected", "texts": "selected"}
    assets = [dg.AssetSpec(["main", table], deps=[dg.AssetKey(["main", read])]) for table, read in reads.items()]
    with pytest.raises(
        DefinitionError, match=r"reads main\.\w+, which reads main\.\w+, which reads .*; take one"
    ) as told:
        build(dg.Definitions(assets=assets))
    assert "texts" not in str(told.value)


def test_an_input_that_has_not_run_is_named(spark: object, tmp_path: Path) -> None:
    """A table of its own, run before its input: the line says what to run."""
    (line,) = failures(Project(tmp_path, numbers_asset(), doubles_asset()).run("demo.doubles"))
    assert line == ("demo.doubles: input demo.numbers has not been materialized; run `headrace run demo/numbers` first")


def test_a_wrong_column_is_named_and_nothing_is_visible(spark: object, tmp_path: Path) -> None:
    """The rows are held to the declared columns before anything is written."""

    @table_asset(table="demo.doubles", schema=DOUBLES)
    def doubles(numbers: Any) -> Any:
        """Rows of a wrong type."""
        return numbers.selectExpr("text AS n")

    project = Project(tmp_path, numbers_asset(), doubles)
    result = project.run()
    (line,) = failures(result)
    assert line == "demo.doubles: column n is string, the table says bigint; cast it in the step"
    assert events(result, "ASSET_MATERIALIZATION") == ["demo.numbers"]
    assert project.rows("demo.doubles", "n") == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": "doubles"}, "doubles"),
        ({"table": "system.doubles"}, "system"),
        ({"table": "demo.Doubles"}, "Doubles"),
        ({"table": "demo.files"}, "files"),
        ({"inputs": {"numbrs": "demo.numbers"}}, r"inputs names \['numbrs'\], the function's inputs are \['numbers'\]"),
        ({"partitions_def": dg.StaticPartitionsDefinition(["a"])}, "name the partitions' column"),
        (
            {
                "partitions_def": dg.MultiPartitionsDefinition(
                    {"a": dg.StaticPartitionsDefinition(["1"]), "b": dg.StaticPartitionsDefinition(["2"])}
                )
            },
            "several dimensions",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(wrong: dict[str, Any], message: str) -> None:
    """Names, inputs and partitions that cannot be are errors where the asset is declared."""
    with pytest.raises(DefinitionError, match=message):

        @table_asset(**{"table": "demo.doubles", "schema": NUMBERS, **wrong})
        def doubles(numbers: Any) -> Any:
            """Never called."""


@pytest.mark.nightly
def test_one_partition_is_replaced_and_its_siblings_stay(spark: object, tmp_path: Path) -> None:
    """First run, redo unchanged, one redone with other rows, one emptied: only that partition's rows change."""
    project = Project(tmp_path, parted_asset("demo.parted", dg.StaticPartitionsDefinition(["a", "it's"])))
    for partition in ("a", "it's"):
        result = project.run(partition=partition)
        assert result.success, failures(result)
    assert project.rows("demo.parted", "part", "n") == [("a", 0), ("a", 1), ("it's", 0), ("it's", 1)]

    assert project.run(partition="it's").success
    assert project.facts("demo.parted", "it's")["skipped"] is True
    sibling = project.facts("demo.parted", "a")

    result = project.run(partition="it's", config={"demo.parted": {"rows": 3}})
    assert result.success, failures(result)
    assert project.rows("demo.parted", "part", "n") == [("a", 0), ("a", 1), ("it's", 0), ("it's", 1), ("it's", 2)]
    facts = project.facts("demo.parted", "it's")
    assert facts["dagster/row_count"] == 3 and facts["increments_computed"] == "it's"
    assert {row.split(" | ")[0] for row in facts["sample"].splitlines()[2:]} == {"| it's"}

    result = project.run(partition="it's", config={"demo.parted": {"rows": 0}})
    assert result.success, failures(result)
    assert project.rows("demo.parted", "part", "n") == [("a", 0), ("a", 1)]
    assert project.facts("demo.parted", "it's")["dagster/row_count"] == 0
    assert project.facts("demo.parted", "a") == sibling


def test_rows_of_another_partition_fail_the_audit(spark: object, tmp_path: Path) -> None:
    """Iceberg would append them without a word."""
    project = Project(tmp_path, parted_asset("demo.parted", dg.StaticPartitionsDefinition(["a", "b"])))
    (line,) = failures(project.run(partition="a", config={"demo.parted": {"stray": True}}))
    assert "rows_in_place: 2 rows" in line
    assert project.rows("demo.parted", "part") == []


@pytest.mark.nightly
def test_dynamic_partitions_come_while_the_project_lives(spark: object, tmp_path: Path) -> None:
    """A partition that was added to the instance is computed beside the others."""
    partitions = dg.DynamicPartitionsDefinition(name="crawls")
    project = Project(tmp_path, parted_asset("demo.parted", partitions))
    for crawl in ("crawl-1", "crawl-2"):
        project.instance.add_dynamic_partitions("crawls", [crawl])
        result = project.run(partition=crawl)
        assert result.success, failures(result)
    assert project.rows("demo.parted", "part") == [("crawl-1",)] * 2 + [("crawl-2",)] * 2


@pytest.mark.parametrize(
    ("kind", "field", "zone", "first"),
    [
        pytest.param("date", "part", "America/New_York", date(2024, 3, 10), marks=pytest.mark.nightly),
        pytest.param("timestamptz", "days(part)", "UTC", datetime(2024, 3, 10, tzinfo=UTC), marks=pytest.mark.nightly),
        ("timestamptz", "days(part)", "America/New_York", datetime(2024, 3, 10, 5, tzinfo=UTC)),
        pytest.param("timestamp", "days(part)", "America/New_York", datetime(2024, 3, 10), marks=pytest.mark.nightly),
        pytest.param("string", "part", "UTC", "2024-03-10", marks=pytest.mark.nightly),
    ],
)
def test_a_day_is_replaced_and_the_next_stays(
    spark: object, tmp_path: Path, kind: str, field: str, zone: str, first: object
) -> None:
    """Daily partitions by a date, a time with and without zone, or text; the zone of the partitions counts.

    On 10 March 2024 clocks go forward in New York: that day has 23 hours, and the next begins at 04:00 UTC.
    """
    partitions = dg.DailyPartitionsDefinition("2024-03-10", timezone=zone)
    project = Project(tmp_path, parted_asset("demo.parted", partitions, kind, field))
    for day in ("2024-03-10", "2024-03-11"):
        result = project.run(partition=day)
        assert result.success, failures(result)
    both = project.rows("demo.parted", "part", "n")
    assert len(both) == 4 and both[0] == (first, 0)
    result = project.run(partition="2024-03-10", config={"demo.parted": {"rows": 1}})
    assert result.success, failures(result)
    said = {
        spec.description for spec in project.definitions.resolve_all_asset_specs() if spec.key == key("demo.parted")
    }
    assert "the job `demo` brings every partition up to date" in str(said)
    assert project.rows("demo.parted", "part", "n") == [both[0], *both[2:]]
    assert project.facts("demo.parted", "2024-03-10")["sample"].count("\n") == 2


@pytest.mark.nightly
def test_a_static_partition_may_be_a_number(spark: object, tmp_path: Path) -> None:
    """The key is read as the column's type."""
    project = Project(tmp_path, parted_asset("demo.parted", dg.StaticPartitionsDefinition(["1", "2"]), "int"))
    for partition in ("1", "2", "1"):
        result = project.run(partition=partition)
        assert result.success, failures(result)
    assert project.rows("demo.parted", "part", "n") == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.nightly
def test_a_partition_reads_its_own_of_an_input_declared_alike(spark: object, tmp_path: Path) -> None:
    """Same partitions: partition by partition; no partitions: all rows, and again when one partition changed."""
    partitions = dg.StaticPartitionsDefinition(["a", "b"])
    project = Project(
        tmp_path,
        parted_asset("demo.parted", partitions),
        follower_asset("demo.each", "demo.parted", partitions),
        follower_asset("demo.whole", "demo.parted", None),
    )
    for partition, rows in (("a", 1), ("b", 4)):
        config = {"demo.parted": {"rows": rows}}
        result = project.run("demo.parted", "demo.each", partition=partition, config=config)
        assert result.success, failures(result)
    assert project.run("demo.whole").success
    assert project.rows("demo.each", "part", "n") == [("a", 1), ("b", 4)]
    assert project.rows("demo.whole", "part", "n") == [("all", 5)]

    config = {"demo.parted": {"rows": 2}}
    assert project.run("demo.parted", partition="a", config=config).success
    assert project.run("demo.each", partition="b").success
    assert project.facts("demo.each", "b")["skipped"] is True
    assert project.run("demo.each", partition="a").success
    assert project.run("demo.whole").success
    assert project.rows("demo.each", "part", "n") == [("a", 2), ("b", 4)]
    assert project.rows("demo.whole", "part", "n") == [("all", 6)]


@pytest.mark.nightly
def test_a_table_may_lose_its_partitions_in_code(spark: object, tmp_path: Path) -> None:
    """A table that was declared with partitions earlier in this process, and is not any more, is read whole."""
    partitions = dg.StaticPartitionsDefinition(["a"])
    parted_asset("demo.numbers", partitions)
    project = Project(tmp_path, numbers_asset(), follower_asset("demo.each", "demo.numbers", partitions))
    assert project.run("demo.numbers").success
    result = project.run("demo.each", partition="a")
    assert result.success, failures(result)
    assert project.rows("demo.each", "part", "n") == [("a", 4)]


@pytest.mark.nightly
def test_a_table_of_a_foreign_asset_is_read_whole(spark: object, tmp_path: Path) -> None:
    """Another asset with the same partitions may lay its table out in any way, here without any partition."""
    partitions = dg.StaticPartitionsDefinition(["a"])
    assert Project(tmp_path, numbers_asset()).run("demo.numbers").success

    @dg.asset(key=["demo", "numbers"], partitions_def=partitions)
    def foreign() -> None:
        """Made by code that headrace does not know."""

    project = Project(tmp_path, foreign, follower_asset("demo.each", "demo.numbers", partitions))
    result = project.run("demo.each", partition="a")
    assert result.success, failures(result)
    assert project.rows("demo.each", "part", "n") == [("a", 4)]


@pytest.mark.nightly
def test_a_table_over_a_dataset_follows_its_increments(spark: object, tmp_path: Path) -> None:
    """A second file is increment 1 for the user's own table too; increment 0 is left."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.txt").write_text("a text that is long enough")
    (source / "two.txt").write_text("short")
    notes = DatasetDeclaration(name="notes", source={"kind": "files", "path": str(source)})
    project = Project(tmp_path / "lake", *dataset_assets(notes), long_texts_asset())
    tables = ("notes.arrivals", "notes.documents", "notes.repositories", "notes.provenance")
    tables += ("notes.texts", "notes.long_texts")
    result = project.run(*tables)
    assert result.success, failures(result)
    (source / "three.txt").write_text("another text that is long")
    result = project.run(*tables)
    assert result.success, failures(result)
    found = [(0, "a text that is long enough"), (1, "another text that is long")]
    assert project.rows("notes.long_texts", "increment", "content") == found
    facts = project.facts("notes.long_texts")
    assert (facts["increments_computed"], facts["increments_left"], facts["dagster/row_count"]) == ("1", 1, 2)
    assert "another text" in facts["sample"] and "enough" not in facts["sample"]
