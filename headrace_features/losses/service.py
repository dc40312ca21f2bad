"""The gRPC service that takes losses: who sends them reads the blend, and they go beside the tables that it is made of.

A run's losses are taken of the principal that has read a blend under its name (the register of runs). Which source and
epoch a row is of follows from the blend alone, so a client says offsets and documents only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from blender_service.arrays import Int64Array
from blender_service.blend.store import open_store
from blender_service.exceptions import (
    MalformedRequestError,
    NotAllowedError,
    RunNotFoundError,
    ServerUnavailableError,
)
from blender_service.order.resolve import BlendOrder
from blender_service.recently_used import RecentlyUsed
from blender_service.server.blender import Blender
from blender_service.server.call_context import call_of
from blender_service.server.run_register import RunRegister
from blender_service.server.server import AddedService
from headrace.blender.v1 import losses_pb2, losses_pb2_grpc
from headrace_features.losses.tables import LOSSES, MOST_NATS, LossTable
from spark_jobs.exceptions import LeaseError

MOST_ID_CHARACTERS: Final = 4096  # addresses of pages are ids
BLEND_SECONDS: Final = 30.0  # a run that goes over to an updated blend is noticed so late; rows before are the same
REGISTER_SECONDS: Final = 5.0  # a read is registered beside its rows, and may be a little later than they are
_CACHE_BYTES: Final = 1 << 20  # rows are resolved, none is read


class LossServicer(losses_pb2_grpc.LossServiceServicer):
    """Takes losses of runs."""

    def __init__(self, catalogue: Catalog) -> None:
        """Serve a lake; nothing of it is opened before the first call."""
        self._catalogue = catalogue
        self._blender = Blender(catalogue, _CACHE_BYTES)
        self._register = RunRegister(open_store(catalogue).objects)
        self._blends = RecentlyUsed[tuple[str, str, str], tuple[str, float]](1024)  # and when it was looked up
        self._tables: dict[str, LossTable] = {}
        self._lock = threading.Lock()

    def AppendLosses(  # noqa: N802 (the proto's name)
        self, request: losses_pb2.AppendLossesRequest, context: grpc.ServicerContext
    ) -> losses_pb2.AppendLossesResponse:
        """Append losses."""
        call = call_of(context)
        blend_id = self._blend_of(request.run, call.principal, request.blend)
        call.blend_id = blend_id
        order = self._blender.order(blend_id)
        tables = {name: pin.table for name, pin in self._blender.head(blend_id).pins().items()}
        steps = [(step, _checked(step, order.end)) for step in request.steps]
        if not steps:
            return losses_pb2.AppendLossesResponse()
        every = pa.concat_tables([_rows(request.run, step, part, order, tables) for step, part in steps])
        for namespace, rows in _by_namespace(every):
            name = f"{namespace}.{LOSSES.name}"
            if call.may_read is not None and not call.may_read(name):
                raise NotAllowedError(f"table {name}: {call.principal} may not read it; ask for a rule")
            try:
                self._table(namespace).append(rows)
            except (LeaseError, CommitFailedException) as error:
                raise ServerUnavailableError(
                    f"losses: another writer came between: {error}; send them again"
                ) from error
        return losses_pb2.AppendLossesResponse()

    def close(self) -> None:
        """End upkeep."""
        for table in self._tables.values():
            table.close()

    def _table(self, namespace: str) -> LossTable:
        with self._lock:
            if namespace not in self._tables:
                self._tables[namespace] = LossTable(self._catalogue, namespace)
            return self._tables[namespace]

    def _blend_of(self, run: str, principal: str, blend: str) -> str:
        """The blend that losses of a principal's run are of: a named one that it has read, else the last one.

        Raises:
            RunNotFoundError: no run has that name.
            NotAllowedError: it is another principal's, or has not read that blend.
        """
        blend_id, looked_at = self._blends.get((run, principal, blend)) or ("", float("-inf"))
        if time.monotonic() - looked_at < BLEND_SECONDS:
            return blend_id
        deadline = time.monotonic() + REGISTER_SECONDS
        while True:
            try:
                reads = self._register.reads(run)
                blends = [read.blend_id for read in reads if read.principal == principal]
                if time.monotonic() > deadline or (blend in blends if blend else blends):
                    break
            except RunNotFoundError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)
        if not blends or (blend and blend not in blends):
            which = f"no blend {blend[:12]}".rstrip()
            raise NotAllowedError(f"run {run}: {principal} has read {which} under that name; name a run of your own")
        self._blends.put((run, principal, blend), (blend or blends[-1], time.monotonic()))
        return blend or blends[-1]


class _Step(NamedTuple):
    """The arrays of a message: segments of each of R rows; document, tokens and sum of each of S segments."""

    counts: Int64Array
    documents: Int64Array
    tokens: Int64Array
    sums: np.ndarray[tuple[int], np.dtype[np.float32]]


def _checked(step: losses_pb2.StepLosses, end: int | None) -> _Step:
    """Read the arrays of a step, whose rows are below `end`.

    Raises:
        MalformedRequestError: they contradict each other, or the blend.
    """
    fields = (step.segment_counts, step.segment_documents, step.token_counts)
    whole = all(len(field) % 4 == 0 for field in (*fields, step.sums))
    counts, documents, tokens = (
        np.frombuffer(field[: len(field) // 4 * 4], "<i4").astype(np.int64) for field in fields
    )
    sums = np.frombuffer(step.sums[: len(step.sums) // 4 * 4], "<f4")
    problems = {
        "its arrays do not add up": not whole
        or not counts.sum() == documents.size == tokens.size == sums.size
        or counts.min(initial=0) < 0,
        "it names a document that is not there": documents.min(initial=0) < 0
        or documents.max(initial=-1) >= len(step.documents),
        f"ids of documents have 1 to {MOST_ID_CHARACTERS} characters": any(
            not 0 < len(doc_id) <= MOST_ID_CHARACTERS for doc_id in step.documents
        ),
        "tokens are counted from 0": tokens.min(initial=0) < 0,
        f"rows {step.offset} to {step.offset + counts.size} are not all in the blend": step.offset < 0
        or (end is not None and step.offset + counts.size > end),
    }
    if problem := next((problem for problem, is_so in problems.items() if is_so), ""):
        raise MalformedRequestError(f"losses at row {step.offset}: {problem}; send what LossWriter sends")
    return _Step(counts, documents, tokens, sums)


def _rows(run: str, step: losses_pb2.StepLosses, part: _Step, order: BlendOrder, tables: Mapping[str, str]) -> pa.Table:
    """The rows of a step, but for their commit; segments without a loss are left out."""
    rows = np.arange(part.counts.size)
    resolved = order.resolve(step.offset + rows)
    row = np.repeat(rows, part.counts)
    segment = np.arange(row.size) - (np.cumsum(part.counts) - part.counts)[row]
    source = pa.array(resolved.source[row])
    columns = {
        "offset": step.offset + row,
        "run": pa.array([run]).take(pa.array(np.zeros_like(row))),
        "segment": segment.astype(np.int32),
        "doc_id": pa.array(list(step.documents), pa.string()).take(pa.array(part.documents)),
        "source": pa.array(order.names, pa.string()).take(source),
        "table": pa.array([tables[name] for name in order.names], pa.string()).take(source),
        "epoch": resolved.epoch[row],
        "tokens": part.tokens.astype(np.int32),
        "sum": part.sums,
        "step_loss": np.full(row.size, _mean(part), np.float32),
    }
    return pa.table(columns).filter(pa.array(part.tokens > 0))


def _mean(part: _Step) -> float:
    """Mean loss of a step's tokens, but for what has diverged."""
    finite = np.abs(part.sums) < MOST_NATS
    tokens = int(part.tokens[finite].sum())
    return float(part.sums[finite].sum(dtype=np.float64) / tokens) if tokens else 0.0


def _by_namespace(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Rows by the namespace of their table."""
    tables = pc.unique(rows["table"]).to_pylist()
    for namespace in sorted({table.partition(".")[0] for table in tables}):
        there = pa.array([table for table in tables if table.partition(".")[0] == namespace])
        yield namespace, rows.filter(pc.is_in(rows["table"], there))


def add_losses(catalogue: Catalog, server: grpc.Server) -> AddedService:
    """Add the service to a server before its start."""
    servicer = LossServicer(catalogue)
    losses_pb2_grpc.add_LossServiceServicer_to_server(servicer, server)
    return AddedService(losses_pb2.DESCRIPTOR.services_by_name["LossService"].full_name, servicer.close)
