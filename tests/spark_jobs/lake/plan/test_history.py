"""What steps of scope history read is known by one digest, whatever the number of increments."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import LAST_PROPERTY, Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan import plan
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.forecast import forecast
from spark_jobs.lake.plan.history import History, facts_of
from spark_jobs.lake.plan.plan import tasks
from spark_jobs.lake.plan.reads import changed_places, covers, reads_of, slice_key
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue

_FIRST, _ALL = (Table(name, "numbers", (Column("n!", "long", "number"),), partition=("increment",)) for name in "ab")


@step(version="1", scope=Scope.HISTORY, tables=(_ALL,))
def so_far(before, b, config: NoConfig):  # type: ignore[no-untyped-def]
    """Everything up to an increment, and its own rows before."""
    raise NotImplementedError


SO_FAR = Binding(so_far, "demo", {"before": "demo.a"}, NoConfig(), driving_table="demo.a")


def row(table: str, number: int, count: int, **facts: object) -> Materialization:
    """A row of the ledger with so many rows as its version."""
    given = Materialization(
        table,
        str(number),
        "s",
        "k",
        DataVersion(count, count, count),
        "1",
        "{}",
        {},
        number,
        0,
        "",
        count,
        9,
        1.0,
        "r",
        None,
    )
    return dataclasses.replace(given, **facts)  # type: ignore[arg-type]


def recorded(ledger: Ledger, declared: Table, counts: list[int]) -> list[Materialization]:
    """Make a table whose ledger says that it has so many rows in each increment."""
    name = f"demo.{declared.name}"
    table = ensure_table(ledger.catalogue, name, declared, {SCOPE_PROPERTY: "history"})
    table.append(table.schema().as_arrow().empty_table())
    head, uuid = table.metadata.current_snapshot_id, str(table.metadata.table_uuid)
    rows = [row(name, number, count, table_uuid=uuid) for number, count in enumerate(counts)]
    rows[-1] = dataclasses.replace(rows[-1], snapshot_id=head, sequence_number=1)
    ledger.record(rows)
    return rows


def up_to_date(ledger: Ledger, rows: list[Materialization]) -> None:
    """Record rows again as of a step that is up to date."""
    made = []
    for one in rows:
        reads = reads_of(SO_FAR, ledger, one.increment)
        key = slice_key(SO_FAR, reads, one.place)
        inputs = plan.Task(plan.TableSlice.whole(), one.increment, key, reads).inputs
        made.append(dataclasses.replace(one, step_key=key, inputs=inputs))
    ledger.record(made)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of an empty lake."""
    return Ledger.fresh(open_catalogue(settings_at(tmp_path)))


def test_a_prefix_is_what_the_readers_increment_reads() -> None:
    """Numbers, versions and count, in a corpus that took 1 and 3 in before 2; the first that is missing is told."""
    rows = {number: row("a", number, number + 1) for number in range(4)}
    history = History([(0, 0), (1, 1), (1, 3), (2, 2)], rows)
    assert dict(history.numbers(1)) == {0: 0, 1: 1, 3: 1} and dict(history.numbers(-1)) == {}
    assert list(history.versions(0).items()) == [("0", str(rows[0].data_version))]
    assert 2 not in history.numbers(1) and history.numbers(2)[2] == 2 and history.numbers(9) == history.numbers(2)
    assert history.facts(-1) is None and history.missing is None
    facts = history.facts(1)
    assert facts is not None and (facts.count, facts.last) == (3, 3)
    assert History([(0, 0), (1, 7), (2, 1)], rows).missing == (1, 7)


def test_the_digest_tells_numbers_and_versions_apart() -> None:
    """Another version, two swapped, one fewer, or the same ones taken in otherwise: another digest; else the same."""
    counts = [5, 6, 7]
    pairs = [(0, 0), (1, 1), (2, 2)]

    def digest(pairs: list[tuple[int, int]], counts: list[int]) -> str:
        facts = History(pairs, {number: row("a", number, count) for number, count in enumerate(counts)}).facts(2)
        assert facts is not None
        return facts.digest

    others = [
        digest(pairs, [5, 7, 6]),
        digest(pairs, [5, 6, 8]),
        digest(pairs[:2], counts),
        digest([(0, 0), (0, 1), (2, 2)], counts),
    ]
    assert digest(pairs, counts) == digest(pairs, [*counts, 9]) and len({digest(pairs, counts), *others}) == 5
    assert facts_of({"0": "x", "1": "y"}) == facts_of({"1": "y", "0": "x"}) != facts_of({"0": "y", "1": "x"})


