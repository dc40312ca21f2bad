"""Fixtures that all tests share: one JVM for the whole run, lakes in folders of their own, real data where it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings as hypothesis_settings

from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import settings_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A loaded machine is no reason for an example to fail.
hypothesis_settings.register_profile("headrace", deadline=None)
hypothesis_settings.load_profile("headrace")

LakeAt = Callable[..., Lake]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that of two processes none is left alone with them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one JVM of the run, with a session of a lake that nobody uses."""
    os.environ.setdefault("HEADRACE_SPARK_MEMORY", "2g")
    from spark_jobs.lake.session.session import start_session

    session = start_session(settings_at(tmp_path_factory.mktemp("spark")), "local[2]", _FAST)
    yield session
    session.stop()


# Tests are small: the first compiler is enough, and few partitions.
_FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1",
}


@pytest.fixture
def lake_at(spark: SparkSession) -> LakeAt:
    """Opens a lake in a folder, with Spark settings on top."""
    from spark_jobs.lake.session.session import start_session

    def open_lake(root: Path, extra: dict[str, str] | None = None, wait_seconds: float = 5.0) -> Lake:
        settings = settings_at(root)
        catalogue = open_catalogue(settings)
        session: list[SparkSession] = []

        def get() -> SparkSession:
            if not session:
                session.append(start_session(settings, "local[2]", {**_FAST, **(extra or {})}))
            return session[0]

        return Lake(catalogue, Ledger(catalogue), get, "test-run", wait_seconds)

    return open_lake


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real data for tests; skips where it is absent."""
    root = Path(os.environ.get("REAL_DATA_DIR", Path(__file__).parents[1].parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root}; set REAL_DATA_DIR")
    return root
