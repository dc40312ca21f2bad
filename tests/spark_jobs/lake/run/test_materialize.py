"""Bringing tables up to date: increments, scopes, early cut-off, crashes in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.credentials import hide
from spark_jobs.exceptions import AuditError, InputError, StepRunError, TableMismatchError
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.lease import writer_branch
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.plan.plan import tasks
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.run.refreeze import refreeze
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import (
    FactorConfig,
    FolderConfig,
    bind,
    doubles,
    first_seen,
    frozen,
    land,
    numbers,
    one,
    ranked,
    rows,
    total,
)
from tests.tiers import needs_spark, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@on_spark
def test_only_the_new_increment_is_computed(lake: Lake, folder: Path) -> None:
    """A second file becomes increment 1; increment 0 is neither read again nor written again."""
    assert one(materialize(lake, bind(doubles))).computed == ("0",)
    before = lake.ledger.increments("demo.doubles")[0]
    land(folder, "b.txt", [3, 4])
    assert one(materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))).computed == ("1",)
    outcome = one(materialize(lake, bind(doubles)))
    assert (outcome.computed, outcome.unchanged) == (("1",), ("0",))
    assert lake.ledger.increments("demo.doubles")[0] == before
    assert rows(lake, "demo.doubles", "increment", "n") == [(0, 2), (0, 4), (0, 6), (0, 24), (1, 8)]


def test_nothing_new_needs_no_spark(lake: Lake, folder: Path) -> None:
    """An unchanged table is answered from the ledger: asking for a session would fail this test."""
    materialize(lake, bind(doubles))

    def no_session() -> None:
        raise AssertionError("Spark was asked for")

    idle = dataclasses.replace(lake, session=no_session)
    for binding in (bind(numbers, FolderConfig(folder=str(folder))), bind(doubles)):
        assert one(materialize(idle, binding)).computed == ()


def test_a_setting_that_decides_no_row_is_not_part_of_the_key(lake: Lake, folder: Path) -> None:
    """A field declared with affects_rows False may change without anything being computed."""
    assert one(materialize(lake, bind(numbers, FolderConfig(folder=str(folder), speed=9)))).computed == ()


def test_a_source_whose_table_lacks_a_column_is_read_again(lake: Lake, folder: Path) -> None:
    """As one that an earlier version of headrace wrote: nothing else is new, and steps that follow need the column."""
    binding = bind(numbers, FolderConfig(folder=str(folder)))
    assert list(tasks(lake.ledger, binding)) == []
    with lake.catalogue.load_table("demo.numbers").update_schema() as update:
        update.delete_column("text")
    assert one(materialize(lake, binding)).computed == ("1",)
    assert "text" in lake.catalogue.load_table("demo.numbers").schema().column_names


def test_a_ledger_of_an_earlier_version_gets_the_column_that_it_lacks(lake: Lake) -> None:
    """Its rows stay, without core seconds; those that are recorded from now on have them."""
    with lake.catalogue.load_table(LEDGER).update_schema() as update:
        update.delete_column("core_seconds")
    lake = dataclasses.replace(lake, ledger=Ledger(lake.catalogue))
    lake.ledger.refresh()
    assert lake.ledger.increments("demo.numbers")[0].core_seconds is None
    assert one(materialize(lake, bind(doubles))).computed == ("0",)
    found = Ledger(lake.catalogue)
    found.refresh()
    assert (found.increments("demo.doubles")[0].core_seconds or 0) > 0
    assert found.increments("demo.numbers")[0].core_seconds is None


@on_spark
def test_tables_are_computed_at_the_same_time(lake: Lake) -> None:
    """Three threads, on Spark with sessions of their own, share a ledger: it knows what one that is read anew does."""
    from concurrent.futures import ThreadPoolExecutor

    def session_of_thread() -> SparkSession:
        if is_embedded(first := lake.session()):
            return first
        session = first.newSession()
        for key, value in first.conf.getAll.items():
            if key.startswith("spark.sql.catalog.") or session.conf.isModifiable(key):
                session.conf.set(key, value)
        return session

    def compute(step: Step) -> None:
        session = session_of_thread()
        assert one(materialize(dataclasses.replace(lake, session=lambda: session), bind(step))).computed

    steps = (doubles, total, frozen)
    with ThreadPoolExecutor(len(steps)) as pool:
        list(pool.map(compute, steps))
    anew = Ledger(lake.catalogue)
    anew.refresh()
    for step in steps:
        found = lake.ledger.places(f"demo.{step.name}")
        assert found == anew.places(f"demo.{step.name}") != {}
        assert all((row.core_seconds or 0) > 0 for row in found.values())


def test_new_config_recomputes_and_equal_rows_are_not_published_again(lake: Lake) -> None:
    """Early cut-off: another key with the same rows leaves the snapshot, and downstream keys, as they were."""
    materialize(lake, bind(doubles))
    first = lake.ledger.increments("demo.doubles")[0]
    renamed = dataclasses.replace(doubles, version="2")
    assert one(materialize(lake, bind(renamed))).computed == ("0",)
    second = lake.ledger.increments("demo.doubles")[0]
    assert second.step_key != first.step_key
    assert (second.snapshot_id, second.data_version) == (first.snapshot_id, first.data_version)
    assert one(materialize(lake, bind(doubles, FactorConfig(factor=3)))).version != first.data_version
    assert rows(lake, "demo.doubles", "n") == [(3,), (6,), (9,), (36,)]


def test_history_sees_earlier_increments_and_its_own_rows(lake: Lake, folder: Path) -> None:
    """A remainder that increment 0 had is not new in increment 1."""
    materialize(lake, bind(first_seen))
    land(folder, "b.txt", [22, 25])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(first_seen))
    assert rows(lake, "demo.first_seen", "increment", "remainder") == [(0, 1), (0, 2), (0, 3), (1, 5)]


def test_whole_tables_follow_any_change(lake: Lake, folder: Path) -> None:
    """A table without increments is computed anew from all rows when an input changed."""
    materialize(lake, bind(total))
    land(folder, "b.txt", [100])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    assert one(materialize(lake, bind(total))).computed == ("",)
    assert rows(lake, "demo.total", "sum") == [(118,)]
    assert one(materialize(lake, bind(total))).computed == ()


def test_frozen_is_computed_once(lake: Lake, folder: Path) -> None:
    """More data and another config leave a frozen table as it is."""
    materialize(lake, bind(frozen))
    land(folder, "b.txt", [100])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    assert one(materialize(lake, bind(frozen, FactorConfig(factor=7)))).computed == ()
    assert rows(lake, "demo.frozen", "n") == [(8,)]


def test_frozen_follows_the_increment_that_it_was_computed_from(lake: Lake, folder: Path) -> None:
    """Increment 0 of its input computed anew makes it again, under the settings of now; more increments do not."""
    after = bind(frozen, numbers="demo.doubles")
    materialize(lake, bind(doubles))
    assert one(materialize(lake, after)).computed == ("0",)
    outcome = one(materialize(lake, bind(frozen, FactorConfig(factor=7), numbers="demo.doubles")))
    assert (outcome.computed, outcome.note) == (
        (),
        "frozen with factor 2 (declared: 7); to compute it anew: headrace table delete demo.frozen",
    )
    materialize(lake, bind(doubles, FactorConfig(factor=3)))
    assert one(materialize(lake, bind(frozen, FactorConfig(factor=7), numbers="demo.doubles"))).computed == ("0",)
    assert rows(lake, "demo.frozen", "n") == [(28,)]


@pytest.mark.nightly
def test_a_refrozen_corpus_is_one_that_took_all_increments_in_at_once(lake: Lake, folder: Path) -> None:
    """Its tables equal, digest for digest, those of another corpus made now; later increments go on from there."""

    def run(corpus: str) -> dict[str, dict[int, DataVersion]]:
        numbers = (f"{corpus}.doubles",)
        for made, inputs in (
            (increments, {"arrivals": ("demo.arrivals",)}),
            (doubles, {"numbers": ("demo.numbers",)}),
            (frozen, {"numbers": numbers[0]}),
            (ranked, {"numbers": numbers[0]}),
        ):
            materialize(lake, Binding(made, corpus, inputs, made.config(), driving_table=f"{corpus}.increments"))
        names = ("increments", "doubles", "frozen", "ranked")
        found = {name: lake.ledger.increments(f"{corpus}.{name}") for name in names}
        return {name: {n: row.data_version for n, row in places.items()} for name, places in found.items()}

    for name, values in (("b.txt", [50, 51]), ("c.txt", [70])):
        run("grown")
        land(folder, name, values)
        materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    grown = run("grown")
    assert [len(places) for places in grown.values()] == [3, 3, 1, 3]
    generation = lake.catalogue.load_table("grown.ranked").properties[GENERATION_PROPERTY]
    assert set(refreeze(lake, "grown")) == {f"grown.{name}" for name in grown}
    with pytest.raises(InputError, match="begins a new generation; run `headrace run grown`"):
        materialize(lake, Binding(ranked, "grown", {"numbers": "grown.doubles"}, FactorConfig(), "grown.increments"))
    assert run("grown") == run("new")
    assert rows(lake, "grown.frozen", "n") == [(14,)]
    assert len(rows(lake, "grown.ranked", "ordinal")) == 7
    assert lake.catalogue.load_table("grown.ranked").properties[GENERATION_PROPERTY] != generation


def test_ordinals_continue_and_a_rebuild_is_a_new_generation(lake: Lake, folder: Path) -> None:
    """An append keeps generation and ordinals; a rebuild of increment 0 takes increment 1 with it and is told apart."""
    materialize(lake, bind(ranked))
    first = lake.catalogue.load_table("demo.ranked").properties[GENERATION_PROPERTY]
    before = rows(lake, "demo.ranked", "ordinal", "n")
    land(folder, "b.txt", [50, 51])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(ranked))
    assert lake.catalogue.load_table("demo.ranked").properties[GENERATION_PROPERTY] == first
    assert rows(lake, "demo.ranked", "ordinal", "n") == [*before, (4, 50), (5, 51)]

    assert one(materialize(lake, bind(ranked, FactorConfig(factor=-1)))).computed == ("0", "1")
    assert rows(lake, "demo.ranked", "ordinal", "n") == [(0, 12), (1, 3), (2, 2), (3, 1), (4, 51), (5, 50)]
    table = lake.catalogue.load_table("demo.ranked")
    assert table.properties[GENERATION_PROPERTY] != first
    assert table.properties["demo.factor"] == "-1"


@pytest.mark.nightly
def test_same_rows_under_new_code_keep_the_generation(lake: Lake, folder: Path) -> None:
    """A numbered table whose rows come out the same is not rebuilt, however many increments it has."""
    land(folder, "b.txt", [50, 51])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(ranked))
    before = lake.catalogue.load_table("demo.ranked")
    materialize(lake, bind(dataclasses.replace(ranked, version="2")))
    after = lake.catalogue.load_table("demo.ranked")
    assert after.properties[GENERATION_PROPERTY] == before.properties[GENERATION_PROPERTY]
    assert after.current_snapshot() == before.current_snapshot()


def test_a_failed_audit_leaves_the_table_and_its_readers_as_they_were(lake: Lake, folder: Path) -> None:
    """A negative number fails the check: main, ledger and refs are those of before, and the message names the check."""
    head = lake.catalogue.load_table("demo.numbers").current_snapshot()
    land(folder, "b.txt", [-5])
    with pytest.raises(AuditError, match="not_negative: 1 rows"):
        materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    table = lake.catalogue.load_table("demo.numbers")
    assert table.current_snapshot() == head
    assert set(table.refs()) == {"main"}
    lake.ledger.refresh()
    assert list(lake.ledger.increments("demo.numbers")) == [0]


def test_a_key_that_comes_twice_fails_the_audit(lake: Lake) -> None:
    """Multiplying by zero makes all keys equal."""
    with pytest.raises(AuditError, match=r"unique_key: 3 rows .*, such as n 0$"):
        materialize(lake, bind(doubles, FactorConfig(factor=0)))


def test_a_wrong_column_is_named(lake: Lake) -> None:
    """Missing, unknown and mistyped columns are refused before anything is written."""

    def rewritten(expression: str) -> None:
        def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
            return numbers.selectExpr(*expression.split(";"))

        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))

    with pytest.raises(TableMismatchError, match=r"column n \(bigint\) is missing"):
        rewritten("n AS m")
    with pytest.raises(TableMismatchError, match="column n is string, the table says bigint"):
        rewritten("text AS n")
    with pytest.raises(TableMismatchError, match="column more is not declared"):
        rewritten("n;n AS more")


@needs_spark
def test_a_failing_task_is_one_line_and_writes_nothing(lake: Lake) -> None:
    """An exception inside Spark says what happened; the table does not exist for readers."""

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.selectExpr("raise_error('no such luck') AS m", "n").select("n", "m").selectExpr("length(m) AS n")

    with pytest.raises((StepRunError, TableMismatchError)) as caught:
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))
    assert "\n" not in str(caught.value)
    assert lake.catalogue.load_table("demo.doubles").current_snapshot() is None


@needs_spark
def test_the_trace_that_a_failure_names_is_there(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On either engine, and no secret in it; the line of the step that failed is what Spark alone passes on."""
    monkeypatch.setenv("TOKEN_OF_A_TEST", "gh-7Kd03mLw91xZq")
    hide("gh-7Kd03mLw91xZq", "TOKEN_OF_A_TEST")

    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                raise ZeroDivisionError(f"{batch.num_rows} rows by gh-7Kd03mLw91xZq")
            yield batch

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.select("n").mapInArrow(fail, "n bigint")

    with pytest.raises(StepRunError) as caught:
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))
    line = str(caught.value)
    assert "ZeroDivisionError" in line and "\n" not in line
    trace = Path(line.rpartition("the whole trace: ")[2])
    assert trace.name == "demo.doubles.txt" and trace.parent.name == "failed"
    text = trace.read_text()
    assert "Traceback" in text and "ZeroDivisionError: " in text and "${TOKEN_OF_A_TEST}" in text
    assert is_embedded(lake.session()) or "raise ZeroDivisionError" in text
    assert "gh-7Kd03mLw91xZq" not in text


