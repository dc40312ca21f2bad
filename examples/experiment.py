"""Filtered and deduplicated against raw, on documentation of this machine: `make experiment`, ten minutes on two cores.

It makes a project in a folder of its own, two corpora, and an experiment that trains twenty small models: two variants,
five seeds, two learning rates. Run again it goes on where it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_DISTRIBUTIONS = """alembic, anyio, click, dagster-shared, docstring-parser, filelock, fsspec, graphql-core, h11,
httpx2, idna, jinja2, mako, markdown-it-py, packaging, pydantic, pyparsing, python-dateutil, pytz, requests, rich,
ruamel-yaml, starlette, structlog, tenacity, typing-extensions, urllib3, uvicorn, watchdog, websockets"""
_FILES = {
    "docs": f"""type: headrace.Dataset
attributes:
  name: docs
  source: {{kind: python_docs, distributions: [{" ".join(_DISTRIBUTIONS.split())}]}}
  policy: {{extends: [headrace], set: {{prose.too_few_words: 20}}}}   # docstrings are short
  variants: {{all: {{rules: []}}}}
  samples: text
""",
    "others": """type: headrace.Dataset
attributes:
  name: others
  source: {kind: python_docs, distributions: [sqlalchemy, prometheus-client, pyiceberg, numba]}
  samples: text
""",
    "filtered": """type: headrace.Corpus
attributes:
  name: filtered
  datasets: [docs]
  deduplication: {levels: [exact, near], thresholds: [0.8], apply: 0.8}
  tokenizer: {train: {vocabulary_size: 4096}}
  window_tokens: [256]
""",
    "raw": """type: headrace.Corpus
attributes:
  name: raw
  datasets: [docs]
  variants: {docs: all}
  deduplication: {levels: [exact]}
  tokenizer: {file: TOKENIZER}
  window_tokens: [256]
""",
    "filtering": """type: headrace.Experiment
attributes:
  name: filtering
  variants:
    raw: {sources: {raw.packed_docs_256: 1}}
    filtered: {sources: {filtered.packed_docs_256: 1}}
  budget_tokens: BUDGET
  held_out:
    kept: {dataset: docs, share: 0.1, verdict: kept}
    rejected: {dataset: docs, share: 0.1, verdict: rejected}
    others: {dataset: others, share: 0.5}
""",
}


def main() -> None:
    """Make the project where it is not there, and run it."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "build/experiment").resolve()
    budget = sys.argv[2] if len(sys.argv) > 2 else "60000"
    if not (root / "pyproject.toml").exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        _headrace(root.parent, "init", root.name)
    tokenizer = root / "tokenizer.json"
    defs = root / root.name / "defs"
    for name in ("docs", "others", "filtered"):
        _write(defs / name, _FILES[name])
    _headrace(root, "run", "docs", "others", "filtered")
    if not tokenizer.exists():
        script = "import headrace; print(headrace.connect().table('filtered.tokenizer')['file'][0], end='')"
        found = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
        tokenizer.write_text(found.stdout)
    _write(defs / "raw", _FILES["raw"].replace("TOKENIZER", str(tokenizer)))
    _headrace(root, "run", "raw")
    _write(defs / "filtering", _FILES["filtering"].replace("BUDGET", budget))
    _headrace(root, "plan", "filtering")
    _headrace(root, "run", "filtering")


def _write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "defs.yaml").write_text(text)


def _headrace(folder: Path, *words: str) -> None:
    print("$ headrace", *words, flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_CATALOG")}
    subprocess.run([sys.executable, "-m", "dagster_project.cli", *words], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
