"""A listing says what is new or changed; what is unchanged is not read again, and nothing new is None."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import Listed, _gone_rows, discover
from spark_jobs.sources.listing_rows import LISTING, without_superseded
from spark_jobs.sources.opening.file_trees import FoundFile
from spark_jobs.sources.refusals import Reason, Refusal
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS

Configs = Callable[..., DocumentsConfig]


def statuses(arrivals: list[dict[str, Any]], root: Path) -> dict[str, str]:
    """Status (and reason) by path below the root."""
    return {
        os.path.relpath(row["location"], root): row["status"] + (f" {row['reason']}" if row["reason"] else "")
        for row in arrivals
    }


def repositories(names: list[str], kind: str = "python_code", **source: object) -> DocumentsConfig:
    """A config over installed distributions."""
    return DocumentsConfig.model_validate({"dataset": kind, "source": {"kind": kind, "distributions": names, **source}})


def test_listing_is_sorted_and_has_its_declared_columns(
    files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """By location, whatever order the file system gives; times are microseconds in UTC."""
    for name in ("b.txt", "a.md", "c/a.py", "B.txt"):
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_text(name)
        os.utime(data / name, ns=(0, 1_700_000_000_123_456_789))
    listing = discover(files_config(), empty_arrivals)
    assert listing is not None and listing.schema == LISTING
    assert listing["path"].to_pylist() == ["B.txt", "a.md", "b.txt", "c/a.py"]
    assert listing["language"].to_pylist() == [None, None, None, "Python"]
    assert listing["modified"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456] * 4
    assert not any(listing["unchanged"].to_pylist())


def test_second_discovery_lands_only_what_is_new_or_changed(files_config: Configs, data: Path, landing: Any) -> None:
    """Add, edit, touch, delete, and nothing at all; a touched file is read and found unchanged, others have no row."""
    config = files_config()
    for name in ("kept.txt", "edited.txt", "touched.txt", "deleted.txt"):
        (data / name).write_text(name)
        os.utime(data / name, (1000, 1000))
    documents, arrivals = landing.land(config)
    assert len(documents) == 4 and set(statuses(arrivals, data).values()) == {"landed"}
    assert landing.land(config) is None
    (data / "edited.txt").write_text("EDITED.TXT")  # the same size: the time tells
    (data / "added.txt").write_text("added")
    os.utime(data / "touched.txt", (2000, 2000))
    (data / "deleted.txt").unlink()
    documents, arrivals = landing.land(config)
    assert sorted(row["path"] for row in documents) == ["added.txt", "edited.txt"]
    assert statuses(arrivals, data) == {
        "added.txt": "landed",
        "deleted.txt": "gone",
        "edited.txt": "landed",
        "touched.txt": "unchanged",
    }
    assert landing.land(config) is None
    (data / "deleted.txt").write_text("deleted.txt")
    documents, arrivals = landing.land(config)
    assert documents == [] and statuses(arrivals, data)["deleted.txt"] == "unchanged"  # `returned`, once joined
    assert landing.land(config) is None


def test_rows_of_unchanged_files_decide_nothing(files_config: Configs, data: Path, landing: Any) -> None:
    """Earlier versions wrote one for every file in every increment: without these a listing is the same."""
    for name in ("a.txt", "b.txt", "c.txt"):
        (data / name).write_text(name)
        os.utime(data / name, (1000, 1000))
    landing.land(files_config())
    os.utime(data / "b.txt", (2000, 2000))
    landing.land(files_config())  # the row `unchanged` of b has the time that it is compared by
    landed = [row for row in landing.arrivals if row["increment"] == 0]
    touched = [row for row in landing.arrivals if row["increment"] == 1]
    assert [row["path"] for row in touched] == ["b.txt"]
    older = [{**row, "status": "unchanged", "increment": 1} for row in landed if row["path"] != "b.txt"]
    again = [{**row, "status": "unchanged", "increment": 2} for row in (*older, *touched)]
    deleted = [{**row, "status": "unchanged", "reason": "deleted", "increment": 1} for row in landed[:1]]
    every = pa.Table.from_pylist([*again, *landed, *older, *touched, *deleted], ARRIVAL_ROWS)
    kept = without_superseded(every)
    assert sorted((row["increment"], row["path"]) for row in kept.to_pylist()) == [
        (0, "a.txt"),
        (0, "b.txt"),
        (0, "c.txt"),
        (1, "a.txt"),  # what was deleted once is known by its hashes, each of which counts
        *((2, name) for name in ("a.txt", "b.txt", "c.txt")),
    ]
    for rows in (pa.Table.from_pylist(landing.arrivals, ARRIVAL_ROWS), every, kept):
        assert discover(files_config(), rows) is None
    (data / "c.txt").unlink()
    listings = [discover(files_config(), rows) for rows in (every, kept)]
    assert listings[0] is not None and listings[0].equals(listings[1])
    assert without_superseded(kept.slice(0, 0)).num_rows == 0


def test_a_file_at_the_path_of_a_part_is_listed_with_it(files_config: Configs, data: Path, landing: Any) -> None:
    """A record that went is not gone where a file has its path, so that file is listed; others have no row."""
    (data / "a.jsonl").write_text('{"t": "one"}\n')
    for name in ("a.jsonl#x.txt", "b#x.txt", "c.txt"):
        (data / name).write_text(name)
    landing.land(files_config(text_column="t"))
    (data / "a.jsonl").write_text('{"t": "two, longer"}\n')
    listing = discover(files_config(text_column="t"), pa.Table.from_pylist(landing.arrivals))
    assert listing is not None
    assert listing.select(["path", "unchanged"]).to_pylist() == [
        {"path": "a.jsonl", "unchanged": False},
        {"path": "a.jsonl#x.txt", "unchanged": True},
    ]


def test_the_latest_arrival_decides_whatever_the_order_of_rows(files_config: Configs, data: Path, landing: Any) -> None:
    """A file that went back to an older size and time is changed; rows come from a table in any order."""
    (data / "a.txt").write_text("a")
    os.utime(data / "a.txt", (1000, 1000))
    landing.land(files_config())
    (data / "a.txt").write_text("longer")
    landing.land(files_config())
    (data / "a.txt").write_text("a")
    os.utime(data / "a.txt", (1000, 1000))
    for order in (1, -1):
        rows = sorted(landing.arrivals, key=lambda row: order * row["increment"])
        listing = discover(files_config(), pa.Table.from_pylist(rows))
        assert listing is not None and listing["unchanged"].to_pylist() == [False]


def test_a_refused_file_waits_until_its_fault_may_be_gone(files_config: Configs, data: Path, landing: Any) -> None:
    """No new increment while nothing changed; a raised limit, a mapped column or a stated format is looked at."""
    (data / "big.txt").write_bytes(b"x" * 100)
    (data / "records.jsonl").write_bytes(b'{"body": "a", "id": "1"}\n')
    (data / "odd.xyz").write_text("x")
    config = files_config(text_column="text", max_document_bytes=50)
    documents, arrivals = landing.land(config)
    assert documents == []
    assert statuses(arrivals, data) == {
        "big.txt": "rejected too_large",
        "records.jsonl": "rejected missing_column",
        "odd.xyz": "rejected unknown_format",
    }
    assert landing.land(config) is None
    documents, arrivals = landing.land(files_config(text_column="body", max_document_bytes=50))
    assert [row["path"] for row in documents] == ["records.jsonl#ca978112ca1bbdca"]
    assert "big.txt" not in statuses(arrivals, data)
    documents, _ = landing.land(files_config(text_column="body"))
    assert [row["path"] for row in documents] == ["big.txt"]
    documents, _ = landing.land(files_config(glob="*.xyz", format="text"))
    assert [row["path"] for row in documents] == ["odd.xyz"]


def test_a_source_without_files_is_an_error_before_anything_runs(
    files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """One line that names the dataset or the path."""
    with pytest.raises(InputError, match=r"^dataset notes: the source holds no file \(files\); check"):
        discover(files_config(), empty_arrivals)
    with pytest.raises(InputError, match=r"/nowhere: no such file or directory"):
        discover(files_config(path=str(data / "nowhere")), empty_arrivals)
    (data / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(InputError, match=r"1 files of records \(such as a.jsonl\) and no text_column"):
        discover(files_config(), empty_arrivals)
    with pytest.raises(InputError, match="not installed: no-such-a, no-such-b"):
        discover(repositories(["no-such-b", "no-such-a"]), empty_arrivals)


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "files"},
        {"kind": "files", "path": "x", "format": "xml"},
        {"kind": "tape", "path": "x"},
        {"kind": "python_code", "distributions": []},
        {"kind": "python_code", "distributions": ["rich"], "directories": ["x"]},
        {"kind": "python_code", "path": "x"},
    ],
)
def test_a_source_that_makes_no_sense_is_refused(source: dict[str, object]) -> None:
    """By the config model, with the field's name."""
    with pytest.raises(ValidationError):
        DocumentsConfig.model_validate({"dataset": "d", "source": source})


