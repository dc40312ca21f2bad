"""Follow a stream: each micro-batch is kept as a page of the dataset, and pages are sealed as increments.

    files by name (`stream_folder`)        -> micro-batch -> an object, then its row (`api.checkpoints`)
    Spark's structured streaming of Kafka  -> micro-batch -> an object, then its row -> Spark's checkpoint
                                                             then, by size or age: the step `documents`

Records of a micro-batch are in the order of the files' names and lines, or of a partition's offsets, so records of one
id are its versions in that order wherever a micro-batch ends. A crash between a topic's row and Spark's checkpoint
gives the same micro-batch again, by the same number, and its row is there already. Should the checkpoint be lost, all
of the topic is read again, and what landed lands no second time, because a document's path is its record's id.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.tables.settings import LakeSettings, load_settings
from headrace_features.apis.stream_config import KafkaTopic, StreamSource
from headrace_features.apis.stream_folder import MicroBatch, StreamFolder
from spark_jobs.credentials import secret_of
from spark_jobs.exceptions import ConfigError, StepRunError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.jars import installed_jars
from spark_jobs.lake.session.spark_errors import failure_line
from spark_jobs.lake.session.spark_settings import jar_purposes
from spark_jobs.sources.opening.file_trees import absolute
from spark_jobs.sources.paged.checkpoints import Checkpoints, StoredPage
from spark_jobs.sources.paged.pages import PagedKind
from spark_jobs.sources.records.plain_values import exact_number

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_PAGE_BYTES = 32 << 20
_PAGE_RECORDS = 20_000
_LOOKED_SECONDS = 1
_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SECURITY = "source.kafka.security"


class StreamKind(PagedKind[StreamSource]):
    """Streams; the command following one brings its pages."""

    steps = ("headrace_features.apis.schema_changes:schema_changes",)

    def follow(self, dataset: str, lake: Catalog, objects: ObjectFolder, seal: Callable[[], None], once: bool) -> int:
        """Follow the stream; see `follow`."""
        from spark_jobs.lake.session.session import start_session

        settings = load_settings()
        spark = start_session(settings, extra=session_settings(self.source, settings))
        return follow(dataset, self.source, lake, objects, spark, seal, follower_state(dataset), once)

    @classmethod
    def forget(cls, dataset: str, catalogue: Catalog, objects: Collection[str] | None = None) -> None:
        """Delete how far a dataset's stream was followed."""
        if objects is None:
            shutil.rmtree(follower_state(dataset), ignore_errors=True)


def follow(
    dataset: str,
    source: StreamSource,
    catalogue: Catalog,
    objects: ObjectFolder,
    spark: SparkSession,
    seal: Callable[[], None],
    state: Path,
    once: bool = False,
) -> int:
    """Keep records as they come, and land them by number or age, until interrupted; returns how many came.

    Args:
        dataset: its name.
        source: what is followed.
        catalogue: of the lake.
        objects: where the dataset keeps its bytes.
        spark: a session of the lake, needed by a topic.
        seal: brings the dataset's tables up to date.
        state: folder of Spark's checkpoint; it must outlive the process.
        once: whether to end when all that is there has been read.

    Raises:
        LeaseError: another process follows it.
        StepRunError: Spark failed, or a file cannot be read.
    """
    inbox = _Inbox(dataset, source, Checkpoints(catalogue, dataset), objects)
    opened = _topic(spark, source, inbox, state, once) if source.kafka is not None else _folder(source, inbox, state)
    with table_leases(catalogue, [f"{dataset}.fetched"], 0) as leases, opened as read_on:
        sealed, since = -1, time.monotonic()
        while True:
            try:
                is_drained = read_on()
            except OSError as error:
                raise StepRunError(f"{dataset}: the stream failed: {error}") from error
            ended = is_drained and (once or source.kafka is not None)
            # At first there may be pages of a process that ended before it sealed them.
            waiting, age = inbox.records - sealed, time.monotonic() - since
            if waiting == 0:
                since = time.monotonic()
            elif waiting >= source.seal_records or age >= source.seal_seconds or ended:
                if leases is not None:
                    leases.require(f"{dataset}.fetched")
                sealed, since = inbox.records, time.monotonic()
                seal()
            if ended and inbox.records == sealed:
                return inbox.records
            if is_drained:
                time.sleep(_LOOKED_SECONDS)


@contextlib.contextmanager
def _folder(source: StreamSource, inbox: _Inbox, state: Path) -> Iterator[Callable[[], bool]]:
    """A function to keep the next micro-batch of a folder; it says whether there is none."""
    assert source.path is not None
    state.mkdir(parents=True, exist_ok=True)  # an operator sees that the stream was followed from this machine
    folder = StreamFolder(source.path, source.files, inbox.pages(), state, source.links)
    numbers = itertools.count(len(inbox.pages()))

    def read_on() -> bool:
        batch = folder.next_batch()
        if batch is not None:
            inbox.take(batch, next(numbers))
        return batch is None

    yield read_on


