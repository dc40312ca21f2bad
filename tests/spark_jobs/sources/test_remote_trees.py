"""Files of a web server, and of other file systems that fsspec opens."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.opening.file_trees import find_files, open_file

pytest.importorskip("aiohttp", reason="aiohttp is in the extra ingest")
# aiohttp's connections belong to a loop of fsspec's that lives as long as the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class _Handler(SimpleHTTPRequestHandler):
    validators = "time"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def send_header(self, keyword: str, value: str) -> None:
        """Times, tags or neither."""
        if keyword == "Last-Modified" and self.validators != "time":
            path = Path(self.translate_path(self.path))
            if self.validators == "tag":
                super().send_header("ETag", f'"{hash(path.read_bytes())}"')
            return
        super().send_header(keyword, value)


@pytest.fixture
def web(data: Path) -> Iterator[str]:
    """The folder `data`, with the standard library's index pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(data)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _fill(data: Path) -> None:
    (data / "deep" / "er").mkdir(parents=True)
    (data / "a.txt").write_text("one")
    (data / "deep" / "ü b.txt").write_text("two")
    (data / "deep" / "er" / "r.jsonl").write_text('{"t": "three"}\n{"t": "four"}\n')
    (data / ".hidden.txt").write_text("no")
    pq.write_table(pa.table({"t": ["five"]}), data / "deep" / "r.parquet")


def test_files_of_a_web_server_land_like_local_ones(
    files_config: Callable[..., DocumentsConfig], data: Path, web: str, landing: Any
) -> None:
    """Folders, names that must be quoted, Parquet; a second listing has nothing new, a changed and a lost file do."""
    _fill(data)
    config = files_config(path=f"{web}/", text_column="t")
    documents, arrivals = landing.land(config)
    assert sorted(row["content"] for row in documents) == ["five", "four", "one", "three", "two"]
    assert {row["path"] for row in arrivals} == {"a.txt", "deep/ü b.txt", "deep/er/r.jsonl", "deep/r.parquet"}
    assert landing.land(config) is None
    (data / "a.txt").write_text("new text")
    os.remove(data / "deep" / "ü b.txt")
    documents, arrivals = landing.land(config)
    assert [row["content"] for row in documents] == ["new text"]
    assert [row["path"] for row in arrivals if row["status"] == "gone"] == ["deep/ü b.txt"]


@pytest.mark.parametrize("validators", ["tag", "none"])
def test_a_file_without_a_time_is_known_by_its_tag_or_read_again(
    files_config: Callable[..., DocumentsConfig],
    data: Path,
    web: str,
    landing: Any,
    monkeypatch: pytest.MonkeyPatch,
    validators: str,
) -> None:
    """Content of the same size is found by either."""
    monkeypatch.setattr(_Handler, "validators", validators)
    (data / "a.txt").write_text("one")
    config = files_config(path=web)
    landing.land(config)
    again = landing.land(config)
    assert again is None if validators == "tag" else [row["status"] for row in again[1]] == ["unchanged"]
    (data / "a.txt").write_text("two")
    documents, arrivals = landing.land(config)
    assert [row["content"] for row in documents] == ["two"] and "gone" not in {
        row["status"] for row in arrivals if row["path"]
    }


