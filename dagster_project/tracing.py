"""OpenTelemetry traces of runs: a trace a run, a span a step, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set.

All other settings are OpenTelemetry's own (`OTEL_SERVICE_NAME`, `OTEL_EXPORTER_OTLP_HEADERS`, ..). Needs the extra
`telemetry`; without the variable nothing of it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spark_jobs.credentials import without_secrets

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
_TIMEOUT_SECONDS = 2.0
_log = logging.getLogger(__name__)

Note = Callable[[Mapping[str, str | int | float | bool]], None]


@contextlib.contextmanager
def step_span(table: str, run_id: str) -> Iterator[Note]:
    """Trace a step, which is what is done in the block; an error that leaves the block is recorded with its message.

    Args:
        table: main table of the step, the name of the span.
        run_id: of Dagster's run, a UUID; it is the id of the trace.

    Yields:
        A function that adds attributes to the span; it does nothing where no endpoint is set.
    """
    traces = _traces() if any(os.environ.get(name) for name in _ENDPOINTS) else None
    if traces is None:
        yield lambda attributes: None
        return
    span = traces.begin(table, run_id)
    try:
        yield lambda attributes: span.set_attributes(dict(attributes))
    except Exception as error:  # whatever ends a step ends its span
        traces.fail(span, " ".join(str(error).split()))
        raise
    finally:
        span.end()


@functools.cache
def _traces() -> _Traces | None:
    """The traces of this process; None without the extra."""
    try:
        return _Traces()
    except ImportError:
        _log.warning("%s is set, and OpenTelemetry is not installed: pip install 'headrace[telemetry]'", _ENDPOINTS[0])
        return None


class _Traces:
    """Spans of this process, sent at the latest when it ends; a run's own span lasts until then, or to the next run."""

    def __init__(self) -> None:
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.trace import StatusCode, set_span_in_context

        class RunIds(RandomIdGenerator):
            """Generates trace ids: the trace of a run has the run's id."""

            def generate_trace_id(this) -> int:  # noqa: N805 - self is the object around it
                return uuid.UUID(self._run_id).int

        resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "headrace")})
        self._provider = TracerProvider(id_generator=RunIds(), resource=resource, shutdown_on_exit=False)
        # A collector that is away delays the end of a run by the exporter's timeout, 10 s by OpenTelemetry's default.
        timeout = None if any(os.environ.get(name) for name in _TIMEOUTS) else _TIMEOUT_SECONDS
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
        self._tracer = self._provider.get_tracer("headrace")
        self._nothing, self._inside, self._error = Context(), set_span_in_context, StatusCode.ERROR
        self._run_id = ""
        self._run: Any = None
        atexit.register(self._finish)

    def begin(self, name: str, run_id: str) -> Any:
        """Begin a span of a run."""
        if run_id != self._run_id:
            self._end_run()
            self._run_id = run_id
            self._run = self._tracer.start_span("run", self._nothing, attributes={"dagster.run_id": run_id})
        return self._tracer.start_span(name, self._inside(self._run, self._nothing))

    def fail(self, span: Any, message: str) -> None:
        """Mark a span as failed."""
        span.set_status(self._error, without_secrets(message))

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.end()

    def _finish(self) -> None:
        self._end_run()
        self._provider.shutdown()
