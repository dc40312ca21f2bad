"""The two tables of rollouts: the log of decisions, and the packed table served by blends.

    rl.rollouts_log   an event a row; a commit to it is what an acknowledgement waits for
    rl.rollouts       the published rows by ordinal, made of the log: a kill between the two commits is made good by the
                      next one, since the log states the next rows

Each is written under its lease, taken for each commit, so any number of servers may take rollouts for one table, and
`headrace maintain` comes in between. Whoever takes the log's reads first what others have added to it. Rows are
committed, files merged and tokens of the log emptied beside that, and no acknowledgement waits for them.

    one thread    catch_up, decide, commit_log      alone in changing the admission's state
    another one   commit_rows                       of groups in the log
    now and then  empty_payloads, keep_few          in a third one, holding a lease for its own commits only
"""

from __future__ import annotations

import functools
import logging
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, LessThan, NotNull
from pyiceberg.table import Table as IcebergTable

from blender_service.tables.packed_table import load_table
from dagster_project.exceptions import CommandError
from headrace.tables.settings import LakeSettings
from headrace.tables.window_facts import GENERATION_PROPERTY, PROPERTY_OF_FACT, WindowFacts, read_window_facts
from headrace_features.rollouts.admission import Admission
from headrace_features.rollouts.events import Event, Published
from headrace_features.rollouts.log_reading import apply_many, log_rows, restored
from headrace_features.rollouts.packed_rows import packed_rows
from headrace_features.rollouts.settings import RolloutTable
from headrace_features.rollouts.snapshot import Snapshot
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.append_log import FILE_PROPERTIES, AppendLog, rows_in
from spark_jobs.lake.files.compaction import MOST_FILES, merged_files, replace_files
from spark_jobs.lake.ledger.lease import Leases
from spark_jobs.lake.session.catalogue import ensure_table

EVENTS_BETWEEN_SAVES: Final = 8192
MOST_UNKNOWN_GROUPS: Final = 1 << 22
_FILES: Final = {**FILE_PROPERTIES, "write.parquet.row-group-limit": "2048"}

logger = logging.getLogger(__name__)

_LOG_COLUMNS: Final = (
    Column("sequence!", "long", "number of the decision, from 0 without gaps"),
    Column("at!", "timestamptz", "when it was decided, by the server's clock"),
    Column("kind!", "string", "announced, admitted, failed, refused, passed_over or published"),
    Column("principal!", "string", "who called; empty where the server decided by itself"),
    Column("writer", "string", "id of the writer"),
    Column("number", "long", "the writer's number of the rollout"),
    Column("group", "string", "id of the group"),
    Column("member", "int", "number in the group, from 0"),
    Column("group_size", "int", "members that the group waits for"),
    Column("timeout_seconds", "double", "how long the group waits, where the rollout says it"),
    Column("version", "long", "announced one (announced, published), or that of the rollout's oldest token"),
    Column("reward", "double", "as the worker gave it"),
    Column("ordinal", "long", "announced: row that the trainer reads next; published: of the group's first row"),
    Column("rows", "long", "published: how many"),
    Column("reason", "string", "why; one word, a colon, more"),
    Column("payload", "binary", "the rollout as it came, until its row is in the table"),
)
_ROW_COLUMNS: Final = (
    Column("ordinal!", "long", "number of the row, dense from 0, in the order in which groups were published"),
    Column("token_count!", "int", "tokens of the rollout"),
    Column("input_ids!", "list<int!>", "its tokens; the padding id fills the end"),
    Column(
        "segments!",
        "list<struct<doc_id!: string, document_start!: long, token_count!: int, window_start!: int>!>",
        "one segment: the rollout, with the doc_id group/member",
    ),
    Column("trainable!", "list<boolean!>", "whether a token is trained on; false in the padding"),
    Column("log_probability!", "list<float!>", "of each token, by the policy that sampled it; 0 in the padding"),
    Column("advantage!", "list<float!>", "of each token; 0 in the padding"),
    Column("spans!", "list<struct<token_count!: int, policy_version!: long>!>", "which version made which tokens"),
    Column("group!", "string", "id of the group; its rows follow one another"),
    Column("member!", "int", "number in the group, from 0"),
    Column("group_size!", "int", "members that the group waited for"),
    Column("group_reason!", "string", "`complete`, or why it is not"),
    Column("reward", "double", "as the worker gave it"),
    Column("published_version", "long", "announced when the group was published; null before any was"),
)


