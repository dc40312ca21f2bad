"""The embedded engine: Sail (`pysail`) runs programs of Spark in this process, without Java.

Sail serves Spark Connect, so steps use the same PySpark; it starts in half a second, and a query costs it some tens of
milliseconds, where a local Spark takes 5 to 10 s and .3 to .5 s. It knows neither the lake's catalogue nor Iceberg's
writes, it keeps no rows, and it drops sorts in front of Python functions; those needs go through `arrangement` and
`lake.files`, so no step knows its engine.

It needs `pip install 'headrace[platform]'` and a lake in local files; `choice` says which process takes it. One process
runs one engine: PySpark's functions of columns belong to one of them for the life of a process.

Memory is bounded twice. What operators hold comes of a pool (`memory`), of which each gets its share; sorts, sums and
joins write to disk beyond that, as joins of much more text than the pool merge sorted rows and hash no side. Rows that
a Python function must have in order are sorted in parts, on disk too (`sorted_rows`). What a step's end leaves free in
the several allocators of the process goes back to the machine (`give_back_memory`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import sys
import threading
import time
import urllib.parse
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.process.allocation import keeps_free_memory
from headrace.process.memory_limit import core_count, resident_bytes
from spark_jobs.child_processes import end_idle_children
from spark_jobs.exceptions import InputError, SetupError
from spark_jobs.lake.engine.choice import ENGINE, chosen, missing_sail
from spark_jobs.lake.engine.memory import pool_bytes
from spark_jobs.lake.engine.scratch import remove_left_scratch, remove_scratch, scratch_folder
from spark_jobs.lake.engine.united import united
from spark_jobs.progress import tell
from spark_jobs.spark_sql import Column, DataFrame, F, SparkSession

_BATCH_ROWS = 2_048
_LEAST_PARTITIONS = 2  # with one Sail would hash a side of every join, whatever it is told
_SMALL_FRACTION = 1 / 16  # of the pool: of so little text batches may be long
_AMPLE_POOL = 1 << 30
_TEXT_PER_IDENTITY = 16  # bytes of text for each that a join holds
_KEPT_BYTES = 1 << 30  # that a process may hold between its steps
_SESSION_SECONDS = 365 * 24 * 3600  # that one may be idle, beside a long step: after 15 minutes Sail would end it
_FOLDER = "_headrace_folder"  # of a frame: where its rows are kept
_lock = threading.Lock()
_meters: dict[object, float] = {}  # seconds of each computation that is under way
_given_out = 0.0  # processor seconds of the process at the last call of `_give_out`
_server: Any = None
_environment: dict[str, str] = {}  # of this process before Sail and PySpark's client changed it
_sessions: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def common_settings() -> dict[str, str]:
    """Settings of a session on either engine."""
    return {
        "spark.sql.session.timeZone": "UTC",
        # For errors each call that makes a column would look up its line, on Spark by four trips to the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "true" if os.environ.get("HEADRACE_DEBUG") else "false",
    }


def is_embedded(of: DataFrame | SparkSession) -> bool:
    """Whether a frame or a session is Sail's."""
    return type(of).__module__.startswith("pyspark.sql.connect.")


def spark_alone(what: str) -> InputError:
    """The error for what only Spark can do; its message says how to choose Spark."""
    return InputError(f"{what} is done by Spark alone: set {ENGINE}=spark for this command")


def parallelism() -> int:
    """Partitions of what is read and shuffled: one a core, and two at least."""
    return max(_LEAST_PARTITIONS, core_count())


def require_sail() -> None:
    """Look whether Sail can start.

    Raises:
        SetupError: it is not installed, or not in the version with rows compared to Spark's.
    """
    if missing := missing_sail():
        raise SetupError(f"{ENGINE}=sail: {missing}")


