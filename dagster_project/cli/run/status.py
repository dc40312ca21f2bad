"""`headrace status`: the ledger as monitoring, for people, for CI and for Prometheus."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_raw, print_rows, print_styled, say
from dagster_project.exceptions import CheckFailedError, CommandError
from dagster_project.inspect.measured import NOT_MEASURED, share_text
from dagster_project.project.declared import declared_keeping, declared_sources
from dagster_project.project.loading import dagster_home, lake_catalogue, load_definitions, project_folder
from spark_jobs.exceptions import nearest
from spark_jobs.sources.landing.derivations import Gauge, derivations

if TYPE_CHECKING:
    import dagster as dg
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from dagster_project.inspect.lake.automation_health import AutomationHealth
    from dagster_project.inspect.lake.costs import Cost
    from dagster_project.inspect.lake.lake_status import Alert, NamespaceStatus
    from dagster_project.inspect.lake.run_health import RunHealth
    from dagster_project.inspect.notices import Waiting

METRIC_PREFIX = "headrace_lake_"
_CACHE_SECONDS = 30.0


@click.command()
@click.argument("namespaces", nargs=-1)
@JSON
@click.option("--check", is_flag=True, help="end with status 3 where a threshold is exceeded")
@click.option("--prometheus", is_flag=True, help="print Prometheus's text format")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="serve Prometheus's metrics until stopped")
@click.option("--host", default="127.0.0.1", show_default=True, help="address that metrics are served on")
@click.option("--cost", is_flag=True, help="say instead what computing and keeping all tables cost")
@click.option("--by", type=click.Choice(["step", "namespace", "team"]), default="namespace", help="a line of the costs")
@click.option("--since", type=click.DateTime(), help="with --cost: only what was computed from this day on (UTC)")
def status(
    namespaces: tuple[str, ...], as_json: bool, check: bool, prometheus: bool, metrics_port: int | None, host: str,
    cost: bool, by: str, since: datetime | None,
) -> None:  # fmt: skip
    """Say how datasets and corpora are: last runs, backlog, rejections, duplicates, and what has moved.

    Thresholds are `[tool.headrace.monitoring]` in the project's pyproject.toml. No Spark is started.

    Costs are step seconds, bytes, and money by HEADRACE_PRICE_HOUR, of the machine or cluster that computes, or
    HEADRACE_PRICE_CORE_HOUR, where cores are paid by use; HEADRACE_PRICE_GB_MONTH, of storage.
    """
    from dagster_project.inspect.lake.alert_thresholds import read_thresholds
    from dagster_project.inspect.lake.automation_health import AutomationHealth, automation_alerts

    if cost:
        if namespaces:
            raise CommandError(f"status --cost {namespaces[0]}: costs are of the whole lake; leave the names out")
        _print_costs(by, since, as_json)
        return
    if metrics_port is not None:
        _serve(metrics_port, host)
        return
    statuses, automation = _read(namespaces), AutomationHealth() if namespaces else automation_state()
    alerts = [alert for space in statuses for alert in space.alerts]
    alerts += automation_alerts(automation, read_thresholds(project_folder().package))
    if prometheus:
        from prometheus_client import generate_latest

        registry = lake_registry(lambda: statuses, lambda: automation, _waiting)
        print_raw(generate_latest(registry).decode())
    elif as_json:
        from dagster_project.inspect.lake.lake_status import as_json as plain

        runs = run_state()
        facts = {
            "namespaces": [plain(space) for space in statuses],
            "failed_runs": runs.failed,
            "runs": asdict(runs),
            "waiting": [work._asdict() | {"since": work.since and work.since.isoformat()} for work in _waiting()],
        }
        print_json({**facts, "automation": _finite(asdict(automation))})
    else:
        _print(statuses, alerts, run_state(), [] if namespaces else _waiting())
    if check and alerts:
        raise CheckFailedError(
            f"{len(alerts)} thresholds are exceeded; first {alerts[0].namespace}: {alerts[0].text} (at most "
            f"{alerts[0].limit:g})"
        )


def _read(namespaces: tuple[str, ...]) -> list[NamespaceStatus]:
    from dagster_project.inspect.lake.alert_thresholds import read_thresholds
    from dagster_project.inspect.lake.lake_status import lake_status

    catalogue = lake_catalogue()
    there = {space[0] for space in catalogue.list_namespaces()}
    there |= {name for each in derivations() for name in each.datasets(catalogue)}
    for name in namespaces:
        if name not in there:
            raise CommandError(f"namespace {name} is not in the lake{nearest(name, there)}")
    retention = {name: kept.retention for name, kept in declared_keeping().items() if kept.retention is not None}
    return lake_status(catalogue, read_thresholds(project_folder().package), namespaces, retention=retention)


def _waiting() -> list[Waiting]:
    """The work of features that waits for people."""
    from dagster_project.inspect.notices import waiting_work

    return waiting_work(lake_catalogue())


@contextmanager
def instance_with_runs() -> Iterator[dg.DagsterInstance | None]:
    """The Dagster instance; None where it has not run yet."""
    home = dagster_home(make=False)
    settings = home / "dagster.yaml"
    if not settings.is_file() or (not (home / "history").is_dir() and "storage" not in settings.read_text()):
        yield None
        return
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        yield instance


def run_state() -> RunHealth:
    """How many runs of Dagster failed, wait, are under way or dead; all 0 where it has not run yet."""
    from dagster_project.inspect.lake.run_health import RunHealth, run_health

    with instance_with_runs() as instance:
        return RunHealth() if instance is None else run_health(instance, datetime.now(UTC))


def automation_state() -> AutomationHealth:
    """How the daemon, schedules, sensors and jobs are; nothing where Dagster has not run yet."""
    from dagster_project.inspect.lake.automation_health import AutomationHealth, automation_health

    with instance_with_runs() as instance:
        return AutomationHealth() if instance is None else automation_health(instance)


def _finite(value: Any) -> Any:
    """A value for JSON: there is no number for what never was."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if value == math.inf else value


