"""Give Prometheus metrics of one server process over HTTP at `/metrics`; `setup/grafana/blender.json` draws them.

A blend is labelled by the first 12 digits of its id, so the number of series grows with blends and sources, never with
callers or rows; series that have not been counted for longest go first. At `/ready` the same port says whether streams
may begin, for the health checks of containers: 200, and 503 from the moment on at which the server begins to stop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blender_service.exceptions import ServerStartError
from blender_service.recently_used import RecentlyUsed
from blender_service.server.call_context import RpcCall
from blender_service.server.limits import StreamLimits
from blender_service.tables.block_cache import BlockCache

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

ID_DIGITS: Final = 12
COUNT_SECONDS: Final = 0.1
SERIES_AT_HAND: Final = 4096  # most series: of sources of blends, and of blends that waited for live rows
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Observer of calls: counts rows, bytes, times and statuses."""

    def __init__(self, limits: StreamLimits, cache: BlockCache, audit_failures: Callable[[], int]) -> None:
        """Count in a registry of its own, so that several servers of one process do not mix."""
        self.registry = CollectorRegistry()
        source = ("blend", "source")
        self._rows = self._counter("rows", "Rows handed to readers.", source)
        self._tokens = self._counter("tokens", "Tokens of those rows, padding included.", source)
        self._bytes = self._counter("token_bytes", "Bytes of those tokens.", source)
        self._by_source = RecentlyUsed[tuple[str, str], list[Counter]](SERIES_AT_HAND, forgotten=self._forget_source)
        self._message_bytes = self._counter("message_bytes", "Bytes of all answers, as serialised.", ("call",))
        self._live_wait = self._counter("live_wait_seconds", "Time that reads waited for live rows.", ("blend",))
        self._waited = RecentlyUsed[str, Counter](SERIES_AT_HAND, forgotten=self._live_wait.remove)
        self._calls = self._counter("calls", "Calls that have ended, by gRPC status.", ("call", "status"))
        self._seconds = self._histogram("call_seconds", "Time of calls that have one answer.", ("call",))
        self._first = self._histogram("first_batch_seconds", "From the call to the first batch with rows.", ())
        self._batch = self._histogram("batch_seconds", "Time to make one batch, waits for live rows left out.", ())
        self.registry.register(_CurrentValues(limits, cache, audit_failures))

    def began(self, call: RpcCall) -> None:
        """Do nothing: `answered` measures the first batch."""

    def answered(self, call: RpcCall, message_bytes: int, seconds: float) -> None:
        """Count a batch."""
        blend = call.blend_id[:ID_DIGITS]
        if call.waiting or call.has_waited:
            self._waited.find(blend, lambda: self._live_wait.labels(blend)).inc(seconds)
        elif call.source_rows:
            self._batch.observe(seconds)
        if call.source_rows and not call.is_measured:
            call.is_measured = True
            self._first.observe(call.seconds)
        call.has_waited = call.waiting
        if (now := call.seconds) - call.counted_seconds >= COUNT_SECONDS:
            call.counted_seconds = now
            self._count(call)

    def _count(self, call: RpcCall) -> None:
        """Count what a call has sent since it was last counted; done for each message, this would double its cost."""
        blend = call.blend_id[:ID_DIGITS]
        for source, rows in call.take_source_rows().items():
            # Looking three of them up by labels costs more than counting.
            counters = self._by_source.find((blend, source), functools.partial(self._series, blend, source))
            tokens = rows * call.window_tokens
            for counter, count in zip(counters, (rows, tokens, tokens * call.token_bytes), strict=True):
                counter.inc(count)
        counted, call.counted_bytes = call.counted_bytes, call.message_bytes
        self._message_bytes.labels(call.method).inc(call.message_bytes - counted)

    def _series(self, blend: str, source: str) -> list[Counter]:
        return [counter.labels(blend, source) for counter in self._sources()]

    def _sources(self) -> tuple[Counter, ...]:
        return self._rows, self._tokens, self._bytes

    def _forget_source(self, labels: tuple[str, str]) -> None:
        for counter in self._sources():
            counter.remove(*labels)

    def ended(self, call: RpcCall) -> None:
        """Count a call."""
        self._calls.labels(call.method, call.status).inc()
        self._count(call)
        if call.offset is None:
            self._seconds.labels(call.method).observe(call.seconds)

    def serve(self, host: str, port: int, is_ready: Callable[[], bool]) -> tuple[int, Callable[[], None]]:
        """Answer Prometheus over HTTP, and at `/ready` whether streams may begin; port 0 takes any free one.

        Returns:
            The port, and what stops it.

        Raises:
            ServerStartError: the port is taken, or the host is not of this machine.
        """
        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ServerStartError(
                f"metrics: cannot listen on {host}:{port}: {error.strerror}; choose another --metrics-port"
            ) from error

        metrics = server.get_app()
        assert metrics is not None

        def answer(environment: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environment["PATH_INFO"] != "/ready":
                return metrics(environment, start_response)
            status, text = ("200 OK", b"ready\n") if is_ready() else ("503 Service Unavailable", b"stopping\n")
            start_response(status, [("Content-Type", "text/plain")])
            return [text]

        server.set_app(answer)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return int(server.server_port), stop

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"headrace_blender_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> Histogram:
        return Histogram(f"headrace_blender_{name}", text, labels, buckets=SECONDS, registry=self.registry)


class _CurrentValues(Collector):
    """Values counted by other objects, read when Prometheus asks."""

    def __init__(self, limits: StreamLimits, cache: BlockCache, audit_failures: Callable[[], int]) -> None:
        self._limits = limits
        self._cache = cache
        self._audit_failures = audit_failures

    def collect(self) -> Iterator[Metric]:
        """Give the values now."""
        yield GaugeMetricFamily("headrace_blender_streams", "Streams that run.", self._limits.running)
        yield GaugeMetricFamily("headrace_blender_cache_bytes", "Memory of decoded blocks.", self._cache.byte_count)
        for name, text, count in (
            ("cache_hits", "Blocks found in the cache.", self._cache.hits),
            ("cache_misses", "Blocks read from the lake.", self._cache.misses),
            ("audit_failures", "Audit lines that could not be written.", self._audit_failures()),
        ):
            yield CounterMetricFamily(f"headrace_blender_{name}", text, count)
