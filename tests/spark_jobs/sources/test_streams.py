"""Streams: micro-batches become pages, pages become increments, and a crash at any moment repeats nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.documents import documents
from spark_jobs.sources.source_config import DocumentsConfig, StreamSource
from spark_jobs.sources.streams import _Inbox, follow, pages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_lines_become_pages() -> None:
    """Blank lines are none; what is no JSON is kept, to be refused with its place."""
    assert list(pages_of(['{"a": 1}', "", "no json", " ", None])) == [[{"a": 1}, "no json"]]
    assert [len(page) for page in pages_of("1" for _ in range(45_000))] == [20_000, 20_000, 5_000]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_folder_that_grows_lands_once(
    lake_at: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over restarts, a crash before Spark's checkpoint, and the loss of that checkpoint."""
    lake, folder, state = lake_at(tmp_path / "lake"), tmp_path / "in", tmp_path / "state"
    folder.mkdir()
    source = {"kind": "stream", "path": str(folder), "text_column": "t", "id_column": "id", "files": 1}
    config = DocumentsConfig.model_validate({"dataset": "feed", "source": {**source, "seal_records": 5}})
    assert isinstance(config.source, StreamSource)
    sealed = list[tuple[str, ...]]()

    def put(name: str, *keys: int) -> None:
        beside = tmp_path / name
        beside.write_text("".join(json.dumps({"id": key, "t": f"text {key}"}) + "\n" for key in keys) + "no json\n")
        os.rename(beside, folder / name)

    def seal() -> None:
        done = materialize(lake, Binding(documents, "feed", {}, config, clock="feed.arrivals"))
        sealed.append(done[0].computed)

    def run() -> int:
        assert isinstance(config.source, StreamSource)
        objects = ObjectFolder.of(lake.catalogue, "feed")
        return follow("feed", config.source, lake.catalogue, objects, lake.session(), seal, state, once=True)

    def landed() -> list[str]:
        rows = lake.session().table("lake.feed.documents").select("path").collect()
        return sorted((row["path"] for row in rows), key=lambda path: int(path.partition("#")[2]))

    put("a.jsonl", 1, 2, 3)
    put("b.jsonl", 3, 4)
    assert run() == 7 and landed() == [f"in#{key}" for key in (1, 2, 3, 4)]
    assert run() == 0 and sealed[-1] == ()
    put("c.jsonl", 5, 6)
    take = _Inbox.take

    def crashing(self: Any, batch: DataFrame, number: int) -> None:
        take(self, batch, number)
        raise OSError("killed after the page was kept")

    with monkeypatch.context() as patch:
        patch.setattr(_Inbox, "take", crashing)
        with pytest.raises(StepRunError, match="killed after"):
            run()
    assert run() == 0  # the same micro-batch, which is there already
    assert landed() == [f"in#{key}" for key in range(1, 7)]
    refused = lake.session().table("lake.feed.arrivals").where("reason = 'bad_record'").count()
    assert refused == 3
    os.rename(state, tmp_path / "lost")
    put("d.jsonl", 7)
    run()
    assert landed() == [f"in#{key}" for key in range(1, 8)]