def _print(statuses: list[NamespaceStatus], alerts: list[Alert], runs: RunHealth, waiting: list[Waiting]) -> None:
    if not statuses:
        say("The lake has no dataset yet. Fill it: headrace run")
    now, sources = datetime.now(UTC), declared_sources()

    def age(moment: datetime | None) -> str:
        if moment is None:
            return "-"
        hours = (now - moment).total_seconds() / 3600
        return f"{hours * 60:,.0f} min" if hours < 2 else f"{hours:,.0f} h" if hours < 48 else f"{hours / 24:,.0f} d"

    for space in statuses:
        parts = [f"{space.documents:,} documents in {space.increments} increments, the newest {age(space.newest)} old"]
        parts.append(f"last run {age(space.last_run)} ago left {space.unchanged_steps} of {space.tables} tables")
        parts += [] if space.rate is None else [f"{space.rate:,.{0 if space.rate >= 1 else 2}f} documents/s"]
        parts += [] if space.error_share is None else [f"{space.error_share:.1%} refused for a fault"]
        parts += [f"{space.left_out:,} files not taken"] if space.left_out else []
        if space.kind == "dataset":
            parts += [f"rejections {NOT_MEASURED}"] if space.rejected is None else []
            parts += [f"{rule} rejects {share:.1%}" for rule, share in (space.rejected or {}).items()]
        else:
            parts.append(f"duplicates {share_text(space.duplicates)}")
        parts += [f"{count:,} not packed by {corpus}" for corpus, count in space.backlog.items() if count]
        if space.waiting is not None:
            size = f"{space.waiting_bytes:,} stored bytes, the oldest {age(space.waiting_since)} old"
            parts.append(f"in quarantine {space.waiting[0]:,} wait ({size}), {space.waiting[1]:,} refused")
        say(f"{space.name:<20} {'; '.join(parts)}")
        if space.asked is not None:
            say(f"{'':<20} {space.asked.line(sources.get(space.name))}")
    for work in waiting:
        if work.number:
            say(f"{work.number:,} {work.text} wait, the oldest for {age(work.since)}: {work.mend}")
    for alert in alerts:
        print_styled(f"{alert.namespace}: {alert.text} (threshold {alert.name} {alert.limit:g})", "yellow")
    if statuses or alerts:
        say(f"{len(alerts)} thresholds exceeded, {runs}")


