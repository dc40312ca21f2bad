"""Frozen tables follow what they were computed from: a changed lake equals a fresh one, table by table, row by row.

The plan, the ledger and its rules are the real ones; tables are lists of Python, so hundreds of histories are cheap.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import NoConfig, Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.forecast import forecast
from spark_jobs.lake.plan.foreseen import Foreseen, surprises
from spark_jobs.lake.plan.plan import Task, first_surplus_increment, tasks
from spark_jobs.lake.plan.reads import snapshots_of, taken_increments
from spark_jobs.lake.plan.reasons import other_settings
from spark_jobs.lake.run.refreeze import refrozen_tables
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY
from tests.tiers import tries

Rows = list[tuple[int, ...]]


class Threshold(BaseModel):
    """What is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    least: int = 0


class Factor(BaseModel):
    """A setting of a frozen table."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    factor: int = 1


def _table(name: str) -> Table:
    return Table(name=name, comment=name, columns=(Column("n!", "long", "a number"),), partition=("increment",))


def _made(name: str, scope: Scope, numbered: bool = False, stays: bool = False) -> Any:
    table = _table(name)
    return step(version="1", scope=scope, tables=(table,), name=name, numbered=numbered, stays=lambda config: stays)


def _numbers(part: Rows) -> list[int]:
    return [n for _, n in part]


@_made("kept", Scope.INCREMENT)
def kept(numbers: Rows, config: Threshold) -> list[int]:
    """A dataset's verdicts: numbers that are large enough."""
    return [n for n in _numbers(numbers) if n >= config.least]


@_made("increments", Scope.INTAKE)
def increments(numbers: Rows, config: NoConfig) -> list[int]:
    """What the corpus took in."""
    return [increment for increment, _ in numbers]


@_made("members", Scope.INCREMENT)
def members(kept: Rows) -> list[int]:
    """What of it goes on."""
    return _numbers(kept)


