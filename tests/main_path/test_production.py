"""The whole way on Postgres, an S3 store and a cluster that fail for a while: the versions of one machine's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyiceberg.catalog import load_catalog

from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from tests.main_path.services import (
    PASSWORD,
    Postgres,
    Wire,
    gateway,
    lake_environment,
    object_store,
    postgres,
    rest_catalogue,
    wait_until,
)
from tests.main_path.standalone import standalone
from tests.main_path.test_one_run import GOLDEN, write

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """Postgres with a database for the catalogue."""
    with postgres("lake") as server:
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """The store, behind a wire."""
    with object_store(tmp_path_factory.mktemp("production") / "objects") as wire:
        yield wire


def test_the_way_is_the_same_while_services_fail(database: Postgres, store: Wire, tmp_path: Path) -> None:
    """Postgres restarts twice, the store is slow, answers 503 and is gone, each for some seconds of one run."""
    source = tmp_path / "source"
    source.mkdir()
    write(source)
    environment = {**os.environ, **lake_environment(database, store)}
    said = tmp_path / "said.txt"
    with said.open("w") as into:
        running = subprocess.Popen(
            [sys.executable, "-m", "tests.main_path.project", str(source)], env=environment, stdout=into, stderr=into
        )
        ended = threading.Event()
        trouble = threading.Thread(target=make_trouble, args=(database, store, environment, ended), daemon=True)
        trouble.start()
        try:
            wait_until(lambda: running.poll() is not None or "spark.sql.catalog" in command_lines(running.pid), "Spark")
            assert PASSWORD not in command_lines(running.pid), (
                "every user of a machine reads the command lines of its processes"
            )
            status = running.wait(timeout=1500)
        finally:
            running.kill()
            ended.set()
            trouble.join()
            store.fault = ""
    text = said.read_text(errors="replace")
    assert status == 0, text[-4000:]
    assert store.faults_met > 20
    assert PASSWORD not in text, "no secret in what a run says"
    versions = found_versions(environment)
    assert {table: versions[table] for table in GOLDEN} == GOLDEN


def test_the_way_is_the_same_with_a_rest_catalogue(tmp_path: Path) -> None:
    """Tables, branches, commits and the ledger of both engines go through the REST interface."""
    source = tmp_path / "source"
    source.mkdir()
    write(source)
    with rest_catalogue(tmp_path / "catalogue") as address:
        prefix = "PYICEBERG_CATALOG__LAKE__"
        lake = {f"{prefix}TYPE": "rest", f"{prefix}URI": address, f"{prefix}WAREHOUSE": str(tmp_path / "catalogue")}
        environment = {**os.environ, **lake, "DAGSTER_HOME": str(tmp_path)}
        done = project_run(source, environment)
        assert done.returncode == 0, done.stdout[-4000:]
        versions = found_versions(environment)
    assert {table: versions[table] for table in GOLDEN} == GOLDEN


def test_keys_that_expire_end_a_run_in_one_line(database: Postgres, tmp_path: Path) -> None:
    """In the middle of a run the store stops knowing the key's secret; a second run with the new one does the rest."""
    source, objects = tmp_path / "source", tmp_path / "objects"
    source.mkdir()
    write(source)
    database.run("createdb", "-h", "127.0.0.1", "-p", str(database.port), "-U", "lake", "keys")
    with object_store(objects) as store, gateway(shutil.which("versitygw") or "", objects, "another") as other:
        environment = {**os.environ, **lake_environment(database, store, "keys")}
        expired = threading.Thread(target=expire, args=(database, store, other), daemon=True)
        expired.start()
        done = project_run(source, environment)
        expired.join(timeout=60)
        assert done.returncode != 0
        said = [line for line in done.stdout.splitlines() if "PYICEBERG_CATALOG__LAKE__S3__ACCESS_KEY_ID" in line]
        assert said and PASSWORD not in done.stdout, done.stdout[-4000:]
        environment["PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY"] = "another"
        done = project_run(source, environment)
        assert done.returncode == 0, done.stdout[-4000:]
        versions = found_versions(environment)
    assert {table: versions[table] for table in GOLDEN} == GOLDEN