def test_a_row_does_not_grow_with_the_increments(ledger: Ledger) -> None:
    """Inputs of increment 199 are as long as those of 10, and all 200 are known; a plan computes none."""
    recorded(ledger, _FIRST, list(range(200)))
    up_to_date(ledger, recorded(ledger, _ALL, [1] * 200))
    sizes = {one.increment: len(str(one.inputs)) for one in ledger.increments("demo.b").values()}
    assert sizes[199] < sizes[10] + 10 < 500
    assert list(tasks(ledger, SO_FAR)) == [] and forecast(ledger, [SO_FAR])[0].is_idle
    fresh = Ledger.fresh(ledger.catalogue)
    assert list(tasks(fresh, SO_FAR)) == []


def test_an_earlier_increment_that_changes_is_noticed_by_all_later_ones(ledger: Ledger) -> None:
    """From the changed one on, with a reason; what was read before it stays."""
    first = recorded(ledger, _FIRST, [3, 4, 5, 6])
    up_to_date(ledger, recorded(ledger, _ALL, [1] * 4))
    ledger.record([dataclasses.replace(first[2], data_version=DataVersion(9, 9, 9))])
    (found,) = forecast(ledger, [SO_FAR])
    assert [(one.place, one.reason) for one in found.places] == [
        ("2", "input demo.a[0..2] changed"),
        ("3", "input demo.a[0..3] changed"),
    ]
    assert next(tasks(ledger, SO_FAR)).place.key == "2"


def test_what_a_digest_covers() -> None:
    """Places up to the last, and whatever has no number; of a list of versions exactly those."""
    assert [covers({"last": 4, "count": 5, "digest": "x"}, place) for place in ("0", "4", "5", "")] == [1, 1, 0, 1]
    assert [covers({"versions": {"4": "v"}}, place) for place in ("4", "0")] == [True, False]
    read = dataclasses.replace(plan.Read("t", 0, {"0": "v"}, None, None, False), facts=facts_of({"0": "v"}))
    assert changed_places({"last": 3, "digest": "other"}, read) == ["0..3"]
    assert changed_places({"last": 0, "digest": facts_of({"0": "v"}).digest}, read) == []


def test_rows_of_a_run_are_written_together(ledger: Ledger) -> None:
    """Gathered rows are known at once, are one commit when they are written, and come back when they are read anew."""
    first = recorded(ledger, _FIRST, [3, 4, 5])
    commits = len(ledger.catalogue.load_table(LEDGER).metadata.snapshots)
    for number, one in enumerate(first):
        ledger.gather([dataclasses.replace(one, row_count=number, step_key="anew")])
    assert [one.row_count for one in ledger.increments("demo.a").values()] == [0, 1, 2]
    ledger.make_room(["demo.b"])
    ledger.refresh()
    assert len(ledger.catalogue.load_table(LEDGER).metadata.snapshots) == commits, "nothing is written yet"
    assert [one.row_count for one in ledger.increments("demo.a").values()] == [0, 1, 2]
    Ledger.fresh(ledger.catalogue).record([row("demo.c", 0, 1)])  # another process comes between
    ledger.refresh()
    assert [one.row_count for one in ledger.increments("demo.a").values()] == [0, 1, 2]
    ledger.make_room(["demo.a"])  # which is about to be published again
    assert len(ledger.catalogue.load_table(LEDGER).metadata.snapshots) == commits + 2
    assert [one.row_count for one in Ledger.fresh(ledger.catalogue).increments("demo.a").values()] == [0, 1, 2]


@pytest.mark.parametrize("published", [True, False])
def test_what_another_process_forgot_is_not_recorded_again(ledger: Ledger, published: bool) -> None:
    """A row that waits in one run is settled or marked by `refreeze` in another; the mark is the last word."""
    first = recorded(ledger, _FIRST, [3, 4, 5])
    anew = dataclasses.replace(first[2], step_key="anew", run_id="of now")
    if published:
        table = ledger.catalogue.load_table("demo.a")
        table.transaction().set_properties({LAST_PROPERTY: anew.to_json()}).commit_transaction()
    ledger.refresh()
    ledger.gather([anew])
    Ledger.fresh(ledger.catalogue).forget(["demo.a"], since=1)
    ledger.write()
    assert list(Ledger.fresh(ledger.catalogue).increments("demo.a")) == [0]
    ledger.refresh()
    assert list(ledger.increments("demo.a")) == [0]


def test_the_newest_row_is_the_last_word_whatever_a_clock_says(ledger: Ledger) -> None:
    """What is marked or computed after rows of a machine whose clock is an hour ahead counts."""
    first = recorded(ledger, _FIRST, [3, 4, 5])
    ledger.record(first, datetime.now(UTC) + timedelta(hours=1))
    Ledger.fresh(ledger.catalogue).forget(["demo.a"])
    assert list(Ledger.fresh(ledger.catalogue).increments("demo.a")) == []
    Ledger.fresh(ledger.catalogue).record([dataclasses.replace(first[0], step_key="anew")])
    assert list(Ledger.fresh(ledger.catalogue).increments("demo.a")) == [0]
