"""What has to be computed: the increments of a step whose step keys are not known, worked out from the ledger alone.

    WHOLE, a partition    one task, when an input's version, the code or the config changed
    INCREMENT, HISTORY    one task for each increment of the clock (`Binding.clock`) for which that is so, in order
    FROZEN                one task, once, and again when the increment that it was computed from was computed anew
    INTAKE                one task, the next increment, when inputs hold increments that no earlier one took in
    a source              one task, the next increment, when the source has something new

No Spark is needed: a run in which nothing changed never starts a session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table as IcebergTable

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization, Place
from spark_jobs.lake.ledger.step_key import step_key
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.decisions import (
    decisions_in,
    refuse_around_quarantine,
    refuse_files_of_quarantine,
    released,
)
from spark_jobs.lake.run.excisions import excisions_in, excisions_read, without_excised
from spark_jobs.lake.run.reads import Read, Reads, changed_places, is_path, reads_of, snapshots_of, versions_of

_LEAST_ROWS = 1 << 20  # of what is known of a source, below which it is not worth condensing


@dataclass(frozen=True)
class Task:
    """One increment (or partition) that has to be computed.

    Attributes:
        place: where its rows go.
        increment: of the clock or the source; None for a table without increments.
        key: its step key.
        reads: what the step reads.
        discovered: what `Step.discover` listed, for steps at the source of data.
        excised: the list of excised documents that the reads leave out, as `excisions_read` gives it; of an increment
            that leaves quarantine, the decision.
    """

    place: Place
    increment: int | None
    key: str
    reads: Reads
    discovered: pa.Table | None = None
    excised: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """What the ledger records as its inputs."""
        return {**snapshots_of(self.reads), **self.excised}


def tasks(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    """The tasks of a step, in order; each is worked out only after the one before it was recorded."""
    scope = binding.step.scope
    if binding.step.discover is not None:
        yield from _discovery_task(ledger, binding)
    elif binding.partition is not None:
        yield from _task(ledger, binding, binding.partition, None)
    elif scope is Scope.WHOLE:
        yield from _task(ledger, binding, Place.whole(), None)
    elif scope is Scope.INTAKE:
        yield from _intake_task(ledger, binding)
    elif scope is Scope.FROZEN:
        yield from _frozen_task(ledger, binding)
    else:
        yield from _increment_tasks(ledger, binding)


def first_surplus_increment(ledger: Ledger, binding: Binding) -> int | None:
    """From which increment on a table must be computed anew, because it has more increments than its clock.

    This happens after the clock began a new generation (refreeze) or was rolled back. Of a table with ordinals all
    increments are computed anew, of others the clock's last one, since writing it removes the later ones.

    Returns:
        The increment; None where the table has no increment that the clock lacks.
    """
    step = binding.step
    if step.scope not in (Scope.INCREMENT, Scope.HISTORY) or step.discover is not None or binding.clock is None:
        return None
    last = max(ledger.increments(binding.clock), default=None)
    if last is None or binding.only is not None or not _has_later(ledger, binding, last):
        return None
    return 0 if step.numbered else last


def _increment_tasks(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    if binding.only is not None and binding.clock is None:
        yield from _task(ledger, binding, Place.increment(binding.only), binding.only)
        return
    clock = ledger.table(binding.clock) if binding.clock is not None else None
    if binding.clock is None or clock is None:
        raise InputError(
            f"{binding.tables[0]}: {binding.clock} has not been materialized; "
            f"run `headrace run {binding.namespace}` first"
        )
    if clock.current_snapshot() is not None and not ledger.increments(binding.clock):
        raise InputError(
            f"{binding.tables[0]}: {binding.clock} begins a new generation; run `headrace run {binding.namespace}`, "
            "which takes all increments in again"
        )
    numbered = binding.step.numbered
    chained = ""
    decided = released(ledger, binding)
    for number in ledger.increments(binding.clock):
        if binding.only in (None, number) and (decided is None or number in decided):
            replaces_later = numbered or not _has_later(ledger, binding, number)
            place = Place.increment(number, and_later=replaces_later)
            yield from _task(ledger, binding, place, number, chained, decided[number] if decided is not None else {})
        if number == binding.only:
            return
        if numbered:
            chained = _key_before(ledger, binding, number)


def _has_later(ledger: Ledger, binding: Binding, increment: int) -> bool:
    """Whether a table has valid increments after a number."""
    return any(next(reversed(ledger.increments(table)), -1) > increment for table in binding.tables)


def _key_before(ledger: Ledger, binding: Binding, increment: int) -> str:
    """Step key of an increment of a numbered table, which goes into the key of the next.

    Raises:
        InputError: the increment does not exist, so the first ordinal of the next one is not known.
    """
    row = ledger.increments(binding.tables[0]).get(increment)
    if row is None:
        raise InputError(
            f"{binding.tables[0]}: increment {increment} has not been computed, and its rows number those of the next; "
            "compute it first"
        )
    return row.step_key


def _task(
    ledger: Ledger,
    binding: Binding,
    place: Place,
    increment: int | None,
    chained: str = "",
    decided: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Iterator[Task]:
    """The task of one place, unless its step key is known."""
    reads = reads_of(binding, ledger, increment)
    if not is_known(ledger, binding, reads, place.key, chained):
        excised = {**excisions_read(ledger, binding), **decided}
        narrowed = without_excised(ledger, binding, reads, excised)
        yield Task(place, increment, _key(binding, reads, place.key, chained, excised), narrowed, excised=excised)


def is_known(ledger: Ledger, binding: Binding, reads: Reads, place: str, chained: str = "") -> bool:
    """Whether all tables of a step hold one place as its present inputs, code and config make it."""
    reads_history = any(read.facts is not None for parts in reads.values() for read in parts)

    def knows(row: Materialization | None) -> bool:
        if row is None:
            return False
        listed = {**excisions_in(row.inputs), **decisions_in(row.inputs)}
        if row.step_key == _key(binding, reads, place, chained, listed):
            return True
        # In earlier versions of headrace a key held every version of a history, and so did the row: known still.
        is_older = reads_history and not any("digest" in facts for facts in row.inputs.values())
        return is_older and row.step_key == _key(binding, reads, place, chained, listed, in_full=True)

    return all(knows(ledger.places(table).get(place)) for table in binding.tables)


def _key(
    binding: Binding,
    reads: Reads,
    place: str,
    chained: str = "",
    excised: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    in_full: bool = False,
) -> str:
    """The step key of one place, computed without the excised documents; see `versions_of`."""
    return step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=binding.config_json,
        inputs={**versions_of(reads, in_full), **{name: facts["versions"] for name, facts in excised.items()}},
        place=place,
        chained=chained,
    )


def waits(ledger: Ledger, binding: Binding) -> bool:
    """Whether the increments that a step follows are none yet, because all are in quarantine."""
    clock = ledger.table(binding.clock) if binding.clock is not None else None
    return clock is not None and clock.current_snapshot() is None


def _frozen_task(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    """The task of a frozen table that does not exist yet, or whose inputs have changed since it was computed."""
    if waits(ledger, binding):
        return
    reads = reads_of(binding, ledger, frozen_from(ledger, binding))
    key = _key(binding, reads, "0")
    if reads_of_other_rows(ledger, binding, reads):
        yield Task(Place.increment(0), 0, key, reads)


def reads_of_other_rows(ledger: Ledger, binding: Binding, reads: Reads) -> bool:
    """Whether a frozen table does not exist, or was computed from other rows than it reads now."""
    key = _key(binding, reads, "0")
    rows = [ledger.places(table).get("0") for table in binding.tables]
    return any(row is None or _read_other_rows(row, reads, key) for row in rows)


def frozen_from(ledger: Ledger, binding: Binding) -> int:
    """The increment that a frozen table is computed from: the first in which its first input has rows, else 0."""
    source = binding.inputs.get(binding.step.inputs[0])
    if binding.clock is None or not isinstance(source, str) or is_path(source):
        return binding.only or 0
    return next((number for number, row in ledger.increments(source).items() if row.row_count), 0)


def _read_other_rows(row: Materialization, reads: Reads, key: str) -> bool:
    """Whether a frozen table was computed from other rows than its inputs hold now.

    A change of its config or code does not count: the table stays as it is. A ledger row recovered by an earlier
    version of headrace does not name its inputs; then the step key is compared instead.
    """
    if not row.inputs:
        return row.step_key != key
    now = {read.table: read for parts in reads.values() for read in parts}
    return any(changed_places(facts, now[table]) for table, facts in row.inputs.items() if table in now)


def other_settings(ledger: Ledger, binding: Binding) -> str:
    """One line on how a frozen table's declared config and code differ from those it was computed with; else empty.

    Such a table is kept, because everything that is computed from it would change.
    """
    row = ledger.places(binding.tables[0]).get("0") if binding.step.scope is Scope.FROZEN else None
    if row is None:
        return ""
    had, wanted = json.loads(row.config), json.loads(binding.config_json)
    changed = [
        f"{name} {json.dumps(had.get(name))} (declared: {json.dumps(wanted.get(name))})"
        for name in sorted(had.keys() | wanted.keys())
        if had.get(name) != wanted.get(name)
    ]
    if row.code_version != binding.step.version:
        changed.append(f"code version {row.code_version} (now {binding.step.version})")
    if not changed:
        return ""
    of_corpus = (binding.clock or "").endswith(".increments")
    anew = f"corpus refresh {binding.namespace}" if of_corpus else f"table delete {binding.tables[0]}"
    return f"frozen with {', '.join(changed)}; to compute it anew: headrace {anew}"


def _intake_task(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    """The task of a corpus's next increment, where a dataset has increments that no earlier one took in."""
    own = ledger.increments(binding.tables[0])
    taken: dict[str, set[str]] = {}
    for row in own.values():
        for table, facts in row.inputs.items():
            taken.setdefault(table, set()).update(facts["versions"])
    everything = reads_of(binding, ledger, None)
    fresh: dict[str, tuple[Read, ...]] = {}
    for parameter, parts in everything.items():
        chosen = []
        for read in parts:
            versions = {p: v for p, v in read.versions.items() if p not in taken.get(read.table, set())}
            numbers = {int(place): int(place) for place in versions}
            if versions:
                chosen.append(replace(read, versions=versions, increments=numbers, predicate=None, labelled=True))
        fresh[parameter] = tuple(chosen)
    if any(fresh.values()):
        number = max(own, default=-1) + 1
        yield Task(Place.increment(number, and_later=True), number, _key(binding, fresh, str(number)), fresh)