class RolloutStore:
    """Log and rows of one table, and the state of its admission; the module says what each of three threads calls.

    Attributes:
        admission: decides about rollouts; its events and published groups are written here.
    """

    def __init__(self, catalogue: Catalog, settings: RolloutTable) -> None:
        """Open the tables, made where they do not exist.

        Raises:
            CommandError: the table named as its model is not there, or the table is there with other facts.
            SparkJobsError: it exists with other columns, or the lake is another one.
        """
        self._catalogue = catalogue
        self._settings = settings
        self.window = _window_of(catalogue, settings)
        name = settings.table.partition(".")[2]
        rows = Table(name, "one row per rollout", _ROW_COLUMNS, ("ordinal",), ("ordinal",))
        log = Table(f"{name}_log", "one row per decision about a rollout", _LOG_COLUMNS, ("sequence",), ("sequence",))
        self._names = (settings.table, f"{settings.table}_log")
        self._log_table = AppendLog(catalogue, self._names[1], settings.commit_seconds)
        self._row_table = AppendLog(catalogue, self._names[0], settings.commit_seconds, self._log_table.committed)
        self._logged: Sequence[Published] = ()  # groups of the log whose rows may not be in the table
        self._row_count = 0
        self._snapshot: Snapshot | None = None
        properties = {**_FILES, **self.window.properties, GENERATION_PROPERTY: uuid.uuid4().hex}
        table = ensure_table(catalogue, self._names[0], rows, properties)
        ensure_table(catalogue, self._names[1], log, _FILES)
        if (there := read_window_facts(table, settings.table)) != self.window:
            raise CommandError(
                f"{settings.table}: its rows are {there!r}, configured are {self.window!r}; name another"
            )
        self.forget()

    def forget(self) -> None:
        """Know nothing: what was decided and not committed is gone; the next commit reads snapshot and log again."""
        if self._snapshot is not None:
            self._snapshot.close()
        self._snapshot = None
        self.admission = Admission(self._settings, self.window.window_tokens)
        self._log: IcebergTable | None = None

    @contextmanager
    def lease(self) -> Iterator[Leases | None]:
        """Hold the lease of the log; raises LeaseError where another holds it for long."""
        with self._log_table.lease() as leases:
            yield leases
        self._log_table.committed.set()

    def catch_up(self) -> None:
        """Read what is in the log and not known; needs the lease, and before anything is decided."""
        log = self._log_table.load()
        if self._log is None or log.metadata_location != self._log.metadata_location:
            self._row_count = max(self._row_count, rows_in(self._row_table.load()))
            if self._log is None:
                self._snapshot = Snapshot(_snapshot_file(log, self._settings.table), str(log.metadata.table_uuid))
                self.admission = restored(self._snapshot, log, self._settings, self.window.window_tokens)
            assert self._snapshot is not None
            for rows in log_rows(log, self.admission.next_sequence):
                apply_many(self.admission, self._snapshot.groups, rows, self._row_count)
                self._drop_written()
                if self._snapshot.groups.unknown_count >= MOST_UNKNOWN_GROUPS:
                    self.save()
            if self._snapshot.groups.unknown_count:
                self.save()
            self._log = log
        self._drop_written()

    def save(self) -> None:
        """Move the snapshot on to where the log is known; needs all decisions in the log.

        What fails is told, and tried again later: until then it is known in memory.
        """
        assert self._snapshot is not None
        try:
            self._snapshot.save(*self.admission.to_save())
            self.admission.saved()
        except sqlite3.Error as error:
            logger.warning("rollouts: %s: the snapshot is not saved: %s", self._settings.table, error)
            self._snapshot.groups.hold()

    def save_now_and_then(self) -> None:
        """Save once so many events came since the last time."""
        if self.admission.unsaved_count >= EVENTS_BETWEEN_SAVES:
            self.save()

    def commit_log(self, leases: Leases | None) -> None:
        """Commit what was decided, where nobody has written since `catch_up`; after an error, `forget`."""
        if not self.admission.new:
            return
        assert self._log is not None  # events are decided after the log was read
        self._log_table.append(self._log, leases, functools.partial(_log_rows, self.admission.new))
        self.admission.new = []
        self._drop_written()

    @property
    def has_rows(self) -> bool:
        """Whether the log has published groups with rows perhaps not in the table."""
        return any(group.ordinal >= self._row_count for group in self._logged[-1:])

    def commit_rows(self) -> None:
        """Commit the rows of published groups in the log and not in the table.

        Where another process writes the table just now, they stay for the next time.
        """
        if not self.has_rows:
            return
        with suppress(LeaseError), self._row_table.lease(0.0) as leases:
            table = self._row_table.load()
            row_count = rows_in(table)
            if groups := [group for group in self._logged if group.ordinal >= row_count]:
                facts = {name: table.properties[name] for name in (*PROPERTY_OF_FACT.values(), GENERATION_PROPERTY)}
                self._row_table.append(table, leases, functools.partial(packed_rows, groups, self.window), facts)
                row_count = groups[-1].ordinal + len(groups[-1].members)
            self._row_count = row_count

    def keep_few(self) -> None:
        """Merge small files and remove old snapshots of both tables."""
        self._log_table.keep_few()
        self._row_table.keep_few()

    def empty_payloads(self, until: int) -> None:
        """Write the events before a number again where their rollouts are rows by now, so that tokens are stored once.

        Args:
            until: `Admission.oldest_needed`, of some moment when the log had all events.
        """
        log = self._log_table.load()
        tasks = log.scan(row_filter=And(NotNull("payload"), LessThan("sequence", until))).plan_files()
        files = [task.file for task in tasks]
        for at in range(0, len(files), MOST_FILES):
            some = files[at : at + MOST_FILES]
            emptied = merged_files(log, some, functools.partial(_emptied, until=until))
            with self._log_table.quiet_lease() as leases:
                replace_files(self._catalogue, self._names[1], some, emptied, leases, same_rows=False)

    def _drop_written(self) -> None:
        """Forget published groups with rows in the table; the log has the others, for `commit_rows` to write."""
        published = [group for group in self.admission.published if group.ordinal >= self._row_count]
        self.admission.published = published
        self._logged = tuple(published)