def test_an_input_that_was_never_materialized_is_named(tmp_path: Path, lake_at: LakeAt) -> None:
    """The message says which table is missing and what to run."""
    with pytest.raises(InputError, match=r"demo\.arrivals has not been materialized"):
        materialize(lake_at(tmp_path), bind(doubles))


def test_a_crash_before_the_ledger_is_recovered_from_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published but not recorded: the next run finds the facts in the table and computes nothing."""
    monkeypatch.setattr(lake.ledger, "write", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        materialize(lake, bind(doubles))
    monkeypatch.undo()
    lake.ledger.refresh()
    assert one(materialize(lake, bind(doubles))).computed == ()
    assert lake.ledger.increments("demo.doubles")[0].row_count == 4


def test_a_dead_writers_branch_is_removed(lake: Lake) -> None:
    """A branch that a killed run left is gone after the next write, and was never seen by readers."""
    materialize(lake, bind(doubles))
    prefix, host, _, _, since, number = writer_branch().split("_")
    left = f"{prefix}_{'0' * len(host)}_1_7_{int(since) - 8 * 86_400}_{number}"  # on another machine, a week ago
    table = lake.catalogue.load_table("demo.doubles")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, left).commit()
    materialize(lake, bind(doubles, FactorConfig(factor=5)))
    assert set(lake.catalogue.load_table("demo.doubles").refs()) == {"main"}


def test_rows_of_another_program_are_refused(lake: Lake) -> None:
    """A table that somebody else wrote holds what the ledger does not know; the message says how to go back."""
    materialize(lake, bind(doubles))
    table = lake.catalogue.load_table("demo.doubles")
    table.append(table.scan(limit=1).to_arrow())
    with pytest.raises(TableMismatchError, match="was not written by headrace"):
        materialize(lake, bind(doubles))


def test_versions_are_those_of_the_rows_that_readers_see(lake: Lake, folder: Path) -> None:
    """The version observed while writing is the digest of the table read back, and that of a table is the sum."""
    land(folder, "b.txt", [70])
    outcome = one(materialize(lake, bind(numbers, FolderConfig(folder=str(folder)))))
    seen = lake.session().table("lake.demo.numbers")
    assert digest(seen) == outcome.version
    parts = [row.data_version for row in lake.ledger.increments("demo.numbers").values()]
    assert parts[0] + parts[1] == outcome.version
    assert digest(seen.where("increment = 1")) == parts[1]


def test_one_materialization_is_one_snapshot_with_its_facts(lake: Lake) -> None:
    """The summary says what computed it; the ledger's snapshot is the one on main."""
    materialize(lake, bind(doubles))
    table = lake.catalogue.load_table("demo.doubles")
    head = table.current_snapshot()
    row = lake.ledger.increments("demo.doubles")[0]
    assert head is not None and head.snapshot_id == row.snapshot_id
    said = head.summary.additional_properties
    assert said["headrace.step-key"] == row.step_key
    assert said["headrace.run-id"] == "test-run"
    assert said["headrace.inputs"].startswith("demo.numbers@")
    assert lake.catalogue.load_table(LEDGER).scan().to_arrow().num_rows == 3
