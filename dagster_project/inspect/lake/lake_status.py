"""The state of each dataset and corpus, and alerts: freshness, backlog, refused shares, and shares that have changed.

All comes from the ledger and from a few columns of three tables of a dataset (`increment_shares`): `arrivals.status` of
the newest increment, and `verdicts.failed` and the numbers of `signals`, read in batches and summed by increment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.counted import count_documents, members_that_count
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.increment_shares import refused, rejections, removed_shares, signal_means
from dagster_project.inspect.lake.removed_documents import (
    RemovedDocuments,
    look_at_removed,
)
from dagster_project.inspect.measured import share_of
from dagster_project.keeping import Retention, overdue
from headrace.tables.catalogue import tables_in
from headrace.tables.quarantine import quarantine_of
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.plan.decisions import REFUSE, increments_of
from spark_jobs.lake.plan.reads import taken_increments
from spark_jobs.sources.landing.derivations import derivations


@dataclass(frozen=True)
class Alert:
    """A value beyond its threshold.

    Attributes:
        namespace: dataset or corpus.
        name: which check: error_share, rejections, few_kept, signals, duplicates, removed, backlog, waiting, retention
            or step_seconds.
        text: the alert in one line.
        value: the value.
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
        documents: those that count; of a corpus members (`inspect.documents.counted`).
        increments: of its driving table.
        last_run: when it last computed something.
        newest: when its newest increment arrived.
        rate: documents per second of step time, in the newest increment; None where it has none.
        unchanged_steps: tables that the last run did not compute, of all.
        tables: how many it has.
        error_share: files and records of the newest increment that were refused for a fault, of all that it read; None
            for a corpus, and where nothing was read.
        left_out: files of the newest increment that the source does not take: other kinds, other formats.
        rejected: share of the newest increment's documents rejected by each rule; this and the shares below are None
            where they were not measured: of fewer than `least_rows` documents, or of the other kind of namespace.
        rejected_before: the same of all earlier increments.
        kept: share of the newest increment's documents without a failed rule.
        duplicates: removed share of the newest increment's members.
        duplicates_before: the same of all earlier increments.
        removed: the newest increment's documents that were removed for similar ones; None for a dataset.
        signals: mean of each signal in the newest increment, and in all earlier ones.
        backlog: arrived documents still to be packed, by corpus.
        backlog_since: when the oldest of them arrived; None without any.
        waiting: documents in quarantine, without a decision and refused ones; None where the dataset has none.
        waiting_bytes: size of the data files of those without a decision.
        waiting_since: when the oldest increment without a decision landed.
        slow_steps: 99th percentile of seconds, by step.
        overdue: increments past the dataset's declared retention.
        overdue_since: when the oldest of them landed.
        retention_days: how long it keeps them; None where it does not say.
        asked: how far a feature is that makes the dataset from others (`Derivation.progress`); None for others.
        alerts: values beyond their thresholds.
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
    rejected: Mapping[str, float] | None = None
    rejected_before: Mapping[str, float] | None = None
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
    asked: Any = None
    alerts: tuple[Alert, ...] = ()


def _progress(catalogue: Catalog) -> dict[str, Any]:
    """How far datasets are that a feature makes from others, by name."""
    return {name: asked for each in derivations() for name, asked in each.progress(catalogue).items()}


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
    backlogs, requests = _backlogs(ledger, history, corpora), _progress(catalogue)
    datasets = dict.fromkeys([*namespaces_with(catalogue, "documents"), *requests])  # the first answers have not landed
    statuses = []
    for kind, names in (("dataset", datasets), ("corpus", corpora)):
        for name in names:
            if wanted and name not in wanted:
                continue
            space = _namespace(catalogue, ledger, history, name, kind, backlogs, thresholds)
            if kind == "dataset":
                space = replace(space, **_overdue(ledger, name, retention, now))
            space = replace(space, asked=requests.get(name))
            statuses.append(replace(space, alerts=tuple(_alerts(space, thresholds, now))))
    return statuses


def namespace_alerts(
    catalogue: Catalog,
    thresholds: Thresholds,
    name: str,
    now: datetime | None = None,
    retention: Mapping[str, Retention] = MappingProxyType({}),
) -> list[Alert]:
    """The alerts of one dataset or corpus but for those about seconds; arguments as of `lake_status`.

    A check of a run asks for them, so no document is counted unless it waits for too long: counts grow with the lake.
    """
    ledger, now = Ledger.fresh(catalogue), now or datetime.now(UTC)
    corpora = namespaces_with(catalogue, "members")
    if name not in {*namespaces_with(catalogue, "documents"), *corpora}:
        return []
    kind = "corpus" if name in corpora else "dataset"
    facts = _share_facts(catalogue, ledger, name, kind, thresholds)
    if kind == "dataset":
        late = now - timedelta(hours=thresholds.backlog_hours)
        backlog = _backlogs(ledger, _rows_by_namespace(catalogue), corpora, late).get(name, _Backlog())
        facts |= {"backlog": backlog.documents, "backlog_since": backlog.since, **_waiting(ledger, name)}
        facts |= _overdue(ledger, name, retention, now)
    return list(_alerts(NamespaceStatus(name, kind, 0, 0, None, None, None, 0, 0, **facts), thresholds, now))


