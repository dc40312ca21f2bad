"""A run on a standalone cluster whose executors know nothing of the project: the same tables as on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.main_path.standalone import Standalone, said, standalone

pytestmark = pytest.mark.nightly

# A user's project: a table, what its executors call in the same module, and a package of the user's with its own data.
OWN_TABLES = """
import pyarrow as pa

from dagster_project.table_asset import table_asset
from own_words import is_stop_word
from spark_jobs.lake.declare.tables import Column, Table

COLUMNS = "doc_id string, words bigint, blanked string, sources string, kept string"
COUNTED = Table(
    name="counted",
    comment="Words of each document.",
    columns=(
        Column("doc_id!", "string", "identity of the document"),
        Column("words!", "long", "words that are no stop words"),
        Column("blanked!", "string", "the text without comments"),
        Column("sources!", "string", "numbers of the sources of the kernels that were compiled"),
        Column("kept!", "string", "whether the code lies as files that caches are kept beside"),
    ),
)


@table_asset(table="mine.counted", schema=COUNTED, inputs={"documents": "code.documents"})
def counted(documents):
    return documents.select("doc_id", "content").mapInArrow(count, COLUMNS)


def count(batches):
    from spark_jobs.lexing import blank as blanking
    from spark_jobs.dedup.bags import token_counting
    from headrace.kernels.compiling import sources_digest

    for batch in batches:
        texts = batch["content"].to_pylist()
        sources = f"{sources_digest(blanking.__name__)} {sources_digest(token_counting.__name__)}"
        yield pa.RecordBatch.from_pydict(
            {
                "doc_id": batch["doc_id"],
                "words": [sum(not is_stop_word(word) for word in text.split()) for text in texts],
                "blanked": [blanking.blank(text.encode(), "Python").decode() for text in texts],
                "sources": [sources] * len(texts),
                "kept": [str(bool(blanking._blank_into.stats.cache_path))] * len(texts),
            }
        )
"""
OWN_WORDS = """
from pathlib import Path

_STOP_WORDS = Path(__file__).with_name("stop_words.txt").read_text().split()


def is_stop_word(word):
    return word in _STOP_WORDS
"""
# The driver's program: a table a line, each when it is told to go on; then a source that only the driver sees.
DRIVER = """
import functools, json, sys
from pathlib import Path

import dagster as dg
import own_tables
from dagster_project.lake_asset import declared_binding
from dagster_project.resources import LakeResource
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.session import start_session
from headrace.tables.settings import settings_at
from spark_jobs.sources.documents import documents
from spark_jobs.sources.config.source_config import DocumentsConfig

settings = settings_at(Path(sys.argv[1]))
catalogue = open_catalogue(settings)
session = functools.cache(lambda: start_session(settings))
lake = Lake(catalogue, Ledger(catalogue), session)


def source(name, path):
    return Binding(documents, name, {}, DocumentsConfig(dataset=name, source={"kind": "files", "path": path}))


def tell(values):
    print(json.dumps(values), flush=True)
    sys.stdin.readline()


assets = dg.load_assets_from_modules([own_tables])
graph = dg.Definitions(assets, resources={"lake": LakeResource()}).resolve_asset_graph()
for binding in [source("code", sys.argv[2]), declared_binding("mine.counted", graph, catalogue)]:
    outcome = materialize(lake, binding)[0]
    partitions = int(session().conf.get("spark.sql.shuffle.partitions"))
    tell({"table": outcome.identifier, "version": str(outcome.version), "partitions": partitions})
try:
    rows = materialize(lake, source("unseen", "/proc/self/cwd/unseen"))[0].version.count
    tell({"rows": rows})
except SparkJobsError as error:
    tell({"error": str(error)})