def _window_of(catalogue: Catalog, settings: RolloutTable) -> WindowFacts:
    """Give the facts of the rows, as they are given or those of another table.

    Raises:
        CommandError: there is no such table.
    """
    if settings.window is not None:
        return settings.window
    assert settings.like is not None  # one of the two is given
    like = load_table(catalogue, settings.like)
    if like is None:
        raise CommandError(
            f"{settings.table}: like names {settings.like}, which does not exist; see headrace table show"
        )
    return read_window_facts(like, settings.like, like.current_snapshot())


def _snapshot_file(log: IcebergTable, name: str) -> Path:
    """Where what is known of a log is saved: in the lake's home on this machine."""
    home = LakeSettings({"warehouse": "://", **log.catalog.properties}, embedded=False).home
    return home / "rollouts" / f"{name}-{log.metadata.table_uuid}.sqlite"


def _emptied(rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
    """Events without the payloads of those before a number."""
    at = rows.schema.get_field_index("payload")
    needed = pc.greater_equal(rows.column("sequence"), until)
    return rows.set_column(at, rows.schema.field(at), pc.if_else(needed, rows.column(at), None))


def _log_rows(events: Sequence[Event], schema: pa.Schema) -> pa.RecordBatch:
    """Write events as rows of the log."""
    columns = {attribute.name: [getattr(event, attribute.name) for event in events] for attribute in schema}
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[attribute.name], attribute.type) for attribute in schema], schema=schema
    )  # moments are whole microseconds, which Arrow takes as they are
