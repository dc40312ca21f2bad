"""The test that decides: increments, a second corpus, a training run in progress, upkeep, crashes, other partitions."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from blender_service.blend.requests import SourceSpec
from blender_service.client import BlenderClient
from blender_service.server.server import start
from headrace.tables.settings import settings_at
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.maintenance import TASKS
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.session import start_session
from tests.main_path.project import Outcome, point_at, run, write_first, write_second

pytestmark = pytest.mark.nightly

Rows = list[tuple[int, bytes]]

_DATASET_TABLES = (
    *("documents", "repositories", "provenance", "arrivals", "texts", "signals", "verdicts"),
    *("dependencies", "dependency_methods"),
)
_CORPUS_TABLES = (
    "increments",
    "members",
    "revisions",
    "exact_duplicates",
    "survivors",
    "ordered",
    "tokens",
    "token_statistics",
)
_NEAR_TABLES = ("bags", "signatures", "buckets", "bands", "pairs", "large_buckets", "components", "removals")
_INCREMENTAL = {
    *(f"{dataset}.{table}" for dataset in ("tools", "notes") for table in _DATASET_TABLES),
    *(
        f"main.{table}"
        for table in (*_CORPUS_TABLES, *_NEAR_TABLES, "thresholds", "packed_tools_256", "packed_notes_256")
    ),
}
_KEPT_TIDY = (
    "tools.documents",
    "notes.arrivals",
    "main.members",
    "main.bags",
    "main.signatures",
    "main.pairs",
    "main.tokenizer",
    "main.tokens",
    "main.token_statistics",
    "main.packed_tools_256",
    "main.packed_notes_256",
)


@dataclass(frozen=True)
class Story:
    """What happened to one lake: a first increment, a training run, more data, a second corpus, upkeep."""

    first: Outcome
    second: Outcome
    third: Outcome
    first_versions: dict[str, str]
    old_rows_versions: dict[str, str]
    versions: dict[str, str]
    versions_after_upkeep: dict[str, str]
    expected: Rows
    consumed: Rows
    read_after_upkeep: Rows
    read_after_restart: Rows
    tokenizers: tuple[str, str]
    generations: tuple[str, str]
    packed: pa.Table
    old_members: list[str]
    new_members: list[str]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are; the same place for every build, since rows name it."""
    return tmp_path_factory.mktemp("source") / "files"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, source: Path, spark: object) -> Story:
    """Live through it once, with 2 partitions."""
    root = tmp_path_factory.mktemp("lake")
    catalogue = open_catalogue(settings_at(root))

    def value(table: str, column: str) -> str:
        return str(catalogue.load_table(table).scan(selected_fields=(column,)).to_arrow()[column][0])

    def paths(table: str) -> list[str]:
        rows = catalogue.load_table(table).scan("dataset = 'notes'", ("path",)).to_arrow()
        return [str(path) for path in rows["path"].to_pylist()]

    def generation() -> str:
        return str(catalogue.load_table("main.packed_tools_256").properties["headrace.generation"])

    with pytest.MonkeyPatch.context() as patch:
        for name, setting in point_at(root).items():
            patch.setenv(name, setting)
        write_first(source)
        first = run(source)
        assert first.success, first.failures
        first_versions = spark_versions(root)
        before = (value("main.tokenizer", "sha256"), generation())
        with start(catalogue) as server, BlenderClient(server.address) as client:
            sources = [SourceSpec(table="main.packed_tools_256", weight="3"), SourceSpec(table="main.packed_notes_256")]
            blend = client.create_blend(sources, seed=5)
            assert blend.end is not None and blend.end > 40
            expected = list(rows_of(client, blend.blend_id))
            training = rows_of(client, blend.blend_id)
            consumed = [next(training) for _ in range(20)]
            write_second(source)
            second = run(source, both=True)
            consumed += list(training)
            versions = spark_versions(root)
            old_rows = spark_versions(root, "increment = 0")
            keep_tidy(root)
            tidy = spark_versions(root)
            third = run(source, both=True)
            after_upkeep = list(rows_of(client, blend.blend_id))
        with start(catalogue) as server, BlenderClient(server.address) as client:
            after_restart = list(rows_of(client, blend.blend_id))
    packed = catalogue.load_table("main.packed_tools_256").scan(selected_fields=("increment", "ordinal")).to_arrow()
    return Story(
        first=first,
        second=second,
        third=third,
        first_versions=first_versions,
        old_rows_versions=old_rows,
        versions=versions,
        versions_after_upkeep=tidy,
        expected=expected,
        consumed=consumed,
        read_after_upkeep=after_upkeep,
        read_after_restart=after_restart,
        tokenizers=(before[0], value("main.tokenizer", "sha256")),
        generations=(before[1], generation()),
        packed=packed.sort_by("ordinal"),
        old_members=paths("main.members"),
        new_members=paths("prose.members"),
    )


def spark_versions(root: Path, where: str = "true") -> dict[str, str]:
    """Digest of every table as Spark reads it, without the ledger's help."""
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    spark = start_session(settings)
    names = [".".join(table) for space in catalogue.list_namespaces() for table in catalogue.list_tables(space)]
    names = [name for name in names if not name.startswith("system.")]
    return {name: str(digest(table_rows(spark, name).where(where))) for name in names}


def rows_of(client: BlenderClient, blend: str) -> Iterator[tuple[int, bytes]]:
    """Offset and token bytes of a blend's rows, from one open stream."""
    for batch in client.read(blend, offset=0, max_batch_rows=4):
        for place in range(len(batch.input_ids)):
            yield batch.offset + place, batch.input_ids[place].tobytes()


