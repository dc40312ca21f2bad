"""Releases: named sets of snapshots of the tables of a lake, which maintenance keeps.

Every table gets an Iceberg tag `release_NAME` at its snapshot. Then one commit to `system.releases` makes the release:
what a kill left before it is tags without a release, which the next one of that name replaces.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from headrace.tables.catalogue import load_table, tables_in
from headrace.tables.quarantine import is_quarantine
from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.process import user_name
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table

RELEASES = "system.releases"
TAG_PREFIX = "release_"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,60}")

_DECLARED = Table(
    name="releases",
    comment="One row per table of a release: the snapshot that is kept under the release's name.",
    columns=(
        Column("release!", "string", "name of the release"),
        Column("table!", "string", "identifier of the table"),
        Column("snapshot_id!", "long", "snapshot that the release names"),
        Column("data_version!", "string", "data version of all its rows"),
        Column("digest!", "string", "SHA-256 over the release's tables and their data versions"),
        Column("note!", "string", "what its maker said of it"),
        Column("made_by!", "string", "user that made it"),
        Column("made_at!", "timestamptz", "when it was made"),
    ),
    key=("release", "table"),
)


@dataclass(frozen=True)
class Release:
    """A named set of snapshots, with the data version of every table.

    The digest is over tables and data versions: equal releases of two lakes have equal digests.
    """

    name: str
    snapshots: dict[str, int]
    versions: dict[str, str]
    digest: str
    note: str
    made_by: str
    made_at: datetime


def releases(catalogue: Catalog) -> list[Release]:
    """All releases, the oldest first."""
    rows = read_columns(catalogue, RELEASES, tuple(column.name for column in _DECLARED.columns))
    by_name: dict[str, Release] = {}
    for row in rows.sort_by([("made_at", "ascending"), ("table", "ascending")]).to_pylist() if rows is not None else []:
        facts = row["digest"], row["note"], row["made_by"], row["made_at"]
        release = by_name.setdefault(row["release"], Release(row["release"], {}, {}, *facts))
        release.snapshots[row["table"]] = row["snapshot_id"]
        release.versions[row["table"]] = row["data_version"]
    return list(by_name.values())


def find_release(catalogue: Catalog, name: str) -> Release:
    """One release.

    Raises:
        InputError: there is none of this name; the message suggests the nearest.
    """
    there = {release.name: release for release in releases(catalogue)}
    if name not in there:
        raise InputError(f"release {name}: there is none{did_you_mean(name, sorted(there))}")
    return there[name]


def create_release(
    catalogue: Catalog, name: str, namespaces: Sequence[str], note: str = "", now: datetime | None = None
) -> Release:
    """Name the present snapshots of all tables of some namespaces.

    Raises:
        InputError: the name is taken or has another form, or a namespace holds no table.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"release {name}: a name is of small letters, digits, `_`, `.` and `-`; choose another")
    with contextlib.suppress(ValueError):
        datetime.fromisoformat(name)
        raise InputError(f"release {name}: NAME@{name} would mean that time, not the release; choose another name")
    if any(release.name == name for release in releases(catalogue)):
        raise InputError(f"release {name}: is there already; choose another name, or delete it first")
    ledger = Ledger.fresh(catalogue)
    snapshots: dict[str, int] = {}
    versions: dict[str, str] = {}
    for namespace in namespaces:
        if is_quarantine(namespace):
            raise InputError(
                f"release {name}: {namespace} is quarantined; name the dataset, which has what was released"
            )
        for table in tables_in(catalogue, namespace):
            iceberg = catalogue.load_table(table)
            head = iceberg.current_snapshot()
            if head is None:
                continue
            snapshots[table] = head.snapshot_id
            versions[table] = str(sum((row.data_version for row in ledger.places(table).values()), DataVersion()))
        if not any(table.startswith(f"{namespace}.") for table in snapshots):
            raise InputError(f"release {name}: {namespace} holds no table; run `headrace run {namespace}` first")
    for table, snapshot_id in snapshots.items():
        _tag(catalogue, table, name, snapshot_id)
    digest = hashlib.sha256("\n".join(f"{table} {versions[table]}" for table in sorted(versions)).encode()).hexdigest()
    release = Release(name, snapshots, versions, digest, note, user_name(), now or datetime.now(UTC))
    listed = ensure_table(catalogue, RELEASES, _DECLARED, {SCOPE_PROPERTY: "releases"})
    common = {"release": name, "digest": digest, "note": note, "made_by": release.made_by, "made_at": release.made_at}
    rows = [
        {**common, "table": table, "snapshot_id": snapshot_id, "data_version": versions[table]}
        for table, snapshot_id in snapshots.items()
    ]
    listed.append(pa.Table.from_pylist(rows, schema=listed.schema().as_arrow()))
    return release


def delete_release(catalogue: Catalog, name: str) -> Release:
    """Forget a release and its tags, so that maintenance may remove the snapshots.

    Raises:
        InputError: there is none of this name.
    """
    gone = find_release(catalogue, name)
    catalogue.load_table(RELEASES).delete(EqualTo("release", name))
    for table in gone.snapshots:
        _tag(catalogue, table, name, None)
    return gone


def _tag(catalogue: Catalog, table: str, name: str, snapshot_id: int | None) -> None:
    """Move the tag of a release on one table to a snapshot, or remove it."""
    iceberg = load_table(catalogue, table)
    tag = f"{TAG_PREFIX}{name}"
    had = iceberg.refs().get(tag) if iceberg is not None else None
    if iceberg is None or (had is not None and had.snapshot_id == snapshot_id):
        return
    if had is not None:
        iceberg.manage_snapshots().remove_tag(tag).commit()
    if snapshot_id is not None:
        iceberg.manage_snapshots().create_tag(snapshot_id, tag).commit()
