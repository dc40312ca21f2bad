"""Data sets of the Hub land like files of a folder: at a commit, byte for byte, whatever the network does."""

from __future__ import annotations

import hashlib
import io
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace_features.hub import hub_client
from headrace_features.hub.hub_files import HubFile, without_commit
from headrace_features.hub.hub_source import HubSource
from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.headrace_features.hub.hub_server import REPO, HubServer, hub_server
from tests.spark_jobs.sources.conftest import Landing
from tests.tiers import sampled, tries

TOKEN = "hf_qZ7xW2vL9kRtB4nM"


def parquet(*texts: str) -> bytes:
    """A file of texts with ids."""
    out = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts), "id": [text.split()[0] for text in texts]}), out)
    return out.getvalue()


FILES = {
    "README.md": b"# Pages",
    ".gitattributes": b"*.parquet filter=lfs",
    "data/train-0.parquet": parquet("one mill", "two wheels"),
    "data/train-1.parquet": parquet("three stones"),
    "data/test 0.parquet": parquet("four sacks"),
    "small.parquet": parquet("five races"),
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The stand-in, with one commit; waits are short."""
    monkeypatch.setattr(hub_client, "_FIRST_WAIT", 0.001)
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        server.commits.append(dict(FILES))
        yield server


def config(hub: HubServer, tmp_path: Path, **more: Any) -> DocumentsConfig:
    """A dataset of the stand-in, as YAML declares it."""
    hosts = [hub.store.removeprefix("http://")]
    columns = {"text_column": "text", "id_column": "id", "cache": str(tmp_path / "cache"), "allowed_hosts": hosts}
    return DocumentsConfig.model_validate(
        {"dataset": "pages", "source": {"kind": "hub", "repo_id": REPO, **columns, **more}}
    )


def source_of(declared: DocumentsConfig) -> HubSource:
    """The source of a dataset."""
    assert isinstance(declared.source, HubSource)
    return declared.source


def texts(landed: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None) -> list[str]:
    """The sorted texts of an increment."""
    return sorted(row["content"] for row in (landed or ([], []))[0])


@sampled()
@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        (None, ["five races", "four sacks", "one mill", "three stones", "two wheels"]),
        ("data/train-*", ["one mill", "three stones", "two wheels"]),
        ("data/test*", ["four sacks"]),
        ("small.parquet", ["five races"]),
    ],
)
def test_parquet_files_land_at_the_commit(
    hub: HubServer, tmp_path: Path, glob: str | None, expected: list[str]
) -> None:
    """In LFS or not, over pages of the tree; others are refused by their format; nothing is new at the same commit."""
    landing, declared = Landing(), config(hub, tmp_path, glob=glob)
    landed = landing.land(declared)
    assert texts(landed) == expected
    reasons = {row["path"]: row["reason"] for row in (landed or ([], []))[1] if row["reason"]}
    assert reasons == ({"README.md": "unknown_format"} if glob is None else {})
    assert all(f"@{hub.sha(0)}/" in row["location"] for row in landing.arrivals)
    assert landing.land(declared) is None


def test_a_new_commit_brings_what_changed_alone(hub: HubServer, tmp_path: Path) -> None:
    """Files with the same path and content keep their location and are not downloaded; a fixed revision stays."""
    landing, declared = Landing(), config(hub, tmp_path, glob="data/*")
    landing.land(declared)
    changed = {**FILES, "data/train-1.parquet": parquet("three new stones"), "data/new.parquet": parquet("six")}
    del changed["data/test 0.parquet"]
    hub.commits.append(changed)
    before = len(hub.store_headers())
    landed = landing.land(declared)
    assert texts(landed) == ["six", "three new stones"] and len(hub.store_headers()) == before + 2
    statuses = {row["path"]: row["status"] for row in (landed or ([], []))[1] if row["path"]}
    assert statuses["data/test 0.parquet"] == "gone" and "data/train-0.parquet" not in statuses
    assert landing.land(declared) is None
    fixed = config(hub, tmp_path, glob="data/*", revision=hub.sha(0))
    assert texts(Landing().land(fixed)) == ["four sacks", "one mill", "three stones", "two wheels"]


@pytest.mark.parametrize(
    ("cuts", "takes_ranges"),
    [([0], True), ([10, 0, 500], True), ([1] * 9, True), ([100, 0, 0, 0], True), ([10, 20, 30, 40, 50, 60], False)],
)
def test_a_download_goes_on_where_it_broke(hub: HubServer, tmp_path: Path, cuts: list[int], takes_ranges: bool) -> None:
    """The bytes that came are not asked for again, where the server takes ranges."""
    hub.cuts, hub.takes_ranges = list(cuts), takes_ranges
    assert texts(Landing().land(config(hub, tmp_path, glob="data/train-0*"))) == ["one mill", "two wheels"]
    starts = [headers.get("range") for headers in hub.store_headers()]
    if takes_ranges:
        done = [sum(cuts[:number]) for number in range(len(starts))]
        assert starts == [f"bytes={start}-" if start else None for start in done]


def test_what_a_killed_run_left_is_gone_on_with(hub: HubServer, tmp_path: Path) -> None:
    """A part in the cache is taken by its digest; one with other bytes is thrown away."""
    data, cache = FILES["data/train-0.parquet"], tmp_path / "cache"
    cache.mkdir()
    part = cache / f"{hashlib.sha256(data).hexdigest()}.part"
    declared = config(hub, tmp_path, glob="data/train-0*")
    for left, starts in ((data[:100], ["bytes=100-"]), (b"?" * 100, ["bytes=100-", None]), (data + b"?", [None])):
        hub.asked.clear()
        part.write_bytes(left)
        assert texts(Landing().land(declared)) == ["one mill", "two wheels"]
        assert [headers.get("range") for headers in hub.store_headers()] == starts
        assert not part.exists()
        part.with_suffix("").unlink()


def test_other_bytes_than_the_listed_never_land(hub: HubServer, tmp_path: Path) -> None:
    """Once is taken for a fault of the way, twice is told."""
    declared = config(hub, tmp_path, glob="data/train-0*")
    hub.wrong_bytes = 1
    assert texts(Landing().land(declared)) == ["one mill", "two wheels"]
    hub.commits.append({"data/train-0.parquet": parquet("nine")})
    hub.wrong_bytes = 2
    landed = Landing().land(declared)
    assert landed is not None and not landed[0]
    (arrival,) = landed[1]
    assert arrival["reason"] == "bad_answer" and "other bytes than the sha256 and size" in arrival["detail"]


def test_a_server_that_ends_for_good_refuses_the_file_until_the_next_run(hub: HubServer, tmp_path: Path) -> None:
    """The others land."""
    landing, declared = Landing(), config(hub, tmp_path, glob="data/train-*")
    hub.cuts = [5] + [0] * 5
    landed = landing.land(declared)
    assert len(texts(landed)) in (1, 2)
    (arrival,) = [row for row in (landed or ([], []))[1] if row["reason"]]
    assert arrival["reason"] == "no_answer" and "broke off at byte 5 of" in arrival["detail"]
    landing.land(declared)
    assert sorted(row["content"] for row in landing.documents) == ["one mill", "three stones", "two wheels"]


def test_the_token_goes_to_the_endpoint_alone(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not to the host that a redirect names, into no log, no row and no file of the cache."""
    hub.token = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    landing, declared = Landing(), config(hub, tmp_path)
    with caplog.at_level(logging.DEBUG):
        assert len(texts(landing.land(declared))) == 5
    assert hub.store_headers() and not any("authorization" in headers for headers in hub.store_headers())
    asked = [headers for address, headers in hub.asked if not address.startswith("store:")]
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for headers in asked)
    kept = b"".join(file.read_bytes() for file in (tmp_path / "cache").iterdir())
    assert TOKEN not in f"{caplog.text}{landing.arrivals}{declared.model_dump_json()}" and TOKEN.encode() not in kept


