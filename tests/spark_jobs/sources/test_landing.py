"""Landing: what is kept of a source's bytes, and that documents come from it."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig

Configs = Callable[..., DocumentsConfig]


def test_copies_hold_the_bytes_that_the_documents_were_made_of(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """Of good and bad files, records and texts; a file that is too large is not copied."""
    (data / "a.txt").write_text("one\r\n")
    (data / "bad.txt").write_bytes(b"\xff\xfe\xfd")
    (data / "large.txt").write_text("x" * 2000)
    (data / "r.jsonl.gz").write_bytes(gzip.compress(b'{"t": "first"}\n{"t": "second"}\n'))
    pq.write_table(pa.table({"t": ["third"]}), data / "r.parquet")
    config = files_config(text_column="t", landing="copy", max_document_bytes=1000)
    documents, arrivals = landing.land(config, ObjectFolder(str(tmp_path / "kept")))
    assert sorted(row["content"] for row in documents) == ["first", "one\r\n", "second", "third"]
    by_path = {row["path"]: row for row in arrivals}
    assert by_path["large.txt"]["object"] is None and by_path["large.txt"]["reason"] == "too_large"
    for name in ("a.txt", "bad.txt", "r.jsonl.gz", "r.parquet"):
        kept = Path(by_path[name]["object"]).read_bytes()
        assert kept == (data / name).read_bytes()
        assert hashlib.sha256(kept).hexdigest() == by_path[name]["content_sha256"]


def test_what_landed_is_read_again_from_its_copy(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """The source has other bytes of the same size and time; a reader that is asked again gives those that landed."""
    file = data / "a.txt"
    file.write_text("one")
    os.utime(file, (1000, 1000))
    config, objects = files_config(landing="copy"), ObjectFolder(str(tmp_path / "kept"))
    (first,), _ = landing.land(config, objects)
    file.write_text("two")
    os.utime(file, (1000, 1000))
    assert landing.land(config, objects) is None
    documents, arrivals = landing.land(config, objects, reread=True)
    assert documents == [] and arrivals[0]["content_sha256"] == first["content_sha256"]
    file.write_text("three")
    documents, _ = landing.land(config, objects)
    assert [row["content"] for row in documents] == ["three"]


def test_every_file_that_is_referenced_has_its_hash(files_config: Configs, data: Path, landing: Any) -> None:
    """Parquet too, of which only some columns are read, and files that are damaged."""
    pq.write_table(pa.table({"t": ["x"], "other": [1]}), data / "r.parquet")
    (data / "bad.parquet").write_bytes(b"PAR1 no")
    _, arrivals = landing.land(files_config(text_column="t"))
    hashes = {row["path"]: row["content_sha256"] for row in arrivals}
    assert hashes == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in data.iterdir()}
    assert {row["object"] for row in arrivals} == {None}


def test_git_is_not_copied() -> None:
    """Its files have their hash for a name already."""
    given = {"dataset": "d", "landing": "copy", "source": {"kind": "git", "repositories": ["x"]}}
    with pytest.raises(ValueError, match="landing: copy has no use for git"):
        DocumentsConfig.model_validate(given)
