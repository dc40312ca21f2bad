"""The lake as a Dagster resource: steps that begin at once share one catalogue and one ledger."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dagster_project import resources
from tests.dagster_project.project import lake_settings


def test_steps_that_begin_at_once_share_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is written once, when the run ends: rows that wait in another one would be lost without a word."""
    barrier, opening = threading.Barrier(8), resources.open_catalogue

    def slowly(settings: Any) -> Any:
        time.sleep(0.05)
        return opening(settings)

    monkeypatch.setattr(resources, "open_catalogue", slowly)

    def opened(number: int) -> int:
        barrier.wait()
        return id(resources._opened()[1])

    with lake_settings(tmp_path), ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(opened, range(8)))) == 1
