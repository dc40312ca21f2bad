"""The benchmark at a hundredth of its size: every planted copy that the corpus holds is found, and nothing is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.nightly

REPOSITORY = Path(__file__).parents[2]
_MOST_MIB = 4096


def test_a_hundredth_of_twenty_gigabytes_ends_with_all_planted_copies_found(tmp_path: Path) -> None:
    """Both runs over .2 GB of this machine end in bounded memory, and no pair above the threshold is missed."""
    folders = [sysconfig.get_path("stdlib"), "/usr/include", "/usr/share", sysconfig.get_path("purelib")]
    command = [sys.executable, REPOSITORY / "benchmarks" / "bench_size.py", "--gigabytes", "0.2", "--scratch", tmp_path]
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_ENGINE"}
    ran = subprocess.run(
        [*map(str, command), "--folders", *folders], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    runs = re.findall(r"^(?:first|1% more) +[\d.]+ +([\d,]+) .* (\d+) +[\d.]+  \S", ran.stdout, re.MULTILINE)
    assert len(runs) == 2 and all(int(count.replace(",", "")) > 0 for count, _ in runs), ran.stdout
    assert all(0 < int(most) < _MOST_MIB for _, most in runs), ran.stdout
    recalls = re.findall(r"^(whole|edit|near) +[\d,]+ +([\d,]+) +(\d+) +1\.00000$", ran.stdout, re.MULTILINE)
    assert [kind for kind, _, _ in recalls] == ["whole", "edit", "near"], ran.stdout
    assert all(int(found.replace(",", "")) > 0 and missed == "0" for _, found, missed in recalls)
    assert not list(tmp_path.iterdir())


def test_a_cluster_of_its_own_says_what_it_shuffled_and_leaves_nothing(tmp_path: Path) -> None:
    """Master, workers, store and Postgres start and end with the benchmark; figures come of Spark's event log."""
    options = ["--profile", "spark", "--gigabytes", "0.002", "--scratch", tmp_path]
    folders = ["--folders", Path(sysconfig.get_path("purelib")) / "dagster"]
    command = [sys.executable, REPOSITORY / "benchmarks" / "bench_size.py", *options, *folders]
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    if "left out: " in ran.stdout:
        pytest.skip(ran.stdout)
    assert re.search(r"^first .* Spark", ran.stdout, re.MULTILINE), ran.stdout
    tables = re.findall(r"^([\w.]+) +[\d.,]+ +[\d,]+ +[\d.,]+ +[\d,]+$", ran.stdout, re.MULTILINE)
    assert {"notes.texts", "first.pairs", "first.packed_notes_2048"} <= set(tables), ran.stdout
    assert re.search(r"^all +(?!0\.0)\d", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(r"^most, an executor's Python +[1-9]", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(r"^most by Spark, executor's JVM +[1-9]", ran.stdout, re.MULTILINE), ran.stdout
    assert not list(tmp_path.iterdir())
    left = [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])]
    assert not left
