"""What one increment of a step reads: which tables, at which snapshots, which increments, with which data versions.

`reads_of` works this out from the ledger alone, without Spark; its data versions go into the step key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from headrace.tables.locations import real
from headrace.tables.quarantine import SUFFIX, quarantine_of, quarantine_of_path, quarantine_that_holds
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.step_key import step_key
from spark_jobs.lake.ledger.validity import is_of_a_step
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.history import History, IncrementFacts, facts_of
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY
from spark_jobs.lake.session.shuffle_partitions import InputSize


class LeftOut(NamedTuple):
    """Documents left out of a read: those on a list for one table or for all.

    Attributes:
        listed: identifier of the list, with the columns `doc_id` and `table`.
        snapshot_id: of the list.
        table: identifier of the table that is computed.
    """

    listed: str
    snapshot_id: int
    table: str


@dataclass(frozen=True)
class Read:
    """The input part of one table.

    Attributes:
        table: identifier.
        snapshot_id: head of main when the step started.
        versions: data version read, by increment or partition.
        increments: for a table with increments, number of each increment read to the number that the reader gives it.
        predicate: SQL condition for a partition of the user's.
        labelled: whether the reader gets the columns `dataset` and `dataset_increment`.
        grown: whether the table got columns after that snapshot.
        facts: digest in place of many versions (`history`); a step of scope history has it in its step key too.
        left_out: documents that are not read.
    """

    table: str
    snapshot_id: int
    versions: Mapping[str, str]
    increments: Mapping[int, int] | None
    predicate: str | None
    labelled: bool
    grown: bool = False
    facts: IncrementFacts | None = None
    left_out: LeftOut | None = None


Reads = Mapping[str, tuple[Read, ...]]


def versions_of(reads: Reads) -> dict[str, dict[str, str]]:
    """Data versions by `parameter:table` and place, as they go into the step key.

    Increments up to one have one digest, as `..7` (`history`).
    """
    versions: dict[str, dict[str, str]] = {}
    for parameter, parts in reads.items():
        for read in (part for part in parts if part.versions):
            is_digest = read.facts is not None and read.increments is not None
            digest = {f"..{read.facts.last}": read.facts.digest} if is_digest and read.facts is not None else None
            versions[f"{parameter}:{read.table}"] = digest or dict(read.versions)
    return versions


def snapshots_of(reads: Reads) -> dict[str, dict[str, Any]]:
    """Snapshot and data versions by table, as the ledger records inputs; of many versions, their digest."""
    snapshots: dict[str, dict[str, Any]] = {}
    for read in (read for parts in reads.values() for read in parts):
        versions = {"versions": dict(read.versions)} if read.facts is None else asdict(read.facts)
        snapshots[read.table] = {"snapshot_id": str(read.snapshot_id), **versions}
    return snapshots


def covers(facts: Mapping[str, Any], place: str) -> bool:
    """Whether a place of a table was read, by the ledger; of a digest, whether it is up to the last one read."""
    if "versions" in facts:
        return place in facts["versions"]
    return not place.isdigit() or facts["last"] < 0 or int(place) <= facts["last"]


def changed_places(facts: Mapping[str, Any], read: Read) -> list[str]:
    """Places of a table with other data versions than the ledger says were read; `0..7` where it has one digest."""
    if "versions" not in facts:
        last = max(facts["last"], read.facts.last if read.facts is not None else -1)
        same = read.facts is not None and read.facts.digest == facts["digest"]
        return [] if same else [f"0..{last}" if last > 0 else "0" if last == 0 else ""]
    had, has = facts["versions"], read.versions
    return [place for place in sorted(had.keys() | has.keys(), key=str) if had.get(place) != has.get(place)]


def sizes_of(reads: Reads, ledger: Ledger) -> list[InputSize]:
    """How much is read, by table and place."""
    sizes: list[InputSize] = []
    for read in (read for parts in reads.values() for read in parts):
        if is_path(read.table):
            sizes.append(files_size(read.table))
            continue
        places = ledger.places(read.table)
        rows = [places[place] for place in read.versions if place in places]
        sizes += [InputSize(row.byte_count, row.row_count) for row in rows]
    return sizes


def taken_increments(ledger: Ledger, intake: str) -> Mapping[int, Mapping[str, tuple[int, ...]]]:
    """Which increments of which dataset each increment of a corpus took in: corpus increment to dataset to numbers."""

    def taken() -> dict[int, dict[str, tuple[int, ...]]]:
        return {
            number: {
                table.split(".")[0]: tuple(sorted(int(place) for place in facts["versions"]))
                for table, facts in row.inputs.items()
            }
            for number, row in ledger.increments(intake).items()
        }

    return ledger.derived(intake, "taken", taken)


def reads_of(binding: Binding, ledger: Ledger, increment: int | None) -> Reads:
    """Work out what a step reads for one increment, None for a table without increments.

    Raises:
        InputError: an input table, or an increment of it, has not been materialized.
    """
    reads: dict[str, tuple[Read, ...]] = {}
    for parameter, source in binding.inputs.items():
        labelled = not isinstance(source, str)
        parts = [_read(binding, ledger, table, increment, labelled) for table in tables_of(source)]
        reads[parameter] = tuple(part for part in parts if part is not None)
    if increment is not None:
        for history_table in binding.step.own_history:
            reads[history_table.name] = _own_history(f"{binding.namespace}.{history_table.name}", ledger, increment)
    return reads


def _own_history(table: str, ledger: Ledger, increment: int) -> tuple[Read, ...]:
    head = _head(ledger, table)
    if head is None:
        return ()
    rows = ledger.increments(table)
    history = ledger.derived(table, "own", lambda: History(((number, number) for number in rows), rows))
    return (_up_to(table, head, history, increment - 1, False, _grown(ledger, table)),)


def _up_to(table: str, head: int, history: History, increment: int, labelled: bool, grown: bool) -> Read:
    """What the reader's increment reads of a table: all up to it."""
    versions, numbers = history.versions(increment), history.numbers(increment)
    return Read(table, head, versions, numbers, None, labelled, grown, history.facts(increment))


