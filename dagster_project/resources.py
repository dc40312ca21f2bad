"""Give the lake as a Dagster resource: the catalogue at once, Spark when the first step computes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, PrivateAttr

from headrace.tables.settings import LakeSettings, load_settings
from spark_jobs.lake.engine.choice import Needs, choose
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue

if TYPE_CHECKING:
    from dagster import ConfigurableResource
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    LazyPySparkResource = ConfigurableResource[Any]
else:
    try:
        from dagster_pyspark import LazyPySparkResource
    except ModuleNotFoundError:  # it asks for exactly one Dagster, so it is an extra
        from dagster import ConfigurableResource as LazyPySparkResource


_STARTING, _OPENING = threading.Lock(), threading.Lock()


class LakeResource(LazyPySparkResource):
    """Catalogue, ledger and Spark session of the lake, shared by all steps of a run.

    Where dagster-pyspark is installed, it is one of its lazy resources, so that assets which ask for such a one get
    this; the session has the settings that `spark_jobs.lake` derives from PyIceberg's either way.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="further Spark settings, by full name")
    _spark_session: SparkSession | None = PrivateAttr(default=None)
    _own: threading.local = PrivateAttr(default_factory=threading.local)
    _ledger: Ledger | None = PrivateAttr(None)

    def open(self, run_id: str, needs: Callable[[Catalog, Ledger], Needs] | None = None) -> Lake:
        """The lake for one Dagster run.

        Args:
            run_id: of the run.
            needs: gives what the run asks of an engine (`foreseen.engine_needs`), of catalogue and ledger; called if a
                session is started and the engine was not chosen before.
        """
        catalogue, ledger = _opened()
        self._ledger = ledger
        needs_now = functools.partial(needs, catalogue, ledger) if needs is not None else None
        return Lake(catalogue, ledger, functools.partial(self._session_of_thread, needs_now), run_id, gathers=True)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Write what the steps of the run computed to the ledger, together."""
        if self._ledger is not None:
            self._ledger.write()

    def _started(self, needs: Callable[[], Needs] | None) -> SparkSession:
        """The session, started on first use."""
        if self._spark_session is None:
            configured = "spark_config of the lake's resource is set" if self.spark_config else ""
            chosen = choose(load_settings().warehouse, needs, configured)
            dg.get_dagster_logger().info(str(chosen))
            self._spark_session = start(self.spark_config)
        return self._spark_session

    def _session_of_thread(self, needs: Callable[[], Needs] | None) -> SparkSession:
        """The session of this thread: a step sets its session up for what it reads. The first thread starts Spark."""
        with _STARTING:
            if not hasattr(self._own, "session"):
                self._own.session = self._started(needs) if self._spark_session is None else start(self.spark_config)
            session: SparkSession = self._own.session
            return session


def start(extra: dict[str, Any]) -> SparkSession:
    """Start the session of this process, with further settings on top of the lake's."""
    from spark_jobs.lake.session.session import start_session

    return start_session(load_settings(), extra={key: str(value) for key, value in extra.items()})


def _opened() -> tuple[Catalog, Ledger]:
    settings = load_settings()
    with _OPENING:  # else steps that begin at once get a ledger each, and the rows of all but one are not written
        return _open(tuple(sorted(settings.properties.items())), settings.embedded)


@functools.lru_cache(maxsize=4)
def _open(properties: tuple[tuple[str, str], ...], embedded: bool) -> tuple[Catalog, Ledger]:
    """One catalogue and ledger for each process and settings, so that the steps of a run share what was read."""
    catalogue = open_catalogue(LakeSettings(dict(properties), embedded))
    return catalogue, Ledger(catalogue)
