"""Register what each training run was trained on, in the warehouse beside the blends.

A read that names its run (metadata `headrace-run`) leaves two objects, and one more every ten minutes in between::

    blends/runs/<run>/<time>-<id>.began.json     blend, first row, step and world size, code version, notes, caller
    blends/runs/<run>/<time>-<id>.reached.json   the row after the last one that was sent, the one after the last that
                                                 was consumed where the client reports it, and how it ended
    blends/runs/<run>/<time>-<id>.losses.json    losses that were taken over from the run's own log: [[row, loss], ..]

What was sent may wait in buffers of the client, or never be used: only what was consumed was trained on. What a client
reports after the last row was sent is written every five seconds.

Objects are put if absent and never changed. Where each rank reads its own slice, only the read of rank 0 is recorded;
but of every rank's read an object says in the end by digests what was consumed (`wire.read_digest`)::

    blends/digests/<run>/<time>-<id>.<milliseconds>.json
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import pyarrow as pa

from blender_service.blend.store import ObjectStore
from blender_service.exceptions import BlenderError, InvalidReadError, RunNotFoundError, StateError, StoredBlendError
from blender_service.recently_used import RecentlyUsed
from blender_service.server.audit_log import utc_now
from blender_service.server.call_context import CODE_VERSION, RUN, RUN_NOTES, RpcCall
from headrace.blender.v1.rows_pb2 import ReportConsumedRequest

REACHED_SECONDS: Final = 600.0
LATE_SECONDS: Final = 5.0
READS_AT_HAND: Final = 4096  # whose clients may report
READ_ID: Final = re.compile(r"[0-9a-f]{8}")
RUN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
LOSSES: Final = ".losses.json"
NAMES: Final = "names"  # the folder that lists the runs, beside a folder for each of them

logger = logging.getLogger(__name__)
_Write = Callable[[str, str, Mapping[str, Any]], None]


class RunRead(NamedTuple):
    """One read of a run: rows [first, end) of a blend, as far as it is known that they were sent.

    `consumed` is the row after the last one that the client's loop took, None where the client does not report it.
    `status` says how it ended, empty while it runs or where the server was killed. Where one reader reads all rows,
    `world_size` is 1 and `step_rows` 0. Code version and notes are as the client stated them; `began` is in UTC.
    """

    run: str
    blend_id: str
    first: int
    end: int
    consumed: int | None
    status: str
    began: str
    principal: str
    world_size: int
    step_rows: int
    code_version: str
    notes: str


class DigestedRead(NamedTuple):
    """Rows [first, consumed) of one rank's read of a run: by stretch, how many were its own, and their digests' sum.

    `blend` is the first one of the updates that were read.
    """

    first: int
    consumed: int
    rank: int
    world_size: int
    step_rows: int
    stretches: dict[int, tuple[int, int]]
    blend: str = ""


def check_run_name(name: str) -> None:
    """Refuse a name unfit for a run.

    Raises:
        InvalidReadError: it says the allowed names.
    """
    if not RUN_NAME.fullmatch(name):
        raise InvalidReadError(
            f"metadata {RUN}: {name[:200]!r} is no name of a run; use 1 to 128 letters, digits, '_', '.', '-'"
        )
    if name == NAMES:
        raise InvalidReadError(f"metadata {RUN}: {name!r} is kept for the list of runs; use another name")


class RunRegister:
    """Writes and reads the register."""

    def __init__(self, objects: ObjectStore) -> None:
        """Keep it in `objects`."""
        self._objects = objects

    def write(self, run: str, key: str, facts: Mapping[str, Any]) -> None:
        """Add an object of a read, then list its run, in this order so that every listed run has an object."""
        self._objects.put_if_absent(f"runs/{run}/{key}.json", json.dumps(facts, sort_keys=True).encode())
        self._objects.put_if_absent(f"runs/{NAMES}/{run}", b"")

    def names(self) -> list[str]:
        """List the runs, ascending."""
        return self._objects.list(f"runs/{NAMES}")

    def reads(self, run: str) -> list[RunRead]:
        """List the reads of a run, in the order of their beginning.

        Raises:
            RunNotFoundError: no run has that name.
            StoredBlendError: an object of the register is damaged.
        """
        keys = self._objects.list(f"runs/{run}") if RUN_NAME.fullmatch(run) else []
        if not keys:
            raise _unknown(run)
        reads: dict[str, dict[str, Any]] = {}
        for key in keys:  # ascending, so what a read began with comes first and its last report last
            if not key.endswith(LOSSES):
                reads.setdefault(key.split(".", maxsplit=1)[0], {}).update(self._facts(run, key))
        return [_read_of(run, facts) for facts in reads.values() if "blend" in facts]

    def consumed(self, run: str, blends: Collection[str], principal: str) -> int:
        """Give the row up to which a caller's run consumed rows of blends in its last read that did so, 0 without one.

        Present reads do not count, so that peers beginning together do not see one another.
        """
        keys = [key for key in reversed(self._objects.list(f"runs/{run}")) if not key.endswith(LOSSES)]
        for _, names in itertools.groupby(keys, lambda key: key.split(".", maxsplit=1)[0]):
            newest_first = list(names)
            facts = {**self._facts(run, newest_first[-1]), **self._facts(run, newest_first[0])}
            if facts.get("blend") in blends and facts["principal"] == principal and facts.get("status"):
                consumed = int(facts.get("consumed", 0))
                if consumed > facts["first"]:
                    return consumed
        return 0

    def write_digests(self, run: str, key: str, facts: Mapping[str, Any]) -> None:
        """Add an object of what a read consumed."""
        self._objects.put_if_absent(f"digests/{run}/{key}.json", json.dumps(facts, sort_keys=True).encode())

    def digests(self, run: str) -> list[DigestedRead]:
        """List what the ranks of a run consumed, in the order in which their reads began.

        Raises:
            RunNotFoundError: no run has that name.
            StoredBlendError: an object of the register is damaged.
        """
        if not RUN_NAME.fullmatch(run) or not self._objects.list(f"runs/{run}"):
            raise _unknown(run)
        reads: dict[str, dict[str, Any]] = {}
        for key in self._objects.list(f"digests/{run}"):  # of one read the last one tells all
            reads[key.split(".", maxsplit=1)[0]] = self._facts(run, key, "digests")
        return [
            DigestedRead(**{**facts, "stretches": {at: (rows, digest) for at, rows, digest in facts["stretches"]}})
            for facts in reads.values()
        ]

    def losses(self, run: str) -> dict[int, float]:
        """The losses of a run by the first row of their step, ascending; of several of one row the last."""
        losses: dict[int, float] = {}
        for key in self._objects.list(f"runs/{run}"):
            if key.endswith(LOSSES):
                losses.update(self._facts(run, key)["losses"])
        return dict(sorted(losses.items()))

    def add_losses(self, run: str, losses: Mapping[int, float], now: datetime.datetime) -> int:
        """Keep losses of a run by row; returns how many differ from those kept before."""
        there = self.losses(run)
        new = [(row, loss) for row, loss in losses.items() if there.get(row) != loss]
        if new:
            self.write(
                run, f"{now:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:8]}{LOSSES.removesuffix('.json')}", {"losses": new}
            )
        return len(new)

    def _facts(self, run: str, key: str, folder: str = "runs") -> Any:
        try:
            return json.loads(self._objects.read(f"{folder}/{run}/{key}") or b"")
        except ValueError as error:
            raise StoredBlendError(f"run {run}: object {key} of the register is no JSON; restore it") from error


class RunObserver:
    """Observer of calls: records named reads, in a thread of its own, since a stream must not wait for the store."""

    def __init__(self, register: RunRegister, now: Callable[[], datetime.datetime] = utc_now) -> None:
        """Write to a register; `now` gives the time of day."""
        self._register = register
        self._now = now
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="run-register")
        self._reads = RecentlyUsed[str, RpcCall](READS_AT_HAND)
        self._late: dict[str, RpcCall] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="run-register-late", daemon=True).start()

    def began(self, call: RpcCall) -> None:
        """Write the beginning of a read."""
        if not call.metadata.get(RUN):
            return
        began = self._now()
        read_id = call.request.read_id
        if not READ_ID.fullmatch(read_id) or self._reads.get(read_id) is not None:
            read_id = uuid.uuid4().hex[:8]
        call.digest_key = f"{began:%Y%m%dT%H%M%S%f}-{read_id}"
        self._reads.put(read_id, call)
        if call.request.HasField("slice") and call.request.slice.rank:
            return
        call.run_key = call.digest_key
        part = call.request.slice if call.request.HasField("slice") else None
        facts = {
            "blend": call.blend_id,
            "first": call.offset,
            "began": began.isoformat(timespec="seconds"),
            "principal": call.principal,
            "world_size": part.world_size if part is not None else 1,
            "step_rows": part.step_rows if part is not None else 0,
            "code_version": call.metadata.get(CODE_VERSION, ""),
            "notes": call.metadata.get(RUN_NOTES, ""),
        }
        self._submit(call, "began", facts)

    def answered(self, call: RpcCall, message_bytes: int, seconds: float) -> None:
        """Write how far a read has come, every ten minutes, so that little is lost where a server is killed."""
        if call.run_key and call.seconds - call.run_reported >= REACHED_SECONDS:
            call.run_reported = call.seconds
            self._submit(call, f"reached-{int(call.seconds):012d}", _reached(call))

    def ended(self, call: RpcCall) -> None:
        """Write how far a read came."""
        if call.run_key:
            self._submit(call, "reached-end", _reached(call))
        self._submit_digests(call)

    def check_begins(self, call: RpcCall, blends: Collection[str]) -> None:
        """Refuse a read beginning a run that has consumed rows of the blend, or of one that this one continues.

        Raises:
            StateError: it says how to go on, and how to begin anew.
        """
        run = call.metadata.get(RUN)
        consumed = self._register.consumed(run, blends, call.principal) if run else 0
        if consumed:
            raise StateError(
                f"run {run}: has consumed rows of blend {call.blend_id} up to {consumed}, and a DataLoader would begin "
                "at row 0, since a plain one keeps no state; load what dataset.state_dict() gave by load_state_dict, "
                "or use torchdata's StatefulDataLoader; to begin anew on purpose: BlendDataset(offset=0), or a run "
                "of another name"
            )

    def consumed(self, report: ReportConsumedRequest, principal: str) -> None:
        """Note how far the consumer of a read has come; one of another caller, or an unknown one, is ignored."""
        call = self._reads.get(report.read_id)
        if call is None or call.principal != principal:
            return
        call.consumed = min(max(report.row, call.consumed or 0), call.next_offset or 0)
        call.digests |= {of.stretch: (of.rows, of.digest) for of in report.digests}
        if call.status:
            self._late[report.read_id] = call
            if report.last:
                self._write_late()

    def _write_late(self) -> None:
        """Write what was consumed after the last row was sent."""
        while self._late:
            with contextlib.suppress(KeyError):  # another thread was quicker
                _, call = self._late.popitem()
                if call.run_key:
                    self._submit(call, f"reached-later-{int(1000 * call.seconds):015d}", _reached(call))
                self._submit_digests(call)

    def _run(self) -> None:
        while not self._closed.wait(LATE_SECONDS):
            self._write_late()

    def close(self) -> None:
        """Wait until all objects are written."""
        self._closed.set()
        self._write_late()
        self._writer.shutdown()

    def _submit(self, call: RpcCall, event: str, facts: Mapping[str, Any]) -> None:
        self._submit_to(self._register.write, call.metadata[RUN], f"{call.run_key}.{event}", facts)

    def _submit_digests(self, call: RpcCall) -> None:
        """Write what a read consumed, once some of it was reported."""
        if not (call.digest_key and call.digests):
            return
        part = call.request.slice
        facts = {
            "blend": call.first_blend,
            "first": call.offset,
            "consumed": call.end_of_step(call.consumed or 0),
            "rank": part.rank,
            "world_size": part.world_size or 1,
            "step_rows": part.step_rows,
            "stretches": [[number, *sums] for number, sums in sorted(call.digests.items())],
        }
        key = f"{call.digest_key}.{int(1000 * call.seconds):015d}"
        self._submit_to(self._register.write_digests, call.metadata[RUN], key, facts)

    def _submit_to(self, write: _Write, run: str, key: str, facts: Mapping[str, Any]) -> None:
        try:
            self._writer.submit(self._write, write, run, key, facts)
        except RuntimeError:  # the executor was shut down: the server has stopped
            logger.warning("run %s: not written any more: %s", run, facts)

    def _write(self, write: _Write, run: str, key: str, facts: Mapping[str, Any]) -> None:
        try:
            write(run, key, facts)
        except (OSError, BlenderError, pa.ArrowException) as error:
            logger.error("run %s: %s cannot be written to the register: %s; it held %s", run, key, error, dict(facts))


def _unknown(run: str) -> RunNotFoundError:
    return RunNotFoundError(f"run {run!r} is not known; see `headrace runs --training` for those that are")


def _reached(call: RpcCall) -> dict[str, Any]:
    """The fields of the record of how far a call has come."""
    consumed = {} if call.consumed is None else {"consumed": call.end_of_step(call.consumed)}
    return {"end": _end(call), "status": call.status, **consumed}


def _end(call: RpcCall) -> int:
    """Give the row after the last one sent."""
    return call.end_of_step(call.next_offset or 0)


def _read_of(run: str, facts: Mapping[str, Any]) -> RunRead:
    return RunRead(
        run=run,
        blend_id=str(facts["blend"]),
        first=int(facts["first"]),
        end=int(facts.get("end", facts["first"])),
        consumed=int(facts["consumed"]) if "consumed" in facts else None,
        status=str(facts.get("status", "")),
        began=str(facts["began"]),
        principal=str(facts["principal"]),
        world_size=int(facts["world_size"]),
        step_rows=int(facts["step_rows"]),
        code_version=str(facts["code_version"]),
        notes=str(facts["notes"]),
    )