def is_path(source: str) -> bool:
    """Whether an input or output is a path of Parquet files rather than `namespace.table`."""
    return "/" in source or source.endswith(".parquet")


def _files_version(path: str) -> str:
    """Version of Parquet files, from names, sizes and times of modification, so that no row is read."""
    root = Path(path)
    if not root.exists():
        raise InputError(f"{path}: no such file or folder; give --input NAME=TABLE_OR_PARQUET")
    facts = [
        (str(file.relative_to(root)), file.stat().st_size, file.stat().st_mtime_ns) for file in _parquet_files(root)
    ]
    return f"files:{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def files_size(path: str) -> InputSize:
    """Bytes of Parquet files on this machine; their rows are not counted."""
    return InputSize(sum(file.stat().st_size for file in _parquet_files(Path(path))), 0)


def _parquet_files(root: Path) -> list[Path]:
    return [root] if root.is_file() else sorted(root.rglob("*.parquet"))


def _read(binding: Binding, ledger: Ledger, table: str, increment: int | None, labelled: bool) -> Read | None:
    """Part of one input table; None where this increment of a corpus took nothing in from it."""
    if is_path(table):
        refuse_quarantined_path(ledger.warehouse, binding.tables[0], table)
        return Read(table, 0, {"": _files_version(table)}, None, None, labelled=False)
    iceberg = ledger.table(table)
    refuse_quarantined(binding, table, iceberg.properties if iceberg is not None else {})
    head = _head(ledger, table)
    if labelled and head is None and _is_waiting(binding, ledger, table, increment):
        return None
    if iceberg is None or head is None:
        raise InputError(
            f"{binding.tables[0]}: input {table} has not been materialized; "
            f"run `headrace run {table.replace('.', '/')}` first"
        )
    places = ledger.places(table)
    if increment is None or "increment" not in {field.name for field in iceberg.schema().fields}:
        chosen = binding.input_places.get(table)
        versions = {place: str(row.data_version) for place, row in places.items() if chosen is None or place in chosen}
        predicate = (
            None if chosen is None else " OR ".join(f"({condition})" for condition in chosen.values()) or "false"
        )
        if not is_of_a_step(iceberg):  # what commands append to it the ledger does not know
            versions = {"": f"snapshot:{head}"}
        whole = Read(table, head, versions, None, predicate, labelled, _grown(ledger, table))
        is_many = binding.step.scope is Scope.WHOLE and len(versions) > 1
        return replace(whole, facts=facts_of(versions)) if is_many else whole
    is_frozen = iceberg.properties.get(SCOPE_PROPERTY) == Scope.FROZEN.value
    history = _history(binding, ledger, table) if binding.step.scope is Scope.HISTORY and not is_frozen else None
    if history is not None:
        missing = [history.missing[1]] if history.missing is not None and history.missing[0] <= increment else []
        wanted: Mapping[int, int] = history.numbers(increment)
    else:
        wanted = {0: 0} if is_frozen else _wanted_increments(binding, ledger, table, increment)
        missing = [number for number in wanted if str(number) not in places]
    if not wanted and not missing:
        return None
    if missing:
        raise InputError(
            f"{binding.tables[0]}: input {table} has no increment {missing[0]} yet; run `headrace run "
            f"{table.replace('.', '/')}` first"
        )
    if history is not None:
        return _up_to(table, head, history, increment, labelled, _grown(ledger, table))
    versions = {str(number): str(places[str(number)].data_version) for number in wanted}
    return Read(table, head, versions, wanted, None, labelled, _grown(ledger, table))


