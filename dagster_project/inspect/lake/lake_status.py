"""The state of a lake as its operators want it: freshness, backlog, shares of what is refused, and what has moved.

All of it comes from the ledger, and from narrow columns of three tables of a dataset: `arrivals.status` of the newest
increment, and `verdicts.failed` and the numbers of `signals`, read in batches and summed by increment. Shares of the
newest increment are compared with those of all earlier ones together.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.deletion.retention import Retention, overdue
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.removed_documents import (
    MOST_DOUBTED,
    MOST_REMOVED,
    RemovedDocuments,
    look_at_removed,
)
from dagster_project.inspect.lake.run_notices import LEAST_KEPT
from spark_jobs.exceptions import nearest
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.files.lookups import read_batches, read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.run.decisions import REFUSE, increments_of
from spark_jobs.lake.run.reads import taken_increments
from spark_jobs.lake.session.catalogue import load_table, tables_in
from spark_jobs.sources.generated.progress import Progress, progress
from spark_jobs.sources.refusals import LEFT_OUT


class Thresholds(BaseModel):
    """From which value on something is an alert; `[tool.headrace.monitoring]` in a project's pyproject.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_share: float = Field(
        0.01, ge=0, description="files and records of the newest increment refused for a fault, share"
    )
    moved: float = Field(
        0.05,
        ge=0,
        description="change of a share (duplicates, a rule's rejections), or relative change of a signal's mean, in "
        "the newest increment against all earlier ones",
    )
    backlog_hours: float = Field(
        48, ge=0, description="age of the oldest increment that a corpus has not packed, hours"
    )
    step_seconds: float = Field(3600, ge=0, description="99th percentile of the seconds of a step over its history")
    waiting_hours: float = Field(
        168, ge=0, description="age of the oldest increment in quarantine that nobody has decided about, hours"
    )
    least_kept: float = Field(
        LEAST_KEPT, ge=0, le=1, description="share of the newest increment's documents that the verdicts keep, at least"
    )
    most_removed: float = Field(
        MOST_REMOVED, ge=0, le=1, description="share of a dataset's new documents that go for similar ones, at most"
    )
    most_doubted: float = Field(
        MOST_DOUBTED,
        ge=0,
        le=1,
        description="of a sample of what goes, share that is unlike in the order of words, at most",
    )
    least_rows: int = Field(100, ge=1, description="increments with fewer documents are not compared")