def _overdue(ledger: Ledger, name: str, retention: Mapping[str, Retention], now: datetime) -> dict[str, Any]:
    """Increments of a dataset past its declared retention."""
    if name not in retention:
        return {}
    days = retention[name].days
    late = overdue(ledger, name, days, now)
    return {"overdue": tuple(late), "overdue_since": min(late.values(), default=None), "retention_days": days}


_History = defaultdict[str, list[dict[str, Any]]]  # rows of the ledger by namespace, as recorded


def _rows_by_namespace(catalogue: Catalog) -> _History:
    """All rows of the ledger, old ones too: which table and place was computed when, by which run, how long."""
    columns = ("table", "place", "step", "seconds", "run_id", "recorded_at", "snapshot_id")
    rows = read_columns(catalogue, LEDGER, columns)
    rows_by_space: _History = defaultdict(list)
    for row in rows.sort_by("recorded_at").to_pylist() if rows is not None else []:
        rows_by_space[row["table"].partition(".")[0]].append(row)
    return rows_by_space


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
    is_corpus = kind == "corpus"
    documents = (
        members_that_count(catalogue, name).num_rows if is_corpus else count_documents(catalogue, name).documents
    )
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "documents": documents,
        "increments": len(numbers),
        "last_run": rows[-1]["recorded_at"] if rows else None,
        "newest": ledger.first_recorded(driving_table).get(newest),
        "rate": share_of(count, seconds) if count else None,
        "unchanged_steps": len(tables - computed),
        "tables": len(tables),
        "backlog": backlog.documents,
        "backlog_since": backlog.since,
        "slow_steps": _slow_steps(rows),
    }
    waiting = {} if is_corpus else _waiting(ledger, name)
    return NamespaceStatus(**common, **waiting, **_share_facts(catalogue, ledger, name, kind, thresholds))


def _share_facts(catalogue: Catalog, ledger: Ledger, name: str, kind: str, thresholds: Thresholds) -> dict[str, Any]:
    """The facts of one dataset or corpus that are shares of its newest increment, and of those before."""
    if kind == "corpus":
        places, survivors = ledger.increments(f"{name}.members"), ledger.increments(f"{name}.survivors")
        new, before = removed_shares(places, survivors, thresholds.least_rows)
        return {"duplicates": new, "duplicates_before": before, "removed": look_at_removed(ledger, name)}
    rejected, rejected_before, kept = rejections(catalogue, name, thresholds.least_rows)
    return {
        **refused(catalogue, name, list(ledger.increments(f"{name}.arrivals"))),
        "rejected": rejected,
        "rejected_before": rejected_before,
        "kept": kept,
        "signals": signal_means(catalogue, name, thresholds.least_rows),
    }


@dataclass
class _Backlog:
    """Unpacked documents of a dataset by corpus, and the arrival of the oldest."""

    documents: dict[str, int] = field(default_factory=dict)
    since: datetime | None = None


def _backlogs(
    ledger: Ledger, history: _History, corpora: Collection[str], late: datetime | None = None
) -> dict[str, _Backlog]:
    """The backlog of each dataset; a dataset outside of every corpus has none.

    Args:
        ledger: refreshed.
        history: rows of the ledger by namespace.
        corpora: names of all corpora.
        late: where it is given, datasets of which nothing waits since before this are left out, and not counted.
    """
    backlogs: dict[str, _Backlog] = defaultdict(_Backlog)
    for corpus in corpora:
        taken = taken_increments(ledger, f"{corpus}.increments")
        packed = {row["table"] for row in history[corpus] if row["table"].startswith(f"{corpus}.packed_")}
        datasets = {dataset for part in taken.values() for dataset in part}
        done = [set(ledger.increments(table)) for table in sorted(packed)] or [set()]
        in_all = set.intersection(*done)  # increments of the corpus that all of its packed tables have
        for dataset in sorted(datasets):
            finished = {number for corpus_number in in_all for number in taken.get(corpus_number, {}).get(dataset, ())}
            waiting = {n: row for n, row in ledger.increments(f"{dataset}.documents").items() if n not in finished}
            first = ledger.first_recorded(f"{dataset}.documents")
            times = [time for time in map(first.get, map(str, waiting)) if time is not None]
            if late is not None and min(times, default=late) >= late:
                continue
            backlog = backlogs[dataset]
            counts = count_documents(ledger.catalogue, dataset).increments if waiting else {}
            backlog.documents[corpus] = sum(counts.get(number, (0, 0))[0] for number in waiting)
            if backlog.documents[corpus]:
                backlog.since = min([*times, *([backlog.since] if backlog.since else [])], default=None)
    return dict(backlogs)


