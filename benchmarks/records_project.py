"""A project that brings Parquet records (`id`, `text`) to windows, for benchmarks that run `headrace run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DATASET = """type: headrace.Dataset
attributes:
  name: notes
  source: {{kind: files, path: {path}, text_column: text, id_column: id}}
"""
_CORPUS = """type: headrace.Corpus
attributes:
  name: first
  datasets: [notes]
  tokenizer: {train: {vocabulary_size: 8192, sample_bytes: 20000000}}
"""


def make_project(folder: Path, records: Path) -> None:
    """A project of one dataset and one corpus over the records of a folder."""
    command = [sys.executable, "-m", "dagster_project.cli", "init", folder.name]
    subprocess.run(command, cwd=folder.parent, check=True, capture_output=True)
    definitions = folder / folder.name / "defs"
    for path in (definitions / "tables").glob("*.py"):
        path.unlink()
    (definitions / "notes" / "defs.yaml").write_text(_DATASET.format(path=records))
    (definitions / "first" / "defs.yaml").write_text(_CORPUS)