def read_thresholds(package: Path) -> Thresholds:
    """The thresholds of a project, from the pyproject.toml above its package.

    Raises:
        DefinitionError: a field does not exist, or has a value that cannot be used.
    """
    file = next((file for folder in package.parents if (file := folder / "pyproject.toml").is_file()), None)
    tool = tomllib.loads(file.read_text()).get("tool", {}) if file is not None else {}
    try:
        return Thresholds(**tool.get("headrace", {}).get("monitoring", {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        near = "" if name in Thresholds.model_fields else nearest(name, Thresholds.model_fields)
        raise DefinitionError(f"{file}: tool.headrace.monitoring.{name}: {first['msg']}{near}; correct it") from error


@dataclass(frozen=True)
class Alert:
    """A value beyond its threshold.

    Attributes:
        namespace: dataset or corpus.
        name: which check: error_share, rejections, few_kept, signals, duplicates, removed, backlog, waiting, retention
            or step_seconds.
        text: what was found, in one line.
        value: the value found.
        limit: its threshold.
    """

    namespace: str
    name: str
    text: str
    value: float
    limit: float


@dataclass(frozen=True)
class NamespaceStatus:
    """One dataset or corpus.

    Attributes:
        name: its namespace.
        kind: dataset or corpus.
        documents: rows of `documents`; of a corpus members.
        increments: of its driving table.
        last_run: when it last computed something.
        newest: when its newest increment arrived.
        rate: documents per second of step time, in the newest increment.
        unchanged_steps: tables that the last run did not compute, of all.
        tables: how many it has.
        error_share: files and records of the newest increment that were refused for a fault, of all that it read; None
            for a corpus.
        left_out: files of the newest increment that the source does not take: other kinds, other formats.
        rejected: share of the newest increment's documents that each rule rejects.
        rejected_before: the same of all earlier increments.
        kept: share of the newest increment's documents that no rule rejects; None for a corpus.
        duplicates: share of the newest increment's members that are removed; None for a dataset.
        duplicates_before: the same of all earlier increments; None where there is none.
        removed: what of the newest increment went for similar documents; None for a dataset.
        signals: mean of each signal in the newest increment, and in all earlier ones.
        backlog: documents that arrived and are not packed, by corpus.
        backlog_since: when the oldest of them arrived; None without any.
        waiting: documents in quarantine, without a decision and refused ones; None where the dataset has none.
        waiting_bytes: size of the data files of those without a decision.
        waiting_since: when the oldest increment without a decision landed.
        slow_steps: 99th percentile of seconds, by step.
        overdue: increments that the dataset declares to keep no longer.
        overdue_since: when the oldest of them landed.
        retention_days: how long it keeps them; None where it does not say.
        asked: answers of a model that a generated dataset is made of; None for others.
        alerts: what is beyond its threshold.
    """

    name: str
    kind: str
    documents: int
    increments: int
    last_run: datetime | None
    newest: datetime | None
    rate: float | None
    unchanged_steps: int
    tables: int
    error_share: float | None = None
    left_out: int = 0
    rejected: Mapping[str, float] = field(default_factory=dict)
    rejected_before: Mapping[str, float] = field(default_factory=dict)
    kept: float | None = None
    duplicates: float | None = None
    duplicates_before: float | None = None
    removed: RemovedDocuments | None = None
    signals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    backlog: Mapping[str, int] = field(default_factory=dict)
    backlog_since: datetime | None = None
    waiting: tuple[int, int] | None = None
    waiting_bytes: int = 0
    waiting_since: datetime | None = None
    slow_steps: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[int, ...] = ()
    overdue_since: datetime | None = None
    retention_days: float | None = None
    asked: Progress | None = None
    alerts: tuple[Alert, ...] = ()


def lake_status(
    catalogue: Catalog,
    thresholds: Thresholds,
    wanted: Collection[str] = (),
    now: datetime | None = None,
    retention: Mapping[str, Retention] = MappingProxyType({}),
) -> list[NamespaceStatus]:
    """The status of each dataset, then of each corpus.

    Args:
        catalogue: the lake's.
        thresholds: for alerts.
        wanted: namespaces; none for all.
        now: the clock's time by default.
        retention: how long datasets keep their increments, by name.
    """
    ledger, now = Ledger.fresh(catalogue), now or datetime.now(UTC)
    history = _rows_by_namespace(catalogue)
    corpora = namespaces_with(catalogue, "members")
    backlogs, asked = _backlogs(ledger, history, corpora), progress(catalogue)
    datasets = dict.fromkeys([*namespaces_with(catalogue, "documents"), *asked])  # the first answers have not landed
    found = []
    for kind, names in (("dataset", datasets), ("corpus", corpora)):
        for name in names:
            if wanted and name not in wanted:
                continue
            one = _namespace(catalogue, ledger, history, name, kind, backlogs, thresholds)
            if kind == "dataset" and name in retention:
                late, days = overdue(ledger, name, retention[name].days, now), retention[name].days
                since = min(late.values(), default=None)
                one = replace(one, overdue=tuple(late), overdue_since=since, retention_days=days)
            one = replace(one, asked=asked.get(name))
            found.append(replace(one, alerts=tuple(_alerts(one, thresholds, now))))
    return found


_History = defaultdict[str, list[dict[str, Any]]]  # rows of the ledger by namespace, as recorded


def _rows_by_namespace(catalogue: Catalog) -> _History:
    """All rows of the ledger, old ones too: which table and place was computed when, by which run, how long."""
    columns = ("table", "place", "step", "seconds", "run_id", "recorded_at", "snapshot_id")
    rows = read_columns(catalogue, LEDGER, columns)
    found: _History = defaultdict(list)
    for row in rows.sort_by("recorded_at").to_pylist() if rows is not None else []:
        found[row["table"].partition(".")[0]].append(row)
    return found


def _namespace(
    catalogue: Catalog,
    ledger: Ledger,
    history: _History,
    name: str,
    kind: str,
    backlogs: Mapping[str, _Backlog],
    thresholds: Thresholds,
) -> NamespaceStatus:
    """The facts of one dataset or corpus, without alerts."""
    rows = history[name]
    driving_table = f"{name}.{'arrivals' if kind == 'dataset' else 'increments'}"
    main = f"{name}.{'documents' if kind == 'dataset' else 'members'}"
    numbers = list(ledger.increments(driving_table))
    places = ledger.increments(main)
    last_id = rows[-1]["run_id"] if rows else None
    computed = {row["table"] for row in rows if row["run_id"] == last_id}
    tables = {row["table"] for row in rows} & set(tables_in(catalogue, name))
    newest = str(numbers[-1]) if numbers else ""
    steps = {row["step"]: row["seconds"] for row in rows if row["place"] == newest}
    seconds, count = sum(steps.values()), places[numbers[-1]].row_count if numbers and numbers[-1] in places else 0
    backlog = backlogs.get(name, _Backlog())
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "documents": sum(row.row_count for row in places.values()),
        "increments": len(numbers),
        "last_run": rows[-1]["recorded_at"] if rows else None,
        "newest": ledger.first_recorded(driving_table).get(newest),
        "rate": count / seconds if seconds else None,
        "unchanged_steps": len(tables - computed),
        "tables": len(tables),
        "backlog": backlog.documents,
        "backlog_since": backlog.since,
        "slow_steps": _slow_steps(rows),
    }
    if kind == "corpus":
        shares = _removed_shares(places, ledger.increments(f"{name}.survivors"), thresholds.least_rows)
        removed = look_at_removed(ledger, name)
        return NamespaceStatus(**common, duplicates=shares[0], duplicates_before=shares[1], removed=removed)
    rejected, before, kept = _rejections(catalogue, name, thresholds.least_rows)
    return NamespaceStatus(
        **common,
        **_refused(catalogue, name, numbers),
        **_waiting(ledger, name),
        rejected=rejected,
        rejected_before=before,
        kept=kept,
        signals=_signal_means(catalogue, name, thresholds.least_rows),
    )


@dataclass
class _Backlog:
    """Documents of a dataset that a corpus has not packed, by corpus, and since when the oldest wait."""

    documents: dict[str, int] = field(default_factory=dict)
    since: datetime | None = None


def _backlogs(ledger: Ledger, history: _History, corpora: Collection[str]) -> dict[str, _Backlog]:
    """By dataset; datasets that no corpus has ever taken in have none."""
    found: dict[str, _Backlog] = defaultdict(_Backlog)
    for corpus in corpora:
        taken = taken_increments(ledger, f"{corpus}.increments")
        packed = {row["table"] for row in history[corpus] if row["table"].startswith(f"{corpus}.packed_")}
        datasets = {dataset for part in taken.values() for dataset in part}
        done = [set(ledger.increments(table)) for table in sorted(packed)] or [set()]
        whole = set.intersection(*done)
        for dataset in sorted(datasets):
            there = {number for ours in whole for number in taken.get(ours, {}).get(dataset, ())}
            waiting = {n: row for n, row in ledger.increments(f"{dataset}.documents").items() if n not in there}
            one = found[dataset]
            one.documents[corpus] = sum(row.row_count for row in waiting.values())
            if one.documents[corpus]:
                first = ledger.first_recorded(f"{dataset}.documents")
                known = [time for time in [one.since, *map(first.get, map(str, waiting))] if time is not None]
                one.since = min(known, default=None)
    return dict(found)


def _waiting(ledger: Ledger, name: str) -> dict[str, Any]:
    """What of a dataset is in quarantine, and since when; nothing where it has no quarantine."""
    landed = increments_of(ledger, name)
    undecided = [one for one in landed if one.state == "waits"]
    refused = sum(one.documents for one in landed if one.state == REFUSE)
    landed_at = ledger.first_recorded(f"{quarantine_of(name)}.arrivals")
    times = [landed_at.get(str(one.increment)) for one in undecided]
    return {
        "waiting": (sum(one.documents for one in undecided), refused) if landed else None,
        "waiting_bytes": sum(one.byte_count for one in undecided),
        "waiting_since": min((time for time in times if time is not None), default=None),
    }


def _removed_shares(
    members: Mapping[int, Materialization], survivors: Mapping[int, Materialization], least: int
) -> tuple[float | None, float | None]:
    """Share of members that do not survive, of the newest increment and of all earlier ones, by the ledger's counts."""
    counted = [(row.row_count, survivors[n].row_count) for n, row in members.items() if n in survivors]
    if not counted:
        return None, None
    *earlier, last = counted

    def share(pairs: list[tuple[int, int]]) -> float | None:
        total = sum(all_ for all_, _ in pairs)
        return 1 - sum(kept for _, kept in pairs) / total if total >= least else None

    return share([last]), share(earlier)


def _refused(catalogue: Catalog, name: str, numbers: list[int]) -> dict[str, Any]:
    """Share of the newest increment's arrivals that were refused for a fault, and how many files are not taken.

    Files that did not change are not counted. Where records were refused, all documents of the dataset count too: a
    file of 400 records of which one is refused each time it is read is not half refused.
    """
    table = load_table(catalogue, f"{name}.arrivals")
    if not numbers or table is None or table.current_snapshot() is None:
        return {}
    counts: Counter[tuple[str, str | None]] = Counter()
    newest = EqualTo("increment", numbers[-1])
    for batch in table.scan(newest, selected_fields=("status", "reason")).to_arrow_batch_reader():
        groups = pa.Table.from_batches([batch]).group_by(["status", "reason"]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counts[row["status"], row["reason"]] += row["count_all"]
    landed = sum(count for (status, _), count in counts.items() if status == "landed")
    refused = {reason: count for (status, reason), count in counts.items() if status == "rejected"}
    left_out = sum(count for reason, count in refused.items() if reason in LEFT_OUT)
    faults = sum(refused.values()) - left_out
    rejected = And(newest, EqualTo("status", "rejected"))
    places = table.scan(rejected, selected_fields=("location",)).to_arrow()["location"].to_pylist() if faults else []
    documents = load_table(catalogue, f"{name}.documents") if any("#" in place for place in places) else None
    snapshot = documents.current_snapshot() if documents is not None else None
    if snapshot is not None and snapshot.summary is not None:
        landed += int(snapshot.summary.additional_properties.get("total-records", 0))
    return {"error_share": faults / (landed + faults) if faults else 0.0, "left_out": left_out}


def _rejections(catalogue: Catalog, name: str, least: int) -> tuple[dict[str, float], dict[str, float], float | None]:
    """Share of documents that each rule rejects, newest increment and all earlier ones, and that are kept, newest."""
    documents, kept = Counter[int](), Counter[int]()
    failed: dict[int, Counter[str]] = defaultdict(Counter)
    for batch in read_batches(catalogue, f"{name}.verdicts", ("increment", "kept", "failed.element.rule")):
        increments = batch.column("increment").to_numpy()
        documents.update(dict(zip(*map(np.ndarray.tolist, np.unique(increments, return_counts=True)), strict=True)))
        kept.update(increments[batch.column("kept").to_numpy(zero_copy_only=False)].tolist())
        lists = batch.column("failed")
        parents = pc.list_parent_indices(lists).to_numpy()
        rules = pc.struct_field(pc.list_flatten(lists), "rule")
        pairs = pa.table({"increment": increments[parents], "rule": rules})
        for row in pairs.group_by(["increment", "rule"]).aggregate([([], "count_all")]).to_pylist():
            failed[row["increment"]][row["rule"]] += row["count_all"]
    if not documents:
        return {}, {}, None
    last = max(documents)

    def shares(numbers: list[int]) -> dict[str, float]:
        total = sum(documents[number] for number in numbers)
        if total < least:
            return {}
        counts: Counter[str] = sum((failed[number] for number in numbers), Counter())
        return {rule: count / total for rule, count in sorted(counts.items())}

    share = kept[last] / documents[last] if documents[last] >= least else None
    return shares([last]), shares([number for number in documents if number != last]), share


def _signal_means(catalogue: Catalog, name: str, least: int) -> dict[str, tuple[float, float]]:
    """Mean of each numeric signal in the newest increment, and in all earlier ones; empty without earlier ones."""
    table = load_table(catalogue, f"{name}.signals")
    if table is None:
        return {}
    kinds = ("double", "float", "long", "int")
    fields = {field.name: str(field.field_type) for field in table.schema().fields}
    columns = [column for column, kind in fields.items() if kind in kinds and column not in ("increment", "shard")]
    sums: dict[int, np.ndarray[Any, np.dtype[np.float64]]] = {}
    for batch in read_batches(catalogue, f"{name}.signals", ("increment", *columns)):
        rows = pa.Table.from_batches([batch])
        asked = [(column, what) for column in columns for what in ("sum", "count")]
        for row in rows.group_by("increment").aggregate(asked).to_pylist():
            part = [[row[f"{column}_sum"] or 0.0, row[f"{column}_count"]] for column in columns]
            sums[row["increment"]] = sums.get(row["increment"], np.zeros((len(columns), 2))) + np.array(part)
    if len(sums) < 2:
        return {}
    last = max(sums)
    new, old = sums[last], np.sum([part for number, part in sums.items() if number != last], axis=0)
    enough = (new[:, 1] >= least) & (old[:, 1] >= least)
    return {
        column: (float(new[at, 0] / new[at, 1]), float(old[at, 0] / old[at, 1]))
        for at, column in enumerate(columns)
        if enough[at]
    }


def _slow_steps(rows: list[dict[str, Any]]) -> dict[str, float]:
    """99th percentile of the seconds of each step, over all places that it ever computed."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        seconds[row["step"]].append(row["seconds"])
    return {step: float(np.percentile(values, 99)) for step, values in sorted(seconds.items())}


def _alerts(one: NamespaceStatus, thresholds: Thresholds, now: datetime) -> Iterator[Alert]:
    """What of a namespace is beyond its threshold."""
    limit = thresholds.error_share
    if one.error_share is not None and one.error_share > limit:
        yield Alert(
            one.name,
            "error_share",
            f"{one.error_share:.1%} of the arrivals refused for a fault",
            one.error_share,
            limit,
        )
    limit = thresholds.moved
    for rule in sorted(one.rejected.keys() | one.rejected_before.keys()) if one.rejected_before else ():
        new, old = one.rejected.get(rule, 0.0), one.rejected_before.get(rule, 0.0)
        if abs(new - old) > limit:
            yield Alert(one.name, "rejections", f"{rule} rejects {new:.1%}, before {old:.1%}", new - old, limit)
    if one.kept is not None and one.kept < thresholds.least_kept:
        rules = ", ".join(f"{rule} rejects {share:.1%}" for rule, share in sorted(one.rejected.items()))
        yield Alert(one.name, "few_kept", f"{one.kept:.1%} is kept: {rules}", one.kept, thresholds.least_kept)
    for signal, (new, old) in one.signals.items():
        moved = abs(new - old) / abs(old) if old else math.inf if new else 0.0
        if moved > limit:
            yield Alert(one.name, "signals", f"mean of {signal} is {new:.4g}, before {old:.4g}", moved, limit)
    if one.duplicates is not None and one.duplicates_before is not None:
        moved = one.duplicates - one.duplicates_before
        if abs(moved) > limit:
            text = f"{one.duplicates:.1%} duplicates, before {one.duplicates_before:.1%}"
            yield Alert(one.name, "duplicates", text, moved, limit)
    yield from _removed_alerts(one, thresholds)
    if one.backlog_since is not None:
        hours = (now - one.backlog_since).total_seconds() / 3600
        if hours > thresholds.backlog_hours:
            waiting = ", ".join(f"{count:,} by {corpus}" for corpus, count in one.backlog.items() if count)
            text = f"documents wait for {hours:,.0f} h to be packed: {waiting}"
            yield Alert(one.name, "backlog", text, hours, thresholds.backlog_hours)
    if one.waiting_since is not None:
        hours = (now - one.waiting_since).total_seconds() / 3600
        if hours > thresholds.waiting_hours:
            text = f"documents wait for {hours:,.0f} h in quarantine: headrace quarantine list {one.name}"
            yield Alert(one.name, "waiting", text, hours, thresholds.waiting_hours)
    if one.overdue_since is not None and one.retention_days is not None:
        days, first = (now - one.overdue_since).total_seconds() / 86_400, one.overdue[0]
        told = f"{len(one.overdue)} increments are older than their retention, the oldest {days:,.0f} days"
        mend = f"headrace dataset delete {one.name} --increment {first} --plan, or headrace maintain (then: delete)"
        yield Alert(one.name, "retention", f"{told}: {mend}", days, one.retention_days)
    for step, seconds in one.slow_steps.items():
        if seconds > thresholds.step_seconds:
            text = f"{step} takes {seconds:,.0f} s at its 99th percentile"
            yield Alert(one.name, "step_seconds", text, seconds, thresholds.step_seconds)


def _removed_alerts(one: NamespaceStatus, thresholds: Thresholds) -> Iterator[Alert]:
    limits = (thresholds.most_removed, thresholds.most_doubted, thresholds.least_rows)
    for text, share, limit in one.removed.findings(*limits) if one.removed is not None else ():
        yield Alert(one.name, "removed", text, share, limit)


def as_json(one: NamespaceStatus) -> dict[str, Any]:
    """A status as plain values."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(one).items()}