@dataclass(frozen=True)
class _Gauge:
    """One metric of the lake: its name, what it counts, its labels, and its values by label."""

    name: str
    text: str
    labels: tuple[str, ...]
    values: Callable[[NamespaceStatus, datetime], Iterable[tuple[tuple[str, ...], float | None]]]


def _one(name: str, text: str, value: Callable[[NamespaceStatus, datetime], float | None]) -> _Gauge:
    """A metric with one value for each namespace."""
    return _Gauge(name, text, ("namespace",), lambda s, now: [((s.name,), value(s, now))])


def _each(label: str, name: str, text: str, values: Callable[[NamespaceStatus], Mapping[str, float]]) -> _Gauge:
    """A metric with a value for each namespace and each rule, corpus or whatever `label` names."""
    return _Gauge(
        name, text, ("namespace", label), lambda s, _: [((s.name, key), value) for key, value in values(s).items()]
    )


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (now - moment).total_seconds()


def _asked(gauge: Gauge) -> _Gauge:
    """A feature's metric of its datasets made from others; none of other datasets."""
    if gauge.label:
        return _each(gauge.label, gauge.name, gauge.text, lambda s: gauge.value(s.asked) if s.asked else {})
    return _one(gauge.name, gauge.text, lambda s, _: gauge.value(s.asked) if s.asked else None)


GAUGES = (
    _one("documents", "documents, or members of a corpus", lambda s, _: s.documents),
    _one("increments", "increments", lambda s, _: s.increments),
    _one("age_seconds", "age of the newest increment", lambda s, now: _age(s.newest, now)),
    _one("documents_per_second", "of step time, newest increment", lambda s, _: s.rate),
    _one("unchanged_steps", "tables that the last run left", lambda s, _: s.unchanged_steps),
    _one("error_share", "faulty, of the newest arrivals", lambda s, _: s.error_share),
    _one("duplicate_share", "removed of the newest members", lambda s, _: s.duplicates),
    _each(
        "rule", "rejected_share", "documents of the newest increment that a rule rejects", lambda s: s.rejected or {}
    ),
    _each("corpus", "backlog_documents", "documents that arrived and are not packed", lambda s: s.backlog),
    _one("backlog_age_seconds", "age of the oldest of them", lambda s, now: _age(s.backlog_since, now)),
    _one("quarantine_documents", "documents in quarantine without a decision", lambda s, _: s.waiting and s.waiting[0]),
    _one("quarantine_bytes", "size of their data files", lambda s, _: s.waiting and s.waiting_bytes),
    _one("quarantine_age_seconds", "age of the oldest of them", lambda s, now: _age(s.waiting_since, now)),
    _one(
        "overdue_increments",
        "increments older than the retention that is declared",
        lambda s, _: None if s.retention_days is None else len(s.overdue),
    ),
    _each("step", "step_seconds_p99", "99th percentile of the seconds of a step", lambda s: s.slow_steps),
    *(_asked(gauge) for derivation in derivations() for gauge in derivation.gauges),
    _one("alerts", "thresholds exceeded", lambda s, _: len(s.alerts)),
)


