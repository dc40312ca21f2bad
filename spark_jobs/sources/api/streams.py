"""Follow a stream: each micro-batch is kept as a page of the dataset, and pages are sealed as increments.

    Spark's structured streaming -> micro-batch -> an object, then its row (`api.checkpoints`) -> Spark's checkpoint
                                                             then, by size or age: the step `documents`

A crash between the row and Spark's checkpoint gives the same micro-batch again, by the same number, and its row is
there already. Should the checkpoint be lost, everything is read again, and what landed lands no second time, because a
document's path is its record's id.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.exceptions import ConfigError, StepRunError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.jars import installed_jars
from spark_jobs.lake.session.settings import LakeSettings, load_settings
from spark_jobs.lake.session.spark_errors import failure_line
from spark_jobs.sources.api.checkpoints import Checkpoints
from spark_jobs.sources.api.pages import PagedKind
from spark_jobs.sources.config.api_config import secret_of
from spark_jobs.sources.config.stream_config import KafkaTopic, StreamSource
from spark_jobs.sources.opening.file_trees import absolute
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
    """Streams; the command that follows one brings its pages."""

    steps = ("spark_jobs.sources.api.schema_changes:schema_changes",)

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
        spark: a session of the lake.
        seal: brings the dataset's tables up to date.
        state: folder of Spark's checkpoint; it must outlive the process.
        once: whether to end when all that is there has been read.

    Raises:
        LeaseError: another process follows it.
        StepRunError: Spark failed.
    """
    from pyspark.errors import PySparkException

    store = Checkpoints(catalogue, dataset)
    inbox = _Inbox(dataset, source, store, objects, state)
    with table_leases(catalogue, [f"{dataset}.fetched"], 0) as leases:
        writer = _records(spark, source).writeStream.option("checkpointLocation", str(state)).foreachBatch(inbox.take)
        begun = writer.trigger(availableNow=True) if once else writer
        query, restarted = begun.start(), source.kafka is None
        sealed, since = -1, time.monotonic()
        try:
            while True:
                try:
                    ended = query.awaitTermination(_LOOKED_SECONDS)
                except PySparkException:
                    if restarted:
                        raise
                    # After a crash the first micro-batch is one that Spark repeats, and its report on Kafka fails then
                    # (KafkaMicroBatchStream.metrics, Spark 4.1.1), once the batch is done; another start goes on.
                    query, restarted = begun.start(), True
                    continue
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
        except PySparkException as error:
            raise StepRunError(f"{dataset}: the stream failed: {failure_line(error)}") from error
        finally:
            query.stop()


def follower_state(dataset: str) -> Path:
    """Folder of Spark's checkpoint for the stream of a dataset, in the lake's home."""
    return load_settings().home / "streams" / dataset


def session_settings(source: StreamSource, settings: LakeSettings) -> dict[str, str]:
    """Spark settings that a session needs to follow a source: for Kafka its jars, which no other session loads.

    Raises:
        SetupError: a jar is missing; the message says how to fetch it.
    """
    if source.kafka is None:
        return {}
    return {"spark.jars": ",".join(map(str, installed_jars(settings.jar_purposes() | {"kafka"})))}


class _Inbox:
    """Stores micro-batches as pages, in the order of their numbers."""

    def __init__(
        self, dataset: str, source: StreamSource, store: Checkpoints, objects: ObjectFolder, state: Path
    ) -> None:
        self.records = 0
        self._store, self._objects, self._state = store, objects, state
        self._endpoint = source.kafka.topic if source.kafka is not None else Path(source.path or dataset).name
        self._request = hashlib.sha256(source.address(self._endpoint).encode()).hexdigest()

    def take(self, batch: DataFrame, number: int) -> None:
        """Keep a micro-batch as one or more pages; one that was taken before is there already."""
        query = json.loads((self._state / "metadata").read_text())["id"]
        for part, values in enumerate(pages_of(row[0] for row in batch.toLocalIterator())):
            cursor = json.dumps([query, number, part])
            if self._store.keep_records(self._endpoint, self._request, cursor, values, self._objects, number):
                self.records += len(values)
        _log.info("%s: micro-batch %d, %d records so far", self._endpoint, number, self.records)


def pages_of(lines: Iterable[str | None]) -> Iterator[list[Any]]:
    """Records of lines of JSON in pages of bounded size; a line that is no JSON stays a text, to be refused later."""
    page, held = list[Any](), 0
    for line in lines:
        if line is None or not line.strip():
            continue
        try:
            page.append(json.loads(line, parse_float=exact_number))
        except (ValueError, RecursionError):
            page.append(line)
        held += len(line)
        if held >= _PAGE_BYTES or len(page) >= _PAGE_RECORDS:
            yield page
            page, held = [], 0
    if page:
        yield page


def _records(spark: SparkSession, source: StreamSource) -> DataFrame:
    """The stream of lines or messages, one JSON object each."""
    if source.kafka is None:
        read = spark.readStream.option("maxFilesPerTrigger", source.files).option("recursiveFileLookup", "true")
        return read.text(absolute(source.path or ""))
    messages = spark.readStream.format("kafka").options(**kafka_options(source.kafka)).load()
    return messages.selectExpr("CAST(value AS STRING) AS value")


def kafka_options(topic: KafkaTopic) -> dict[str, str]:
    """Options of Spark's reader of Kafka; those with `kafka.` before them go to Kafka's client.

    Certificates are files, which the client reads. What is secret is under names that Spark and the client never log
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
    return '"' + "".join(escaped.get(one, one) for one in value) + '"'
