"""Nothing on the driver grows with the number of documents: the whole way over 10^5 and 10^6 of them."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.cli.run.step_lines import failure_text
from dagster_project.definitions import build
from dagster_project.resources import LakeResource
from tests.main_path.project import point_at

pytestmark = pytest.mark.nightly

_FILE_ROWS = 50_000
_WORDS = 12
# A job that brings as much as 40 bytes of each of 10^6 documents to the driver fails. Broadcasts, of 10 MB at most by
# Spark's own setting, pass.
_RESULT_BYTES = "32m"
_MORE_MIB = 64


def test_the_driver_holds_as_much_for_a_million_documents(tmp_path: Path) -> None:
    """Python's peak is the same but for noise, and no job's result is of the size of the documents' ids."""
    peaks = {}
    for count in (100_000, 1_000_000):
        root = tmp_path / str(count)
        command = [sys.executable, "-m", "tests.main_path.test_driver_memory", str(root), str(count)]
        environment = {**os.environ, **point_at(root)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["windows"] > 0 and found["documents"] == count
        peaks[count] = found["peak_mib"]
    assert peaks[1_000_000] <= peaks[100_000] + _MORE_MIB, peaks


def write_documents(folder: Path, count: int) -> None:
    """Lines of a few words each, no two alike."""
    folder.mkdir(parents=True)
    drawn = random.Random(7)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(3, 9))) for _ in range(20_000)]
    for first in range(0, count, _FILE_ROWS):
        with (folder / f"{first:09}.jsonl").open("w") as file:
            for _ in range(first, min(first + _FILE_ROWS, count)):
                file.write(json.dumps({"text": " ".join(drawn.choices(words, k=_WORDS))}) + "\n")


def main(root: Path, count: int) -> None:
    """Run everything over so many documents in this process, and print what it held at most."""
    write_documents(root / "notes", count)
    source = {"kind": "files", "path": str(root / "notes"), "text_column": "text"}
    corpus = CorpusDeclaration(
        name="main",
        datasets=("notes",),
        tokenizer={"train": {"vocabulary_size": 2000, "sample_bytes": 1_000_000}},
        window_tokens=(1024,),
    )
    short = {"extends": ["headrace"], "set": {"prose.too_few_words": 5}}
    dataset = DatasetDeclaration(name="notes", source=source, shards=4, policy=short)
    lake = LakeResource(spark_config={"spark.driver.maxResultSize": _RESULT_BYTES})
    assets = [*dataset_assets(dataset), *corpus_assets(corpus)]
    with dg.DagsterInstance.ephemeral() as instance:
        result = (
            build(dg.Definitions(assets=assets), lake)
            .resolve_job_def("everything")
            .execute_in_process(
                instance=instance,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        )
    for event in result.filter_events(lambda event: event.is_step_failure):
        sys.exit(failure_text(event))
    rows = {
        ".".join(one.asset_key.path): one.materialization.metadata["dagster/row_count"].value
        for one in result.get_asset_materialization_events()
        if one.asset_key is not None
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"peak_mib": peak, "documents": rows["notes.documents"], "windows": rows["main.packed_notes_1024"]}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
