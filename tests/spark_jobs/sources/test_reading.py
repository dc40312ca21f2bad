"""Files become documents and arrivals; a bad file is a row with a reason and never stops the others."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from spark_jobs.sources.config import source_config
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.identity import document_id, sha256_hex
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.opening.file_trees import open_file
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import READ_ROWS, ReadingRules

Configs = Callable[..., DocumentsConfig]
LINES = b'{"body": "one", "id": "1"}\n{"body": "two", "id": "2"}\n'


def by_name(arrivals: list[dict[str, Any]]) -> dict[str, str]:
    """Status (and reason) by the last part of the location."""
    return {
        os.path.basename(row["location"]): row["status"] + (f" {row['reason']}" if row["reason"] else "")
        for row in arrivals
    }


def batches(config: DocumentsConfig, listing: pa.Table | None) -> list[pa.RecordBatch]:
    """What the executors would return for a listing."""
    assert listing is not None
    rules = ReadingRules(config.dataset, config.shards, config.max_document_bytes, config.source)
    return list(read_files(iter(listing.to_batches()), rules))


def test_a_text_file_is_a_document_with_its_bytes_accounted_for(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """Content, codec, hash and size are those of the file; line ends and marks are not touched."""
    raw = "\ufeffgröße\r\n".encode("utf-8")
    (data / "a.md").write_bytes(raw)
    ((document,), (arrival,)) = landing.land(files_config(shards=4))
    assert document["content"].encode(document["encoding"]) == raw
    assert document["content_sha256"] == arrival["content_sha256"] == hashlib.sha256(raw).hexdigest()
    assert document["byte_count"] == arrival["byte_count"] == len(raw)
    assert document["doc_id"] == document_id("notes", None, "a.md", document["content_sha256"])
    assert document["shard"] == int(sha256_hex(document["doc_id"].encode())[:16], 16) % 4
    assert (document["kind"], document["media_type"], document["repository"]) == ("prose", "text/markdown", None)


def test_empty_files_land(files_config: Configs, data: Path, landing: Any) -> None:
    """An empty text is a text; later rules may drop it, with a reason."""
    (data / "empty.txt").touch()
    ((document,), (arrival,)) = landing.land(files_config())
    assert (document["content"], document["encoding"], document["byte_count"]) == ("", "utf-8", 0)
    assert arrival["status"] == "landed"


def test_every_bad_file_is_told_and_the_good_ones_land(files_config: Configs, data: Path, landing: Any) -> None:
    """One file for each fault beside one good file of each format."""
    (data / "good.txt").write_text("good")
    (data / "good.jsonl").write_bytes(LINES)
    (data / "good.jsonl.gz").write_bytes(gzip.compress(LINES) + gzip.compress(b'{"body": "three"}'))
    (data / "good.jsonl.zst").write_bytes(zstandard.compress(LINES))
    pq.write_table(pa.table({"body": ["p", "q", "r"], "id": ["1", "2", "3"]}), data / "good.parquet", row_group_size=1)
    (data / "good.csv").write_text('id,body\n1,"a, b"\n')
    (data / "good.tsv.gz").write_bytes(gzip.compress(b"id\tbody\n2\tc\n3\n"))
    (data / "latin1.txt").write_bytes(b"caf\xe9")
    (data / "binary.txt").write_bytes(b"\0\1\2")
    (data / "large.txt").write_bytes(b"x" * 2000)
    (data / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    (data / "cut.jsonl.gz").write_bytes(gzip.compress(LINES)[:-10])
    (data / "no_archive.jsonl.zst").write_bytes(LINES)
    (data / "empty.jsonl").touch()
    (data / "useless.jsonl").write_bytes(b'{"body": null}\n{"body": 1}\n')
    (data / "columns.parquet").write_bytes(b"")
    pq.write_table(pa.table({"text": ["x"]}), data / "columns.parquet")
    (data / "loop.txt").symlink_to(data / "loop.txt")
    (data / "directory.py").mkdir()
    (data / "archive.zip").write_bytes(b"PK")
    os.mkfifo(data / "pipe.txt")
    documents, arrivals = landing.land(files_config(text_column="body", id_column="id", max_document_bytes=1000))
    good = sorted(row["path"] for row in documents)
    assert good == [
        "cut.jsonl.gz#1",
        "good.csv#1",
        *(f"good.jsonl#{n}" for n in "12"),
        *(f"good.jsonl.gz#{n}" for n in ("1", "2", sha256_hex(b"three")[:16])),
        *(f"good.jsonl.zst#{n}" for n in "12"),
        *(f"good.parquet#{n}" for n in "123"),
        "good.tsv.gz#2",
        "good.txt",
    ]
    assert by_name(arrivals) == {
        **dict.fromkeys(["good.txt", "good.jsonl", "good.jsonl.gz", "good.jsonl.zst", "good.parquet"], "landed"),
        **dict.fromkeys(["good.csv", "good.tsv.gz"], "landed"),
        "good.tsv.gz#line:3": "rejected bad_record",
        "latin1.txt": "rejected undecodable",
        "binary.txt": "rejected binary",
        "large.txt": "rejected too_large",
        "broken.parquet": "rejected corrupt_file",
        "cut.jsonl.gz": "landed",
        "cut.jsonl.gz#rest": "rejected corrupt_archive",
        "no_archive.jsonl.zst": "rejected corrupt_archive",
        "empty.jsonl": "rejected empty",
        "useless.jsonl": "rejected no_usable_record",
        "useless.jsonl#line:1": "rejected null_text",
        "useless.jsonl#line:2": "rejected wrong_type",
        "columns.parquet": "rejected missing_column",
        "loop.txt": "rejected unreadable",
        "archive.zip": "rejected corrupt_archive",
        "pipe.txt": "rejected not_a_file",
    }
    assert all(row["detail"] and "\n" not in row["detail"] for row in arrivals if row["status"] == "rejected")


def test_what_a_damaged_file_still_held_lands_and_the_rest_is_told(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """The file is landed, its lost end a row of its own; a mended file brings only what was missing."""
    whole = gzip.compress(b"".join(b'{"body": "%d"}\n' % number for number in range(50_000)), 1)
    (data / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    config = files_config(text_column="body")
    documents, arrivals = landing.land(config)
    assert 0 < len(documents) < 50_000
    assert by_name(arrivals) == {"a.jsonl.gz": "landed", "a.jsonl.gz#rest": "rejected corrupt_archive"}
    assert arrivals[-1]["content_sha256"] == sha256_hex((data / "a.jsonl.gz").read_bytes())
    (data / "a.jsonl.gz").write_bytes(whole)
    more, arrivals = landing.land(config)
    assert len(documents) + len(more) == 50_000 and by_name(arrivals) == {"a.jsonl.gz": "landed"}


def test_a_repeated_record_lands_once(files_config: Configs, data: Path, landing: Any) -> None:
    """Same id and text, or another text: the first lands; in another file it is new."""
    lines = [b'{"body": "a", "id": 1}', b'{"body": "a", "id": 1}', b'{"body": "b", "id": 1}', b'{"body": "a", "id": 2}']
    (data / "x.jsonl").write_bytes(b"\n".join(lines))
    (data / "y.jsonl").write_bytes(lines[0])
    documents, arrivals = landing.land(files_config(text_column="body", id_column="id"))
    assert sorted((row["path"], row["content"]) for row in documents) == [
        ("x.jsonl#1", "a"),
        ("x.jsonl#2", "a"),
        ("y.jsonl#1", "a"),
    ]
    assert by_name(arrivals) == {
        "x.jsonl": "landed",
        "x.jsonl#line:2": "rejected repeated_record",
        "x.jsonl#line:3": "rejected listed_twice",
        "y.jsonl": "landed",
    }


def test_an_appended_file_of_records_lands_its_new_records_only(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """The old ones are known by their ids, wherever in the file they stand now."""
    config = files_config(text_column="body")
    (data / "log.jsonl").write_bytes(LINES)
    landing.land(config)
    (data / "log.jsonl").write_bytes(b'{"body": "zero"}\n' + LINES)
    documents, arrivals = landing.land(config)
    assert [row["content"] for row in documents] == ["zero"] and by_name(arrivals) == {"log.jsonl": "landed"}
    (data / "log.jsonl").write_bytes(LINES)
    documents, arrivals = landing.land(config)
    assert documents == [] and by_name(arrivals) == {"log.jsonl": "unchanged"}


def test_records_say_what_their_columns_say(files_config: Configs, data: Path, landing: Any) -> None:
    """Repository decides the shard; a licence is SPDX, and the words of what is not known are kept."""
    (data / "r.jsonl").write_bytes(
        b'{"body": "a", "repo": "x", "lang": "en", "lic": "mit", "stars": 3}\n'
        b'{"body": "b", "repo": "x", "lang": "de", "lic": "free for all"}\n'
    )
    config = files_config(
        text_column="body",
        repository_column="repo",
        language_column="lang",
        licence_column="lic",
        metadata_columns=["stars"],
        record_kind="code",
        shards=64,
    )
    (first, second), _ = landing.land(config)
    assert (first["repository"], first["language"], first["licence"], first["kind"]) == ("x", "en", "MIT", "code")
    assert dict(first["metadata"]) == {"stars": "3"}
    assert second["licence"] == "LicenseRef-stated-free-for-all"
    assert dict(second["metadata"]) == {"licence": "free for all"}
    assert first["shard"] == second["shard"] == int(sha256_hex(b"x")[:16], 16) % 64


def test_each_record_has_the_kind_of_its_column(files_config: Configs, data: Path, landing: Any) -> None:
    """The kind is that of the document; a record of an unknown kind is an arrival with the reason."""
    (data / "r.jsonl").write_text('{"body": "a", "of": "code"}\n{"body": "b"}\n{"body": "c", "of": "Code"}\n')
    documents, arrivals = landing.land(files_config(text_column="body", kind_column="of", record_kind="markup"))
    assert [(row["content"], row["kind"]) for row in documents] == [("a", "code"), ("b", "markup")]
    refused = [row for row in arrivals if row["status"] == "rejected"]
    assert [(row["location"].rpartition("#")[2], row["reason"]) for row in refused] == [("line:3", "unknown_kind")]


@pytest.mark.parametrize(
    ("column", "expected"), [(None, ["Rust", "Go Module", None]), ("lang", [None, "x", "en"])], ids=["ids", "column"]
)
def test_ids_that_are_paths_say_the_language_of_code(
    files_config: Configs, data: Path, landing: Any, column: str | None, expected: list[str | None]
) -> None:
    """Only where no column says it, and never of prose, whose ids are addresses."""
    lines = [
        {"body": "a", "id": "src/a.rs", "of": "code", "lang": None},
        {"body": "b", "id": "go.mod", "of": "data", "lang": "x"},
        {"body": "c", "id": "host/page.php", "of": "prose", "lang": "en"},
    ]
    (data / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = files_config(text_column="body", id_column="id", kind_column="of", language_column=column)
    documents, _ = landing.land(config)
    assert [row["language"] for row in documents] == expected


def test_manifests_land_as_evidence_whatever_kinds_are_taken(tmp_path: Path, landing: Any) -> None:
    """Of other kinds nothing else lands; where their kind is taken they are documents like others."""
    (tmp_path / "mill").mkdir()
    for name in ("go.mod", "main.go", "package.json", "data.json", "page.html", "pom.xml", "build.gradle.kts"):
        (tmp_path / "mill" / name).write_text("text")
    source = {"kind": "python_code", "directories": [str(tmp_path / "mill")], "kinds": ["code", "data"]}
    documents, _ = landing.land(DocumentsConfig.model_validate({"dataset": "code", "source": source}))
    assert {row["path"]: (row["kind"], row["metadata"].get("headrace.evidence")) for row in documents} == {
        "build.gradle.kts": ("code", None),
        "data.json": ("data", None),
        "go.mod": ("data", None),
        "main.go": ("code", None),
        "package.json": ("data", None),
        "pom.xml": ("markup", "manifest"),
    }


def test_a_file_that_changes_between_listing_and_reading_is_told_or_read_as_it_is(
    files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """Gone, become a directory, grown beyond the limit, or edited: no exception, and hashes are of what was read."""
    for name in ("gone.txt", "directory.txt", "grown.txt", "edited.txt", "gone.jsonl", "gone.parquet"):
        (data / name).write_text("as listed")
    config = files_config(max_document_bytes=100, text_column="body")
    listing = discover(config, empty_arrivals)
    for name in ("gone.txt", "directory.txt", "gone.jsonl", "gone.parquet"):
        (data / name).unlink()
    (data / "directory.txt").mkdir()
    (data / "grown.txt").write_text("x" * 101)
    (data / "edited.txt").write_text("as read")
    rows = [row for batch in batches(config, listing) for row in batch.to_pylist()]
    assert by_name([row for row in rows if row["doc_id"] is None]) == {
        "gone.txt": "rejected unreadable",
        "directory.txt": "rejected unreadable",
        "grown.txt": "rejected too_large",
        "edited.txt": "landed",
        "gone.jsonl": "rejected unreadable",
        "gone.parquet": "rejected unreadable",
    }
    (document,) = (row for row in rows if row["doc_id"])
    assert (document["content"], document["content_sha256"]) == ("as read", sha256_hex(b"as read"))


def test_a_file_that_may_not_be_read_is_told(
    files_config: Configs, data: Path, landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permission denied, simulated as the tests may run as root; when it is granted the file is read."""
    (data / "secret.txt").write_text("secret")
    (data / "open.txt").write_text("open")
    real_open, real_access = open_file, os.access

    def refuse(location: str, stall_seconds: float) -> pa.NativeFile:
        if location.endswith("secret.txt"):
            raise PermissionError(13, "Permission denied", location)
        return real_open(location)

    monkeypatch.setattr(source_config, "open_file", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("secret.txt"))
    documents, arrivals = landing.land(files_config())
    assert [row["path"] for row in documents] == ["open.txt"]
    assert by_name(arrivals)["secret.txt"] == "rejected unreadable"
    assert landing.land(files_config()) is None
    monkeypatch.setattr(source_config, "open_file", real_open)
    monkeypatch.setattr(os, "access", real_access)
    documents, arrivals = landing.land(files_config())
    assert [row["path"] for row in documents] == ["secret.txt"] and "open.txt" not in by_name(arrivals)