@contextlib.contextmanager
def _topic(
    spark: SparkSession, source: StreamSource, inbox: _Inbox, state: Path, once: bool
) -> Iterator[Callable[[], bool]]:
    """A function to wait while Spark brings a topic; it says whether Spark has ended.

    Raises:
        StepRunError: Spark failed.
    """
    from pyspark.errors import PySparkException

    assert source.kafka is not None

    def take(batch: DataFrame, number: int) -> None:
        query = json.loads((state / "metadata").read_text())["id"]
        in_order = batch.orderBy("partition", "offset").select("value")
        inbox.take(MicroBatch((row[0] for row in in_order.toLocalIterator()), [query, number]), number)

    messages = spark.readStream.format("kafka").options(**kafka_options(source.kafka)).load()
    records = messages.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
    writer = records.writeStream.option("checkpointLocation", str(state)).foreachBatch(take)
    begun = writer.trigger(availableNow=True) if once else writer
    query, restarted = begun.start(), False

    def read_on() -> bool:
        nonlocal query, restarted
        try:
            return bool(query.awaitTermination(_LOOKED_SECONDS))
        except PySparkException as error:
            if restarted:
                raise StepRunError(f"{inbox.dataset}: the stream failed: {failure_line(error)}") from error
            # After a crash the first micro-batch is one that Spark repeats, and its report on Kafka fails then
            # (KafkaMicroBatchStream.metrics, Spark 4.1.1), once the batch is done; another start goes on.
            query, restarted = begun.start(), True
            return False

    try:
        yield read_on
    finally:
        query.stop()


def follower_state(dataset: str) -> Path:
    """Folder of Spark's checkpoint for the stream of a dataset, in the lake's home."""
    return load_settings().home / "streams" / dataset


def session_settings(source: StreamSource, settings: LakeSettings) -> dict[str, str]:
    """Spark settings of a session to follow a source: for Kafka its jars, which no other session loads.

    Raises:
        SetupError: a jar is missing; the message says how to fetch it.
    """
    if source.kafka is None:
        return {}
    return {"spark.jars": ",".join(map(str, installed_jars(jar_purposes(settings) | {"kafka"})))}


class _Inbox:
    """Stores micro-batches as pages, in the order of their numbers."""

    def __init__(self, dataset: str, source: StreamSource, store: Checkpoints, objects: ObjectFolder) -> None:
        self.dataset, self.records = dataset, 0
        self._store, self._objects = store, objects
        self._endpoint = source.kafka.topic if source.kafka is not None else Path(source.path or dataset).name
        self._request = hashlib.sha256(source.address(self._endpoint).encode()).hexdigest()

    def pages(self) -> list[StoredPage]:
        """What was kept of the stream so far."""
        return self._store.pages(self._endpoint, self._request)

    def take(self, batch: MicroBatch, number: int) -> None:
        """Keep a micro-batch as one or more pages; one taken before is there already."""
        pages = pages_of(batch.lines)
        part, values = 0, next(pages, None)
        while values is not None:
            following = next(pages, None)
            cursor, after = json.dumps([*batch.key, part]), None if following is None else part + 1
            if self._store.keep_records(
                self._endpoint, self._request, cursor, values, self._objects, number, next_cursor=after
            ):
                self.records += len(values)
            part, values = part + 1, following
        _log.info("%s: micro-batch %d, %d records so far", self._endpoint, number, self.records)


def pages_of(lines: Iterable[str | None]) -> Iterator[list[Any]]:
    """Records of lines of JSON in pages of bounded size; a line not in JSON stays a text, to be refused later."""
    page, byte_count = list[Any](), 0
    for line in lines:
        if line is None or not line.strip():
            continue
        try:
            page.append(json.loads(line, parse_float=exact_number))
        except (ValueError, RecursionError):
            page.append(line)
        byte_count += len(line)
        if byte_count >= _PAGE_BYTES or len(page) >= _PAGE_RECORDS:
            yield page
            page, byte_count = [], 0
    if page:
        yield page


def kafka_options(topic: KafkaTopic) -> dict[str, str]:
    """Options of Spark's reader of Kafka; those with `kafka.` before them go to Kafka's client.

    Certificates are files, read by the client. Secrets are under names that Spark and the client never log
    (`spark.redaction.regex`; `sasl.jaas.config` and `ssl.key.password` are of the client's type for passwords).

    Raises:
        ConfigError: an environment variable is not set, or a file cannot be read.
    """
    options = {
        "kafka.bootstrap.servers": topic.servers,
        "subscribe": topic.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(topic.messages),
    }
    security = topic.security
    if security is None:
        return options
    options["kafka.security.protocol"] = security.protocol
    for kind, field, file in (("truststore", "ca", security.ca), ("keystore", "certificate", security.certificate)):
        if file is not None:
            path = absolute(file)
            if not os.access(path, os.R_OK):
                raise ConfigError(f"{_SECURITY}.{field}: {file} cannot be read; correct the path")
            options |= {f"kafka.ssl.{kind}.type": "PEM", f"kafka.ssl.{kind}.location": path}
    if security.key_password is not None:
        options["kafka.ssl.key.password"] = secret_of(f"{_SECURITY}.key_password", security.key_password)
    if security.login is not None:
        login = security.login
        user, password = (secret_of(f"{_SECURITY}.login.{name}", getattr(login, name)) for name in ("user", "password"))
        options["kafka.sasl.mechanism"] = login.mechanism
        module = _LOGINS[login.mechanism.partition("-")[0]]
        options["kafka.sasl.jaas.config"] = f"{module} required username={_quoted(user)} password={_quoted(password)};"
    return options


def _quoted(value: str) -> str:
    """A value in quotes, as Java's StreamTokenizer reads those of a JAAS config."""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escaped.get(character, character) for character in value) + '"'
