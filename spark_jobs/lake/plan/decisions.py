"""Released increments of a quarantined dataset: the newest decision about each, in `system.audit`.

A decision holds for the rows that it was made about, by their data version. So a namespace that is dropped and filled
anew begins without decisions, unless the rows come out the same. Who decided, when and why decides no row: a step key
holds the increment and its version, and a lake that is computed anew with the same decisions equals the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In

from headrace.tables.locations import real
from headrace.tables.quarantine import SUFFIX, is_quarantine, quarantine_of, quarantine_of_path
from spark_jobs.exceptions import InputError, nearest
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, note_act
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.ledger.step_key import config_json, step_key
from spark_jobs.lake.plan.binding import Binding

RELEASE, REFUSE, DELETE = "release", "refuse", "delete"
_RELEASING_STEP = "released"
_PLACES = ("path", "directories", "repositories", "url", "urls")  # fields of sources that say where they are


@dataclass(frozen=True)
class Waiting:
    """An increment of a quarantined dataset: version, number and bytes of its documents, and what was decided about it.

    The state is `waits`, `release` or `refuse`; while it waits, who and why are empty and `at` is None. `carried` says
    whether the dataset's own tables hold any of it.
    """

    increment: int
    version: str
    documents: int
    byte_count: int
    state: str = "waits"
    who: str = ""
    why: str = ""
    at: datetime | None = None
    carried: bool = False


def increments_of(ledger: Ledger, dataset: str) -> list[Waiting]:
    """Every landed increment of a quarantined dataset, in order, with its newest decision."""
    quarantine = quarantine_of(dataset)
    complete = ledger.increments(f"{quarantine}.arrivals")
    landed = ledger.increments(f"{quarantine}.documents")
    # A run that was killed may have published the documents, and the arrivals, which come last, not yet.
    carried = {*ledger.increments(f"{dataset}.documents"), *ledger.increments(f"{dataset}.arrivals")}
    decided = _decisions(ledger, dataset)
    held_increments = []
    for number in (
        landed_number
        for landed_number in complete
        if landed_number in landed and not is_deleted(complete[landed_number])
    ):
        row = landed[number]
        version = str(row.data_version)
        facts: Mapping[str, Any] = decided.get((number, version), {})
        held_increments.append(
            Waiting(
                number,
                version,
                row.row_count,
                row.byte_count,
                facts.get("act", "waits"),
                facts.get("who", ""),
                facts.get("why") or "",
                facts.get("at"),
                number in carried,
            )
        )
    return held_increments


def _decisions(ledger: Ledger, dataset: str) -> dict[tuple[int, str], dict[str, Any]]:
    """The newest decision by increment and data version, since the dataset was last deleted."""
    table = ledger.table(AUDIT_TABLE)
    if table is None or table.current_snapshot() is None:
        return {}
    condition = And(EqualTo("subject", dataset), In("act", {RELEASE, REFUSE, DELETE}))
    latest: dict[tuple[int, str], dict[str, Any]] = {}
    for row in table.scan(condition).to_arrow().sort_by("at").to_pylist():
        if row["act"] == DELETE and row["increment"] is None:
            latest.clear()
        elif row["act"] != DELETE:
            latest[row["increment"], row["version"]] = row
    return latest


def deletion_of(row: Materialization) -> dict[str, Any]:
    """What the ledger says of an increment that is deleted for good: its only input, and its key, are the decision."""
    decided = {row.place: DELETE}
    versions = {AUDIT_TABLE: decided}
    key = step_key(step=row.step, version=row.code_version, config=row.config, inputs=versions, place=row.place)
    return {"inputs": {AUDIT_TABLE: {"snapshot_id": "0", "versions": decided}}, "step_key": key}


def is_deleted(row: Materialization | None) -> bool:
    """Whether a row of the ledger is that of an increment deleted for good."""
    return row is not None and bool(row.inputs.get(AUDIT_TABLE, {}).get("versions", {}).get(row.place) == DELETE)


def decide(catalogue: Catalog, dataset: str, increments: Collection[int], act: str, why: str) -> list[Waiting]:
    """Release or refuse increments of a quarantined dataset, each with a row of `system.audit`.

    Holds the lease of `documents`, so that no run carries one over meanwhile. An equal decision is not written again.

    Returns:
        The increments as they were before.

    Raises:
        InputError: nothing of the dataset is in quarantine, there is no such increment or it is not scanned yet, no
            reason is given, or a refused increment has left quarantine already.
    """
    if not why.strip():
        raise InputError(f"quarantine {act} {dataset}: the reason is empty; say why, somebody will ask")
    with table_leases(catalogue, [f"{dataset}.documents"]):
        ledger = Ledger.fresh(catalogue)
        there = {held_increment.increment: held_increment for held_increment in increments_of(ledger, dataset)}
        if not there:
            datasets = quarantined_datasets(ledger)
            raise InputError(
                f"quarantine {act}: {dataset} has landed nothing in quarantine{nearest(dataset, datasets)}"
            )
        scanned = ledger.increments(f"{quarantine_of(dataset)}.scans")
        for number in increments:
            if number not in there:
                listed = ", ".join(map(str, there))
                raise InputError(f"quarantine {act} {dataset}: there is no increment {number}; there are {listed}")
            if act == RELEASE and number not in scanned:
                raise InputError(f"{dataset}: increment {number} is not scanned yet; first: headrace run {dataset}")
            if act == REFUSE and there[number].carried:
                raise InputError(
                    f"{dataset}: increment {number} has left quarantine, which nothing undoes silently; to take its "
                    f"documents out of all packed tables: headrace doc excise --increment {dataset}:{number}"
                )
        for number in increments:
            if there[number].state != act:
                note_act(catalogue, act, dataset, increment=number, version=there[number].version, why=why)
    return [there[number] for number in increments]


def released(ledger: Ledger, binding: Binding) -> dict[int, dict[str, Any]] | None:
    """By released increment, the decision as an input of the step that carries it over; None for other steps."""
    if not binding.step.gate:
        return None
    held_increments = increments_of(ledger, binding.namespace)
    table = ledger.table(AUDIT_TABLE)
    snapshot = table.current_snapshot() if table is not None else None
    head = str(snapshot.snapshot_id) if snapshot is not None else "0"
    return {
        held_increment.increment: {
            AUDIT_TABLE: {"snapshot_id": head, "versions": {str(held_increment.increment): held_increment.version}}
        }
        for held_increment in held_increments
        if held_increment.state == RELEASE
    }


def decisions_in(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The decision among the inputs of a ledger row."""
    return {name: facts for name, facts in inputs.items() if name == AUDIT_TABLE}


