"""The gRPC service taking rollouts: one thread a table commits what came since the last commit.

calls    append  append  announce | append ...          each waits for the commit of its answer
thread   decide, commit the log, answer | ...
another  commit the rows of groups published in the log | ...
upkeep   now and then: empty the log of tokens in rows by now, keep files few
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from blender_service.exceptions import (
    CatalogueError,
    MalformedRolloutError,
    NotAllowedError,
    ServerUnavailableError,
    SlowDownError,
)
from blender_service.server.call_context import call_of
from blender_service.server.server import AddedService
from headrace.blender.v1 import rollouts_pb2, rollouts_pb2_grpc
from headrace.tables.window_facts import WindowFacts
from headrace_features.rollouts.admission import MOST_IN_REQUEST, Admission, Append
from headrace_features.rollouts.settings import RolloutTable, read_settings
from headrace_features.rollouts.tables import RolloutStore
from spark_jobs.exceptions import LeaseError, SparkJobsError

MOST_WAITING: Final = 1024  # calls; more are told to come later
ANSWER_SECONDS: Final = 60.0  # longest wait of a call for its commit
IDLE_SECONDS: Final = 10.0  # after which the log is looked at for what other servers have added
LEAST_PAUSE_SECONDS: Final = 0.1  # between looks without a call
RETRY_SECONDS: Final = 1.0  # after a commit that failed
COMMITS_BETWEEN_EMPTYING: Final = 16
COMMITS_BETWEEN_UPKEEP: Final = 64  # so a merge opens no more files
MOST_ID_CHARACTERS: Final = 256

logger = logging.getLogger(__name__)

Decide = Callable[[Admission, int], Any]


class _Waiting(NamedTuple):
    """A call waiting for its commit: what decides about it, and its answer to come."""

    decide: Decide
    answer: Future[Any]


class TableWriter:
    """Commits to the tables of one `RolloutStore`, in threads of its own."""

    def __init__(self, store: RolloutStore, settings: RolloutTable) -> None:
        """Start, and finish first what an earlier server has left."""
        self.window = store.window
        self._store = store
        self._commit_seconds = settings.commit_seconds
        self._calls: queue.Queue[_Waiting | None] = queue.Queue(MOST_WAITING)
        self._commits = self._emptied_at = self._kept_at = 0
        self._upkeep = threading.Thread()
        self._has_rows = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rollouts-{settings.table}", daemon=True)
        self._thread.start()
        self._rows = threading.Thread(target=self._write_rows, name=f"rows-{settings.table}", daemon=True)
        self._rows.start()

    def ask(self, decide: Decide) -> Any:
        """Give what a decision gives, once it is committed.

        Raises:
            SlowDownError: too many calls wait.
            ServerUnavailableError: the commit failed or takes long; whether it was made is not known.
        """
        waiting = _Waiting(decide, Future())
        try:
            self._calls.put_nowait(waiting)
            return waiting.answer.result(ANSWER_SECONDS)
        except queue.Full:
            raise SlowDownError(f"rollouts: {MOST_WAITING} calls wait for a commit; append again later") from None
        except TimeoutError:
            raise ServerUnavailableError(
                f"rollouts: no commit within {ANSWER_SECONDS:g} s; append again with the same numbers"
            ) from None

    def close(self) -> None:
        """Commit what waits, and end."""
        self._calls.put(None)
        self._thread.join()
        if self._upkeep.is_alive():
            self._upkeep.join()
        self._has_rows.set()
        self._rows.join()
        self._store.forget()

    def _run(self) -> None:
        """Commit until told to end."""
        goes_on = True
        waiting: list[_Waiting] = []
        while goes_on:
            began = time.monotonic()
            failed = not self._commit(waiting)
            deadline = self._store.admission.next_deadline
            idle = IDLE_SECONDS if deadline is None else min(IDLE_SECONDS, max(0.0, deadline / 1e6 - time.time()))
            waiting = []
            try:
                first = self._calls.get(
                    timeout=max(idle, self._commit_seconds, LEAST_PAUSE_SECONDS) if not failed else RETRY_SECONDS
                )
                time.sleep(max(0.0, began + self._commit_seconds - time.monotonic()))
                while first is not None:
                    waiting.append(first)
                    first = self._calls.get_nowait()
                goes_on = False
            except queue.Empty:
                pass
        self._commit(waiting)

    def _commit(self, waiting: list[_Waiting]) -> bool:
        """Decide about calls, commit that, answer, and commit the next rows; say whether that succeeded."""
        store = self._store
        open_calls = waiting
        try:
            with store.lease() as leases:
                store.catch_up()
                now = time.time_ns() // 1000
                answers = [_decided(call, store.admission, now) for call in open_calls]
                store.admission.close_overdue(now)
                committed = bool(store.admission.new)
                store.commit_log(leases)
                for call, (answer, error) in zip(open_calls, answers, strict=True):
                    call.answer.set_exception(error) if error is not None else call.answer.set_result(answer)
                open_calls = []
            store.save_now_and_then()
            if store.has_rows:
                self._has_rows.set()
            self._keep_small(committed)
        except Exception as error:  # of any class: the calls are told, and the thread goes on
            logger.warning("rollouts: not committed: %s", error, exc_info=error)
            store.forget()
            for call in open_calls:
                call.answer.set_exception(_told(error))
            return False
        return True

    def _write_rows(self) -> None:
        """Commit rows whenever the log has some, and once more when the other thread has ended."""
        goes_on = True
        while goes_on:
            self._has_rows.wait()
            self._has_rows.clear()
            goes_on = self._thread.is_alive()
            try:
                self._store.commit_rows()
            except Exception as error:  # of any class: the thread goes on
                logger.warning("rollouts: rows are not committed: %s", error, exc_info=error)
            if goes_on and self._store.has_rows:  # also where another server writes the table
                time.sleep(max(self._commit_seconds, LEAST_PAUSE_SECONDS))
                self._has_rows.set()

    def _keep_small(self, committed: bool) -> None:
        """Count commits, and see to the log's payloads and to the files every so many."""
        self._commits += committed
        if self._commits - self._emptied_at >= COMMITS_BETWEEN_EMPTYING and not self._upkeep.is_alive():
            self._emptied_at = self._commits
            needed = self._store.admission.oldest_needed
            self._upkeep = threading.Thread(target=self._tidy, args=(needed,), name="rollouts-upkeep", daemon=True)
            self._upkeep.start()

    def _tidy(self, needed: int) -> None:
        try:
            self._store.empty_payloads(needed)
            if self._commits - self._kept_at >= COMMITS_BETWEEN_UPKEEP:
                self._kept_at = self._commits
                self._store.keep_few()
        except Exception as error:  # noqa: BLE001 (of any class: the next upkeep does what this one has not)
            logger.warning("rollouts: files were not merged: %s", error)


