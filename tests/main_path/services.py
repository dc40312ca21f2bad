"""Services of a production profile as plain processes: Postgres, an S3 store that checks signatures, faults before it.

Postgres comes from the system's packages, the store is `versitygw` on the PATH (`go install
github.com/versity/versitygw/cmd/versitygw@latest`), the REST catalogue Iceberg's own for tests, which Maven fetches. A
test is skipped where one of them is missing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import pyspark
import pytest

_START_SECONDS = 60
_BUFFER = 1 << 16
PASSWORD = "kept in the environment alone"


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(ready: Callable[[], bool], what: str, seconds: float = _START_SECONDS) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it did not come true in time.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} is not ready after {seconds:g} s")
        time.sleep(0.2)


@dataclass
class Postgres:
    """A Postgres server of its own.

    Attributes:
        folder: its data.
        port: of loopback.
    """

    folder: Path
    port: int
    programs: Path
    user: str | None

    def uri(self, database: str, driver: str = "") -> str:
        """Address of a database, its password included."""
        return f"postgresql{driver}://lake:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{database}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs as its user."""
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            capture_output=True,
            user=self.user,
            cwd=self.folder,
            env={**os.environ, "PGPASSWORD": PASSWORD},
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1"
        self.run(
            "pg_ctl", "start", "-w", "-D", str(self.folder / "data"), "-o", options, "-l", str(self.folder / "log")
        )

    def stop(self) -> None:
        """Stop the server; connections are cut."""
        self.run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.folder / "data"))


@contextlib.contextmanager
def postgres(*databases: str) -> Iterator[Postgres]:
    """A running Postgres with some databases, in a folder of its own: pytest's are for their owner alone."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "")]
    if not found[-1].is_file():
        pytest.skip("Postgres's initdb is not on this machine; install the system's package postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # Postgres refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    server = Postgres(folder, free_port(), found[-1].parent, user)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        found_user = pwd.getpwnam(user)
        for path in (folder, secret):
            os.chown(path, found_user.pw_uid, found_user.pw_gid)
    server.run("initdb", "-D", str(folder / "data"), "-U", "lake", "--pwfile", str(secret), "-A", "scram-sha-256", "-N")
    server.start()
    try:
        for database in databases:
            server.run("createdb", "-h", "127.0.0.1", "-p", str(server.port), "-U", "lake", database)
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # a test may have stopped it
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Wire(socketserver.ThreadingTCPServer):
    """Passes connections on to a port of loopback, as long as `fault` is empty; the bytes stay as they are.

    Faults: `503` answers so and closes, `down` closes at once, `slow` waits half a second before each answer.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, target: int) -> None:
        """Listen at a port of its own."""
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.fault = ""
        self.faults_met = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Connection(socketserver.BaseRequestHandler):
    server: Wire

    def handle(self) -> None:
        """Pass bytes both ways until one side or a fault ends it."""
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.server.target)) as there:
            while True:
                readable, _, _ = select.select([self.request, there], [], [])
                fault = self.server.fault
                for one in readable:
                    data = one.recv(_BUFFER)
                    if not data:
                        return
                    if fault:
                        self.server.faults_met += 1
                    if fault == "down":
                        return
                    if fault == "503" and one is self.request:
                        body = (
                            b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                        )
                        head = f"HTTP/1.1 503 Slow Down\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                        self.request.sendall(head.encode() + body)
                        return
                    if fault == "slow" and one is there:
                        time.sleep(0.5)
                    (there if one is self.request else self.request).sendall(data)


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[Wire]:
    """A running store with the bucket `lake`, behind a wire that can fail."""
    program = shutil.which("versitygw")
    if program is None:
        pytest.skip(
            "versitygw, an S3 store that checks signatures, is not on the PATH; see tests/main_path/services.py"
        )
    (folder / "lake").mkdir(parents=True)
    with gateway(program, folder, PASSWORD) as port, Wire(port) as wire:
        yield wire
        wire.shutdown()


@contextlib.contextmanager
def gateway(program: str, folder: Path, secret: str) -> Iterator[int]:
    """A running store over a folder that knows the key `lake` with one secret; gives its port."""
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": "lake", "ROOT_SECRET_KEY": secret}
    with (folder.parent / "store.log").open("ab") as log:
        command = [program, "--port", f"127.0.0.1:{port}", "posix", str(folder)]
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
            try:
                wait_until(lambda: listens(port), "the store")
                yield port
            finally:
                process.kill()


@contextlib.contextmanager
def rest_catalogue(folder: Path, s3: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """A running REST catalogue whose database lies in a folder, its tables too or in a store; gives its address."""
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None:
        pytest.skip("Maven, which fetches a REST catalogue, is not on this machine; install the system's package maven")
    folder.mkdir(parents=True, exist_ok=True)
    classes = folder / "classpath.txt"
    described = Path(__file__).with_name("rest_catalogue.xml")
    fetch = [maven, "-q", "-f", str(described), "dependency:build-classpath", f"-Dmdep.outputFile={classes}"]
    subprocess.run(fetch, check=True, capture_output=True, timeout=600)
    jars = Path(pyspark.__file__).parent / "jars"
    port = free_port()
    environment = {
        **os.environ,
        "CATALOG_WAREHOUSE": str(folder),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_REST_PORT": str(port),
    }
    if s3:  # Iceberg's server reads `CATALOG_A__B_C` as `a-b.c`
        environment |= {f"CATALOG_S3_{key.replace('_', '__')}": value for key, value in s3.items()}
        environment |= {"CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO", "AWS_REGION": "us-east-1"}
        environment |= {
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "CATALOG_WAREHOUSE": "s3://lake/lake",
        }
    command = [
        java,
        "-cp",
        f"{classes.read_text()}:{jars}/*",
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as one:
        try:
            wait_until(lambda: listens(port), "the REST catalogue")
            yield f"http://127.0.0.1:{port}"
        finally:
            one.kill()


def listens(port: int) -> bool:
    """Whether somebody listens at a port of loopback."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Listening(Protocol):
    """Whatever listens at a port of loopback."""

    @property
    def port(self) -> int:
        """Where it listens."""


def lake_environment(database: Postgres, store: Listening, name: str = "lake") -> dict[str, str]:
    """Environment of a lake with its catalogue in a database of Postgres and its files in the store."""
    return {
        "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
        "PYICEBERG_CATALOG__LAKE__URI": database.uri(name, "+psycopg2"),
        "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"s3://lake/{name}",
        "PYICEBERG_CATALOG__LAKE__S3__ENDPOINT": f"http://127.0.0.1:{store.port}",
        "PYICEBERG_CATALOG__LAKE__S3__REGION": "us-east-1",
        "PYICEBERG_CATALOG__LAKE__S3__ACCESS_KEY_ID": "lake",
        "PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY": PASSWORD,
    }
