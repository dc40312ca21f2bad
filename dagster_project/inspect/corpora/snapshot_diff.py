"""Compare two states of a dataset or corpus: documents added and removed, changed verdicts and removals.

A state is written NAME (now), NAME@SNAPSHOT (any snapshot of one of its tables; the others as of that moment),
NAME@2026-11-20T12:00 (a time, UTC unless it says otherwise) or NAME@RELEASE. Documents are those that count then
(`inspect.documents.counted`), so one that was edited or deleted at its source went. Verdicts with the same snapshot in
both are not read. Of other tables the column `doc_id` and a few narrow ones are; the memory they take grows with the
documents, 40 to 100 bytes each, never with their texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import DataScan
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.counted import At, documents_that_count, members_that_count, without
from headrace.tables.catalogue import load_table
from spark_jobs.corpus_stages import stages_of
from spark_jobs.exceptions import InputError, nearest
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.releases import find_release

_EXAMPLES = 5


@dataclass(frozen=True)
class LakeState:
    """The tables of a namespace at one moment.

    Attributes:
        name: dataset or corpus.
        text: as it was written.
        snapshots: snapshot by name of the table; tables without one yet are left out.
        moment: when that was; None for now.
    """

    name: str
    text: str
    snapshots: Mapping[str, int]
    moment: datetime | None = None

    @property
    def at(self) -> At:
        """The same for `counted`."""
        return At(self.snapshots, moment=self.moment)


@dataclass(frozen=True)
class Diff:
    """Two states compared; numbers are of counted documents, and `examples` has some ids of each kind.

    Attributes:
        before: documents of the first state.
        after: documents of the second.
        added: in the second alone.
        removed: in the first alone: edited, or deleted at the source.
        changed: of the added, those with a former document at their path; of a dataset.
        newly_failed: by rule, documents of both that fail it in the second alone.
        newly_passed: by rule, documents of both that failed it in the first alone.
        newly_removed: members of both that survive in the first alone: duplicates since.
        newly_kept: members of both that survive in the second alone.
        stages: documents kept after each selection of the corpus in both states, by its table.
        totals: rows of other tables in both states, by table: tokens, windows.
        examples: up to five ids, by the name of a count.
    """

    before: int
    after: int
    added: int
    removed: int
    changed: int = 0
    newly_failed: Mapping[str, int] = field(default_factory=dict)
    newly_passed: Mapping[str, int] = field(default_factory=dict)
    newly_removed: int = 0
    newly_kept: int = 0
    stages: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    totals: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    examples: Mapping[str, list[str]] = field(default_factory=dict)


def find_state(catalogue: Catalog, text: str) -> LakeState:
    """The state that NAME or NAME@STATE means.

    Raises:
        CommandError: there is no such namespace, snapshot, release or time.
    """
    name, _, state = text.partition("@")
    spaces = {space[0] for space in catalogue.list_namespaces()}
    if name not in spaces:
        raise CommandError(f"{text}: namespace {name} is not in the lake{nearest(name, spaces)}")
    tables = {one[1]: catalogue.load_table(one) for one in catalogue.list_tables(name)}
    if not state:
        heads = {table: head.snapshot_id for table, one in tables.items() if (head := one.current_snapshot())}
        return LakeState(name, text, heads)
    meant, moment = _moment(tables, state)
    if moment is None:
        try:
            release = find_release(catalogue, state)
        except InputError as error:
            raise CommandError(
                f"{text}: {state} is no snapshot of {name} (expired ones are gone), no time such as 2026-11-20T12:00, "
                f"and {error}"
            ) from error
        found = {
            table.partition(".")[2]: one for table, one in release.snapshots.items() if table.startswith(f"{name}.")
        }
        return LakeState(name, text, found, release.made_at)
    found, ledger = dict(meant), Ledger.fresh(catalogue)
    for table, one in tables.items():
        if table in meant:
            continue
        snapshot_id, known = _as_of(one, moment)
        if not known and _is_compared(table) and not _came_later(ledger, f"{name}.{table}", moment):
            raise CommandError(
                f"{text}: {name}.{table} has no snapshot of that time any more; name a later one, or a release"
            )
        if snapshot_id is not None:
            found[table] = snapshot_id
    if not found:
        raise CommandError(f"{text}: {name} had no table yet, or its snapshots of that time have expired")
    return LakeState(name, text, found, datetime.fromtimestamp(moment / 1000, UTC))


def _moment(tables: Mapping[str, IcebergTable], state: str) -> tuple[dict[str, int], int | None]:
    """The tables and snapshots of an id, and the time in milliseconds; no time for what is no id and no date.

    Steps write to a branch first, so a snapshot is the table's state from a later time on than it was written. Tables
    that one step wrote together are published one after the other, and go together here.
    """
    if state.isdecimal():
        for table, one in tables.items():
            snapshot = one.snapshot_by_id(int(state))
            if snapshot is not None:
                published = [entry.timestamp_ms for entry in one.history() if entry.snapshot_id == int(state)]
                when = min(published, default=snapshot.timestamp_ms)
                return {**_written_with(tables, snapshot), table: int(state)}, when
    try:
        moment = datetime.fromisoformat(state)
    except ValueError:
        return {}, None
    return {}, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _written_with(tables: Mapping[str, IcebergTable], snapshot: Snapshot) -> dict[str, int]:
    """The snapshots of other tables by the same step and increment."""
    key = _step_key(snapshot)
    if not key:
        return {}
    return {
        name: one.snapshot_id for name, table in tables.items() for one in table.snapshots() if _step_key(one) == key
    }


def _step_key(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get("headrace.step-key") if snapshot.summary is not None else None


_COMPARED = ("documents", "arrivals", "verdicts", "members", "revisions", "survivors", "tokens")


def _is_compared(table: str) -> bool:
    """Whether a comparison reads a table; what others were at a time need not be known."""
    return table in _COMPARED or table.startswith("packed_")


def _came_later(ledger: Ledger, identifier: str, moment: int) -> bool:
    """Whether a table was computed first after a time, in milliseconds, so that it had no row then."""
    first = ledger.first_recorded(identifier).values()
    return bool(first) and min(first).timestamp() * 1000 > moment


def _as_of(table: IcebergTable, moment: int) -> tuple[int | None, bool]:
    """A table's snapshot at a time, None where it had none yet; and whether its history still proves that.

    Expiry takes snapshots out of the history too, so what the history says is true only where the next snapshot in it
    descends from that one, or from the table's first.
    """
    history = sorted(table.history(), key=lambda entry: entry.timestamp_ms)
    before = [entry.snapshot_id for entry in history if entry.timestamp_ms <= moment]
    after = [entry.snapshot_id for entry in history if entry.timestamp_ms > moment]
    found = before[-1] if before else None
    if not after:
        return found, True
    snapshot = table.snapshot_by_id(after[0])
    while snapshot is not None and snapshot.snapshot_id != found:
        if snapshot.parent_snapshot_id is None:
            return found, found is None and snapshot.sequence_number == 1
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
    return found, snapshot is not None


def state_diff(catalogue: Catalog, first: LakeState, second: LakeState) -> tuple[str, Diff]:
    """Compare two states; gives whether they are of a `corpus` or a `dataset`, and what differs.

    Raises:
        CommandError: one is neither, or they are not both the same.
    """
    kind = "corpus" if any("members" in state.snapshots for state in (first, second)) else "dataset"
    main = "documents" if kind == "dataset" else "members"
    for state in (first, second):
        if main not in state.snapshots:
            raise CommandError(f"{state.text}: has no table {main}, so it is no {kind} (at that time)")
    return kind, (corpus_diff if kind == "corpus" else dataset_diff)(catalogue, first, second)


def dataset_diff(catalogue: Catalog, first: LakeState, second: LakeState) -> Diff:
    """Compare the documents and verdicts of two states of a dataset, or of two datasets."""
    documents = [documents_that_count(catalogue, state.name, at=state.at) for state in (first, second)]
    added, removed = _only_in(documents[1], documents[0]), _only_in(documents[0], documents[1])
    # Two nulls are equal here, as they are not in a join: files of no repository have paths too.
    separator = pa.scalar("\0", documents[0]["path"].type)
    had, has = (
        pc.binary_join_element_wise(pc.fill_null(rows["repository"], ""), rows["path"], separator)
        for rows in (documents[0], added)
    )
    changed = added.filter(pc.is_in(has, value_set=had.combine_chunks()))["doc_id"]
    failed, passed = _moved_verdicts(catalogue, first, second, _both(*documents)["doc_id"])
    return Diff(
        before=documents[0].num_rows,
        after=documents[1].num_rows,
        added=added.num_rows,
        removed=removed.num_rows,
        changed=len(changed),
        newly_failed=failed,
        newly_passed=passed,
        examples={"added": _some(added), "removed": _some(removed), "changed": changed[:_EXAMPLES].to_pylist()},
    )


def corpus_diff(catalogue: Catalog, first: LakeState, second: LakeState) -> Diff:
    """Compare the members, survivors, tokens and windows of two states of a corpus, or of two corpora."""
    members, survivors = (
        [members_that_count(catalogue, state.name, table, state.at) for state in (first, second)]
        for table in ("members", "survivors")
    )
    added, removed = _only_in(members[1], members[0]), _only_in(members[0], members[1])
    lost = _only_in(_both(survivors[0], members[1]), survivors[1])
    won = _only_in(_both(survivors[1], members[0]), survivors[0])
    return Diff(
        before=members[0].num_rows,
        after=members[1].num_rows,
        added=added.num_rows,
        removed=removed.num_rows,
        newly_removed=lost.num_rows,
        newly_kept=won.num_rows,
        stages=_after_stages(catalogue, first, second),
        totals=_totals(catalogue, (first, second), [rows["doc_id"].combine_chunks() for rows in members]),
        examples={
            "added": _some(added),
            "removed": _some(removed),
            "newly_removed": _some(lost),
            "newly_kept": _some(won),
        },
    )


def _scan(catalogue: Catalog, state: LakeState, table: str, columns: tuple[str, ...] = ("*",)) -> DataScan | None:
    """A scan of a table at its snapshot; None where the state has none of it."""
    iceberg, snapshot_id = load_table(catalogue, f"{state.name}.{table}"), state.snapshots.get(table)
    if iceberg is None or snapshot_id is None:
        return None
    return scan_of(iceberg, columns=columns, snapshot_id=snapshot_id)


def _only_in(these: pa.Table, those: pa.Table) -> pa.Table:
    """Rows of one table without their document in another."""
    return without(these, those["doc_id"])


def _both(these: pa.Table, those: pa.Table) -> pa.Table:
    return these.filter(pc.is_in(these["doc_id"], value_set=those["doc_id"].combine_chunks()))


def _some(rows: pa.Table) -> list[str]:
    return sorted(rows["doc_id"].slice(0, _EXAMPLES).to_pylist())


def moved_documents(
    catalogue: Catalog, first: LakeState, second: LakeState, rule: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The ids of documents of both states of a dataset that fail a rule in the second alone, and in the first alone."""
    documents = [documents_that_count(catalogue, state.name, at=state.at) for state in (first, second)]
    moved = _moved(catalogue, first, second, _both(*documents)["doc_id"])
    none, comma = pa.scalar("", pa.large_string()), pa.scalar(",", pa.large_string())
    had, has = (
        pc.match_substring(pc.binary_join_element_wise(none, moved[name], none, comma), f",{rule},")
        for name in ("rules", "rules_after")
    )
    return tuple(moved.filter(pc.and_not(one, other))["doc_id"] for one, other in ((has, had), (had, has)))


