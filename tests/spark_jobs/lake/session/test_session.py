"""The session: settings of the lake, of the machine or the cluster; several lakes in one process."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.session import _send_query_errors_to, spark_properties
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import FolderConfig, bind, numbers, rows
from tests.tiers import on_spark


@on_spark
def test_two_lakes_in_one_process_do_not_see_each_other(
    lake: Lake, tmp_path: Path, lake_at: LakeAt, folder: Path
) -> None:
    """Each session has a catalogue of its own, under the same name."""
    other = lake_at(tmp_path / "other")
    (folder / "b.txt").write_text("70")
    materialize(other, bind(numbers, FolderConfig(folder=str(folder))))
    assert rows(other, "demo.numbers", "n") == [(1,), (2,), (3,), (12,), (70,)]
    assert rows(lake, "demo.numbers", "n") == [(1,), (2,), (3,), (12,)]


def test_what_pyspark_logs_of_a_query_goes_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its many KB of JSON are in a file and not on the terminal."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(PySparkLogger.getLogger("DataFrameQueryContextLogger"), "handlers", [])
    logger.addHandler(logging.StreamHandler())
    _send_query_errors_to(tmp_path / "spark.log")
    logger.propagate = False
    logger.error("no such column")
    [handler] = logger.handlers
    handler.close()
    assert capfd.readouterr() == ("", "")
    assert json.loads((tmp_path / "spark.log").read_text())["msg"] == "no such column"


def test_the_master_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default all cores of this machine; on a cluster no address of the loopback, but what a run may take of it."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("HEADRACE_SPARK_MASTER", raising=False)
    monkeypatch.setenv("HEADRACE_SPARK_CORES", "12")
    monkeypatch.setenv("HEADRACE_SPARK_EXECUTOR_MEMORY", "6g")
    monkeypatch.setenv("HEADRACE_SPARK_MEMORY", "5g")
    local = spark_properties(settings_at(tmp_path))
    assert local["spark.master"] == "local[*]" and local["spark.driver.host"] == "127.0.0.1"
    monkeypatch.setenv("HEADRACE_SPARK_MASTER", "spark://host:7077")
    cluster = spark_properties(settings_at(tmp_path))
    assert cluster["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in cluster
    taken = ("spark.cores.max", "spark.executor.memory", "spark.driver.memory")
    assert [cluster[name] for name in taken] == ["12", "6g", "5g"]
    assert "spark.sql.shuffle.partitions" not in cluster


def test_the_secret_of_a_cluster_is_for_the_cluster_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process that is all of Spark needs none; elsewhere it turns authentication on."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("HEADRACE_SPARK_SECRET", "of the cluster")
    names = ("spark.authenticate", "spark.authenticate.secret")
    found = {
        master: [spark_properties(settings_at(tmp_path), master).get(name) for name in names]
        for master in ("local[2]", "spark://host:7077")
    }
    assert found == {"local[2]": [None, None], "spark://host:7077": ["true", "of the cluster"]}


def test_under_spark_submit_its_own_choices_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Master, memory and jars are not touched where spark-submit has started the JVM."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    values = spark_properties(settings_at(tmp_path))
    assert not {"spark.master", "spark.jars", "spark.driver.memory"} & set(values)
