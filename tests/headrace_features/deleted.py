"""A copy of headrace without the folder of a feature."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_CORE = ("blender_service", "dagster_project", "headrace", "spark_jobs")


class Deleted:
    """headrace at `root`, where a feature is not."""

    def __init__(self, root: Path, feature: str) -> None:
        """Link the core, and copy the features but for one."""
        for package in _CORE:
            (root / package).symlink_to(_ROOT / package)
        others = shutil.ignore_patterns("__pycache__", feature)
        shutil.copytree(_ROOT / "headrace_features", root / "headrace_features", ignore=others)
        self.root = root

    def python(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "PYICEBERG_"))}
        environment = {**kept, "PYTHONPATH": str(self.root), "HEADRACE_ENGINE": "sail"}
        return subprocess.run(
            [sys.executable, *words],
            cwd=folder or self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def headrace(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return self.python("-m", "dagster_project.cli", *words, folder=folder)
