"""The Spark session of a lake, with all its settings, derived from those of the catalogue.

    HEADRACE_SPARK_MASTER           default `local[*]`; `spark://host:7077` moves the same code onto a cluster
    HEADRACE_SPARK_MEMORY           of the driver; default in local mode, where it does all work, by what is free
                                    (`engine.memory`, 3g at most), else Spark's, 1g
    HEADRACE_SPARK_CORES            most cores of a cluster that the run takes; default all (spark.cores.max)
    HEADRACE_SPARK_EXECUTOR_MEMORY  of an executor's JVM; default Spark's, 1g (spark.executor.memory)
    HEADRACE_SPARK_SECRET           what the processes of a cluster know each other by (spark.authenticate)
    HEADRACE_SPARK_PARTITIONS       of every shuffle; default: by the input of each step (`shuffle_partitions`)

Anything else goes through Spark's own `spark-defaults.conf` or `PYSPARK_SUBMIT_ARGS`; values that are set here win over
those.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from headrace.tables.settings import CATALOGUE, LakeSettings
from spark_jobs.exceptions import SetupError
from spark_jobs.lake.engine.choice import SAIL, choose, engine_name
from spark_jobs.lake.engine.embedded import common_settings, is_embedded, processor_seconds, start_embedded
from spark_jobs.lake.engine.memory import spark_heap
from spark_jobs.lake.session import spark_settings
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.cluster import is_local, join_cluster
from spark_jobs.lake.session.jars import archive_options, installed_jars, require_spark
from spark_jobs.lake.session.java import java_home
from spark_jobs.lake.session.shuffle_partitions import FOLLOW, SHUFFLE_PARTITIONS, default_count
from spark_jobs.lake.session.spark_errors import spark_cause
from spark_jobs.progress import tell
from spark_jobs.spark_sql import SparkSession

# Java's optimising compiler (C2) waits for ten times its default counts. It took a third of the CPU of a run before,
# mostly for methods of Spark's planner that are called some thousand times and then never again; loops over many rows
# reach the higher counts too.
_FEWER_COMPILATIONS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
LOCAL_JAVA_OPTIONS = f"-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC {_FEWER_COMPILATIONS}"
_ARROW_RECORDS = 2_000
_CATALOGUE = "_headrace_catalogue"  # of an embedded session: opens the catalogue of its lake, once
_CATALOGUES = f"spark.sql.catalog.{CATALOGUE}"
_SECRET = re.compile("password|secret|token|credential|access-key")
_CLUSTER_SECRET = "spark.authenticate.secret"
_FROM_ENVIRONMENT = {
    "HEADRACE_SPARK_MEMORY": "spark.driver.memory",
    "HEADRACE_SPARK_CORES": "spark.cores.max",
    "HEADRACE_SPARK_EXECUTOR_MEMORY": "spark.executor.memory",
    "HEADRACE_SPARK_PARTITIONS": SHUFFLE_PARTITIONS,
}


def spark_properties(settings: LakeSettings, master: str | None = None) -> dict[str, str]:
    """All settings of a session for this lake; `master` defaults to `HEADRACE_SPARK_MASTER`, then `local[*]`."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen master, memory and jars
    master = "spark-submit" if submitted else master or os.environ.get("HEADRACE_SPARK_MASTER", "local[*]")
    values = {} if submitted else {"spark.master": master, "spark.jars": _jars(settings)}
    values |= {
        "spark.app.name": "headrace",
        "spark.ui.showConsoleProgress": "false",
        **common_settings(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_RECORDS),
        # Rows from the driver that become a local relation are planned, and rewritten, one by one in the driver.
        "spark.sql.execution.arrow.localRelationThreshold": "1MB",
        # Rows that were shuffled by some of a join's keys are not shuffled again by all of them.
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        # A declared `required` is checked on the data by the audit, which names the column and counts the rows.
        "spark.sql.iceberg.check-nullability": "false",
        # A count answered from metadata becomes a local relation late, which `observe` of a step makes an invalid plan.
        "spark.sql.iceberg.aggregate-push-down.enabled": "false",
        **spark_settings.spark_properties(settings),
    }
    if is_local(master):
        values |= {
            "spark.driver.memory": spark_heap(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": LOCAL_JAVA_OPTIONS,
        }
        archive = "" if submitted else archive_options(spark_settings.jar_purposes(settings))
        if archive:
            values["spark.driver.extraJavaOptions"] += f" {archive}"
            # As in the archive: first on the class path, and not by a class loader of Spark's own.
            values["spark.driver.extraClassPath"] = values.pop("spark.jars").replace(",", ":")
    if not submitted:
        # Found on the path of Python: installed here, and sent to executors before their first task.
        values["spark.python.daemon.module"] = "spark_jobs.lake.session.python_workers"
        values |= {key: os.environ[name] for name, key in _FROM_ENVIRONMENT.items() if os.environ.get(name)}
        if (secret := os.environ.get("HEADRACE_SPARK_SECRET")) and not is_local(master):
            values |= {"spark.authenticate": "true", _CLUSTER_SECRET: secret}
    return values


def _jars(settings: LakeSettings) -> str:
    return ",".join(str(path) for path in installed_jars(spark_settings.jar_purposes(settings)))


def require_installation(settings: LakeSettings) -> None:
    """Look for what a session needs of this machine before anything is computed; jars that are missing are fetched.

    Raises:
        SetupError: Java or Spark itself is missing, or a jar is missing and cannot be fetched.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ and engine_name() != SAIL:
        java_home()
        require_spark()
        installed_jars(spark_settings.jar_purposes(settings))


def prepare_environment(local: bool) -> None:
    """Tell Spark which Java and Python to use; called before the first session of a process.

    Args:
        local: whether everything runs on this machine, so that nothing need listen beyond the loopback.

    Raises:
        SetupError: no Java 17 or 21 is found.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # A user's site-packages of another Spark would shadow the installed one.
    os.environ.pop("SPARK_HOME", None)


def start_session(
    settings: LakeSettings, master: str | None = None, extra: Mapping[str, str] | None = None
) -> SparkSession:
    """Start the session of this process for this lake, `extra` settings on top.

    Where a session runs already (a notebook's, another lake's), a session of its own is made beside it: both share the
    JVM and its cores, each has its own catalogue and SQL settings.

    Raises:
        SetupError: Java or a jar is missing, or the JVM does not start.
    """
    if choose(settings.warehouse).engine == SAIL:
        session = start_embedded(extra)
        setattr(session, _CATALOGUE, functools.cache(functools.partial(open_catalogue, settings, look_at_store=False)))
        return session
    values = {**spark_properties(settings, master), **(extra or {})}
    prepare_environment(local=is_local(values.get("spark.master", "")))
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Private, because the public ways start a context where none runs (`getOrCreate`), or see only sessions of this
    # thread (`SparkSession.getActiveSession`).
    running = SparkContext._active_spark_context
    log = settings.home / "logs" / "spark.log"
    try:
        if running is not None:
            join_cluster(running)
            session = SparkSession(running).newSession()
            for key, value in values.items():
                if (key.startswith("spark.sql.") and session.conf.isModifiable(key)) or key.startswith(_CATALOGUES):
                    session.conf.set(key, value)
            return _with_partitions(session, SHUFFLE_PARTITIONS in values)
        builder, conf = SparkSession.builder, SparkConf()
        for key, value in values.items():
            if not _is_secret(key):
                builder, conf = builder.config(key, value), conf.set(key, value)
        tell("starting Spark, 10 to 30 s")
        with _jvm_log(log):
            if _CLUSTER_SECRET in values:  # the JVM is started without it, and told when it runs
                SparkContext._ensure_initialized(conf=conf)
                builder = builder.config(_CLUSTER_SECRET, values[_CLUSTER_SECRET])
            session = builder.getOrCreate()
        for key in filter(_is_secret, values):
            if key != _CLUSTER_SECRET:
                session.conf.set(key, values[key])
    except (PySparkException, Py4JError, OSError) as error:
        raise SetupError(f"Spark did not start: {spark_cause(error)}; see {log}") from error
    session.sparkContext.setLogLevel("ERROR")
    _send_query_errors_to(log)
    join_cluster(session.sparkContext)
    return _with_partitions(session, configured=False)


def catalogue_of(session: SparkSession) -> Catalog:
    """The catalogue of the lake that an embedded session was started for."""
    catalogue: Catalog = getattr(session, _CATALOGUE)()
    return catalogue


def _is_secret(key: str) -> bool:
    """Whether a setting is kept off the JVM's command line, which every user of the machine can read.

    The catalogue is opened when a session first uses it, and reads its settings then.
    """
    return key == _CLUSTER_SECRET or (key.startswith(_CATALOGUES) and _SECRET.search(key) is not None)


def _with_partitions(session: SparkSession, configured: bool) -> SparkSession:
    """The session, set up so that shuffle partitions follow the input, unless their number was configured.

    Args:
        session: a new one.
        configured: whether headrace's settings have the number; Spark's own are looked up here.
    """
    context = session.sparkContext
    configured = configured or context.getConf().contains(SHUFFLE_PARTITIONS)
    session.conf.set(FOLLOW, str(not configured).lower())
    if not configured:
        session.conf.set(SHUFFLE_PARTITIONS, default_count(context.defaultParallelism))
    return session


def stages(session: SparkSession) -> Iterator[Any]:
    """Spark's `StageData` of the stages of the session's application, the newest first; it keeps the last thousand."""
    # Private, because Spark tells it otherwise only by the web server of its UI, which a laptop does not start.
    context = session.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()  # what is known is behind the tasks by a few events
    gateway: Any = context._gateway
    nothing = gateway.new_array(gateway.jvm.double, 0)
    listed = context._jsc.sc().statusStore().stageList(None, False, False, nothing, None)
    return (listed.apply(at) for at in range(listed.size()))


@contextlib.contextmanager
def metered(session: SparkSession, what: str) -> Iterator[Callable[[], float]]:
    """Tell Spark what the next jobs of this thread are for; gives a function that returns what their tasks took so far.

    That is in seconds, summed over all cores, Python workers included. Tasks that failed, or whose executor was lost,
    count too. On Sail it is this thread's part of what the process took.
    """
    if is_embedded(session):
        with processor_seconds() as spent:
            yield spent
        return
    context = session.sparkContext
    group = uuid.uuid4().hex
    context.setJobGroup(group, what)

    def core_seconds() -> float:
        context._jsc.sc().listenerBus().waitUntilEmpty()  # what is known is behind the tasks by a few events
        tracker = context.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
        ours = {stage for job in jobs for stage in job.stageIds}
        oldest = min(ours, default=0)
        recent = itertools.takewhile(lambda stage: stage.stageId() >= oldest, stages(session))
        return float(sum(stage.executorRunTime() for stage in recent if stage.stageId() in ours)) / 1000

    yield core_seconds


def _send_query_errors_to(path: Path) -> None:
    """Send what PySpark logs of each query that fails, many KB of JSON on standard error, to the JVM's log."""
    from pyspark.logger import PySparkLogger

    if os.environ.get("HEADRACE_DEBUG"):
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.addHandler(logging.FileHandler(path, delay=True))


@contextlib.contextmanager
def _jvm_log(path: Path) -> Iterator[None]:
    """Send the JVM's standard error to a file; it is inherited when the JVM starts, before a log level can be set."""
    if os.environ.get("HEADRACE_DEBUG"):
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