@pytest.mark.parametrize("values", [{"shards": 3}, {"shards": 0}, {"dataset": "Bad-Name"}, {"max_document_bytes": 0}])
def test_values_out_of_bounds_are_refused(values: dict[str, object]) -> None:
    """Shards are a power of two, names are names."""
    good = {"dataset": "d", "source": {"kind": "python_code"}}
    DocumentsConfig.model_validate(good)
    with pytest.raises(ValidationError):
        DocumentsConfig.model_validate({**good, **values})


def test_code_of_real_distributions_is_listed_with_facts_once_each(empty_arrivals: pa.Table) -> None:
    """Source files only, licence and version on each; the facts stand on one file of each repository."""
    listing = discover(repositories(["attrs", "click", "markdown-it-py"]), empty_arrivals)
    assert listing is not None
    rows = listing.to_pylist()
    assert {row["repository"] for row in rows} == {"attrs", "click", "markdown-it-py"}
    assert {"attr/__init__.py", "attr/__init__.pyi", "click/core.py"} <= {row["path"] for row in rows}
    read = [row for row in rows if row["reason"] is None]
    assert not [row["path"] for row in read if "dist-info" in row["path"] or row["kind"] == "prose"]
    assert {row["reason"] for row in rows if "dist-info" in row["path"]} == {"other_kind"}
    assert {row["licence"] for row in rows if row["repository"] == "click"} == {"BSD-3-Clause"}
    facts = [json.loads(row["repository_facts"])["repository"] for row in rows if row["repository_facts"]]
    assert sorted(facts) == ["attrs", "click", "markdown-it-py"]