def _decided(call: _Waiting, admission: Admission, now: int) -> tuple[Any, MalformedRolloutError | None]:
    """Decide about one call, give its answer or its error."""
    try:
        return call.decide(admission, now), None
    except MalformedRolloutError as error:
        return None, error


def _told(error: Exception) -> Exception:
    """Give the error for a caller."""
    if isinstance(error, (LeaseError, CommitFailedException)):
        return ServerUnavailableError(f"rollouts: another writer came between: {error}; append again")
    return CatalogueError(str(error)) if isinstance(error, SparkJobsError) else error


class RolloutServicer(rollouts_pb2_grpc.RolloutServiceServicer):
    """Takes rollouts into the tables of some writers."""

    def __init__(self, writers: dict[str, TableWriter]) -> None:
        """Serve `writers`, by the identifiers of their tables."""
        self._writers = writers

    def AppendRollouts(  # noqa: N802 (the proto's name)
        self, request: rollouts_pb2.AppendRolloutsRequest, context: grpc.ServicerContext
    ) -> rollouts_pb2.AppendRolloutsResponse:
        """Append rollouts."""
        writer = self._writer(request.table, context)
        check_append(request, writer.window)
        call = Append(call_of(context).principal, request.writer, request.first_number, request.rollouts)
        outcomes = writer.ask(lambda admission, now: admission.append(call, now))
        if all(outcome.status == rollouts_pb2.Outcome.SLOW_DOWN for outcome in outcomes):
            raise SlowDownError(f"table {request.table}: {outcomes[0].reason}")
        return rollouts_pb2.AppendRolloutsResponse(outcomes=outcomes)

    def AnnounceVersion(  # noqa: N802
        self, request: rollouts_pb2.AnnounceVersionRequest, context: grpc.ServicerContext
    ) -> rollouts_pb2.AnnounceVersionResponse:
        """Announce the trainer's version."""
        writer, principal = self._writer(request.table, context), call_of(context).principal
        if request.version < 0 or request.next_ordinal < 0:
            raise MalformedRolloutError(
                f"announce: version {request.version}, next_ordinal {request.next_ordinal}; count from 0"
            )
        writer.ask(lambda admission, now: admission.announce(principal, request.version, request.next_ordinal, now))
        return rollouts_pb2.AnnounceVersionResponse()

    def _writer(self, table: str, context: grpc.ServicerContext) -> TableWriter:
        """Find the writer of a table; one unreadable to the caller does not exist.

        Raises:
            MalformedRolloutError: the server takes no rollouts for the table.
            NotAllowedError: the caller may only read it.
        """
        call, writer = call_of(context), self._writers.get(table)
        if writer is None or (call.may_read is not None and not call.may_read(table)):
            raise MalformedRolloutError(
                f"table {table}: takes no rollouts here; name one of the file that `headrace serve --rollouts` has"
            )
        if not call.may_append(table):
            raise NotAllowedError(
                f"table {table}: {call.principal} may read it, and not append; ask for a rule with append = true"
            )
        return writer