def test_a_redirect_into_a_private_network_is_refused(hub: HubServer, tmp_path: Path) -> None:
    """Unless the source allows the host; the next page of a list is on the endpoint."""
    landed = Landing().land(config(hub, tmp_path, glob="small*", allowed_hosts=[]))
    assert landed is not None and not landed[0]
    (arrival,) = landed[1]
    assert arrival["reason"] == "forbidden_address" and "source.allowed_hosts" in arrival["detail"]
    link = {"Link": '<https://elsewhere.example/tree>; rel="next"'}
    hub.faults = [(200, {}, b'{"sha": "%s"}' % hub.sha(0).encode()), (200, link, b"[]")]
    with pytest.raises(InputError, match=r"the list of files goes on at https://elsewhere.example/tree, another host"):
        list(source_of(config(hub, tmp_path)).entries())


@pytest.mark.parametrize(
    ("more", "faults", "token", "expected"),
    [
        ({"repo_id": "mill/pagse"}, [], None, r"no data set mill/pagse \(401\); did you mean 'mill/pages'\?.*HF_TOKEN"),
        ({"revision": "v2"}, [], None, "mill/pages has no revision v2; name a branch, a tag or a commit"),
        ({"glob": "x/*"}, [], None, r"none of 4 Parquet files matches 'x/\*'; such as data/test 0.parquet"),
        (
            {},
            [(403, {"X-Error-Code": "GatedRepo"}, b"")],
            None,
            r"is gated; accept its terms at http.*, and set HF_TOKEN",
        ),
        (
            {},
            [(401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"")],
            TOKEN,
            "does not take the",
        ),
        ({}, [(403, {}, b"")], TOKEN, r"shows no data set mill/pages \(403\); .*the token of HF_TOKEN may not see it"),
        ({}, [(404, {}, b"")], None, r"shows no data set mill/pages \(404\)"),
        (
            {},
            [(429, {"Retry-After": "900"}, b"")],
            None,
            r"limits requests \(429\); run again in 900 s, or set HF_TOKEN",
        ),
        ({}, [(503, {}, b"")] * 5, None, "the Hub answers 503; run again"),
        ({}, [(200, {}, b"[1]")], None, "does not answer as a Hub does; check HF_ENDPOINT"),
        ({}, [(200, {}, b'{"sha": "1"}'), (200, {}, b"{}")], None, "has no Parquet file among 0; try"),
        ({}, [(200, {}, b'{"sha": "1"}'), (200, {}, b'[{"path": 1}]')], None, "does not answer as a Hub does"),
        ({}, [(200, {}, b"<html>")], None, "does not answer as a Hub does; check HF_ENDPOINT"),
    ],
)
def test_each_fault_is_one_line_that_says_what_to_do(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, str],
    faults: list[tuple[int, dict[str, str], bytes]],
    token: str | None,
    expected: str,
) -> None:
    """Before anything is computed."""
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.faults = list(faults)
    with pytest.raises(InputError, match=expected) as error:
        list(source_of(config(hub, tmp_path, **more)).entries())
    assert "\n" not in str(error.value) and TOKEN not in str(error.value)


