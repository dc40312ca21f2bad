"""Answer a client from the lake in its own process: the address `lake:` in place of a server's `host:port`.

`client.channel` imports this for the address `lake:`, and never otherwise, so that a client needs nothing of the lake.
Blends, order and rows come from a server's `Blender`, and rows are never written as messages. Who may
open the lake's files may read them: rules of access are a server's. The runs of an `Identity` are registered.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

import grpc
from pyiceberg.utils.config import Config

from blender_service.blend.store import open_store
from blender_service.catalogue import is_outage, open_catalogue
from blender_service.client.identity import Identity, metadata_of
from blender_service.exceptions import InvalidReadError, ServerUnavailableError
from blender_service.server.blender import Blender
from blender_service.server.call_context import RUN, RpcCall
from blender_service.server.run_register import RunObserver, RunRegister, check_run_name
from blender_service.server.servicers import BlendServicer, read_request
from blender_service.wire.row_batch import RowBatch
from headrace.blender.v1 import rows_pb2
from headrace.tables.settings import CATALOGUE

LOCAL: Any = None  # stands in for gRPC's context; the caller may read everything


class _Lake(NamedTuple):
    """A lake open in this process, with its caches."""

    blender: Blender
    runs: RunObserver


@functools.cache
def _open_lake(process: int, directory: str, settings: str) -> _Lake:
    """Open the lake once in a process: a forked one must not use the connections and threads of its parent."""
    catalogue = open_catalogue()
    return _Lake(Blender(catalogue), RunObserver(RunRegister(open_store(catalogue).objects)))


class LakeChannel:
    """What a client asks of a gRPC channel; the methods raise the errors of Blender themselves."""

    def __init__(self, identity: Identity) -> None:
        """Open the lake of PyIceberg's settings, else the current directory's.

        Raises:
            CatalogueError: there is none.
            InvalidReadError: the identity has what only a server asks for.
        """
        unfit = [name for name, value in identity._asdict().items() if value and not name.startswith(("run", "code"))]
        if unfit:
            raise InvalidReadError(
                f"lake: {unfit[0]} is for a server; leave it out: who may open the lake's files may read them"
            )
        self._metadata = dict(metadata_of(identity, {}))
        if RUN in self._metadata:
            check_run_name(self._metadata[RUN])
        with _errors_of_a_server():
            self._lake = _open_lake(os.getpid(), os.getcwd(), repr(Config().get_catalog_config(CATALOGUE)))
        self._servicer = BlendServicer(self._lake.blender)
        self._reads: weakref.WeakSet[_Read] = weakref.WeakSet()

    def unary_unary(self, path: str, *_: Any, **__: Any) -> Any:
        """Give a method of `BlendService`, or `ReportConsumed` of `RowService`."""
        name = path.rpartition("/")[2]
        if name == "ReportConsumed":
            return _Reporting(self._lake.runs)

        def call(request: Any, timeout: float | None = None) -> Any:
            with _errors_of_a_server():
                return getattr(self._servicer, name)(request, LOCAL)

        return call

    def unary_stream(self, path: str, *_: Any, **__: Any) -> Callable[[rows_pb2.ReadBlendRequest], _Read]:
        """Give the method for reading rows.

        Raises:
            InvalidReadError: another method, about a server.
        """
        if not path.endswith("/ReadBlend"):
            raise InvalidReadError(f"lake: {path.rpartition('/')[2]} is for a server; name one")

        def call(request: rows_pb2.ReadBlendRequest) -> _Read:
            read = _Read(self._lake, request, self._metadata)
            self._reads.add(read)
            return read

        return call

    def close(self) -> None:
        """End all reads."""
        for read in list(self._reads):
            read.cancel()


class _Read(Iterator[RowBatch]):
    """The batches of one read, until it is cancelled."""

    def __init__(self, lake: _Lake, request: rows_pb2.ReadBlendRequest, metadata: dict[str, str]) -> None:
        self._lake = lake
        self._call = RpcCall("ReadBlend", metadata=metadata, request=request)
        self._cancelled = threading.Event()
        self._batches = self._read()

    def __next__(self) -> RowBatch:
        return next(self._batches)

    def cancel(self) -> None:
        """End the read and release its tables; they are no longer watched then."""
        self._cancelled.set()
        self._end(self._call.status_at_end)
        with suppress(ValueError):  # another thread reads just now, and ends at its next batch
            self._batches.close()

    def _read(self) -> Generator[RowBatch, None, None]:
        call, runs = self._call, self._lake.runs
        with _errors_of_a_server():
            reader, arguments = read_request(self._lake.blender, runs, call.request, call)
            runs.began(call)
            for batch in reader.read(*arguments, self._cancelled.is_set):
                if self._cancelled.is_set():
                    return
                call.sends(batch)
                yield batch
                runs.answered(call, 0, 0.0)
            self._end("OK")

    def _end(self, status: str) -> None:
        """Note how the read ended, once."""
        if not self._call.status:
            self._call.status = status
            self._lake.runs.ended(self._call)


class _Reporting(NamedTuple):
    """`ReportConsumed` in this process, in the form of gRPC's future, finished at once."""

    runs: RunObserver

    def future(self, request: rows_pb2.ReportConsumedRequest, timeout: float | None = None) -> _Reporting:
        """Note it."""
        self.runs.consumed(request, "")
        return self

    def result(self, timeout: float | None = None) -> None:
        """Wait for nothing."""

    def add_done_callback(self, callback: Callable[[_Reporting], None]) -> None:
        """Call back at once."""
        callback(self)

    def cancelled(self) -> bool:
        """It never is."""
        return False

    def exception(self) -> None:
        """There is none, for it was raised."""


@contextmanager
def _errors_of_a_server() -> Iterator[None]:
    """Raise ServerUnavailableError where the lake's catalogue or store does not answer, so that reads are retried."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
        raise ServerUnavailableError(
            f"lake: it does not answer: {error}; see that the catalogue's database and the store run and take these "
            "credentials"
        ) from error


def open_lake_channel(identity: Identity) -> grpc.Channel:
    """Give a channel to the lake in this process."""
    return cast(grpc.Channel, LakeChannel(identity))
