"""Fixtures that all tests share: one JVM for the whole run, lakes in folders of their own, real data where it is."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dagster_project.command import spare_collector
from headrace.process.interrupts import heed_interrupts
from headrace.tables.settings import settings_at
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.jars import CORE, archive_options
from tests import cpu_by_file
from tests.at_once import watch
from tests.quick_metadata import remember_metadata
from tests.tiers import is_nightly, leave_cases_out, use_default_tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LakeAt = Callable[..., Lake]

heed_interrupts()  # or the children of tests would not hear SIGTERM
spare_collector()  # an eighth of the time of a test
remember_metadata()
use_default_tier()  # `--hypothesis-profile=nightly` comes later and wins
if os.environ.get("HEADRACE_ENGINE") == "sail":
    watch()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--cpu-by-file`."""
    cpu_by_file.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """`--cpu-by-file`."""
    cpu_by_file.configure(config)


# The dearest files (`--cpu-by-file 20`): a process that began one of them last would keep the others waiting.
_LONG = (
    "main_path/test_one_run.py",
    "blender_service/test_torch.py",
    "blender_service/test_transport.py",
    "blender_service/server/test_server.py",
    "headrace/tables/test_fence.py",
    "spark_jobs/sources/test_no_news.py",
    "spark_jobs/dedup/membership/test_members.py",
    "dagster_project/test_cli.py",
    "headrace_features/rollouts/test_service.py",
    "dagster_project/inspect/test_lake_status.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves nightly tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those with an engine: `make test` gives files out in this order."""
    leave_cases_out(items)
    with_engine = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (not item.nodeid.split("::")[0].endswith(_LONG), item.path not in with_engine))


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """pytest's, without what a Blender of an earlier test logs: it looks at its tables for as long as it lives."""
    earlier = [thread for thread in threading.enumerate() if thread.name == "table-watch"]

    def is_of_this_test(_: logging.LogRecord) -> bool:
        return threading.current_thread() not in earlier

    caplog.handler.addFilter(is_of_this_test)
    yield caplog
    caplog.handler.removeFilter(is_of_this_test)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one JVM of the run, with a session of a lake that nobody uses."""
    os.environ.setdefault("HEADRACE_SPARK_MEMORY", "2g")
    from spark_jobs.lake.session.session import start_session

    session = start_session(settings_at(tmp_path_factory.mktemp("spark")), "local[2]", spark_settings())
    yield session
    with contextlib.suppress(Exception):  # a session that nobody asked for long has ended, which PySpark warns of
        session.stop()


_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Tests are small: the first compiler is enough, and few partitions.
_FAST = {
    "spark.sql.shuffle.partitions": "2",
    _JAVA_OPTIONS: "-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1",
}
# A dozen rows are over before their plan is compiled or adapted. What production plans is for the long tier to try.
_FASTER = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    _JAVA_OPTIONS: "-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_settings() -> dict[str, str]:
    """Spark settings of the tier; the JVM maps the archive of classes that the set-up made, as in production."""
    settings = _FAST if is_nightly() else _FASTER
    options = f"{settings[_JAVA_OPTIONS]} {archive_options(CORE)}"
    return {**settings, _JAVA_OPTIONS: options.rstrip()}


@pytest.fixture(scope="session")
def lake_at(spark: SparkSession) -> LakeAt:
    """Opens a lake in a folder, with Spark settings on top."""
    from spark_jobs.lake.session.session import start_session

    def open_lake(root: Path, extra: dict[str, str] | None = None, wait_seconds: float = 5.0) -> Lake:
        settings = settings_at(root)
        catalogue = open_catalogue(settings)
        session: list[SparkSession] = []

        def get() -> SparkSession:
            if not session:
                session.append(start_session(settings, "local[2]", {**spark_settings(), **(extra or {})}))
                if is_embedded(session[0]):  # Sail knows no catalogue
                    session[0].table = partial(_table, session[0])
            return session[0]

        return Lake(catalogue, Ledger(catalogue), get, "test-run", wait_seconds)

    return open_lake


def _table(spark: SparkSession, name: str) -> DataFrame:
    _, identifier, branch = re.fullmatch(r"(lake\.)?(.*?)(?:\.branch_(\w+))?", name).groups()
    return table_rows(spark, identifier, branch=branch)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real data for tests; skips where it is absent."""
    root = Path(os.environ.get("REAL_DATA_DIR", Path(__file__).parents[1].parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root}; set REAL_DATA_DIR")
    return root