def _waiting(ledger: Ledger, name: str) -> dict[str, Any]:
    """How much of a dataset is in quarantine, and since when."""
    landed = increments_of(ledger, name)
    undecided = [increment for increment in landed if increment.state == "waits"]
    refused = sum(increment.documents for increment in landed if increment.state == REFUSE)
    landed_at = ledger.first_recorded(f"{quarantine_of(name)}.arrivals")
    times = [landed_at.get(str(increment.increment)) for increment in undecided]
    return {
        "waiting": (sum(increment.documents for increment in undecided), refused) if landed else None,
        "waiting_bytes": sum(increment.byte_count for increment in undecided),
        "waiting_since": min((time for time in times if time is not None), default=None),
    }


def _slow_steps(rows: list[dict[str, Any]]) -> dict[str, float]:
    """99th percentile of the seconds of each step, over all its computed places."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        seconds[row["step"]].append(row["seconds"])
    return {step: float(np.percentile(values, 99)) for step, values in sorted(seconds.items())}


def _alerts(space: NamespaceStatus, thresholds: Thresholds, now: datetime) -> Iterator[Alert]:
    """The alerts about a namespace: its values beyond their thresholds."""
    limit = thresholds.error_share
    if space.error_share is not None and space.error_share > limit:
        yield Alert(
            space.name,
            "error_share",
            f"{space.error_share:.1%} of the arrivals refused for a fault",
            space.error_share,
            limit,
        )
    limit = thresholds.moved
    if space.rejected is not None and space.rejected_before is not None:
        for rule in sorted({*space.rejected, *space.rejected_before}):
            new, old = space.rejected.get(rule, 0.0), space.rejected_before.get(rule, 0.0)
            if abs(new - old) > limit:
                yield Alert(space.name, "rejections", f"{rule} rejects {new:.1%}, before {old:.1%}", new - old, limit)
    if space.kept is not None and space.kept < thresholds.least_kept:
        rules = ", ".join(f"{rule} rejects {share:.1%}" for rule, share in sorted((space.rejected or {}).items()))
        yield Alert(space.name, "few_kept", f"{space.kept:.1%} is kept: {rules}", space.kept, thresholds.least_kept)
    for signal, (new, old) in space.signals.items():
        moved = abs(new - old) / abs(old) if old else math.inf if new else 0.0
        if moved > limit:
            yield Alert(space.name, "signals", f"mean of {signal} is {new:.4g}, before {old:.4g}", moved, limit)
    if space.duplicates is not None and space.duplicates_before is not None:
        moved = space.duplicates - space.duplicates_before
        if abs(moved) > limit:
            text = f"{space.duplicates:.1%} duplicates, before {space.duplicates_before:.1%}"
            yield Alert(space.name, "duplicates", text, moved, limit)
    limits = (thresholds.most_removed, thresholds.most_doubted, thresholds.least_rows)
    for text, share, most in space.removed.findings(*limits) if space.removed is not None else ():
        yield Alert(space.name, "removed", text, share, most)
    yield from _waiting_alerts(space, thresholds, now)
    for step, seconds in space.slow_steps.items():
        if seconds > thresholds.step_seconds:
            text = f"{step} takes {seconds:,.0f} s at its 99th percentile"
            yield Alert(space.name, "step_seconds", text, seconds, thresholds.step_seconds)


def _waiting_alerts(space: NamespaceStatus, thresholds: Thresholds, now: datetime) -> Iterator[Alert]:
    """Alerts about increments overdue for packing, a decision or deletion."""
    if space.backlog_since is not None:
        hours = (now - space.backlog_since).total_seconds() / 3600
        if hours > thresholds.backlog_hours:
            waiting = ", ".join(f"{count:,} by {corpus}" for corpus, count in space.backlog.items() if count)
            text = f"documents wait for {hours:,.0f} h to be packed: {waiting}"
            yield Alert(space.name, "backlog", text, hours, thresholds.backlog_hours)
    if space.waiting_since is not None:
        hours = (now - space.waiting_since).total_seconds() / 3600
        if hours > thresholds.waiting_hours:
            text = f"documents wait for {hours:,.0f} h in quarantine: headrace quarantine show {space.name}"
            yield Alert(space.name, "waiting", text, hours, thresholds.waiting_hours)
    if space.overdue_since is not None and space.retention_days is not None:
        days, first = (now - space.overdue_since).total_seconds() / 86_400, space.overdue[0]
        text = f"{len(space.overdue)} increments are older than their retention, the oldest {days:,.0f} days"
        mend = f"headrace dataset delete {space.name} --increment {first} --plan, or headrace maintain (then: delete)"
        yield Alert(space.name, "retention", f"{text}: {mend}", days, space.retention_days)


def as_json(space: NamespaceStatus) -> dict[str, Any]:
    """A status as plain values."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(space).items()}
