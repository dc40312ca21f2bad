"""The example of docs/start/projects.md: tables with a partition a day, where a new day computes that day alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagster_project.cli import run_command
from headrace.tables.settings import load_settings
from spark_jobs.lake.session.catalogue import open_catalogue

pytestmark = pytest.mark.usefixtures("spark")
_PAGE = Path(__file__).parents[2] / "docs" / "start" / "projects.md"


def test_a_new_day_computes_that_day_alone(
    defs: Path, lake_env: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As typed, on logs of three days; the days before stay unchanged, whatever comes."""
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL) if "DAYS" in text]
    (defs / "tables").mkdir()
    (defs / "tables" / "__init__.py").touch()
    (defs / "tables" / "logs.py").write_text(block.replace("/var/log/mill", str(tmp_path)))
    for day, count in ((3, 2), (4, 5)):
        (tmp_path / f"2026-11-0{day}.log").write_text("a line\n" * count)
        assert run_command(["run", "logs.lines", "logs.daily_counts", "--partition", f"2026-11-0{day}"]) == 0
        assert "2 tables: 2 computed, 0 unchanged" in capfd.readouterr().out
    assert run_command(["run", "logs", "--partition", "2026-11-03"]) == 0
    assert "2 tables: 0 computed, 2 unchanged" in capfd.readouterr().out
    counts = open_catalogue(load_settings()).load_table("logs.daily_counts").scan().to_arrow().to_pylist()
    assert sorted((str(row["day"]), row["lines"]) for row in counts) == [("2026-11-03", 2), ("2026-11-04", 5)]
