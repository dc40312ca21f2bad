"""A client of HTTP/2 on a raw socket that does what a test tells it, right or wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
BIG = (1 << 31) - 1


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Write one frame."""
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def literal(name: bytes, value: bytes) -> bytes:
    """Write a header for HPACK as it is, both parts shorter than 127 bytes, nothing kept in the table."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def request_of(content: bytes) -> bytes:
    """Put gRPC's five bytes before a message."""
    return b"\0" + len(content).to_bytes(4, "big") + content


def messages_of(content: bytes) -> list[bytes]:
    """Cut what a stream received into messages; the last one may not be whole."""
    found = []
    while content:
        size = int.from_bytes(content[1:5], "big")
        found.append(content[5 : 5 + size])
        content = content[5 + size :]
    return found


class _Protocol(H2Connection):
    """`h2` lets nothing follow a GOAWAY; here the streams that run go on."""

    def _receive_goaway_frame(self, frame: Any) -> Any:
        event = ConnectionTerminated()
        event.error_code, event.last_stream_id = frame.error_code, frame.last_stream_id
        return [], [event]


class RawClient:
    """One connection; `h2` keeps the rules for what it receives, flow control among them.

    Attributes:
        sock: socket.
        h2: the protocol's state.
        reads: gives windows back for what it receives.
        data: content by stream.
        headers: response headers and trailers by stream, later ones on top.
        ended: streams that the server has ended.
        resets: error codes by stream.
        pings: answers to pings.
        farewells: GOAWAY frames of the server.
        is_closed: the server has hung up.
    """

    def __init__(self, port: int, settings: dict[SettingCodes, int] | None = None, window: int = 0) -> None:
        """Connect and begin.

        Args:
            port: of the server, on loopback.
            settings: that it announces.
            window: added to the connection's window at the beginning.
        """
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        config = H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = _Protocol(config)
        self.h2.local_settings = Settings(client=True, initial_values=settings or {})
        self.h2.max_inbound_frame_size = self.h2.local_settings.max_frame_size
        self.h2.initiate_connection()
        if window:
            self.h2.increment_flow_control_window(window)
        self.reads = True
        self.data: dict[int, bytearray] = {}
        self.headers: dict[int, dict[bytes, bytes]] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.pings: list[bytes] = []
        self.farewells: list[tuple[int, int]] = []
        self.settings_seen = 0
        self.is_closed = False
        self.flush()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def flush(self) -> None:
        """Send what `h2` has to say."""
        content = self.h2.data_to_send()
        if content:
            self.sock.sendall(content)

    def open(self, path: str, *more: tuple[bytes, bytes], ends: bool = False, **replaced: bytes) -> int:
        """Send the headers of a call; give its stream.

        Args:
            path: method.
            more: further headers.
            ends: no request follows.
            replaced: values of the usual headers, a dash for a low line; those that begin with a colon without it.
        """
        usual = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": path.encode(),
            b":authority": b"test",
            b"te": b"trailers",
            b"content-type": b"application/grpc",
        }
        for name, value in replaced.items():
            key = name.encode().replace(b"_", b"-")
            usual[key if key in usual else b":" + key] = value
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [*usual.items(), *more], end_stream=ends)
        self.flush()
        return stream

    def call(self, path: str, *requests: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> int:
        """Begin a call with whole requests; give its stream."""
        stream = self.open(path, *headers)
        self.h2.send_data(stream, b"".join(request_of(one) for one in requests), end_stream=True)
        self.flush()
        return stream

    def send_request(self, stream: int, content: bytes) -> None:
        """Send a whole request and nothing after it, as fast as the server takes it."""
        left = request_of(content)
        while left:
            self.until(lambda: self.h2.local_flow_control_window(stream) > 0)
            size = min(16_384, len(left), self.h2.local_flow_control_window(stream))
            self.h2.send_data(stream, left[:size], end_stream=size == len(left))
            left = left[size:]
            self.flush()

    def reset(self, stream: int) -> None:
        """Give up a call."""
        self.h2.reset_stream(stream, 8)
        self.flush()

    def receive(self, seconds: float = 0.05) -> list[Event]:
        """Take what comes within a time."""
        self.sock.settimeout(seconds)
        try:
            content = self.sock.recv(1 << 20)
        except TimeoutError:
            return []
        except OSError:
            content = b""
        finally:
            self.sock.settimeout(10)
        if not content:
            self.is_closed = True
            return []
        events = self.h2.receive_data(content)
        for event in events:
            self._take(event)
        try:
            self.flush()
        except OSError:
            self.is_closed = True
        return events

    def until(self, is_so: Callable[[], Any], seconds: float = 5.0) -> None:
        """Receive until something is so.

        Raises:
            AssertionError: it was not within the time, or the server hung up before.
        """
        deadline = time.monotonic() + seconds
        while not is_so():
            assert not self.is_closed, f"the server has hung up: {self}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {self}"
            self.receive()

    def answer(self, stream: int, seconds: float = 5.0) -> tuple[list[bytes], dict[bytes, bytes]]:
        """Wait for the end of a call; give its messages and headers."""
        self.until(lambda: stream in self.ended or stream in self.resets, seconds)
        return messages_of(bytes(self.data.get(stream, b""))), self.headers.get(stream, {})

    def unary(self, path: str, request: bytes = b"", seconds: float = 5.0) -> bytes:
        """Make a call that succeeds; give its one answer."""
        messages, headers = self.answer(self.call(path, request), seconds)
        assert headers.get(b"grpc-status") == b"0", f"{headers}: {self}"
        assert len(messages) == 1
        return messages[0]

    def until_closed(self, seconds: float = 5.0) -> None:
        """Receive until the server has hung up."""
        deadline = time.monotonic() + seconds
        while not self.is_closed:
            assert time.monotonic() < deadline, f"open after {seconds} s: {self}"
            self.receive()

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self.data.setdefault(event.stream_id, bytearray()).extend(event.data)
            if self.reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, ResponseReceived | TrailersReceived):
            fields = {bytes(name): bytes(value) for name, value in event.headers}
            self.headers.setdefault(event.stream_id, {}).update(fields)
        elif isinstance(event, StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self.resets[event.stream_id] = int(event.error_code or 0)
        elif isinstance(event, PingAckReceived):
            self.pings.append(event.ping_data)
        elif isinstance(event, RemoteSettingsChanged):
            self.settings_seen += 1
        elif isinstance(event, ConnectionTerminated):
            self.farewells.append((event.last_stream_id or 0, int(event.error_code or 0)))

    def __repr__(self) -> str:
        sizes = {stream: len(content) for stream, content in self.data.items()}
        return f"headers {self.headers}, data {sizes}, ended {self.ended}, resets {self.resets}, bye {self.farewells}"