def refuse_quarantined(binding: Binding, table: str, properties: Mapping[str, str]) -> None:
    """Refuse a read of a quarantined table by a step of another namespace, but for the one that carries increments out.

    Raises:
        InputError: the message says how its rows come out.
    """
    quarantine = quarantine_that_holds(table, properties)
    if (
        quarantine
        and quarantine != binding.namespace
        and not (binding.step.gate and quarantine == quarantine_of(binding.namespace))
    ):
        raise InputError(f"{binding.tables[0]}: {table} is quarantined; {_mend(quarantine)}")


def refuse_quarantined_path(warehouse: str, reader: str, path: str) -> None:
    """Refuse files in the folder of a quarantine.

    Raises:
        InputError: the message says how its rows come out.
    """
    if "://" in path and warehouse:  # Spark lists it, with globs, where the driver cannot look
        fixed, glob, _ = re.split(r"([*?\[{]|$)", path, maxsplit=1)
        above = real(fixed.rpartition("/")[0] if glob else fixed)
        if f"{real(warehouse)}/".startswith(f"{above}/"):
            raise InputError(f"{reader}: {path} holds quarantines, or may; name one table's folder")
    local = "://" not in path and Path(path).exists()
    if quarantined_file := quarantine_of_path(
        warehouse, [path, *(map(str, _parquet_files(Path(path))) if local else ())]
    ):
        raise InputError(f"{reader}: {quarantined_file} is a file of a quarantine; {_mend('DATASET')}")


def _mend(namespace: str) -> str:
    dataset = namespace.removesuffix(SUFFIX)
    return (
        f"read {dataset}, which has the increments that were released: headrace quarantine release {dataset} "
        "--increment N --reason WHY"
    )


def _is_waiting(binding: Binding, ledger: Ledger, table: str, increment: int | None) -> bool:
    """Whether a table of a dataset has no rows because all its increments are in quarantine, or none is asked for."""
    if ledger.table(f"{quarantine_of(table.partition('.')[0])}.arrivals") is None:
        return False
    return increment is None or not _wanted_increments(binding, ledger, table, increment)


def _wanted_increments(binding: Binding, ledger: Ledger, table: str, increment: int) -> dict[int, int]:
    """Number of each input increment, to the reader's number for it."""
    taken = taken_of(binding, ledger, table)
    return dict.fromkeys((increment,) if taken is None else taken.get(increment, ()), increment)


def taken_of(binding: Binding, ledger: Ledger, table: str) -> Mapping[int, Sequence[int]] | None:
    """Which increments of an input each increment of a corpus took in; None where both have the same ones.

    Raises:
        InputError: the driving table is no intake, so it does not say which increments it took in.
    """
    dataset, intake = binding.dataset_of(table), binding.driving_table or ""
    if dataset is None:
        return None
    driving = ledger.table(intake)
    if driving is not None and driving.properties.get(SCOPE_PROPERTY) != Scope.INTAKE.value:
        raise InputError(
            f"{binding.tables[0]}: follows {intake}, which does not say which increments of {table} belong to its own; "
            f"follow the corpus's table of increments"
        )
    taken = taken_increments(ledger, intake)

    def of_dataset() -> dict[int, Sequence[int]]:
        return {ours: parts.get(dataset, ()) for ours, parts in taken.items()}

    return ledger.derived(intake, ("taken", dataset), of_dataset)


def _history(binding: Binding, ledger: Ledger, table: str) -> History:
    """What every increment of a step of scope history reads of a table."""
    taken, rows = taken_of(binding, ledger, table), ledger.increments(table)

    def found() -> tuple[History, object]:
        if taken is None:
            return History(((number, number) for number in range(max(rows, default=-1) + 2)), rows), taken
        return History(((ours, theirs) for ours in sorted(taken) for theirs in taken[ours]), rows), taken

    history, _ = ledger.derived(table, ("read by", id(taken)), found)  # which keeps `taken`, so its id is no other's
    return history


def _head(ledger: Ledger, table: str) -> int | None:
    iceberg = ledger.table(table)
    return iceberg.metadata.current_snapshot_id if iceberg is not None else None


def _grown(ledger: Ledger, table: str) -> bool:
    """Whether a table got columns after its head was written, so that Iceberg reads the head without them."""
    iceberg = ledger.table(table)
    if iceberg is None or len(iceberg.metadata.schemas) == 1:
        return False
    snapshot = iceberg.current_snapshot()
    return snapshot is not None and snapshot.schema_id != iceberg.schema().schema_id


def slice_key(
    binding: Binding,
    reads: Reads,
    place: str,
    chained: str = "",
    excised: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str:
    """The step key of one slice, computed without the excised documents; see `versions_of`."""
    return step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=binding.config_json,
        inputs={**versions_of(reads), **{name: facts["versions"] for name, facts in excised.items()}},
        place=place,
        chained=chained,
    )
