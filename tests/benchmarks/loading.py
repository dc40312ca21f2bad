"""Modules of `benchmarks`, which are programs beside each other and no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_FOLDER = str(Path(__file__).parents[2] / "benchmarks")


def load(name: str) -> Any:
    """Import a module of the folder, which imports others as a program does."""
    sys.path.append(_FOLDER)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(_FOLDER)