def _moved_verdicts(
    catalogue: Catalog, first: LakeState, second: LakeState, doc_ids: pa.ChunkedArray
) -> tuple[dict[str, int], dict[str, int]]:
    """By rule, how many of some documents fail it in the second state alone, and in the first alone."""
    if first.name == second.name and first.snapshots.get("verdicts") == second.snapshots.get("verdicts"):
        return {}, {}
    moved = _moved(catalogue, first, second, doc_ids)
    groups = moved.group_by(["rules", "rules_after"]).aggregate([([], "count_all")])
    failed: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for row in groups.to_pylist():  # a row for each pair of sets of rules
        had, has = (set(filter(None, row[name].split(","))) for name in ("rules", "rules_after"))
        for counter, rules in ((failed, has - had), (passed, had - has)):
            counter.update(dict.fromkeys(rules, row["count_all"]))
    return dict(sorted(failed.items())), dict(sorted(passed.items()))


def _moved(catalogue: Catalog, first: LakeState, second: LakeState, doc_ids: pa.ChunkedArray) -> pa.Table:
    """Some documents with different failed rules, with these in both states: doc_id, rules, rules_after."""
    judged = [_failed_rules(catalogue, state) for state in (first, second)]
    joined = judged[0].join(judged[1], "doc_id", join_type="inner", right_suffix="_after")
    moved = joined.filter(pc.not_equal(joined["rules"], joined["rules_after"]))
    return moved.filter(pc.is_in(moved["doc_id"], value_set=doc_ids.combine_chunks()))


