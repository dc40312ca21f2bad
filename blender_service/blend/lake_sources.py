"""The sources of a request, with the parent's values filled in: found in the lake, and pinned."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, OnExhausted, SourceChange
from blender_service.blend.validation import Findings, name_of
from blender_service.catalogue import lake_errors
from blender_service.exceptions import PackedTableError, SourceChangedError
from blender_service.order.segments import Pin, SourceProgress
from blender_service.tables.cell_runs import CellRun, RowRuns, cell_runs, runs_of
from blender_service.tables.packed_table import load_table
from blender_service.tables.text_table import TextRows
from headrace.tables.catalogue import commit, tag_named
from headrace.tables.cells import parse_choice, split_table
from headrace.tables.exceptions import CellsError, LakeError
from headrace.tables.generations import rows_noted, successor_of
from headrace.tables.identity import require_own
from headrace.tables.ordinals import index_snapshot
from headrace.tables.window_facts import GENERATION_PROPERTY, WindowFacts, properties_at, read_window_facts

MAX_ID_DIGITS: Final = 20  # of 2**64; more digits are a tag or a branch


class LakeSource(NamedTuple):
    """A packed table, looked up.

    Attributes:
        table: as PyIceberg knows it.
        window: facts of its rows.
        pin: the table and snapshot of a blend's source.
        rows: of a source of cells, along the runs of its pin or, of a live one, as they are now; None for all rows.
        cells: those cells; empty for all rows.
        chosen: (D,) which documents of a table of text are of its choice; None for all.
        dropped: documents of a table of text outside of all rows, by the reason; None where all are held.
        template: hash of the chat template of all its documents; None where it is no table of chats.
        text_rows: of a table of text.
    """

    table: Table
    window: WindowFacts
    pin: Pin
    rows: RowRuns | None = None
    cells: frozenset[str] = frozenset()
    chosen: NDArray[np.bool_] | None = None
    dropped: dict[str, int] | None = None
    template: str | None = None
    text_rows: TextRows | None = None

    def shares_rows(self, other: LakeSource) -> bool:
        """Whether a row of the table is in both, or of two live sources could come to both."""
        if self.pin.table_uuid != other.pin.table_uuid:
            return False
        if self.chosen is not None and other.chosen is not None and len(self.chosen) == len(other.chosen):
            return bool((self.chosen & other.chosen).any())
        choices = self.pin.cells, other.pin.cells
        if self.pin.rows is None and other.pin.rows is None and choices[0] is not None and choices[1] is not None:
            return parse_choice(choices[0]).meets(parse_choice(choices[1]))
        return not self.cells or not other.cells or not self.cells.isdisjoint(other.cells)


class LakeSources:
    """Looks up packed tables; each is loaded and indexed once."""

    def __init__(self, catalogue: Catalog) -> None:
        """Look in `catalogue`."""
        self._catalogue = catalogue
        self._tables: dict[str, Table | None] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._cells: dict[tuple[str, int], tuple[CellRun, ...]] = {}

    def find(self, wanted: WantedSource, findings: Findings) -> LakeSource | None:
        """Find the table and the snapshot of a source, and check that it is packed; mistakes go to `findings`."""
        identifier, snapshot, live, where = wanted.table, wanted.snapshot, wanted.live, wanted.field
        table = self._load(identifier, where, findings)
        if table is None:
            return None
        try:
            snapshot_there = table.current_snapshot() if live else snapshot_of(table, snapshot)
            window = read_window_facts(table, identifier, snapshot_there)
            uuid, generation = str(table.metadata.table_uuid), properties_at(table, snapshot_there)[GENERATION_PROPERTY]
            if live:
                pin = Pin(identifier, uuid, None, None, generation, wanted.cells)
                return LakeSource(table, window, pin, *self._of_cells(table, wanted, snapshot_there, None))
            if snapshot_there is None:
                lacking = f"snapshot, tag or branch {snapshot!r}" if snapshot else "snapshot yet: materialize it first"
                findings.mistake(f"{where}.snapshot", f"{identifier} has no {lacking}")
                return None
            rows = self._named_rows(table, wanted, snapshot_there)
            if rows is None:
                findings.mistake(
                    f"{where}.snapshot",
                    f"snapshot {snapshot} of {identifier} expired after documents were excised, and how many rows it "
                    f"had is not noted; name its successor {snapshot_there.snapshot_id}, of "
                    f"{self._rows_of(table, identifier, snapshot_there)} rows",
                )
                return None
            runs, cells = self._of_cells(table, wanted, snapshot_there, rows)
            rows = rows if runs is None else runs.rows
        except (LakeError, PackedTableError) as error:
            findings.mistake(f"{where}.table", str(error))
            return None
        if not rows:
            findings.mistake(
                f"{where}.table", f"{wanted.written} has no rows; leave it out of the blend, or follow it live"
            )
            return None
        pinned, digest = str(snapshot_there.snapshot_id), None if runs is None else runs.digest
        pin = Pin(identifier, uuid, pinned, rows, generation, wanted.cells, digest)
        return LakeSource(table, window, pin, runs, cells)

    def _of_cells(
        self, table: Table, wanted: WantedSource, snapshot: Snapshot | None, rows: int | None
    ) -> tuple[RowRuns | None, frozenset[str]]:
        """The rows of a source of cells, and the cells; None of one without.

        `rows` counts those of the table at the snapshot that was named, or of these cells where a parent pinned them;
        later ones stand behind them. None: all there are.

        Raises:
            CellsError: no cell is chosen.
        """
        if wanted.cells is None or snapshot is None:
            return None if wanted.cells is None else RowRuns(()), frozenset()
        key = (wanted.table, snapshot.snapshot_id)
        if key not in self._cells:
            self._cells[key] = cell_runs(table, wanted.table, snapshot)
        there = self._cells[key]
        chosen = frozenset(parse_choice(wanted.cells).select(dict.fromkeys(run.cell for run in there), wanted.table))
        runs = runs_of(there, chosen)
        if rows is not None:
            runs = runs.first(rows) if wanted.kept_rows is not None else runs.below(rows)
        return runs, chosen

    def _load(self, identifier: str, where: str, findings: Findings) -> Table | None:
        if not re.fullmatch(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+", identifier):
            findings.mistake(f"{where}.table", f"{identifier!r} is not namespace.table")
            return None
        if identifier not in self._tables:
            self._tables[identifier] = load_table(self._catalogue, identifier)
        if self._tables[identifier] is None:
            findings.mistake(f"{where}.table", f"{identifier} does not exist; see `headrace table show`")
        return self._tables[identifier]

    def _named_rows(self, table: Table, wanted: WantedSource, snapshot: Snapshot) -> int | None:
        """Count the rows of the snapshot named by a source; None where that snapshot expired.

        After an excision `snapshot` is a successor of that snapshot, perhaps with rows appended since.
        """
        exact = table.snapshot_by_id(int(wanted.snapshot)) if _is_id(wanted.snapshot) else None
        if wanted.kept_rows is not None:
            return wanted.kept_rows
        noted = rows_noted(table, wanted.snapshot, snapshot.snapshot_id)
        if noted is not None:
            return noted
        if exact is None and _is_id(wanted.snapshot) and int(wanted.snapshot) != snapshot.snapshot_id:
            return None
        return self._rows_of(table, wanted.table, exact or snapshot)

    def _rows_of(self, table: Table, identifier: str, snapshot: Snapshot) -> int:
        key = (identifier, snapshot.snapshot_id)
        if key not in self._rows:
            runs = index_snapshot(table, identifier, snapshot)
            self._rows[key] = runs[-1].end if runs else 0
        return self._rows[key]


@lake_errors()
def snapshot_of(table: Table, reference: str) -> Snapshot | None:
    """Find a snapshot by id, tag or branch; the current one for an empty reference.

    For a snapshot id that documents were excised from, its successor is given, even after the snapshot expired.
    """
    if not reference:
        return table.current_snapshot()
    if _is_id(reference) and (by_id := table.snapshot_by_id(successor_of(table, int(reference)))) is not None:
        return by_id
    return table.snapshot_by_name(reference)


def _is_id(reference: str) -> bool:
    return reference.isdecimal() and len(reference) <= MAX_ID_DIGITS


def pin_snapshot(table: Table, snapshot_id: int) -> str:
    """Tag a snapshot so that maintenance keeps it; a snapshot has one such tag however many blends pin it.

    Raises:
        SourceChangedError: the snapshot expired in the meantime, or other writers never let this one through.
        CatalogueError: the table is not one of the lake whose files are open.
    """
    tag = f"blend_{snapshot_id}"

    def updates(now: Table) -> tuple[SetSnapshotRefUpdate, ...]:
        there = now.refs().get(tag)
        if there is not None and there.snapshot_id == snapshot_id:
            return ()
        if now.snapshot_by_id(snapshot_id) is None:
            raise SourceChangedError(f"table {now.name()}: snapshot {snapshot_id} expired just now; create again")
        return (tag_named(tag, snapshot_id),)

    with lake_errors():
        require_own(table.catalog, [table])
        _commit(table, updates)
    return tag


def _commit(table: Table, updates: Callable[[Table], tuple[TableUpdate, ...]]) -> None:
    """Change a table's tags.

    Raises:
        SourceChangedError: it was made again, or other writers never let this one through.
    """
    is_same = AssertTableUUID(uuid=table.metadata.table_uuid)
    try:
        commit(table.catalog, ".".join(table.name()), lambda _: (is_same,), updates)
    except CommitFailedException as error:
        raise SourceChangedError(f"table {'.'.join(table.name())}: {error}; do it again") from error


def free_snapshot(catalogue: Catalog, pin: Pin) -> list[str]:
    """Remove the tag of a snapshot no longer pinned by a blend, also where an excision moved the tag to a successor.

    Returns:
        The tag with its table; empty where the table or the tag does not exist.
    """
    table = load_table(catalogue, pin.table)
    tag = f"blend_{pin.snapshot_id}"
    if table is None or str(table.metadata.table_uuid) != pin.table_uuid or tag not in table.refs():
        return []
    with lake_errors():
        require_own(table.catalog, [table])
        _commit(table, lambda now: (RemoveSnapshotRefUpdate(ref_name=tag),) if tag in now.refs() else ())
    return [f"{pin.table} {tag}"]


@dataclass(frozen=True)
class WantedSource:
    """A source of the requested blend, with its changes applied.

    Attributes:
        name: its identity.
        table: identifier.
        cells: choice of its cells in canonical form, None for all rows.
        kept_unread: hash of which documents of a table of text were unread when rows became longer.
        snapshot: reference, empty for the current one.
        live: whether the table is followed as it grows.
        max_epochs: passes over it.
        on_exhausted: END or CONTINUE.
        weight: text, empty to keep `kept_weight`.
        kept_weight: whole weight of the parent, None for a source absent from the parent now.
        kept_rows: rows of the snapshot, where the parent pinned it; else None.
        kept_generation: of the same; else empty.
        field: prefix of the names of its fields, for messages.
    """

    name: str
    table: str
    snapshot: str
    live: bool
    max_epochs: int
    on_exhausted: OnExhausted
    weight: str
    kept_weight: int | None
    field: str
    kept_rows: int | None = None
    kept_generation: str = ""
    cells: str | None = None
    kept_unread: str | None = None

    @property
    def written(self) -> str:
        """The table and its cells."""
        return self.table if self.cells is None else f"{self.table}[{self.cells}]"


def _table_and_cells(text: str, field: str, findings: Findings) -> tuple[str, str | None]:
    """The table and the cells of `table[choice]`; a mistake goes to `findings`."""
    try:
        table, choice = split_table(text)
    except CellsError as error:
        findings.mistake(f"{field}.table", str(error))
        return text.partition("[")[0], None
    return table, None if choice is None else str(choice)


def wanted_of(spec: BlendSpec, findings: Findings) -> list[WantedSource]:
    """Give the sources of a new blend, in the order of the request; unreadable cells go to `findings`."""
    places = [_table_and_cells(source.table, f"sources[{n}]", findings) for n, source in enumerate(spec.sources)]
    return [
        WantedSource(
            name=name_of(source),
            table=places[index][0],
            cells=places[index][1],
            snapshot=source.snapshot,
            live=source.live,
            max_epochs=1 if source.max_epochs is None else source.max_epochs,
            on_exhausted=source.on_exhausted or "END",
            weight=source.weight or "1",
            kept_weight=None,
            field=f"sources[{index}]",
        )
        for index, source in enumerate(spec.sources)
    ]


def apply_changes(
    parent: BlendConfig,
    before: dict[str, SourceProgress],
    changes: Sequence[SourceChange],
    where: str,
    findings: Findings,
) -> list[WantedSource]:
    """Apply changes to the sources of the parent.

    Args:
        parent: its config.
        before: how far each source taking part before the update was read.
        changes: at most one a source.
        where: prefix of the names of the fields, for messages.
        findings: where mistakes go.
    """
    wanted: dict[str, WantedSource] = {}
    for source in parent.sources:
        wanted[source.name] = WantedSource(
            name=source.name,
            table=source.table,
            cells=source.cells,
            snapshot=source.snapshot_id or "",
            live=bool(source.live),
            max_epochs=source.max_epochs or 0,
            on_exhausted=source.on_exhausted or "END",
            weight="",
            kept_weight=source.weight,
            field=f"{where}sources.{source.name}",
            kept_rows=source.rows,
            kept_generation=source.generation,
        )
    for index, change in enumerate(changes):
        field = f"{where}changes[{index}]"
        former = wanted.pop(change.name, None)
        if change.remove:
            if former is None:
                have = ", ".join(source.name for source in parent.sources)
                findings.mistake(f"{field}.name", f"the blend has no source {change.name}; it has {have}")
            continue
        if former is None and not change.table and change.name not in before:
            findings.mistake(f"{field}.table", f"{change.name} is new; name its table")
            continue
        wanted[change.name] = _changed(former, change, before.get(change.name), field, findings)
    if not wanted:
        findings.mistake(f"{where}changes", "no source is left; keep or add one")
    return [wanted[name] for name in sorted(wanted)]


def _changed(
    former: WantedSource | None, change: SourceChange, before: SourceProgress | None, field: str, findings: Findings
) -> WantedSource:
    """Give a source with its changes; a new or returning one starts from the defaults."""
    pin = before.pin if before is not None else None
    pinned = {pin.snapshot_id: (pin.rows, pin.generation)} if pin is not None else {}
    if former is not None:
        pinned[former.snapshot or None] = (former.kept_rows, former.kept_generation)
    was_live = former.live if former is not None else False
    live = was_live if change.live is None else change.live
    snapshot = former.snapshot if former is not None else ((pin.snapshot_id or "") if pin is not None else "")
    max_epochs = former.max_epochs if former is not None and not was_live else 1
    wanted = "" if live else change.snapshot or snapshot
    read = former or pin
    table, cells = (read.table, read.cells) if read is not None else ("", None)
    if change.table:
        table, cells = _table_and_cells(change.table, field, findings)
    rows, generation = (pinned.get(wanted) if wanted and not change.table else None) or (None, "")
    return WantedSource(
        name=change.name,
        table=table,
        cells=cells,
        snapshot=wanted,
        live=live,
        max_epochs=max_epochs if change.max_epochs is None else change.max_epochs,
        on_exhausted=change.on_exhausted or (former.on_exhausted if former is not None else "END"),
        weight=change.weight,
        kept_weight=former.kept_weight if former is not None else None,
        field=field,
        kept_rows=rows,
        kept_generation=generation,
    )