def test_batches_are_bounded_by_their_text(files_config: Configs, data: Path, empty_arrivals: pa.Table) -> None:
    """About 16 MB each, however many files there are; a larger document has a batch of its own."""
    for number in range(10):
        (data / f"{number}.txt").write_bytes(b"x" * (5 << 20))
    found = batches(files_config(), discover(files_config(), empty_arrivals))
    assert [sum(size or 0 for size in batch["byte_count"].to_pylist()) >> 20 > 0 for batch in found] == [True] * 3
    assert max(batch.nbytes for batch in found) < (16 + 5 + 1) << 20
    assert all(batch.schema == READ_ROWS for batch in found)


def test_metadata_count_for_the_size_of_a_batch(files_config: Configs, data: Path, empty_arrivals: pa.Table) -> None:
    """Records of a few characters with much metadata, which gave one batch of 10,000 of them."""
    lines = [json.dumps({"body": str(number), "about": "x" * (5 << 20)}) for number in range(10)]
    (data / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    config = files_config(text_column="body", metadata_columns=["about"])
    rows = [batch.num_rows for batch in batches(config, discover(config, empty_arrivals))]
    assert sum(rows) == 11 and max(rows) <= 4


def test_python_docs_are_prose_of_their_own(tmp_path: Path, landing: Any) -> None:
    """A docstring's bytes are its own UTF-8; modules without one are told, not lost."""
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "good.py").write_bytes(b"# coding: latin-1\n'''Gr\xf6\xdfe.'''\n")
    (package / "plain.py").write_text("x = 1\n")
    (package / "broken.py").write_text("'''never closed")
    (package / "bytes.py").write_bytes(b"'''caf\xe9'''")
    (package / "README").write_text("Read me.")
    config = {"dataset": "docs", "source": {"kind": "python_docs", "directories": [str(package)]}}
    documents, arrivals = landing.land(DocumentsConfig.model_validate(config))
    found = {row["path"]: row for row in documents}
    assert sorted(found) == ["README", "good.py#docstring"]
    docstring = found["good.py#docstring"]
    assert (docstring["content"], docstring["kind"], docstring["encoding"]) == ("Größe.", "prose", "utf-8")
    assert docstring["content_sha256"] == sha256_hex("Größe.".encode()) and docstring["byte_count"] == 8
    assert by_name(arrivals) == {
        "README": "landed",
        "good.py": "landed",
        "plain.py": "rejected no_docstring",
        "broken.py": "rejected syntax_error",
        "bytes.py": "rejected undecodable",
    }
