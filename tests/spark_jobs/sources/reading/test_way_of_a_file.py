"""How long the way of a file through `sources/reading` is: a reader of the code follows it function by function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS

_READING = "spark_jobs.sources.reading."


def test_a_plain_text_enters_six_functions(tmp_path: Path, files_config: Callable[..., DocumentsConfig]) -> None:
    """And eight times a function of another module of headrace returns into `reading`."""
    (tmp_path / "data" / "a.txt").write_text("A text.\n")
    config = files_config()
    listing = discover(config, ARRIVAL_ROWS.empty_table())
    assert listing is not None
    rules = ReadingRules(config.dataset, 1, 1000, config.source)
    functions, returns = set[str](), list[str]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        into, module = _module(frame.f_back), _module(frame)
        name = f"{module}:{frame.f_code.co_name}"
        if event == "call" and module.startswith(_READING):
            functions.add(name)
        if event == "return" and into.startswith(_READING) and module.startswith("spark_jobs.") and into != module:
            returns.append(f"{name} -> {into}")

    list(read_files(iter(listing.to_batches()), rules))  # imports and tables of languages come once
    sys.setprofile(profile)
    try:
        read = list(read_files(iter(listing.to_batches()), rules))
    finally:
        sys.setprofile(None)
    assert [row["content"] for batch in read for row in batch.to_pylist()] == ["A text.\n", None]
    assert len(functions) <= 6, sorted(functions)
    assert len(returns) <= 8, returns


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))
