"""The thresholds of a lake as checks of Dagster."""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg
import pytest

from dagster_project.assets import monitoring
from dagster_project.assets.monitoring import status_checks
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import Alert
from dagster_project.resources import LakeResource

TABLES = ("arrivals", "documents", "signals", "verdicts")


@pytest.mark.parametrize("chosen", [("few_rejected", "means_as_before", "rejects_as_before"), ("means_as_before",)])
def test_a_namespace_is_read_once_for_all_of_its_checks(
    lake_env: object, monkeypatch: pytest.MonkeyPatch, chosen: Collection[str]
) -> None:
    """Also where one is chosen; what is beyond its threshold warns, at the table that it is about."""
    read: list[str] = []

    def alerts(catalogue: object, thresholds: Thresholds, name: str, retention: object) -> list[Alert]:
        read.append(name)
        return [Alert("notes", "signals", "mean of words is 3, before 2", 0.5, 0.05)]

    monkeypatch.setattr(monitoring, "namespace_alerts", alerts)
    keys = [dg.AssetKey(["notes", table]) for table in TABLES]
    checks = list(status_checks(keys, Thresholds(), {}))
    wanted = dg.AssetSelection.checks(*(key for one in checks for key in one.check_keys if key.name in chosen))
    definitions = dg.Definitions(
        assets=[dg.AssetSpec(key) for key in keys],
        asset_checks=checks,
        jobs=[dg.define_asset_job("look", selection=wanted)],
        resources={"lake": LakeResource()},
    )
    result = definitions.resolve_job_def("look").execute_in_process()
    found = {one.check_name: (one.asset_key.path[1], one.passed) for one in result.get_asset_check_evaluations()}
    everything = {
        "few_rejected": ("arrivals", True),
        "means_as_before": ("signals", False),
        "rejects_as_before": ("verdicts", True),
    }
    assert result.success and read == ["notes"]
    assert found == {name: everything[name] for name in chosen}