def _failed_rules(catalogue: Catalog, state: LakeState) -> pa.Table:
    """Each document with the names of its failed rules, joined by commas."""
    scan = _scan(catalogue, state, "verdicts", ("doc_id", "failed.element.rule"))
    text = pa.large_string()
    parts = []
    for batch in scan.to_arrow_batch_reader() if scan is not None else ():
        lists = batch.column("failed")
        names = pc.struct_field(pc.list_flatten(lists), "rule").cast(pa.string())
        ends = np.concatenate(([0], np.cumsum(pc.list_value_length(lists).to_numpy())))
        rules = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names), ",")
        parts.append(pa.table({"doc_id": batch.column("doc_id").cast(text), "rules": rules.cast(text)}))
    return pa.concat_tables(parts) if parts else pa.table({"doc_id": pa.array([], text), "rules": pa.array([], text)})


def _after_stages(catalogue: Catalog, first: LakeState, second: LakeState) -> dict[str, tuple[int, int]]:
    """Counted documents after each stage of the corpora in both states; 0 where a state has no such table."""
    ledger = Ledger.fresh(catalogue)
    tables = dict.fromkeys(stage.table for state in (second, first) for stage in stages_of(ledger, state.name))

    def count(state: LakeState, table: str) -> int:
        return int(members_that_count(catalogue, state.name, table, state.at).num_rows)

    return {table: (count(first, table), count(second, table)) for table in tables}


