"""Traces, as a collector receives them."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

RUN = uuid.uuid4()
PROGRAM = f"""
import contextlib
from dagster_project.tracing import step_span

for run_id in ("{RUN}", "{uuid.uuid4()}"):
    with step_span("notes.documents", run_id) as note:
        note({{"rows": 7}})
    with contextlib.suppress(ValueError), step_span("notes.texts", run_id):
        raise ValueError("audit failed:\\n2 rows")
"""


@pytest.fixture
def collector() -> Iterator[Any]:
    """A server that keeps what is sent to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Keep a message."""
            server.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.received = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_a_run_is_a_trace_and_a_step_a_span(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a process traced has been sent when it ends: two runs of two steps, one of which failed."""
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="extra telemetry")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
    assert {path for path, _ in collector.received} == {"/v1/traces"}
    spans = [
        span
        for _, body in collector.received
        for resource in trace.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for span in spans) == ["notes.documents"] * 2 + ["notes.texts"] * 2 + ["run"] * 2
    own = {span.name: span for span in spans if span.trace_id == RUN.bytes}
    assert own.keys() == {"run", "notes.documents", "notes.texts"}
    assert own["run"].parent_span_id == b""
    assert own["notes.documents"].parent_span_id == own["notes.texts"].parent_span_id == own["run"].span_id
    assert own["notes.documents"].attributes[0].value.int_value == 7
    assert own["notes.texts"].status.message == "audit failed: 2 rows"


def test_without_an_endpoint_nothing_is_imported() -> None:
    """Most runs have none."""
    program = f"{PROGRAM}\nimport sys; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
