"""A stand-in for S3 that can be stopped and started again with what it holds."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import SqlLake

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
_TRIES, _PAUSE_SECONDS = 60, 0.5


class S3StandIn:
    """moto on loopback, one request after the other, so that it decides between writers as S3 does."""

    def __init__(self) -> None:
        """Start it with an empty bucket `lake`."""
        moto = pytest.importorskip("moto.server", reason="moto is in the extra dev")
        boto3 = pytest.importorskip("boto3", reason="boto3 is in the extra s3")
        self._app = moto.DomainDispatcherApplication(moto.create_backend_app)
        self._server: Any = None
        self._port = 0
        self.start()
        self.properties = {"s3.endpoint": f"http://127.0.0.1:{self._port}", **KEYS}
        boto3.client(
            "s3",
            endpoint_url=self.properties["s3.endpoint"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        ).create_bucket(Bucket="lake")

    def start(self) -> None:
        """Answer, at the same port as before; objects live as long as this process."""
        serving = pytest.importorskip("werkzeug.serving", reason="it comes with moto")
        for last in (*[False] * _TRIES, True):
            try:
                self._server = serving.make_server("127.0.0.1", self._port, self._app)
                break
            except (OSError, SystemExit):  # a connection of another program has its port for a while
                if last:
                    raise
                time.sleep(_PAUSE_SECONDS)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no more: connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    def catalogue(self, folder: Path) -> Catalog:
        """Give a catalogue in `folder` whose warehouse is here, in a place of its own."""
        uri = f"sqlite:///{folder}/catalog.db?timeout=30"
        return SqlLake("lake", type="sql", uri=uri, warehouse=f"s3://lake{folder}", **self.properties)

    def __enter__(self) -> S3StandIn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