memory = [session().conf.get(name, None) for name in ("spark.cores.max", "spark.executor.memory")]
tell({"settings": memory})
session().stop()
"""


class Story(NamedTuple):
    """What a run said: its lines, and its standard error."""

    lines: list[dict[str, object]]
    errors: str


class Driver:
    """The program as a process."""

    def __init__(self, project: Path, name: str, **environment: str) -> None:
        self.errors = project / f"{name}.err"
        values = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{project}", **environment}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(project / "drive.py"), str(project / name), str(project / "source")],
                cwd=project,
                env=values,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.lines: list[dict[str, object]] = []

    def line(self) -> dict[str, object]:
        """The next thing that it says; it waits then."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.errors.read_text()[-3000:]
        self.lines.append(json.loads(text))
        return self.lines[-1]

    def go_on(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self) -> Story:
        """Let it come to its end."""
        while len(self.lines) < 4:
            self.go_on()
            self.line()
        self.process.communicate("\n")
        return Story(self.lines, self.errors.read_text())

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master without workers."""
    with standalone(tmp_path_factory.mktemp("cluster") / "spark") as started:
        yield started


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project, and three lines of text that only the driver's folder leads to."""
    root = tmp_path_factory.mktemp("project")
    for name, text in {
        "own_tables.py": OWN_TABLES,
        "own_words/__init__.py": OWN_WORDS,
        "own_words/stop_words.txt": "the a of",
        "drive.py": DRIVER,
        "source/a.py": "x = 1  # the first\n",
        "source/b.py": '"""The words of a module."""\nprint("a # b")  # last\n',
        "unseen/c.txt": "one\ntwo\nthree\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def story(cluster: Standalone, project: Path) -> Story:
    """A run that begins before there is a worker, and loses an executor between two tables."""
    with Driver(project, "lake", **cluster.environment, HEADRACE_SPARK_CORES="2") as driver:
        said(driver.errors, "(the run waits for cores)")
        for _ in range(2):
            cluster.add_worker()
        driver.line()
        lost = cluster.executors()[0]
        lost.kill()
        psutil.wait_procs([lost])
        return driver.rest()


def test_executors_cannot_import_the_project(cluster: Standalone) -> None:
    """What they start as Python has the third-party packages and no headrace, so that all of it must be shipped."""
    for module, there in {"pyspark": True, "numba": True, "spark_jobs": False, "dagster_project": False}.items():
        command = [str(cluster.python), "-c", f"import {module}"]
        done = subprocess.run(command, cwd=cluster.folder / "nowhere", env={}, check=False, capture_output=True)
        assert (done.returncode == 0) == there, module


def test_tables_are_those_of_a_local_run(story: Story, project: Path) -> None:
    """Kernels that read their sources, and a user's function with its package and data, give the same digests."""
    tables = [(line["table"], line["version"]) for line in story.lines[:2]]
    with Driver(project, "here", HEADRACE_SPARK_MASTER="local[2]", HEADRACE_SPARK_MEMORY="1g") as here:
        here.line()
        assert tables == [(line["table"], line["version"]) for line in here.rest().lines[:2]]
    assert [name for name, _ in tables] == ["code.documents", "mine.counted"]
    assert all(str(version).startswith("v2:2:") for _, version in tables)


def test_a_run_that_waits_for_cores_says_so(story: Story) -> None:
    """Once when it waits, once when it goes on, and nothing else on the terminal."""
    waits, goes_on = story.errors.splitlines()
    assert "the run waits for cores" in waits and "HEADRACE_SPARK_CORES" in waits
    assert "the run has cores again" in goes_on


def test_partitions_follow_the_input(story: Story) -> None:
    """A few lines of text are one partition, not the 200 that Spark makes by itself."""
    assert [line["partitions"] for line in story.lines[:2]] == [1, 1]


def test_files_that_executors_cannot_see_fail_the_step_by_name(story: Story) -> None:
    """A source that exists for the driver alone is no source without documents."""
    said = str(story.lines[2]["error"])
    assert said.startswith("unseen.documents: /proc/self/cwd/unseen/c.txt: an executor cannot read it (")
    assert "the driver can; put the source where all machines of the cluster see it" in said


def test_cores_and_memory_have_settings(story: Story) -> None:
    """They are those of the environment."""
    assert story.lines[3]["settings"] == ["2", "900m"]