def test_docs_of_real_distributions_are_descriptions_licences_and_docstrings(empty_arrivals: pa.Table) -> None:
    """Paths say which part of a file is meant, and do not carry the version."""
    listing = discover(repositories(["attrs", "click"], "python_docs"), empty_arrivals)
    assert listing is not None
    readers = dict(zip(listing["path"].to_pylist(), listing["reader"].to_pylist(), strict=True))
    assert readers["attrs.dist-info/METADATA#description"] == "description"
    assert readers["attrs.dist-info/licenses/LICENSE"] == "text"
    assert readers["click/core.py#docstring"] == "docstring"
    assert set(listing["kind"].to_pylist()) == {"prose"}
    without = discover(repositories(["attrs", "click"], "python_docs", docstrings=False), empty_arrivals)
    assert without is not None and set(without["reader"].drop_null().to_pylist()) == {"description", "text"}


def test_directories_are_repositories_named_after_them(tmp_path: Path, empty_arrivals: pa.Table) -> None:
    """Paths start at the directory; prose goes with the docs, source with the code."""
    for name in ("one/pkg/m.py", "one/README.md", "one/LICENSE", "one/data.json", "two/x.rs", "two/notice.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("'x'")

    def listed(kind: str) -> set[tuple[str, str]]:
        config = {"dataset": "d", "source": {"kind": kind, "directories": [f"{tmp_path}/*"]}}
        listing = discover(DocumentsConfig.model_validate(config), empty_arrivals)
        assert listing is not None
        assert listing.num_rows == 6
        return {(row["repository"], row["path"]) for row in listing.to_pylist() if row["reason"] is None}

    assert listed("python_code") - {("one", "README.md")} == {  # .md may be code of GCC, so it is looked into
        ("one", "pkg/m.py"),
        ("one", "data.json"),
        ("two", "x.rs"),
        ("two", "notice.py"),
    }
    assert listed("python_docs") == {
        ("one", "pkg/m.py#docstring"),
        ("one", "README.md"),
        ("one", "LICENSE"),
        ("two", "notice.py#docstring"),
    }


def test_size_ranks_deal_the_largest_files_first(files_config: Configs, data: Path, landing: Any) -> None:
    """0 is the largest of those to be read, so that tasks which take turns carry about the same."""
    for name, size in (("a.txt", 5), ("b.txt", 500), ("c.txt", 50)):
        (data / name).write_bytes(b"x" * size)
    listing = discover(files_config(), pa.table({"increment": pa.array([], pa.int32())}))
    assert listing is not None
    assert dict(zip(listing["path"].to_pylist(), listing["size_rank"].to_pylist(), strict=True)) == {
        "a.txt": 2,
        "b.txt": 0,
        "c.txt": 1,
    }


@pytest.mark.nightly
def test_ten_thousand_files_are_listed_in_two_seconds(files_config: Configs, data: Path, landing: Any) -> None:
    """Both the first time and when all of them are known; in seconds of this process, as the machine may be busy."""
    for number in range(10_000):
        directory = data / str(number % 100)
        if number < 100:
            directory.mkdir()
        (directory / f"{number}.txt").touch()
    config = files_config()
    started = time.process_time()
    listing = discover(config, pa.table({"increment": pa.array([], pa.int32())}))
    assert listing is not None and listing.num_rows == 10_000
    rows = [{**row, "status": "landed", "increment": 0, "doc_id": None} for row in listing.to_pylist()]
    arrivals = pa.Table.from_pylist(rows)
    between = time.process_time()
    assert discover(config, arrivals) is None
    assert between - started < 2 and time.process_time() - between < 2
    shutil.rmtree(data)


def test_a_file_that_is_gone_makes_an_increment_of_its_own(files_config: Configs, data: Path, landing: Any) -> None:
    """The only change there is; told once, with what the file was, and the file counts as new when it is back."""
    for name in ("a.txt", "b.txt"):
        (data / name).write_text(name)
        os.utime(data / name, (1000, 1000))
    landing.land(files_config())
    (data / "a.txt").unlink()
    documents, arrivals = landing.land(files_config())
    assert documents == [] and statuses(arrivals, data) == {"a.txt": "gone"}
    (gone,) = (row for row in arrivals if row["status"] == "gone")
    assert (gone["path"], gone["byte_count"], gone["content_sha256"] is None) == ("a.txt", 5, False)
    assert landing.land(files_config()) is None
    (data / "a.txt").write_text("a.txt")
    os.utime(data / "a.txt", (1000, 1000))
    listing = discover(files_config(), pa.Table.from_pylist(landing.arrivals))
    assert listing is not None and listing["path"].to_pylist() == ["a.txt"]


def test_what_cannot_be_listed_is_not_gone(files_config: Configs, data: Path, landing: Any, tmp_path: Path) -> None:
    """Not below a directory that may not be read, nor in a source that is empty or not there."""
    (data / "below").mkdir()
    for name in ("a.txt", "below/b.txt"):
        (data / name).write_text(name)
    landing.land(files_config())
    (data / "below").rename(tmp_path / "aside")
    # No permission can hide a directory from root, a loop of links can.
    (data / "below").symlink_to("below")
    listed = [row for row in landing.arrivals if row["path"] == "below/b.txt"]
    hidden = FoundFile(str(data / "below"), "below/", None, None, Refusal(Reason.UNREADABLE, "no"))
    assert _gone_rows([Listed(hidden, "below/", None, None)], {row["location"]: row for row in listed}) == []
    (data / "below").unlink()
    (data / "a.txt").unlink()
    arrivals = pa.Table.from_pylist(landing.arrivals)
    with pytest.raises(InputError, match=r"the source holds no file \(files\); .* declare `allow_empty: true` if all"):
        discover(files_config(), arrivals)
    meant = files_config().model_copy(update={"allow_empty": True})
    listing = discover(meant, arrivals)
    assert listing is not None and listing["gone"].to_pylist() == [True, True]
    data.rmdir()
    with pytest.raises(InputError, match="no such file or directory"):
        discover(meant, arrivals)


def test_a_directory_that_is_met_again_is_told(files_config: Configs, data: Path, landing: Any) -> None:
    """A link to an ancestor or to another directory has a row that says where its files are; none lands twice."""
    (data / "below").mkdir()
    (data / "below" / "a.md").write_text("a")
    (data / "below" / "up").symlink_to(data)
    (data / "aside").symlink_to(data / "below")
    documents, arrivals = landing.land(files_config(glob="*.md"))
    assert [row["path"] for row in documents] == ["below/a.md"]
    assert statuses(arrivals, data) == {
        "aside": "rejected listed_twice",
        "below/a.md": "landed",
        "below/up": "rejected listed_twice",
    }
    assert {row["detail"] for row in arrivals if row["reason"]} == {
        f"leads to {data}, whose files are listed there",
        f"leads to {data}/below, whose files are listed there",
    }
    assert landing.land(files_config(glob="*.md")) is None


def test_files_below_a_directory_that_became_a_link_are_gone(files_config: Configs, data: Path, landing: Any) -> None:
    """The link hides nothing: what lay there before is told as gone, unless another location has its path."""
    for name in ("kept", "left"):
        (data / name).mkdir()
        (data / name / f"{name}.md").write_text(name)
    landing.land(files_config())
    shutil.rmtree(data / "left")
    (data / "left").symlink_to("kept")
    _, arrivals = landing.land(files_config())
    assert statuses(arrivals, data) == {
        "left": "rejected listed_twice",
        "left/left.md": "gone",
    }


def test_a_moved_source_loses_no_document(files_config: Configs, data: Path, landing: Any, tmp_path: Path) -> None:
    """Other locations with the same paths: the old ones are gone, but no document went with them."""
    for name in ("a.txt", "b.txt"):
        (data / name).write_text(name)
    landing.land(files_config())
    data.rename(tmp_path / "moved")
    (tmp_path / "moved" / "b.txt").unlink()
    documents, arrivals = landing.land(files_config(path=str(tmp_path / "moved")))
    assert documents == []
    gone = {os.path.basename(row["location"]): row["path"] for row in arrivals if row["status"] == "gone"}
    assert gone == {"a.txt": None, "b.txt": "b.txt"}
