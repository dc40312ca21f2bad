"""Every type that a table may have, nested and as its partition, is written by one engine and read by the other."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.lake.ledger.ledger import Ledger
from tests.conftest import LakeAt
from tests.spark_jobs.lake.files.typed_tables import read, write
from tests.tiers import is_nightly, needs_spark

_ROOT = Path(__file__).parents[4]


def by_sail(root: Path, seeds: list[int]) -> list[str]:
    """What Sail, in a process of its own, says is wrong of the tables of others, and of what it then writes itself."""
    command = [sys.executable, "-m", "tests.spark_jobs.lake.files.typed_tables", str(root), "sail"]
    done = subprocess.run(
        [*command, ",".join(map(str, seeds))],
        env={**os.environ, "HEADRACE_ENGINE": "sail"},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    wrong: list[str] = json.loads(done.stdout.splitlines()[-1])
    return wrong


@needs_spark
def test_each_engine_verifies_what_the_other_wrote(tmp_path: Path, lake_at: LakeAt) -> None:
    """All types x null, NaN, -0.0, 1e-7, 2e23, .1 as a float, microseconds, 38 digits, in lists, maps and structs."""
    pytest.importorskip("pysail")
    lake, seeds = lake_at(tmp_path), [*range(10 if is_nightly() else 1)]
    for seed in seeds:
        assert write(lake, f"spark_{seed}", seed) == []
    assert by_sail(tmp_path, seeds) == []
    lake = dataclasses.replace(lake, ledger=Ledger(lake.catalogue))
    for seed in seeds:
        assert read(lake, f"sail_{seed}", seed) == [] == read(lake, f"spark_{seed}", seed)