def start_embedded(extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session; the first one of the process starts the server.

    Raises:
        SetupError: as `require_sail`.
    """
    global _server, _environment  # noqa: PLW0603  one server a process, which nothing but its end stops
    require_sail()
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    with _lock:
        if _server is None:
            tell("starting Sail, in this process")
            _environment = dict(os.environ)
            for name, value in _server_settings().items():
                os.environ.setdefault(name, value)
            remove_left_scratch()
            _name_unions()
            _server = SparkConnectServer()
            _server.start()
        _, port = _server.listening_address
        session: Any = SparkSession.builder.remote(f"sc://localhost:{port}").create()
    settings = {
        **common_settings(),
        "spark.master": "local[*]",
        "spark.sql.shuffle.partitions": str(parallelism()),
    }
    for key, value in settings.items():
        session.conf.set(key, (extra or {}).get(key, value))
    # At exit PySpark asks for models to be freed that no session here has; Sail's answer is an error in the log.
    atexit.unregister(session.client._cleanup_ml_cache)
    session.createDataFrame = functools.partial(_frame_of, session.createDataFrame)
    _sessions.add(session)
    return session  # type: ignore[no-any-return]


def _name_unions() -> None:
    """Give what unions of this process's frames are a name.

    Sail (0.7.2) merges a union with one around it and forgets what its columns are called there, so that a filter over
    both fails ("No field named"); under a name of its own a union is left alone.
    """
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame

    def named(unite: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(unite)(lambda *frames, **options: unite(*frames, **options).alias("united"))

    for name in ("unionAll", "unionByName"):  # `union` calls the former
        setattr(ConnectFrame, name, named(getattr(ConnectFrame, name)))


def _server_settings() -> dict[str, str]:
    """Sail's settings, as variables of the environment: it reads them when the server starts, and not again."""
    pool, is_small = pool_bytes(2 if chosen().roomy else 0.5 if chosen().careful else 1), _is_small()
    return {
        "RUST_LOG": "error",
        # A sort takes its share of the pool by batches: of 2,048 long texts one alone can be more than that.
        "SAIL_EXECUTION__BATCH_SIZE": str(_BATCH_ROWS if is_small else max(256, min(_BATCH_ROWS, pool >> 21))),
        "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(parallelism()),
        "SAIL_OPTIMIZER__PREFER_HASH_JOIN": str(_hashes_fit(pool)).lower(),
        "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(_SESSION_SECONDS),
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(pool),
    }


def _is_small() -> bool:
    """Whether what a step of this run joins is little beside the pool."""
    joined = chosen().joined
    return not chosen().careful and joined is not None and joined <= pool_bytes() * _SMALL_FRACTION


def _hashes_fit(pool: int) -> bool:
    """Whether a side of each join may be held: merging joins sort both sides instead, and can write them to disk.

    What a step's join holds is identities and numbers beside them, some 100 bytes a document, and the text is on the
    other side or read aside. So in an ample pool it is a sixteenth of the joined text, of documents of 1.6 kB;
    a smaller one must have as much as the text itself. Where nothing is known of the run, the pool must be ample. Of
    shorter documents a join may be too large all the same: then the run goes on in another process, and merges.
    """
    joined = chosen().joined
    if chosen().careful or joined is None or pool < _AMPLE_POOL:
        return not chosen().careful and (pool >= _AMPLE_POOL if joined is None else joined <= pool)
    return joined // _TEXT_PER_IDENTITY <= pool


def give_back_memory() -> None:
    """Give the machine what this process keeps after a step: children that wait, and what allocators hold free.

    Where there is much memory, the next step takes that again, unless it has become much itself.
    """
    end_idle_children()
    if keeps_free_memory() and resident_bytes() < _KEPT_BYTES:
        return
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def interrupt_queries() -> None:
    """End what all sessions compute, as soon as Sail hears of it; whoever waits for it gets an error.

    Sail does not hear of it while a Python function of a query computes, so this does not wait.
    """

    def interrupt(session: Any) -> None:
        with contextlib.suppress(Exception):  # a query that ended meanwhile, or a server that ends by the same signal
            session.interruptAll()

    for session in list(_sessions):
        threading.Thread(target=interrupt, args=(session,), name="interrupt", daemon=True).start()


def end_process(status: int) -> None:
    """End this process at once where Sail computes in it, as PySpark's exit waits for that; else nothing."""
    if _server is not None:
        _leave()
        os._exit(status)


def replace_process(command: list[str]) -> NoReturn:
    """Run a program in place of this one, and free this one's memory: another process may take another engine."""
    _leave()
    end_idle_children()
    os.execve(command[0], command, _environment or dict(os.environ))


def _leave() -> None:
    remove_scratch()
    sys.stdout.flush()
    sys.stderr.flush()


def _frame_of(create: Callable[..., DataFrame], data: Any, schema: Any = None, **others: Any) -> DataFrame:
    """`createDataFrame`, also of an Arrow table without rows: PySpark's Connect has no schema for it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if isinstance(data, pa.Table) and not data.num_rows:
        return create([], from_arrow_schema(data.schema) if schema is None else schema, **others)
    return create(data, schema, **others)


def persist_in_files(frame: DataFrame) -> DataFrame:
    """The rows of a frame, computed now, in Parquet files until they are released."""
    folder = scratch_folder() / uuid.uuid4().hex
    folder.mkdir()
    schema = frame.schema
    write = functools.partial(_write, folder=str(folder))
    files = sorted(row["path"] for row in frame.mapInArrow(write, "path string").collect())
    if not _is_small():
        give_back_memory()
    return keep_folder(read_files(frame.sparkSession, files, schema), folder)


def keep_batches(session: SparkSession, batches: Iterable[pa.RecordBatch], schema: Any) -> DataFrame:
    """Rows made by the driver, as `persist_in_files` gives a frame's: a query of Sail holds 128 MB at most.

    Args:
        session: of Sail.
        batches: the rows.
        schema: Spark's, also as DDL.
    """
    folder = scratch_folder() / uuid.uuid4().hex
    folder.mkdir()
    files = [row["path"][0].as_py() for row in _write(batches, str(folder))]
    return keep_folder(read_files(session, files, schema), folder)


def keep_folder(frame: DataFrame, folder: Path) -> DataFrame:
    """The frame; its release removes its folder."""
    setattr(frame, _FOLDER, folder)
    return frame


def release_files(frame: DataFrame) -> None:
    """Remove a frame's files, written by `persist_in_files`; nothing happens for other frames."""
    if folder := getattr(frame, _FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)


def _write(batches: Iterable[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    writer, path = None, f"{folder}/{uuid.uuid4().hex}.parquet"
    for batch in batches:
        if batch.num_rows:
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="lz4", use_dictionary=False)
            writer.write_batch(batch, row_group_size=1 << 20)
    if writer is not None:
        writer.close()
        yield pa.RecordBatch.from_pydict({"path": [path]})


def read_files(session: SparkSession, files: Sequence[str], schema: Any) -> DataFrame:
    """Rows of Parquet files on this machine, by a task for each core at most.

    Args:
        session: of Sail.
        files: their paths.
        schema: Spark's; a column that a file lacks is null.

    Raises:
        InputError: a file is not there; Sail would read it as a file without rows.
    """
    if not files:
        return session.createDataFrame([], schema)
    if lost := next((path for path in files if not os.path.exists(path)), None):
        raise InputError(f"{lost} does not exist; restore it, or drop its table and compute it anew")
    count, urls = min(parallelism(), len(files)), [file_url(path) for path in files]
    parts = [session.read.schema(schema).parquet(*urls[at::count]) for at in range(count)]
    return united(parts)


def file_url(path: str) -> str:
    """The URL of a file or folder on this machine; Sail takes a path for a pattern if it has `?`, `*` or `[`."""
    return f"file://{urllib.parse.quote(os.path.abspath(path))}"


_salts: dict[int, list[int]] = {}


def dealt_by_hash(frame: DataFrame, count: int, number: Column) -> DataFrame:
    """Rows in the partition of `number`, on an engine partitioning by hashes only.

    The number is replaced by one with a hash in that partition, looked up once for each count.
    """
    if count == 1:
        return frame.repartition(1)
    if count not in _salts:
        tried = frame.sparkSession.range(0, 20 * count + 200).select(F.col("id").cast("int").alias("salt"))
        rows = tried.repartition(count, "salt").select("salt", F.spark_partition_id().alias("part")).toArrow()
        salts = dict(zip(rows["part"].to_pylist(), rows["salt"].to_pylist(), strict=True))
        _salts[count] = [salts[part] for part in range(count)]
    salt = F.element_at(F.array(*map(F.lit, _salts[count])), number.cast("int") + 1)
    return frame.withColumn("__salt", salt).repartition(count, "__salt").drop("__salt")


@contextlib.contextmanager
def processor_seconds() -> Iterator[Callable[[], float]]:
    """Count the processor seconds, over all cores, of a computation in this process; gives a function to read them.

    Computations side by side get equal shares of the process's seconds, so that the shares add up to those.
    """
    mine = object()

    def spent() -> float:
        with _lock:
            _give_out()
            return _meters[mine]

    with _lock:
        _give_out()
        _meters[mine] = 0.0
    try:
        yield spent
    finally:
        with _lock:
            _give_out()
            del _meters[mine]


def _give_out() -> None:
    """Add the process's seconds since the last call, in equal shares, to the computations under way."""
    global _given_out  # noqa: PLW0603  of the process, as what it measures
    now = time.process_time()
    for meter in _meters:
        _meters[meter] += (now - _given_out) / len(_meters)
    _given_out = now