def keep_tidy(root: Path) -> None:
    """All of maintenance: files are merged, every snapshot but the heads and the pinned ones goes."""
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    spark = start_session(settings)
    for table in _KEPT_TIDY:
        compact(catalogue, table)
    lake = Lake(catalogue, Ledger(catalogue), lambda: spark)
    for task in TASKS.values():
        assert not [one for one in task(lake, 0.0, False) if "writing" in one.text]


def test_the_first_run_computes_everything(story: Story) -> None:
    """Every table gets its increment 0, and Dagster is told the versions of the rows that Spark reads."""
    assert story.first.failures == ()
    assert set(story.first.computed.values()) == {"0"}
    assert story.first.versions == story.first_versions


def test_new_data_touches_only_the_new_increment(story: Story) -> None:
    """1% new and 1% edited documents: every step computes increment 1, the frozen ones nothing."""
    assert story.second.failures == ()
    old_corpus = {table: places for table, places in story.second.computed.items() if not table.startswith("prose.")}
    assert old_corpus == dict.fromkeys(_INCREMENTAL, "1")
    assert story.second.versions == story.versions


def test_a_second_corpus_computes_only_itself(story: Story) -> None:
    """A corpus over a dataset that is there already takes all its increments in as its own increment 0."""
    fresh = {table: places for table, places in story.second.computed.items() if table.startswith("prose.")}
    assert set(fresh.values()) == {"0"}
    frozen = ("tokenizer", "tokenizer_certificate")
    assert {f"prose.{table}" for table in (*_CORPUS_TABLES, *frozen, "packed_notes_128")} == set(fresh)


def test_old_rows_and_the_tokenizer_are_unchanged(story: Story) -> None:
    """Rows of increment 0 are, in every table, what they were before more data came."""
    assert {table: story.old_rows_versions[table] for table in story.first_versions} == story.first_versions
    assert story.tokenizers[0] == story.tokenizers[1]


def test_ordinals_continue_in_the_same_generation(story: Story) -> None:
    """Ordinals are dense over both increments, the old ones first."""
    ordinals, increments = story.packed["ordinal"].to_pylist(), story.packed["increment"].to_pylist()
    assert ordinals == list(range(len(ordinals)))
    assert increments == sorted(increments) and set(increments) == {0, 1}
    assert story.generations[0] == story.generations[1]


def test_only_a_new_corpus_leaves_old_revisions_out(story: Story) -> None:
    """An edited note is in the new corpus once, in its last revision; the old corpus holds both."""
    assert len(story.new_members) == len(set(story.new_members))
    assert sum(path.endswith("#101") for path in story.new_members) == 1
    assert sum(path.endswith("#101") for path in story.old_members) == 2


def test_a_training_run_in_progress_goes_on_byte_for_byte(story: Story) -> None:
    """The stream that was open while the lake grew gives what was there to be read before, to the end."""
    assert story.consumed == story.expected


def test_upkeep_changes_no_digest_and_recomputes_nothing(story: Story) -> None:
    """Compaction and expiry of snapshots leave all versions; the run after them finds everything up to date."""
    assert story.versions_after_upkeep == story.versions
    assert story.third.failures == () and story.third.computed == {}
    assert story.third.versions == story.versions


def test_a_pinned_blend_survives_upkeep_and_a_restart(story: Story) -> None:
    """Every row can be read again, byte for byte, after its files were compacted away and the server started anew."""
    assert story.read_after_upkeep == story.expected
    assert story.read_after_restart == story.expected


@pytest.mark.parametrize(("partitions", "backwards"), [(1, True), (7, False)])
def test_partitions_and_file_order_change_no_digest(
    tmp_path: Path,
    source: Path,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    backwards: bool,
) -> None:
    """1 and 7 partitions, and files written in the opposite order, give the same digest of every table."""
    for name, value in point_at(tmp_path).items():
        monkeypatch.setenv(name, value)
    config = {"spark.sql.shuffle.partitions": str(partitions), "spark.sql.adaptive.enabled": "false"}
    write_first(source, backwards)
    assert run(source, spark_config=config).failures == ()
    write_second(source, backwards)
    assert run(source, spark_config=config).failures == ()
    found = spark_versions(tmp_path)
    assert found == {table: version for table, version in story.versions.items() if table in found}
    assert set(found) == set(story.first_versions)


def test_kill_at_any_moment_changes_no_digest(
    tmp_path: Path, source: Path, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs on one core that are killed at random moments, then one that may end: digests of the undisturbed build."""
    for name, setting in point_at(tmp_path).items():
        monkeypatch.setenv(name, setting)
    draw = random.Random(20)
    kills = 0
    for write, both in ((write_first, False), (write_second, True)):
        write(source)
        kills += killed_run(source, tmp_path, ["both"] if both else [], after_seconds=draw.uniform(15, 35))
        assert run(source, both).failures == ()
    assert kills > 0, "at least one run was killed before it ended"
    assert spark_versions(tmp_path) == story.versions
    ledger = Ledger(open_catalogue(settings_at(tmp_path)))
    ledger.refresh()
    recorded = {
        table: str(sum((row.data_version for row in ledger.places(table).values()), DataVersion()))
        for table in story.versions
    }
    assert recorded == story.versions


def environment(root: Path) -> dict[str, str]:
    """Environment of a run on one core."""
    return {**os.environ, **point_at(root), "HEADRACE_SPARK_MASTER": "local[1]", "HEADRACE_SPARK_MEMORY": "1g"}


def killed_run(source: Path, root: Path, words: list[str], after_seconds: float) -> int:
    """Start a run and kill it with all its processes; 1 if it was still running."""
    command = [sys.executable, "-m", "tests.main_path.project", str(source), *words]
    process = subprocess.Popen(command, env=environment(root), start_new_session=True)
    deadline = time.monotonic() + after_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if process.poll() is not None:
        return 0
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return 1