@_made("vocabulary", Scope.FROZEN)
def vocabulary(members: Rows, config: Factor) -> list[int]:
    """A weight that many sets of members share, so that rows often come out the same."""
    return [len(members) // 2 * config.factor]


@_made("bags", Scope.INCREMENT)
def bags(members: Rows, vocabulary: Rows) -> list[int]:
    """Members as they are weighed."""
    return [n * 10 + weight for n in _numbers(members) for weight in _numbers(vocabulary)]


@_made("background", Scope.FROZEN)
def background(bags: Rows, config: Factor) -> list[int]:
    """Another frozen table, computed from what follows the first."""
    return [sum(_numbers(bags)) % 3 * config.factor]


@_made("firsts", Scope.HISTORY)
def firsts(bags: Rows, background: Rows, firsts: Rows, increment: int) -> list[int]:
    """Remainders that no earlier increment had."""
    known = {n % 100 for n in _numbers(firsts)}
    fresh = {n % 7 for at, n in bags if at == increment} - known
    return [n + 100 * shift for n in sorted(fresh) for shift in _numbers(background)]


@_made("alphabet", Scope.FROZEN, stays=True)
def alphabet(firsts: Rows, config: Factor) -> list[int]:
    """What stays as it is, like a trained tokenizer, whatever becomes of the rows that it was computed from."""
    return [sum(_numbers(firsts)) % 5 * config.factor] if firsts else []


@_made("packed", Scope.INCREMENT, numbered=True)
def packed(firsts: Rows, alphabet: Rows, base: int) -> list[int]:
    """Rows with dense numbers."""
    letters = sum(_numbers(alphabet))
    return [10**6 * letters + 1000 * (base + at) + n for at, n in enumerate(_numbers(firsts))]


@_made("copies", Scope.INCREMENT)
def copies(bags: Rows) -> list[int]:
    """A table of a user's, in a namespace of its own."""
    return _numbers(bags)


STEPS = (kept, increments, members, vocabulary, bags, background, firsts, alphabet, packed, copies)


FROZEN = ("vocabulary", "background", "alphabet")


class ModelLake(Ledger):
    """A lake whose tables are lists; its ledger is the real one, less the table that it is stored in."""

    def __init__(self) -> None:
        """Make an empty one."""
        super().__init__(cast(Catalog, None))
        self.rows: dict[str, dict[int, list[int]]] = {}
        self.configs: dict[str, BaseModel] = {"kept": Threshold(), **{name: Factor() for name in FROZEN}}
        self.given: dict[str, list[int]] = {}  # rows of tables that are not computed
        self.generations: dict[str, int] = {}
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._ids = itertools.count(1)
        self._landed = itertools.count()
        self.computed: set[tuple[str, str]] = set()

    def _read(self) -> None:
        """Nobody else writes."""

    def table(self, identifier: str) -> IcebergTable | None:
        """A table as the plan sees one."""
        snapshots = self._snapshots.get(identifier)
        if snapshots is None:
            return None
        made = {one.name: one for one in STEPS}.get(identifier.split(".")[1])
        properties = {SCOPE_PROPERTY: made.scope.value if made is not None else "history"}
        if made is not None and made.numbered:
            properties[GENERATION_PROPERTY] = "some"
        schema = (made or kept).table.schema()
        found = SimpleNamespace(
            metadata=SimpleNamespace(
                snapshots=snapshots,
                table_uuid=identifier,
                current_snapshot_id=snapshots[-1].snapshot_id,
                schemas=[schema],
            ),
            snapshot_by_id=lambda at: next((one for one in snapshots if one.snapshot_id == at), None),
            metadata_location=f"{identifier}-{len(snapshots)}",
            current_snapshot=lambda: snapshots[-1],
            properties=properties,
            schema=lambda: schema,
            spec=lambda: (made or kept).table.partition_spec(schema),
        )
        return cast(IcebergTable, found)

    def record(self, rows: Iterable[Materialization], now: Any = None) -> None:
        """Keep rows of the ledger."""
        for row in rows:
            self._rows.setdefault(row.table, []).append(row)

    def binding(self, made: Step) -> Binding:
        """A step in its namespace: `kept` is of the dataset, `copies` of a user."""
        namespace = {"kept": "d", "copies": "u"}.get(made.name, "c")
        inputs: dict[str, Any] = {name: f"c.{name}" for name in made.inputs}
        if "numbers" in inputs:
            inputs["numbers"] = "d.numbers" if namespace == "d" else ("d.numbers",)
        if "kept" in inputs:
            inputs["kept"] = ("d.kept",)
        config = self.configs.get(made.name) or made.config()
        driving_table = {"d": "d.numbers", "u": "c.bags"}.get(namespace, "c.increments")
        return Binding(made, namespace, inputs, config, driving_table=driving_table)

    def land(self, values: list[int]) -> None:
        """Seal an increment of the dataset."""
        number = next(self._landed)
        self._publish("d.numbers", number, values, f"landed-{number}", {}, "{}", and_later=False)

    def run(self, upto: int = len(STEPS)) -> None:
        """Bring the first steps up to date; the others are as a kill left them. What is computed was forecast."""
        steps = forecast(self, [self.binding(made) for made in STEPS[:upto]])
        assert not any(one.problem for one in steps), steps
        said = {(one.binding.tables[0], place.place): place for one in steps for place in one.places}
        self.computed = set()
        for made in STEPS[:upto]:
            binding = self.binding(made)
            since = first_surplus_increment(self, binding)
            if since is not None:
                self.forget(binding.tables, since)
            for task in tasks(self, binding):
                self._compute(binding, task)
                self.computed.add((binding.tables[0], task.place.key))
        assert self.computed <= said.keys(), "a run computes nothing that was not forecast"
        assert {key for key, place in said.items() if place.certain} <= self.computed, "what is certain is computed"

    def _compute(self, binding: Binding, task: Task) -> None:
        special = {"config": binding.config, "increment": task.increment}
        if binding.step.numbered:
            before = self.increments(binding.tables[0])
            special["base"] = sum(row.row_count for number, row in before.items() if number < (task.increment or 0))
        parts: dict[str, Rows] = {}
        for parameter, reads in task.reads.items():
            parts[parameter] = [
                (ours, n)
                for read in reads
                for theirs, ours in (read.increments or {}).items()
                for n in self.rows[read.table].get(theirs, [])
            ]
        wanted = {name: value for name, value in special.items() if name in binding.step.parameters}
        values = self.given.get(binding.tables[0], binding.step(**parts, **wanted))
        inputs = snapshots_of(task.reads)
        and_later = isinstance(task.place.replaced, GreaterThanOrEqual)
        number = int(task.place.key)
        self._publish(binding.tables[0], number, values, task.key, inputs, config_json(binding.config), and_later)

    def _publish(
        self, table: str, number: int, values: list[int], key: str, inputs: Any, config: str, and_later: bool
    ) -> None:
        version = DataVersion(len(values), sum(hash((n,)) for n in values), 0)
        before = self.places(table).get(str(number))
        if before is not None and before.data_version == version:  # early cut-off
            where = (before.snapshot_id, before.sequence_number)
        else:
            own = self.rows.setdefault(table, {})
            for later in [n for n in own if n == number or (and_later and n > number)]:
                del own[later]
            own[number] = values
            at = next(self._ids)
            chain = self._snapshots.setdefault(table, [])
            parent = chain[-1].snapshot_id if chain else None
            summary = Summary(Operation.APPEND)
            chain.append(
                Snapshot(
                    snapshot_id=at,
                    parent_snapshot_id=parent,
                    sequence_number=at,
                    timestamp_ms=0,
                    manifest_list="",
                    summary=summary,
                )
            )
            where = (at, at)
            self.generations[table] = self.generations.get(table, 0) + 1
        row = Materialization(
            table, str(number), table, key, version, "1", config, inputs, *where, table, len(values), 0, 0.0, "", None
        )
        self.record([row])

    def state(self) -> dict[str, dict[int, list[int]]]:
        """What readers see; the ledger says the same of it."""
        for table, rows in self.rows.items():
            assert {n: len(values) for n, values in rows.items()} == {
                n: row.row_count for n, row in self.increments(table).items()
            }, table
        return {table: rows for table, rows in self.rows.items() if table != "d.numbers"}

    def tables(self) -> list[str]:
        """All there are."""
        return list(self._snapshots)

    def refreeze(self) -> None:
        """Start a new generation, where there is one."""
        if "c.increments" in self._snapshots:
            self.forget(refrozen_tables(self, "c", [table for table in self.tables() if table.startswith("c.")]))


def fresh(changed: ModelLake) -> ModelLake:
    """A new lake that took in the same increments, one after the other, under the settings that the other has now.

    A table that stays is the same one, as if it had been taken from a file.
    """
    made = ModelLake()
    made.configs = dict(changed.configs)
    made.given = {table: rows for table in ("c.alphabet",) if (rows := changed.rows[table][0])}
    for name in FROZEN:
        row = changed.places(f"c.{name}")["0"]
        made.configs[name] = Factor.model_validate_json(row.config)
    for taken in taken_increments(changed, "c.increments").values():
        for number in taken["d"]:
            made.land(changed.rows["d.numbers"][number])
        made.run()
    return made


lands = st.tuples(st.just("land"), st.lists(st.integers(0, 9), max_size=4))
actions = st.one_of(
    lands,
    lands,
    st.tuples(st.just("least"), st.integers(0, 8)),
    st.tuples(st.just("factor"), st.integers(1, 3)),
    st.tuples(st.just("refreeze"), st.just(0)),
    st.tuples(st.just("run"), st.integers(1, len(STEPS))),
    st.tuples(st.just("run"), st.just(len(STEPS))),
)


@settings(max_examples=tries(300))
@given(st.lists(actions, max_size=10), st.lists(st.integers(0, 9), max_size=4))
def test_a_lake_that_was_changed_equals_a_fresh_one(history: list[tuple[str, Any]], first: list[int]) -> None:
    """Thresholds change, increments come, runs stop between steps, generations begin: it ends as a fresh lake does."""
    lake = ModelLake()
    lake.land(first)
    for action, value in history:
        if action == "land":
            lake.land(value)
        elif action == "least":
            lake.configs["kept"] = Threshold(least=value)
        elif action == "factor":
            lake.configs.update(dict.fromkeys(FROZEN, Factor(factor=value)))
        elif action == "refreeze":
            lake.refreeze()
        else:
            lake.run(value)
    lake.run()
    assert lake.state() == fresh(lake).state()
    before = dict(lake.generations)
    lake.run()
    assert lake.generations == before, "a second run changes nothing"


def test_an_empty_first_increment_freezes_nothing() -> None:
    """Frozen tables are those of the first increment with rows, and stay so when more come."""
    lake = ModelLake()
    for values, frozen in (([], 0), ([5, 6, 7, 8], 2), ([9], 2)):
        lake.land(values)
        lake.run()
        assert lake.rows["c.vocabulary"] == {0: [frozen]}
    assert lake.state() == fresh(lake).state()


def test_other_settings_leave_a_frozen_table_and_are_told() -> None:
    """A line says what it is frozen with, what is declared, and which command computes it anew of all increments."""
    lake = ModelLake()
    for values in ([5, 6], [7, 8]):
        lake.land(values)
        lake.run()
    assert other_settings(lake, lake.binding(vocabulary)) == ""
    lake.configs["vocabulary"] = Factor(factor=3)
    newer = dataclasses.replace(lake.binding(vocabulary), step=dataclasses.replace(vocabulary, version="2"))
    lake.run()
    assert lake.rows["c.vocabulary"] == {0: [1]}
    assert other_settings(lake, lake.binding(vocabulary)) == (
        "frozen with factor 1 (declared: 3); to compute it anew: headrace corpus refresh c"
    )
    assert "factor 1 (declared: 3), code version 1 (now 2)" in other_settings(lake, newer)
    lake.refreeze()
    lake.run()
    assert other_settings(lake, lake.binding(vocabulary)) == ""
    assert lake.rows["c.vocabulary"] == {0: [4 // 2 * 3]}
    assert lake.rows["c.members"] == {0: [5, 6, 7, 8]}


def test_what_stays_is_computed_anew_by_a_new_generation_alone() -> None:
    """Its rows stay whatever becomes of those that they were computed from; the plan says so, before and after."""
    lake = ModelLake()
    lake.land([1, 2, 3, 5])
    lake.run()
    before = dict(lake.rows["c.alphabet"])
    lake.configs["kept"] = Threshold(least=3)
    for _ in range(2):
        (planned,) = [one for one in forecast(lake, map(lake.binding, STEPS)) if one.binding.step is alphabet]
        assert planned.is_idle and planned.stays.startswith("as computed on 1970-01-01 from c.firsts[0]; ")
        lake.run()
        assert lake.rows["c.alphabet"] == before and ("c.alphabet", "0") not in lake.computed
    lake.refreeze()
    lake.run()
    assert ("c.alphabet", "0") in lake.computed and lake.rows["c.alphabet"] != before
    assert not any(one.stays for one in forecast(lake, map(lake.binding, STEPS)))


def test_what_a_run_will_change_is_foreseen() -> None:
    """Increments that come need no word; new settings of a frozen table do, and a threshold that reaches it."""
    lake = ModelLake()

    def foresee() -> Foreseen:
        return surprises(forecast(lake, [lake.binding(made) for made in STEPS]))

    assert "d.numbers has not been materialized" in foresee().failing[0][1]
    for values in ([5, 6], [7, 8]):
        lake.land(values)
        lake.run()
    lake.land([1])
    assert foresee() == Foreseen((), (), ())
    lake.configs["background"] = Factor(factor=3)
    found = foresee()
    assert found.recomputed_frozen == found.renumbered == ()
    assert [table for table, _ in found.kept_frozen] == ["c.background"] and "declared: 3" in found.kept_frozen[0][1]
    lake.configs["kept"] = Threshold(least=6)
    found = foresee()
    assert [table for table, _ in found.recomputed_frozen] == ["c.vocabulary", "c.background"]
    assert found == Foreseen(found.kept_frozen, found.recomputed_frozen, ("c.packed",))
    (stays,) = found.kept_frozen
    assert stays == (
        "c.alphabet",
        "as computed on 1970-01-01 from c.firsts[0]; to compute it anew: headrace corpus refresh c",
    )
    lake.run()
    assert not {("c.alphabet", "0")} & lake.computed and foresee() == Foreseen((), (), ())


def test_a_forecast_says_why() -> None:
    """Reasons name what changed: the increment that came, the setting, the code, the input."""
    lake = ModelLake()
    lake.land([5, 6])
    lake.run()
    lake.land([7, 8, 9])
    lake.configs["kept"] = Threshold(least=6)
    steps = {one.binding.step.name: one for one in forecast(lake, [lake.binding(made) for made in STEPS])}
    said = {name: [(place.place, place.certain, place.reason) for place in one.places] for name, one in steps.items()}
    assert said["kept"] == [("0", True, "least 0 -> 6"), ("1", True, "new increment 1")]
    assert said["increments"] == [("1", True, "new increment: d.numbers[1]")]
    assert said["members"] == [("0", False, "if rows change in d.kept[0]"), ("1", True, "new increment 1")]
    assert said["vocabulary"] == [("0", False, "if rows change in c.members[0]")]
    assert [place.rows for place in steps["kept"].places] == [2, 3]
    newer = dataclasses.replace(lake.binding(members), step=dataclasses.replace(members, version="2"))
    assert forecast(lake, [newer])[0].places[0].reason == "code version 1 -> 2"


def test_a_corpus_that_was_never_computed_is_not_refrozen() -> None:
    """The message says how to make it."""
    with pytest.raises(InputError, match="nothing is frozen; run `headrace run c`"):
        refrozen_tables(ModelLake(), "c", [])