def check_append(request: rollouts_pb2.AppendRolloutsRequest, window: WindowFacts) -> None:
    """Refuse a request contradicting itself or its table, whatever the state of the table is.

    Raises:
        MalformedRolloutError: says where.
    """
    if not 0 < len(request.rollouts) <= MOST_IN_REQUEST:
        raise MalformedRolloutError(f"append: {len(request.rollouts)} rollouts; give 1 to {MOST_IN_REQUEST}")
    if not 0 < len(request.writer) <= MOST_ID_CHARACTERS or request.first_number < 0:
        raise MalformedRolloutError(
            f"append: writer {request.writer[:80]!r}, number {request.first_number}; give an id of at most "
            f"{MOST_ID_CHARACTERS} characters, and count from 0"
        )
    for rollout in request.rollouts:
        problem = _problem(rollout, window)
        if problem:
            raise MalformedRolloutError(f"group {rollout.group[:80]!r}, member {rollout.member}: {problem}")


def _problem(rollout: rollouts_pb2.Rollout, window: WindowFacts) -> str:
    """Say what is wrong with a rollout, empty if nothing is."""
    count = len(rollout.input_ids) // 4
    ids = np.frombuffer(rollout.input_ids[: 4 * count], "<i4")
    numbers = rollout.log_probabilities, rollout.advantages
    widths = ((rollout.input_ids, 4), (rollout.trainable, 1), *((values, 4) for values in numbers))
    named = 0 < len(rollout.group) <= MOST_ID_CHARACTERS
    problems = {
        f"give the group an id of 1 to {MOST_ID_CHARACTERS} characters": not named,
        f"is none of a group of {rollout.group_size}; count from 0, to 65,536 at most": not (
            rollout.member < rollout.group_size <= 1 << 16
        ),
        f"timeout_seconds is {rollout.timeout_seconds}; give 0 to 10,000,000": not 0 <= rollout.timeout_seconds <= 1e7,
        "give tokens or a failure": bool(rollout.failure) == bool(count),
        f"a column has not one value for each of {count} tokens": any(
            values and len(values) != count * width for values, width in widths
        ),
        "trainable has a value other than 0 and 1": max(rollout.trainable, default=0) > 1,
        "a log-probability or an advantage is no finite number": not all(
            np.isfinite(np.frombuffer(values[: len(values) // 4 * 4], "<f4")).all() for values in numbers
        ),
        f"has a token id that is none of the vocabulary, 0 to {window.vocabulary_size - 1}": bool(count)
        and not 0 <= ids.min() <= ids.max() < window.vocabulary_size,
        f"its spans do not add up to its {count} tokens; say which version of the policy made which": (
            sum(span.token_count for span in rollout.spans) != count
            or any(not span.token_count or span.policy_version < 0 for span in rollout.spans)
        ),
    }
    return next((problem for problem, is_so in problems.items() if is_so), "")


def add_rollouts(path: Path, catalogue: Catalog, server: grpc.Server) -> AddedService:
    """Open the tables named in a file, and add the service to a server before its start.

    Raises:
        CommandError: the file is wrong, or a table.
    """
    settings = read_settings(path)
    stores = [RolloutStore(catalogue, table) for table in settings]
    writers = {table.table: TableWriter(store, table) for table, store in zip(settings, stores, strict=True)}
    rollouts_pb2_grpc.add_RolloutServiceServicer_to_server(RolloutServicer(writers), server)

    def close() -> None:
        for writer in writers.values():
            writer.close()

    return AddedService(rollouts_pb2.DESCRIPTOR.services_by_name["RolloutService"].full_name, close)