def test_a_server_that_asks_to_wait_is_asked_again(hub: HubServer, tmp_path: Path) -> None:
    """After Retry-After, or after longer and longer waits."""
    hub.faults = [(429, {"Retry-After": "0"}, b""), (503, {}, b""), (429, {"Retry-After": "0"}, b"")]
    assert len(list(source_of(config(hub, tmp_path, glob="data/*")).entries())) == 3 and not hub.faults


def test_no_network_and_no_parquet_are_told(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is named; other formats have a revision of the Hub's."""
    hub.commits.append({"data.jsonl": b"{}"})
    with pytest.raises(
        InputError, match=r"has no Parquet file among 1 \(such as data.jsonl\); try revision refs/convert"
    ):
        list(source_of(config(hub, tmp_path)).entries())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        InputError, match=r"http://127.0.0.1:9 gives no answer \(.*\); check HF_ENDPOINT and the network"
    ):
        list(source_of(config(hub, tmp_path)).entries())


def test_the_cache_stays_below_its_bound(hub: HubServer, tmp_path: Path) -> None:
    """The file that was read last stays, and is not asked for again."""
    declared = config(hub, tmp_path, cache_gb=1e-9)
    Landing().land(declared)
    (file,) = (tmp_path / "cache").iterdir()
    asked = len(hub.store_headers())
    listed = next(entry for entry in source_of(declared).entries() if file.name in entry.location)
    with source_of(declared).open(listed.location) as stream:
        assert stream.read() == file.read_bytes()
    assert len(hub.store_headers()) == asked


@given(data=st.data())
@settings(max_examples=tries(100, 10), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_tasks_that_want_one_file_download_it_once(hub: HubServer, tmp_path: Path, data: st.DataObject) -> None:
    """However many there are and wherever the store breaks off; each reads all of its bytes."""
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    hub.asked.clear()
    hub.cuts = data.draw(st.lists(st.integers(0, 200), max_size=4))
    breaks = len(hub.cuts)
    source = source_of(config(hub, tmp_path, glob="data/train-0*"))
    (listed,) = source.entries()

    def read(_: int) -> bytes:
        with source.open(listed.location) as stream:
            return bytes(stream.read())

    with ThreadPoolExecutor(4) as threads:
        read_by_all = set(threads.map(read, range(data.draw(st.integers(1, 4)))))
    assert read_by_all == {FILES["data/train-0.parquet"]} and len(hub.store_headers()) == breaks + 1


_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\x00"), min_size=1, max_size=8)


@given(st.lists(_NAMES, min_size=1, max_size=3).map("/".join), st.booleans(), st.integers(0, 2**50))
def test_a_location_says_all_of_its_file(path: str, is_lfs: bool, byte_count: int) -> None:
    """Whatever the path; without the commit it is the same at each commit."""
    kind, digest = ("sha256", "5f" * 32) if is_lfs else ("git", "5f" * 20)
    file, later = (HubFile(REPO, letter * 40, path, kind, digest, byte_count) for letter in "ab")
    assert HubFile.at(file.location) == file
    assert without_commit(file.location) == without_commit(later.location) != file.location


def test_a_source_reads_parquet_alone() -> None:
    """Another format is refused where it is declared."""
    with pytest.raises(DefinitionError, match=r"source.format: 'csv' is not known") as error:
        bind_config(
            DocumentsConfig, "a/b", {"dataset": "a", "source": {"kind": "hub", "repo_id": "a", "format": "csv"}}
        )
    assert "\n" not in str(error.value)
