"""Kills, rollbacks and other hands on a table: whatever happens in between, the rows end up as if nothing had."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import LeaseError, StepRunError, TableMismatchError
from spark_jobs.lake.declare.step import NoConfig
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.maintenance import expire
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.plan.reads import taken_increments
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import (
    FactorConfig,
    FolderConfig,
    bind,
    doubles,
    first_seen,
    land,
    numbers,
    one,
    ranked,
    rows,
    total,
)
from tests.tiers import needs_spark, on_spark


class Killed(BaseException):
    """Stands for `kill -9`: no handler of errors sees it."""


class Killer:
    """Lets so many writes of the catalogue happen, then kills; `after` tells whether the last one still counts."""

    def __init__(self, catalogue: Catalog, patch: pytest.MonkeyPatch, writes: int, after: bool) -> None:
        self._left, self._after = writes, after
        for name in ("commit_table", "create_table", "create_namespace"):
            patch.setattr(catalogue, name, self._wrap(getattr(catalogue, name)))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            result = call(*args, **kwargs)
            if self._left < 0:
                raise Killed
            return result

        return counted


def reopened(lake: Lake) -> Lake:
    """The lake as another process finds it: nothing remembered."""
    return dataclasses.replace(lake, ledger=Ledger(lake.catalogue))


def everything(lake: Lake, folder: Path) -> None:
    """Bring all tables up to date."""
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    for what in (doubles, first_seen, ranked, total):
        materialize(lake, bind(what))


def seen(lake: Lake) -> dict[str, str]:
    """Digest of what readers see, by table."""
    names = ("numbers", "arrivals", "doubles", "first_seen", "ranked", "total")
    return {name: str(digest(lake.session().table(f"lake.demo.{name}"))) for name in names}


@pytest.mark.nightly
def test_a_kill_between_any_two_commits_changes_nothing_in_the_end(
    tmp_path: Path, lake_at: LakeAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after 0, 1, 2, .. commits of the catalogue, again and again until a run comes through: same digests.

    Each run may make one commit more than the one before, so that every commit is the last one of some run.
    """
    folder = tmp_path / "source"
    calm, stormy = lake_at(tmp_path / "calm"), lake_at(tmp_path / "stormy")
    kills = 0
    for name, values in (("a.txt", [1, 2, 3, 12]), ("b.txt", [3, 44])):
        land(folder, name, values)
        everything(calm, folder)
        for writes in range(40):
            with monkeypatch.context() as patch:
                Killer(stormy.catalogue, patch, writes, after=writes % 2 == 0)
                try:
                    everything(reopened(stormy), folder)
                    break
                except Killed:
                    kills += 1
    assert kills > 8
    assert seen(stormy) == seen(calm)
    final = reopened(stormy)
    final.ledger.refresh()
    for name, version in seen(calm).items():
        assert str(sum_of(final, f"demo.{name}")) == version, f"the ledger knows {name}"
        assert set(final.catalogue.load_table(f"demo.{name}").refs()) == {"main"}


def sum_of(lake: Lake, table: str) -> object:
    """A table's version as the ledger adds it up."""
    from spark_jobs.lake.ledger.data_version import DataVersion

    return sum((row.data_version for row in lake.ledger.places(table).values()), DataVersion())


