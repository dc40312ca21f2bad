"""Back to the bytes that landed: each document is found in them again, and other bytes are never taken for them."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.kinds import opening
from spark_jobs.sources.landing.landed import find_document, landed_chunks, unlike_landed
from spark_jobs.sources.listed_file import ListedFile
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Configs = Callable[..., DocumentsConfig]


def write_files(data: Path) -> None:
    """A file of each kind, of which some have the same path up to a `#`."""
    (data / "plain.txt").write_bytes("été\r\nund mehr".encode())
    lines = b'{"t": "one"}\n\n{"t": "two \\u00e9"}\n{"t": "three"}'
    (data / "r.jsonl").write_bytes(lines)
    (data / "r.jsonl.gz").write_bytes(gzip.compress(lines))
    (data / "odd#name.jsonl").write_bytes(b'{"t": "four"}\n')
    (data / "r.csv").write_text('t,x\n"several\nlines",1\nrow,2\n')
    pq.write_table(pa.table({"t": ["in parquet"], "other": [1]}), data / "r.parquet")
    (data / "page.html").write_text("<html><body><p>A page with a sentence that is long enough.</p></body></html>")


@sampled()
@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_every_document_is_found_in_its_file(
    mode: str, files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """By its id, in the file whose arrival names it; lines with the bytes that hold them, compressed or not."""
    write_files(data)
    config, objects = files_config(text_column="t", landing=mode), ObjectFolder(str(tmp_path / "kept"))
    documents, arrivals = landing.land(config, objects)
    by_path = {row["path"]: row for row in arrivals}
    assert len(documents) == 12
    for document in documents:
        arrival = by_path[document["path"] if document["path"] in by_path else document["path"].rpartition("#")[0]]
        _, row, place = find_document([arrival], document["doc_id"], config, objects)
        assert row["content"] == document["content"]
        found = b"".join(landed_chunks(arrival, place, config, objects))
        if place.unit == "line" and ".jsonl" in document["path"]:
            with (
                opening(config.source, objects) as opens,
                opens(ListedFile.of(arrival), 1 << 31) as stream,
            ):
                data_read = bytes(stream.read())
            whole = gzip.decompress(data_read) if document["path"].startswith("r.jsonl.gz") else data_read
            assert found == whole[place.start : place.end] and found in whole.split(b"\n")
            assert document["content"].encode() in found or b"\\u00e9" in found
        else:
            assert found == (data / arrival["path"]).read_bytes()


def test_a_member_is_named_and_its_offset_is_not_one_of_the_archive(
    files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """Mails and records in archives in archives; what is written is the archive, and its hash is compared."""
    pytest.importorskip("resiliparse")
    mail = "From a@b Mon Jan  1 00:00:00 2024\nMessage-ID: <{0}>\n\nThe {0} mail.\n\n"
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("m.mbox", mail.format("first") + mail.format("second"))
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("in.zip", inner.getvalue())
        archive.writestr("r.jsonl", '{"t": "one", "offset": "7"}\n{"t": "two"}\n')
    (data / "a.zip").write_bytes(outer.getvalue())
    config = files_config(text_column="t", metadata_columns=["offset"])
    documents, (arrival,) = landing.land(config)
    found = {}
    for document in documents:
        _, row, place = find_document([arrival], document["doc_id"], config, ObjectFolder(str(tmp_path / "kept")))
        places = {name: text for name, text in row["metadata"].items() if name.endswith("offset")}
        found[row["content"].strip()] = (place.member, place.unit, place.number, place.start, places)
    second = {"member_offset": str(len(mail.format("first")))}
    assert found == {
        "The first mail.": ("in.zip#m.mbox", "line", 1, None, {"member_offset": "0"}),
        "The second mail.": ("in.zip#m.mbox", "line", 6, None, second),
        "one": ("r.jsonl", "line", 1, None, {"offset": "7"}),
        "two": ("r.jsonl", "line", 2, None, {}),
    }


def test_a_blob_of_git_is_found_in_its_repository(tmp_path: Path, landing: Any) -> None:
    """Its arrival names repository and blob; the work tree may have gone on."""
    root = tmp_path / "project"
    root.mkdir()
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    (root / "a.py").write_text("x = 1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    source = {"kind": "git", "repositories": [str(root)], "cache": str(tmp_path / "cache")}
    config = DocumentsConfig.model_validate({"dataset": "code", "source": source})
    (document,), arrivals = landing.land(config)
    (root / "a.py").write_text("x = 2\n")
    (arrival,) = [row for row in arrivals if row["path"] == "a.py"]
    objects = ObjectFolder(str(tmp_path / "kept"))
    _, row, place = find_document([arrival], document["doc_id"], config, objects)
    assert (row["content"], place.unit) == ("x = 1\n", None)
    assert b"".join(landed_chunks(arrival, place, config, objects)) == b"x = 1\n"


def test_other_bytes_are_never_taken_for_those_that_landed(
    spark: SparkSession, files_config: Configs, data: Path, landing: Any, tmp_path: Path
) -> None:
    """A changed file of the same size and time, a deleted one, a damaged copy: each is named, and no other."""
    for name in ("same", "changed", "deleted"):
        (data / f"{name}.txt").write_text(name)
    config, objects = files_config(), ObjectFolder(str(tmp_path / "kept"))
    landing.land(config, objects)
    kept_config = files_config(landing="copy")
    (data / "kept.txt").write_text("kept")
    landing.land(kept_config, objects)
    by_path = {row["path"]: row for row in landing.arrivals}
    os.utime(data / "changed.txt", (1, 1))
    (data / "changed.txt").write_text("CHANGED")
    (data / "deleted.txt").unlink()
    copy = Path(by_path["kept.txt"]["object"])
    copy.chmod(0o644)
    copy.write_text("Kept")
    ids = {row["path"]: row["doc_id"] for row in landing.documents}
    for path, fault in (
        ("changed.txt", "changed since it landed: its SHA-256 is "),
        ("deleted.txt", "cannot be read"),
        ("kept.txt", "is damaged"),
    ):
        with pytest.raises(InputError, match=fault):
            find_document([by_path[path]], ids[path], kept_config, objects)
    arrivals = spark.createDataFrame(pa.Table.from_pylist(landing.arrivals, ARRIVAL_ROWS))
    found = {
        row["location"].rpartition("/")[2]: row["fault"]
        for row in unlike_landed(arrivals, objects, config.source).collect()
    }
    assert found.keys() == {"changed.txt", "deleted.txt", "kept.txt"}
