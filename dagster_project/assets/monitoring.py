"""The thresholds of `headrace status` as asset checks of Dagster: they warn, and refuse nothing.

Each stands at its table; those of a namespace are one step, so the lake is read once. They run with
the tables, in jobs as in `headrace run`, and by themselves in the UI.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import dagster as dg

from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import namespace_alerts
from dagster_project.keeping import Keeping, retentions
from dagster_project.resources import LakeResource

# By table: the alerts (`lake_status.Alert.name`) that its check covers, and the check's description.
_CHECKS = {
    "arrivals": (
        "few_rejected",
        ("error_share", "backlog", "waiting", "retention"),
        "few arrivals are rejected, and none waits for long",
    ),
    "verdicts": (
        "rejects_as_before",
        ("rejections", "few_kept"),
        "each rule rejects about as large a share as before, and not nearly all goes",
    ),
    "signals": ("means_as_before", ("signals",), "the mean of each signal is about as before"),
    "removals": (
        "removed_are_alike",
        ("removed",),
        "most of a dataset stays, and what goes shares runs of words with what it goes for",
    ),
    "survivors": ("duplicates_as_before", ("duplicates",), "about as large a share is duplicates as before"),
}


def status_checks(
    keys: Collection[dg.AssetKey], thresholds: Thresholds, keeping: Mapping[str, Keeping]
) -> Iterator[dg.AssetChecksDefinition]:
    """The checks of each dataset and corpus, at the table of each threshold."""
    namespaces = sorted({key.path[0] for key in keys if key.path[-1] in ("arrivals", "increments")})
    for namespace in namespaces:
        tables = {key.path[1] for key in keys if key.path[0] == namespace and len(key.path) == 2}
        yield _checks(namespace, sorted(tables & _CHECKS.keys()), thresholds, keeping)


def _checks(
    namespace: str, tables: Sequence[str], thresholds: Thresholds, keeping: Mapping[str, Keeping]
) -> dg.AssetChecksDefinition:
    specs = {
        table: dg.AssetCheckSpec(_CHECKS[table][0], asset=[namespace, table], description=_CHECKS[table][2])
        for table in tables
    }

    def look(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lake: LakeResource = context.resources.lake
        kept = retentions(keeping)
        alerts = namespace_alerts(lake.open("").catalogue, thresholds, namespace, retention=kept)
        for table, spec in specs.items():
            if spec.key not in context.selected_asset_check_keys:
                continue
            exceeded = [alert for alert in alerts if alert.name in _CHECKS[table][1]]
            yield dg.AssetCheckResult(
                asset_key=spec.asset_key,
                check_name=spec.name,
                passed=not exceeded,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={f"{alert.name}_{at}": alert.text for at, alert in enumerate(exceeded)},
            )

    look.__annotations__["context"] = dg.AssetCheckExecutionContext
    decorate = dg.multi_asset_check(
        name=f"{namespace}_thresholds",
        specs=list(specs.values()),
        can_subset=True,
        required_resource_keys={"lake"},
    )
    return decorate(look)
