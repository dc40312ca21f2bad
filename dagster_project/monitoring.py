"""The thresholds of `headrace status` as asset checks of Dagster: they warn, and refuse nothing.

Each stands at the table that it is about and reads the lake once for its namespace. They run with the jobs
(`everything`, and that of the namespace) and by themselves in the UI, not with `headrace run`, whose user has
`headrace status --check`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import dagster as dg

from dagster_project.inspect.lake_status import Thresholds, lake_status
from dagster_project.resources import LakeResource

# By table: the alerts (`lake_status.Alert.name`) that its check is about, and what the check promises.
_CHECKS = {
    "arrivals": ("few_rejected", ("error_share", "backlog"), "few arrivals are rejected, and none waits for long"),
    "verdicts": ("rejects_as_before", ("rejections",), "each rule rejects about as large a share as before"),
    "signals": ("means_as_before", ("signals",), "the mean of each signal is about as before"),
    "survivors": ("duplicates_as_before", ("duplicates",), "about as large a share is duplicates as before"),
}


def status_checks(keys: Collection[dg.AssetKey], thresholds: Thresholds) -> Iterator[dg.AssetChecksDefinition]:
    """A check for each table of datasets and corpora that a threshold is about."""
    namespaces = {key.path[0] for key in keys if key.path[-1] in ("arrivals", "increments")}
    for key in sorted(keys):
        if len(key.path) == 2 and key.path[0] in namespaces and key.path[1] in _CHECKS:
            yield _check(key, thresholds, *_CHECKS[key.path[1]])


def _check(
    key: dg.AssetKey, thresholds: Thresholds, name: str, alerts: tuple[str, ...], promise: str
) -> dg.AssetChecksDefinition:
    def look(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        lake: LakeResource = context.resources.lake
        (status,) = lake_status(lake.open("").catalogue, thresholds, (key.path[0],)) or (None,)
        found = [alert for alert in status.alerts if alert.name in alerts] if status is not None else []
        return dg.AssetCheckResult(
            passed=not found,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={f"{alert.name}_{at}": alert.text for at, alert in enumerate(found)},
        )

    look.__annotations__["context"] = dg.AssetCheckExecutionContext
    decorate = dg.asset_check(asset=key, name=name, description=promise, required_resource_keys={"lake"})
    return decorate(look)
