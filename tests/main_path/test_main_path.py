"""The test that decides: increments, a second corpus, a training run in progress, upkeep, crashes, other partitions."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.client import BlenderClient
from blender_service.specification import SourceSpec
from spark_jobs.lake.catalogue import open_catalogue
from spark_jobs.lake.digest import digest
from spark_jobs.lake.ledger import LEDGER, Ledger
from spark_jobs.lake.maintenance import compact, expire
from spark_jobs.lake.session import start_session
from spark_jobs.lake.settings import settings_at
from tests.main_path.project import Outcome, point_at, run, write_first, write_second

pytestmark = pytest.mark.slow

_INCREMENTAL = {
    f"{dataset}.{table}"
    for dataset in ("tools", "notes")
    for table in ("documents", "repositories", "arrivals", "texts", "signals", "verdicts")
} | {
    f"main.{table}"
    for table in (
        [
            "increments",
            "members",
            "exact_duplicates",
            "survivors",
            "ordered",
            "tokens",
            "packed_tools_256",
            "packed_notes_256",
        ]
    )
}


def spark_versions(root: Path, where: str = "true") -> dict[str, str]:
    """Digest of every table as Spark reads it, without the ledger's help."""
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    spark = start_session(settings)
    found = {}
    for space in catalogue.list_namespaces():
        for table in catalogue.list_tables(space):
            name = ".".join(table)
            if name != LEDGER:
                found[name] = str(digest(spark.table(f"lake.{name}").where(where)))
    return found


def read_bytes(client: BlenderClient, blend: str, rows: int) -> list[tuple[int, bytes]]:
    """Offset and token bytes of the first rows of a blend."""
    found = []
    for batch in client.read(blend, offset=0, rows=rows):
        for place in range(len(batch.input_ids)):
            found.append((batch.offset + place, batch.input_ids[place].tobytes()))
    return found


@pytest.fixture(scope="module")
def monkeymodule() -> Iterator[pytest.MonkeyPatch]:
    """A monkeypatch that lasts for the module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are; the same place for every build, since rows name it."""
    return tmp_path_factory.mktemp("source") / "files"


def build(
    root: Path, source: Path, patch: pytest.MonkeyPatch, partitions: int, backwards: bool
) -> tuple[Outcome, Outcome]:
    """Both increments, one after the other, in a lake of their own."""
    for name, value in point_at(root).items():
        patch.setenv(name, value)
    config = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": str(partitions == 2).lower(),
    }
    write_first(source, backwards)
    first = run(source, spark_config=config)
    write_second(source, backwards)
    return first, run(source, both=True, spark_config=config)


@pytest.fixture(scope="module")
def reference(
    tmp_path_factory: pytest.TempPathFactory, source: Path, spark: object, monkeymodule: pytest.MonkeyPatch
) -> dict[str, str]:
    """Digests of the undisturbed build with 2 partitions."""
    root = tmp_path_factory.mktemp("reference")
    first, second = build(root, source, monkeymodule, 2, backwards=False)
    assert first.failures == () == second.failures
    found = spark_versions(root)
    assert found == second.versions, "the versions that Dagster was told are those of the rows"
    return found