def lake_registry(
    read: Callable[[], list[NamespaceStatus]],
    automation: Callable[[], AutomationHealth],
    waiting: Callable[[], list[Waiting]] = list,
) -> CollectorRegistry:
    """A registry of the lake's metrics; `read` gives the status of all namespaces, once for each scrape."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Exporter(Collector):
        def collect(self) -> Iterator[Metric]:
            statuses, now = read(), datetime.now(UTC)
            for gauge in GAUGES:
                metric = GaugeMetricFamily(f"{METRIC_PREFIX}{gauge.name}", gauge.text, labels=gauge.labels)
                for space in statuses:
                    for labels, value in gauge.values(space, now):
                        if value is not None:
                            metric.add_metric(labels, value)
                yield metric
            for work in waiting():
                name = f"{METRIC_PREFIX}{work.name}_waiting"
                yield GaugeMetricFamily(name, f"{work.text} that wait", value=work.number)
                age = _age(work.since, now) or 0.0
                yield GaugeMetricFamily(f"{name}_age_seconds", "age of the oldest of them", value=age)

    from dagster_project.inspect.lake.automation_health import automation_collector
    from dagster_project.inspect.lake.run_health import run_collector

    registry = CollectorRegistry()
    registry.register(Exporter())
    registry.register(run_collector(run_state))
    registry.register(automation_collector(automation))
    return registry


def _serve(port: int, host: str) -> None:
    """Serve metrics until the process is stopped; the lake is read at most every half minute."""
    from prometheus_client import start_http_server

    lock = threading.Lock()
    kept: list[tuple[float, list[NamespaceStatus]]] = []

    def read() -> list[NamespaceStatus]:
        with lock:
            if not kept or time.monotonic() - kept[0][0] > _CACHE_SECONDS:
                kept[:] = [(time.monotonic(), _read(()))]
            return kept[0][1]

    try:
        server, thread = start_http_server(port, host, lake_registry(read, automation_state, _waiting))
    except OSError as error:
        raise CommandError(f"port {port} on {host}: {error.strerror}; choose another with --metrics-port") from error
    say(f"metrics of the lake on http://{host}:{port}/metrics")
    try:
        thread.join()
    finally:
        server.shutdown()


def _print_costs(by: str, since: datetime | None, as_json: bool) -> None:
    """Print what computing and keeping the tables cost; a team is the first owner in a declaration."""
    from dagster_project.inspect.lake.costs import costs

    an_hour, a_core_hour, a_month = map(_price, ("HOUR", "CORE_HOUR", "GB_MONTH"))
    teams: dict[str, str] = {}
    if by == "team":
        for spec in load_definitions().resolve_all_asset_specs():
            teams[".".join(spec.key.path)] = next(iter(spec.owners), "nobody")
    rows: list[dict[str, Any]] = [
        {
            by: cost.name,
            "increments": cost.places,
            "hours": cost.seconds / 3600,
            "core hours": None if cost.core_seconds is None else cost.core_seconds / 3600,
            "stored GB": cost.byte_count / 1e9,
            "computing": _computing(cost, an_hour, a_core_hour),
            "storage a month": cost.byte_count / 1e9 * a_month,
        }
        for cost in costs(lake_catalogue(), by, teams, since.replace(tzinfo=UTC) if since else None)
    ]
    print_rows(rows, as_json, "Nothing was computed yet. Fill the lake: headrace run")


def _computing(cost: Cost, an_hour: float, a_core_hour: float) -> float | None:
    """What computing cost; None where cores have a price and their time was not measured."""
    if cost.core_seconds is None:
        return None if a_core_hour else cost.seconds / 3600 * an_hour
    return cost.seconds / 3600 * an_hour + cost.core_seconds / 3600 * a_core_hour


def _price(what: str) -> float:
    """The price of something, `HEADRACE_PRICE_..` in the environment; 0 where it is not set."""
    name = f"HEADRACE_PRICE_{what}"
    text = os.environ.get(name, "0")
    try:
        return float(text)
    except ValueError as error:
        raise CommandError(f"{name}: {text!r} is no number; give e.g. 0.35") from error