def _totals(
    catalogue: Catalog, states: tuple[LakeState, LakeState], members: list[pa.Array]
) -> dict[str, tuple[int, int]]:
    """Tokens of the members, and windows of each packed table, in both states."""
    first, second = states
    found = {"tokens": (_tokens_of(catalogue, first, members[0]), _tokens_of(catalogue, second, members[1]))}
    for table in sorted({*first.snapshots, *second.snapshots}):
        if table.startswith("packed_"):
            found[table] = (_row_count(catalogue, first, table), _row_count(catalogue, second, table))
    return found


def count_tokens(catalogue: Catalog, state: LakeState) -> int:
    """Tokens of the counted members of a corpus."""
    members = members_that_count(catalogue, state.name, at=state.at)
    return _tokens_of(catalogue, state, members["doc_id"].combine_chunks())


def _tokens_of(catalogue: Catalog, state: LakeState, members: pa.Array) -> int:
    scan = _scan(catalogue, state, "tokens", ("doc_id", "token_count"))
    count = 0
    for batch in scan.to_arrow_batch_reader() if scan is not None else ():
        own = pc.is_in(batch.column("doc_id").cast(members.type), value_set=members)
        count += pc.sum(batch.column("token_count").filter(own)).as_py() or 0
    return count


def _row_count(catalogue: Catalog, state: LakeState, table: str) -> int:
    scan = _scan(catalogue, state, table)
    return scan.count() if scan is not None else 0