def test_new_data_touches_only_the_new_increment(
    tmp_path: Path, source: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1% new, 1% edited, a second corpus, upkeep, while a training run reads: nothing old changes."""
    from blender_service.server import start

    for name, value in point_at(tmp_path).items():
        monkeypatch.setenv(name, value)
    write_first(source)
    first = run(source)
    assert first.failures == () and set(first.computed.values()) == {"0"}
    before = spark_versions(tmp_path)
    catalogue = open_catalogue(settings_at(tmp_path))
    tokenizer = catalogue.load_table("main.tokenizer").scan().to_arrow()["sha256"].to_pylist()
    generation = catalogue.load_table("main.packed_tools_256").properties["headrace.generation"]

    with start(catalogue) as server, BlenderClient(server.address) as client:
        sources = [SourceSpec(table="main.packed_tools_256", weight="3"), SourceSpec(table="main.packed_notes_256")]
        blend = client.create_blend(sources, seed=5).blend_id
        total = client.get_blend(blend).end
        assert total is not None and total > 40
        expected = read_bytes(client, blend, total)
        training = iter_rows(client, blend)
        consumed = [next(training) for _ in range(20)]

        write_second(source)
        second = run(source, both=True)
        assert second.failures == ()
        assert {table for table in second.computed if not table.startswith("prose.")} == _INCREMENTAL
        assert {second.computed[table] for table in _INCREMENTAL} == {"1"}
        assert {place for table, place in second.computed.items() if table.startswith("prose.")} == {"0"}
        old = spark_versions(tmp_path, "increment = 0")
        assert {table: old[table] for table in before} == before, "rows of increment 0 are what they were"
        assert catalogue.load_table("main.tokenizer").scan().to_arrow()["sha256"].to_pylist() == tokenizer
        assert_appended(catalogue, "main.packed_tools_256", generation)
        assert_only_latest_revisions(catalogue)

        consumed += [next(training) for _ in range(total - 20)]
        assert consumed == expected, "the training run in progress went on byte for byte"

        everything = spark_versions(tmp_path)
        keep_house(tmp_path, sorted(everything))
        assert spark_versions(tmp_path) == everything, "compaction and expiry change no digest"
        third = run(source, both=True)
        assert third.failures == () and third.computed == {}, "after upkeep nothing has to be computed"
        assert third.versions == everything
        assert read_bytes(client, blend, total) == expected

    with start(catalogue) as server, BlenderClient(server.address) as client:
        assert read_bytes(client, blend, total) == expected, "after a restart too"


def iter_rows(client: BlenderClient, blend: str) -> Iterator[tuple[int, bytes]]:
    """Rows of a blend one by one, from one open stream."""
    for batch in client.read(blend, offset=0):
        for place in range(len(batch.input_ids)):
            yield batch.offset + place, batch.input_ids[place].tobytes()


def assert_appended(catalogue: Catalog, table: str, generation: str) -> None:
    """Ordinals are dense over both increments, in order of increments, in the generation of before."""
    packed = catalogue.load_table(table)
    rows = packed.scan(selected_fields=("increment", "ordinal")).to_arrow().sort_by("ordinal")
    ordinals, increments = rows["ordinal"].to_pylist(), rows["increment"].to_pylist()
    assert ordinals == list(range(len(ordinals)))
    assert increments == sorted(increments) and set(increments) == {0, 1}
    assert packed.properties["headrace.generation"] == generation


def assert_only_latest_revisions(catalogue: Catalog) -> None:
    """The new corpus takes the edited notes in their last revision only; the old one still holds both."""
    fresh = catalogue.load_table("prose.members").scan().to_arrow()["path"].to_pylist()
    assert len(fresh) == len(set(fresh))
    assert sum(path.endswith("#101") for path in fresh) == 1
    old = catalogue.load_table("main.members").scan("dataset = 'notes'").to_arrow()["path"].to_pylist()
    assert sum(path.endswith("#101") for path in old) == 2


def keep_house(root: Path, tables: list[str]) -> None:
    """Merge files and expire every snapshot but the heads and the pinned ones."""
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    spark = start_session(settings)
    for table in tables:
        compact(spark, catalogue, table)
        expire(spark, catalogue, table, datetime.now(UTC))


@pytest.mark.parametrize(("partitions", "backwards"), [(1, True), (7, False)])
def test_partitions_and_file_order_change_no_digest(
    tmp_path: Path,
    source: Path,
    reference: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    backwards: bool,
) -> None:
    """1 and 7 partitions, and files written in the opposite order, give the digests of the reference in every table."""
    first, second = build(tmp_path, source, monkeypatch, partitions, backwards)
    assert first.failures == () == second.failures
    assert spark_versions(tmp_path) == reference


def test_kill_at_any_moment_changes_no_digest(tmp_path: Path, source: Path, reference: dict[str, str]) -> None:
    """Runs that are killed at random moments, then one that may end: the digests are those of an undisturbed build."""
    environment = {
        **os.environ,
        **point_at(tmp_path),
        "HEADRACE_SPARK_MASTER": "local[1]",
        "HEADRACE_SPARK_MEMORY": "1g",
    }
    draw = random.Random(20)
    kills = 0
    write_first(source)
    for phase, words in (("first", []), ("second", ["both"])):
        if phase == "second":
            write_second(source)
        for _ in range(2):
            kills += killed_run(source, words, environment, after_seconds=draw.uniform(12, 40))
        finished = subprocess.run(command(source, words), env=environment, check=False, timeout=400)
        assert finished.returncode == 0
    assert kills > 0, "at least one run was killed before it ended"
    assert spark_versions(tmp_path) == reference
    ledger = Ledger(open_catalogue(settings_at(tmp_path)))
    ledger.refresh()
    assert {table: str(sum_versions(ledger, table)) for table in reference} == reference


def sum_versions(ledger: Ledger, table: str) -> object:
    """A table's version as the ledger knows it."""
    from spark_jobs.lake.digest import DataVersion

    return sum((row.data_version for row in ledger.places(table).values()), DataVersion())


def command(source: Path, words: list[str]) -> list[str]:
    """The project in a process of its own."""
    return [sys.executable, "-m", "tests.main_path.project", str(source), *words]


def killed_run(source: Path, words: list[str], environment: dict[str, str], after_seconds: float) -> int:
    """Start a run and kill it with all its processes; 1 if it was still running."""
    process = subprocess.Popen(command(source, words), env=environment, start_new_session=True)
    deadline = time.monotonic() + after_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if process.poll() is not None:
        return 0
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return 1