def quarantined_datasets(ledger: Ledger) -> list[str]:
    """Datasets with something landed in quarantine."""
    names = {table.partition(".")[0] for table in ledger.recorded_tables()}
    return sorted(
        name.removesuffix(SUFFIX) for name in names if is_quarantine(name) and ledger.increments(f"{name}.arrivals")
    )


def refuse_around_quarantine(ledger: Ledger, binding: Binding) -> None:
    """Refuse to land quarantined data around its quarantine; called before a source is listed.

    Raises:
        InputError: the dataset's declaration changed between trusted and quarantine, or its source is one that another
            dataset keeps in quarantine, or lies in the folders of a quarantine.
    """
    space = binding.namespace
    if is_quarantine(space):
        dataset = space.removesuffix(SUFFIX)
        trusted = [row for row in ledger.increments(f"{dataset}.arrivals").values() if row.step != _RELEASING_STEP]
        if trusted:
            raise InputError(
                f"{dataset}: {len(trusted)} increments landed as trusted, so it cannot be quarantined under this name; "
                f"declare the quarantined one under another, or delete what there is: headrace dataset delete {dataset}"
            )
        return
    if ledger.increments(f"{quarantine_of(space)}.arrivals"):
        raise InputError(
            f"{space}: declared `trust: trusted`, and {quarantine_of(space)} holds what landed in quarantine; write "
            "`trust: quarantine` again, with `release: {policy: {}}` to release whatever comes, each with a row of "
            "system.audit"
        )
    own_paths = _places(json.loads(config_json(binding.config)))
    for dataset in quarantined_datasets(ledger):
        out = [
            held_increment.increment
            for held_increment in increments_of(ledger, dataset)
            if not held_increment.carried and held_increment.state != RELEASE
        ]
        arrivals = ledger.increments(f"{quarantine_of(dataset)}.arrivals")
        theirs = _places(json.loads(arrivals[max(arrivals)].config))
        shared = next((path for path in own_paths for other in theirs if _overlap(path, other)), None)
        if out and shared:
            raise InputError(
                f"{space}: its source {shared} is that of {dataset}, of which increment {out[0]} is in quarantine; "
                f"release it, or read other files: headrace quarantine show {dataset}"
            )


def refuse_files_of_quarantine(ledger: Ledger, binding: Binding, listing: pa.Table) -> None:
    """Refuse a source that lists files in the folder of a quarantine, but for what was fetched for the dataset itself.

    Raises:
        InputError: names the first.
    """
    locations = listing["location"].to_pylist() if "location" in listing.column_names else []
    # Links may lead there from anywhere, so folders are followed and so are files that are links.
    places = {os.path.dirname(location) for location in locations} | {
        location for location in locations if os.path.islink(location)
    }
    own_folder = f"{real(ledger.warehouse)}/{binding.namespace}/"
    if quarantined := quarantine_of_path(
        ledger.warehouse, sorted(folder for folder in places if not real(folder).startswith(own_folder))
    ):
        raise InputError(f"{binding.namespace}: {quarantined} is in a quarantine; read another place")


def _places(config: Mapping[str, Any]) -> list[str]:
    """Where the source of a config is, as absolute paths and URIs."""
    source = config.get("source") or {}
    path_settings = [source.get(name) or () for name in _PLACES]
    return [real(str(path)) for many in path_settings for path in ([many] if isinstance(many, str) else many)]


def _overlap(path: str, other: str) -> bool:
    """Whether two places are the same, or one lies in the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
