"""Record readers and their reads: one JSON line when a stream begins and one when a call ends.

    {"time": "2026-03-01T12:00:00.000Z", "event": "ended", "call": "ReadBlend", "principal": "trainer", "blend": "9f..",
     "offset": 0, "next_offset": 4096, "rows": 4096, "bytes": 33669120, "status": "OK", ..}

Each line is one write in append mode, so that several processes can share one file; half a line, as a full disk leaves
it, is ended before the next. After a rotation the file is opened again under its name. A token is never written.
"""

from __future__ import annotations

import datetime
import errno
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blender_service.exceptions import ServerStartError
from blender_service.server.call_context import RUN, RpcCall

logger = logging.getLogger(__name__)


def utc_now() -> datetime.datetime:
    """Give the time now, in UTC."""
    return datetime.datetime.now(datetime.UTC)


class AuditLog:
    """Observer of calls, and writer of the lines. A full disk stops no stream: the loss is logged and counted."""

    def __init__(self, path: Path, now: Callable[[], datetime.datetime] = utc_now) -> None:
        """Append to a file.

        Raises:
            ServerStartError: the file cannot be written.
        """
        self.failures = 0
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise ServerStartError(f"audit: {path}: {error.strerror}; name a file that can be written") from error

    def began(self, call: RpcCall) -> None:
        """Write the beginning of a stream."""
        self._write("began", call)

    def answered(self, call: RpcCall, message_bytes: int, seconds: float) -> None:
        """Do nothing: `ended` writes how much was read."""

    def ended(self, call: RpcCall) -> None:
        """Write how a call ended. `ReportConsumed` is left out: it comes every second and reads nothing."""
        if call.method != "ReportConsumed":
            self._write("ended", call)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1  # so that a late line cannot land in another file

    def _write(self, event: str, call: RpcCall) -> None:
        line = json.dumps(self._facts(event, call), ensure_ascii=True).encode() + b"\n"
        try:
            with self._lock:
                if self._was_rotated():
                    fresh = self._open()  # before the old one is closed: its number may be another file's then
                    os.close(self._descriptor)
                    self._descriptor = fresh
                if not self._ends_whole():
                    line = b"\n" + line
                if os.write(self._descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.failures += 1
            logger.error("audit: %s: %s; free space, or mend the file's rights", self._path, error.strerror)

    def _facts(self, event: str, call: RpcCall) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "time": self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "call": call.method,
            "principal": call.principal,
            "peer": call.peer,
            "asked": _reference(call.request),
            "blend": call.blend_id,
            "run": call.metadata.get(RUN, ""),
        }
        if call.offset is not None:
            facts |= {"offset": call.offset, "next_offset": call.next_offset, "rows": call.rows}
            facts["slice"] = _slice(call.request)
        if event == "ended":
            facts |= {"bytes": call.message_bytes, "seconds": round(call.seconds, 3)}
            facts |= {"status": call.status, "detail": call.detail}
        return facts

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _ends_whole(self) -> bool:
        """Whether the file does not end in half a line, as a full disk or a killed server leaves it."""
        size = os.fstat(self._descriptor).st_size
        return size == 0 or os.pread(self._descriptor, 1, size - 1) == b"\n"

    def _was_rotated(self) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(self._descriptor).st_ino
        except FileNotFoundError:
            return True


def _reference(request: Any) -> str:
    """Give the name of the requested blend or table, as the client wrote it; a long one is cut."""
    for field in ("blend", "parent", "to_blend", "name", "table"):
        value = getattr(request, field, "")
        if isinstance(value, str) and value:
            return value[:256]
    return ""


def _slice(request: Any) -> list[int] | None:
    """Give step, rank and world size of a read of one rank, None for all rows."""
    if not request.HasField("slice"):
        return None
    return [request.slice.step_rows, request.slice.rank, request.slice.world_size]