def kill_before_recording(lake: Lake, patch: pytest.MonkeyPatch, *steps: Any) -> None:
    """Run, and die between publishing and the ledger."""
    with patch.context() as inner:
        inner.setattr(lake.ledger, "write", lambda: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            for binding in steps:
                materialize(lake, binding)


def test_a_recovered_row_outlives_the_next_publish(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Increment 0 published but not recorded, then increment 1 published: a third process knows both."""
    kill_before_recording(lake, monkeypatch, bind(ranked))
    generation = lake.catalogue.load_table("demo.ranked").properties[GENERATION_PROPERTY]
    land(folder, "b.txt", [50])
    again = reopened(lake)
    materialize(again, bind(numbers, FolderConfig(folder=str(folder))))
    assert one(materialize(again, bind(ranked))).computed == ("1",)
    third = reopened(lake)
    assert one(materialize(third, bind(ranked))).computed == ()
    assert set(third.ledger.increments("demo.ranked")) == {0, 1}
    assert lake.catalogue.load_table("demo.ranked").properties[GENERATION_PROPERTY] == generation


def test_an_intake_that_was_not_recorded_still_tells_what_it_took_in(
    lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus's increment 0 survives a kill with its inputs: nothing is taken in twice, nothing is lost."""
    binding = dataclasses.replace(
        bind(numbers, FolderConfig(folder="")),
        step=increments,
        namespace="corpus",
        inputs={"arrivals": ("demo.arrivals",)},
        config=NoConfig(),
        driving_table=None,
    )
    kill_before_recording(lake, monkeypatch, binding)
    again = reopened(lake)
    assert one(materialize(again, binding)).computed == ()
    assert taken_increments(again.ledger, "corpus.increments") == {0: {"demo": (0,)}}
    land(folder, "b.txt", [50])
    materialize(again, bind(numbers, FolderConfig(folder=str(folder))))
    assert one(materialize(again, binding)).computed == ("1",)
    assert taken_increments(reopened_refreshed(lake).ledger, "corpus.increments") == {
        0: {"demo": (0,)},
        1: {"demo": (1,)},
    }
    assert rows(lake, "corpus.increments", "increment", "dataset_increment") == [(0, 0), (1, 1)]


def reopened_refreshed(lake: Lake) -> Lake:
    """Another process that has looked at the ledger."""
    again = reopened(lake)
    again.ledger.refresh()
    return again


@pytest.mark.nightly
def test_a_rebuild_killed_half_way_and_taken_back_loses_no_increment(
    lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Increment 0 was rebuilt under another config, which took 1 away; under the old config both come back."""
    land(folder, "b.txt", [50, 51])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(ranked))
    before = rows(lake, "demo.ranked", "increment", "ordinal", "n")
    gather = lake.ledger.gather

    def once(new: Any) -> None:
        gather(new)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(lake.ledger, "gather", once)
        with pytest.raises(Killed):
            materialize(lake, bind(ranked, FactorConfig(factor=-1)))
    again = reopened_refreshed(lake)
    assert set(again.ledger.increments("demo.ranked")) == {0}, "readers see increment 0 alone"
    assert one(materialize(again, bind(ranked))).computed == ("0", "1")
    assert rows(lake, "demo.ranked", "increment", "ordinal", "n") == before


@pytest.mark.nightly
def test_a_rollback_by_hand_brings_back_the_older_facts(lake: Lake, folder: Path) -> None:
    """After a rollback the ledger says what main holds, also once more is written on top and history is expired."""
    materialize(lake, bind(doubles))
    first = lake.ledger.increments("demo.doubles")[0]
    materialize(lake, bind(doubles, FactorConfig(factor=3)))
    lake.session().sql(f"CALL lake.system.rollback_to_snapshot('demo.doubles', {first.snapshot_id})")
    again = reopened(lake)
    assert one(materialize(again, bind(doubles))).computed == (), "the older rows are there, and known"

    land(folder, "b.txt", [50])
    materialize(again, bind(numbers, FolderConfig(folder=str(folder))))
    assert one(materialize(again, bind(doubles))).computed == ("1",)
    expire(lake.catalogue, "demo.doubles", datetime.now(UTC))
    third = reopened(lake)
    assert one(materialize(third, bind(doubles))).computed == (), "the factor 3 is not believed to be there"
    assert one(materialize(third, bind(doubles, FactorConfig(factor=3)))).computed == ("0", "1")
    assert rows(lake, "demo.doubles", "n") == [(3,), (6,), (9,), (36,), (150,)]


@pytest.mark.nightly
def test_compaction_and_expiry_leave_all_facts_known(lake: Lake, folder: Path) -> None:
    """The head is a compaction whose parent is gone: nothing is computed again, and foreign rows below are noticed."""
    land(folder, "b.txt", [50])
    everything(lake, folder)
    before = seen(lake)
    for name in before:
        compact(lake.catalogue, f"demo.{name}")
        expire(lake.catalogue, f"demo.{name}", datetime.now(UTC))
    again = reopened(lake)
    assert [one(materialize(again, bind(what))).computed for what in (doubles, first_seen, ranked, total)] == [()] * 4
    assert seen(lake) == before

    lake.session().sql("INSERT INTO lake.demo.numbers VALUES (1, 77, 'foreign'), (1, 78, 'foreign')")
    lake.session().sql(
        "CALL lake.system.rewrite_data_files(table => 'demo.numbers', options => map('rewrite-all', 'true'))"
    )
    expire(lake.catalogue, "demo.numbers", datetime.now(UTC))
    with pytest.raises(TableMismatchError, match="was not written by headrace"):
        materialize(reopened(lake), bind(doubles, FactorConfig(factor=5)))


def test_a_table_dropped_and_made_again_is_computed_again(lake: Lake) -> None:
    """Rows of the ledger name the table's uuid, so those of its namesake do not count."""
    materialize(lake, bind(doubles))
    lake.catalogue.drop_table("demo.doubles")
    assert one(materialize(reopened(lake), bind(doubles))).computed == ("0",)
    table = lake.catalogue.load_table("demo.doubles")
    lake.catalogue.drop_table("demo.doubles")
    lake.catalogue.create_table("demo.doubles", table.schema(), partition_spec=table.spec())
    assert one(materialize(reopened(lake), bind(doubles))).computed == ("0",)


def test_a_second_process_sees_what_the_first_one_did(lake: Lake, folder: Path) -> None:
    """A ledger that was read before another process wrote is not believed."""
    other = reopened_refreshed(lake)
    other.ledger.increments("demo.numbers")
    land(folder, "b.txt", [50])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(doubles))
    assert one(materialize(other, bind(doubles))).computed == ()


def test_facts_that_came_between_two_looks_are_complete(lake: Lake, folder: Path) -> None:
    """The ledger was read, then another process published two increments, then the table is looked at: both count."""
    other = reopened_refreshed(lake)
    land(folder, "b.txt", [50])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(doubles))
    assert set(other.ledger.increments("demo.doubles")) == {0, 1}


@on_spark
def test_whoever_finds_main_moved_publishes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lease (a REST catalogue) the commit itself decides: the second writer fails with one line."""
    from spark_jobs.lake.run import materialize as engine

    materialize(lake, bind(doubles))
    publish = engine.publish

    def slow(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "publish", publish)
            no_lease(patch)
            materialize(reopened(lake), bind(doubles, FactorConfig(factor=3)))
        publish(*args)

    def no_lease(patch: pytest.MonkeyPatch) -> None:
        from contextlib import nullcontext

        patch.setattr(engine, "table_leases", lambda *_: nullcontext())

    with monkeypatch.context() as patch:
        patch.setattr(engine, "publish", slow)
        with pytest.raises(LeaseError, match="somebody else wrote it meanwhile") as caught:
            materialize(lake, bind(doubles, FactorConfig(factor=7)))
    assert "\n" not in str(caught.value)
    assert rows(lake, "demo.doubles", "n") == [(3,), (6,), (9,), (36,)]
    assert one(materialize(reopened(lake), bind(doubles, FactorConfig(factor=3)))).computed == ()


@needs_spark
def test_a_workers_own_error_comes_out_with_its_own_message(lake: Lake) -> None:
    """What a function inside mapInArrow raises on purpose is the whole message, in one line."""

    def refuse(batches: Any) -> Any:
        from spark_jobs.exceptions import InputError

        raise InputError("doubles: number 12 is unlucky; leave it out")
        yield from batches

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.select("n").mapInArrow(refuse, "n bigint")

    with pytest.raises(StepRunError) as caught:
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))
    message = str(caught.value)
    assert message.startswith("demo.doubles: doubles: number 12 is unlucky; leave it out")
    assert "\n" not in message and "Traceback" not in message


@needs_spark
def test_other_errors_of_a_worker_name_their_kind(lake: Lake) -> None:
    """A mistake in a function on an executor is told by its last line."""

    def stumble(batches: Any) -> Any:
        for batch in batches:
            yield batch.no_such_method()

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.select("n").mapInArrow(stumble, "n bigint")

    with pytest.raises(StepRunError, match=r"AttributeError.*no_such_method") as caught:
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))
    assert "\n" not in str(caught.value)


@needs_spark
def test_a_full_disk_is_one_line(lake: Lake) -> None:
    """Whoever runs out of space is told so."""

    def full(batches: Any) -> Any:
        raise OSError(28, "No space left on device")
        yield from batches

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.select("n").mapInArrow(full, "n bigint")

    with pytest.raises(StepRunError, match=r"^demo\.doubles: the disk is full; free some space and run again"):
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ("org.postgresql.util.PSQLException: FATAL: terminating connection due to administrator command", 2),
        ("org.postgresql.util.PSQLException: Connection to 10.0.0.7:5432 refused. Check that the host", 2),
        ("org.postgresql.util.PSQLException: ERROR: permission denied for table iceberg_tables", 1),
    ],
)
def test_a_step_outlives_a_restart_of_the_catalogues_database(lake: Lake, said: str, calls: int) -> None:
    """Spark does not wait for a server that starts anew, so the step runs once more; for nothing else does it."""
    called: list[int] = []

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        called.append(1)
        if len(called) == 1:
            raise Py4JError(f"An error occurred while calling o7.table\n: {said}")
        return numbers.selectExpr("2 * n AS n")

    with pytest.raises(StepRunError, match="permission denied") if calls == 1 else contextlib.nullcontext():
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))
    assert len(called) == calls
    assert rows(lake, "demo.doubles", "n") == ([] if calls == 1 else [(2,), (4,), (6,), (24,)])


def test_the_ledger_is_one_commit_a_step(lake: Lake) -> None:
    """All tables of a step come into the ledger together, none twice."""
    before = len(lake.catalogue.load_table(LEDGER).metadata.snapshots)
    materialize(lake, bind(doubles))
    materialize(lake, bind(doubles))
    assert len(lake.catalogue.load_table(LEDGER).metadata.snapshots) == before + 1