def expire(database: Postgres, store: Wire, other: int) -> None:
    """Lead the store's wire to another port once ten tables were made."""
    wait_until(lambda: int(ask(database, "keys", "SELECT count(*) FROM iceberg_tables") or 0) >= 10, "ten tables", 300)
    store.target = other


def project_run(source: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the project once; what it says on both streams is its stdout."""
    command = [sys.executable, "-m", "tests.main_path.project", str(source)]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False
    )


def command_lines(pid: int) -> str:
    """The command lines of a process and of all that it started."""
    process = psutil.Process(pid)
    return " ".join(word for one in (process, *process.children(recursive=True)) for word in one.cmdline())


def test_the_way_is_the_same_on_a_cluster_that_loses_executors(
    database: Postgres, store: Wire, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Master and two workers are processes of their own; an executor is killed in three steps while they compute."""
    source = tmp_path / "source"
    source.mkdir()
    write(source)
    database.run("createdb", "-h", "127.0.0.1", "-p", str(database.port), "-U", "lake", "other")
    with standalone(tmp_path_factory.mktemp("cluster") / "spark") as cluster:
        for _ in range(2):
            cluster.add_worker()
        environment = {**os.environ, **lake_environment(database, store, "other"), **cluster.environment}
        said = tmp_path / "said.txt"
        with said.open("w") as into:
            command = [sys.executable, "-m", "tests.main_path.project", str(source)]
            running = subprocess.Popen(command, env=environment, stdout=into, stderr=into)
        killed = []
        try:
            for table in ("bags", "pairs", "packed_notes_256"):
                there = f"SELECT 1 FROM iceberg_tables WHERE table_name = '{table}'"
                wait_until(lambda there=there: ask(database, "other", there) == "1" or ended(running), table, 3000)
                wait_until(lambda: bool(cluster.executors()) or ended(running), "an executor")
                executor = cluster.executors()[0]
                executor.kill()
                killed.append(executor.pid)
            status = running.wait(timeout=3000)
        finally:
            running.kill()
    assert status == 0, said.read_text(errors="replace")[-4000:]
    assert len(set(killed)) == 3
    versions = found_versions(environment)
    assert {table: versions[table] for table in GOLDEN} == GOLDEN


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process came to its end."""
    return process.poll() is not None


def make_trouble(database: Postgres, store: Wire, environment: dict[str, str], ended: threading.Event) -> None:
    """One fault after the other, each when some more tables were made than at the one before."""
    for tables, fault, seconds in (
        (3, "slow", 10),
        (6, "postgres", 4),
        (9, "503", 8),
        (13, "down", 8),
        (20, "503", 8),
        (25, "postgres", 8),
        (30, "down", 8),
    ):
        while table_count(database) < tables:
            if ended.wait(0.5):
                return
        if fault == "postgres":
            database.stop()
            time.sleep(seconds)
            database.start()
        else:
            store.fault = fault
            ended.wait(seconds)
            store.fault = ""


def table_count(database: Postgres) -> int:
    """Tables of the catalogue, as Postgres itself knows them."""
    return int(ask(database, "lake", "SELECT count(*) FROM iceberg_tables") or 0)


def ask(database: Postgres, name: str, query: str) -> str:
    """What a query of one value gives; empty while the server does not answer."""
    command = ["psql", "-At", "-c", query, database.uri(name)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def found_versions(environment: dict[str, str]) -> dict[str, str]:
    """Data version of every table, from the ledger."""
    prefix = "PYICEBERG_CATALOG__LAKE__"
    given = {key.removeprefix(prefix): value for key, value in environment.items() if key.startswith(prefix)}
    names = {key: key.lower().replace("s3__", "s3.").replace("_", "-") if "S3" in key else key.lower() for key in given}
    catalogue = load_catalog("lake", **{names[key]: value for key, value in given.items()})
    ledger = Ledger(catalogue)
    ledger.refresh()
    return {
        table: str(sum((row.data_version for row in ledger.places(table).values()), DataVersion())) for table in GOLDEN
    }