@pytest.mark.nightly
def test_files_of_an_object_store_land_like_local_ones(
    files_config: Callable[..., DocumentsConfig], landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through PyArrow, from a prefix; a second listing has nothing new, a new object does."""
    from tests.blender_service.s3_stand_in import S3StandIn

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with S3StandIn() as store:
        endpoint = store.properties["s3.endpoint"].removeprefix("http://")
        query = f"?scheme=http&endpoint_override={endpoint}&region=us-east-1"
        target, _ = pa.fs.FileSystem.from_uri(f"s3://lake/in{query}")

        def put(path: str, data: bytes) -> None:
            with target.open_output_stream(f"lake/in/{path}") as out:
                out.write(data)

        put("a.txt", b"one")
        put("deep/r.jsonl", b'{"t": "two"}\n')
        config = files_config(path=f"s3://lake/in{query}", text_column="t")
        documents, _ = landing.land(config)
        assert sorted(row["content"] for row in documents) == ["one", "two"]
        assert landing.land(config) is None
        put("b.txt", b"three")
        documents, _ = landing.land(config)
        assert [row["content"] for row in documents] == ["three"]


def test_a_folder_that_leads_to_itself_ends_the_listing(web: str, data: Path) -> None:
    """Servers follow links of a disk, each time by a longer address; a link to the page itself is that page."""
    (data / "index.html").write_text('<a href="./">here</a> <a href="./a.txt">a</a> <a href="b/">b</a>')
    (data / "a.txt").write_text("one")
    (data / "b").mkdir()
    assert [file.path for file in find_files(web)] == ["a.txt"]
    (data / "b" / "again").symlink_to(data)
    with pytest.raises(InputError, match="below 32 folders"):
        list(find_files(web))


def test_an_answer_that_breaks_off_is_a_refusal(
    web: str, data: Path, files_config: Callable[..., DocumentsConfig], landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file beside it lands."""

    def copyfile(handler: object, source: Any, outputfile: Any) -> None:
        text = source.read()
        outputfile.write(text[:-100] if b"broken" in text else text)

    monkeypatch.setattr(_Handler, "copyfile", copyfile)
    (data / "a.txt").write_text("whole")
    (data / "b.txt").write_text("broken" * 100)
    documents, arrivals = landing.land(files_config(path=web))
    assert [row["content"] for row in documents] == ["whole"]
    assert [(row["path"], row["reason"]) for row in arrivals] == [("a.txt", None), ("b.txt", "unreadable")]


def test_an_address_that_is_not_there_is_one_line(web: str) -> None:
    """A folder, and a server."""
    for address in (f"{web}/none", "http://127.0.0.1:9/x"):
        with pytest.raises(InputError, match="check the address") as caught:
            list(find_files(address))
        assert "\n" not in str(caught.value)


def test_other_schemes_are_opened_by_fsspec() -> None:
    """By the name that fsspec knows; one that nobody knows is one line."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/folder/a.txt", b"one")
    assert [(file.path, file.byte_count) for file in find_files("memory://folder")] == [("a.txt", 3)]
    [file] = find_files("memory://folder")
    with open_file(file.location) as opened:
        assert opened.read() == b"one"
    with pytest.raises(InputError, match="check the URI"):
        list(find_files("nonsense://folder"))


def test_a_server_that_stalls_is_not_waited_for_and_one_that_has_everything_states_no_facts(
    web: str, data: Path, files_config: Callable[..., DocumentsConfig], landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one row with its reason, and the file beside it lands."""
    ended = threading.Event()

    def copyfile(handler: object, source: Any, outputfile: Any) -> None:
        text = source.read()
        outputfile.write(text[:100])
        outputfile.flush()
        if b"slow" in text:
            ended.wait(20)
        outputfile.write(text[100:])

    monkeypatch.setattr(_Handler, "copyfile", copyfile)
    (data / "a.txt").write_text("whole")
    (data / "b.txt").write_text("slow " * 100)
    (data / "repositories.jsonl").write_text('<html>\n<a href="more">more</a>\n</html>\n')
    documents, arrivals = landing.land(files_config(path=web, stall_seconds=0.5))
    ended.set()
    assert [row["content"] for row in documents] == ["whole"]
    told = {row["path"]: (row["reason"], row["detail"]) for row in arrivals if row["reason"]}
    assert told["b.txt"][0] == "no_answer" and "0.5 s, the source.stall_seconds" in told["b.txt"][1]
    assert told["repositories.jsonl"] == ("bad_record", "a page of HTML, no facts about repositories: nothing is taken")
    assert len(arrivals) == 3
