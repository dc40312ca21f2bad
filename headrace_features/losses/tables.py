"""The table `NAMESPACE.losses`: what training runs lost on each segment of the namespace's tables.

Rows are appended by commits, each with the number that Iceberg gives it. A step that is sent or trained again is
appended again: of the rows of one (run, offset, segment) those of the last commit count (`counting`).
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from concurrent.futures import Future
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.append_log import FILE_PROPERTIES, AppendLog
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table

MOST_NATS: Final = 2.0**30  # of a segment: those of 8,192 add up to a whole number of 64 bits; more has diverged
COMMIT_SECONDS: Final = 1.0  # least time between two commits
COMMITS_BETWEEN_UPKEEP: Final = 64  # so a merge opens no more files
# A page reads few rows of a run, beside each other: 65,536 rows are 1.5 MB.
_FILES: Final = {**FILE_PROPERTIES, SCOPE_PROPERTY: "appended", "write.parquet.row-group-limit": "65536"}

LOSSES: Final = Table(
    name="losses",
    comment="One row per segment that a training run took a loss on; trained or sent again, one more.",
    columns=(
        Column("offset!", "long", "row of the blend"),
        Column("run!", "string", "name of the training run"),
        Column("segment!", "int", "number of the segment in its row, from 0"),
        Column("doc_id!", "string", "document that the segment is of"),
        Column("source!", "string", "source of the row in the blend"),
        Column("table!", "string", "table of the source"),
        Column("epoch!", "long", "pass over the source, from 0"),
        Column("tokens!", "int", "tokens of the segment that a loss was taken on, 1 or more"),
        Column("sum!", "float", "sum of their losses, in nats"),
        Column("step_loss!", "float", "mean loss of all tokens that were sent with it, a rank's part of the step"),
        Column("commit!", "long", "number of the commit; of rows of one run, offset and segment the last one counts"),
    ),
    sort=("offset", "run", "segment"),  # files are merged with neighbours by the first of these
)

logger = logging.getLogger(__name__)


class LossTable:
    """The table of one namespace, for many threads: a commit takes what all of them wait with."""

    def __init__(self, catalogue: Catalog, namespace: str) -> None:
        """Append to `NAMESPACE.losses`, made where it does not exist.

        Raises:
            SparkJobsError: it exists with other columns.
        """
        name = f"{namespace}.{LOSSES.name}"
        ensure_table(catalogue, name, LOSSES, _FILES)
        self._log = AppendLog(catalogue, name, COMMIT_SECONDS)
        self._waiting: list[tuple[pa.Table, Future[None]]] = []  # rows without the number of their commit
        self._taking, self._committing = threading.Lock(), threading.Lock()
        self._last = float("-inf")
        self._commits = 0
        self._upkeep = threading.Thread()

    def append(self, rows: pa.Table) -> None:
        """Append rows, but for their commit; returns once they are committed.

        Raises:
            LeaseError, CommitFailedException: another writer came between; append them again.
        """
        done = Future[None]()
        with self._taking:
            self._waiting.append((rows, done))
        with self._committing:
            if not done.done():  # else the thread before has committed them with its own
                self._commit()
        done.result()

    def close(self) -> None:
        """Wait for upkeep that goes on."""
        if self._upkeep.is_alive():
            self._upkeep.join()

    def _commit(self) -> None:
        """Commit what waits."""
        time.sleep(max(0.0, self._last + COMMIT_SECONDS - time.monotonic()))
        with self._taking:
            taken, self._waiting = self._waiting, []
        self._last = time.monotonic()
        rows = pa.concat_tables([part for part, _ in taken])
        try:
            with self._log.lease() as leases:
                table = self._log.load()
                number = table.last_sequence_number + 1
                self._log.append(table, leases, functools.partial(_in_order, rows, number))
            self._log.committed.set()
        except Exception as error:  # noqa: BLE001 (of any class: each caller is told)
            for _, done in taken:
                done.set_exception(error)
            return
        for _, done in taken:
            done.set_result(None)
        self._keep_few()

    def _keep_few(self) -> None:
        """See to the files every so many commits, in a thread beside."""
        self._commits += 1
        if self._commits % COMMITS_BETWEEN_UPKEEP == 0 and not self._upkeep.is_alive():
            self._upkeep = threading.Thread(target=self._tidy, name="losses-upkeep", daemon=True)
            self._upkeep.start()

    def _tidy(self) -> None:
        try:
            self._log.keep_few()
        except Exception as error:  # noqa: BLE001 (of any class: the next upkeep does what this one has not)
            logger.warning("losses: files were not merged: %s", error)


def _in_order(rows: pa.Table, number: int, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a commit, as its file has them."""
    numbered = rows.append_column("commit", pa.array(np.full(rows.num_rows, number)))
    ordered = numbered.sort_by([(name, "ascending") for name in LOSSES.sort])
    return ordered.select(schema.names).cast(schema).combine_chunks().to_batches()[0]


def counting(rows: pa.Table) -> pa.Table:
    """Rows that count, of those of whole segments: of each run, offset and segment those of the last commit."""
    columns = ("run", "offset", "segment", "commit")
    ordered = rows.sort_by([(name, "ascending") for name in columns])
    keys = [ordered[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in columns[:3]]
    changed = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return ordered.filter(pa.array(np.append(changed, True))) if rows.num_rows else rows