def _discovery_task(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    """The task of a dataset's next increment, where its source has something new.

    After a change of config or code, and where a table lacks a column, every file is read again; documents that come
    out the same are not landed twice. The last of the step's tables (`arrivals`) is published last, so its increments
    are those that are complete.
    """
    discover, arrivals = binding.step.discover, binding.tables[-1]
    if discover is None:
        raise InputError(f"{binding.tables[0]}: its step has no source to look at; bind its inputs to tables")
    refuse_around_quarantine(ledger, binding)
    complete = ledger.increments(arrivals)
    config = binding.config_json
    iceberg = ledger.table(arrivals)
    last = complete[max(complete)] if complete else None
    as_before = last is not None and (last.config, last.code_version) == (config, binding.step.version)
    for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
        table = ledger.table(identifier)
        lacks = table is not None and {column.name for column in declared.all_columns} - set(
            table.schema().column_names
        )
        as_before = as_before and not lacks
    known = _listed_before(binding.step.tables[-1], iceberg)
    listing = discover(binding.config, known, not as_before, ledger.catalogue)
    if listing is None:
        return
    refuse_files_of_quarantine(ledger, binding, listing)
    number = max(complete, default=-1) + 1
    key = step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=config,
        inputs={"listing": {"": _arrow_digest(listing)}},
        place=str(number),
    )
    yield Task(Place.increment(number), number, key, reads_of(binding, ledger, number), listing)


def _listed_before(declared: Table, iceberg: IcebergTable | None) -> pa.Table:
    """What a source's table says of it so far, condensed whenever half of it is new."""
    nothing = declared.schema().as_arrow().empty_table()
    if iceberg is None or iceberg.metadata.current_snapshot_id is None:
        return nothing
    known, pieces, waiting = nothing, list[pa.Table](), 0
    for batch in iceberg.scan(declared.listed or AlwaysTrue()).to_arrow_batch_reader():
        pieces.append(_with_columns_of(nothing, pa.Table.from_batches([batch])))
        waiting += batch.num_rows
        if declared.condensed is not None and waiting > max(known.num_rows, _LEAST_ROWS):
            known, pieces, waiting = declared.condensed(pa.concat_tables([known, *pieces])), [], 0
    known = pa.concat_tables([known, *pieces])
    return known if declared.condensed is None else declared.condensed(known)


def _with_columns_of(declared: pa.Table, rows: pa.Table) -> pa.Table:
    """Rows in the declared columns, with nulls in those that a table made by an earlier version of headrace lacks."""
    for column in declared.schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.select(declared.column_names).cast(declared.schema)


def _arrow_digest(rows: pa.Table) -> str:
    """SHA-256 of a listing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()
