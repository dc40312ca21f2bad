"""Each credential is rotated under an open stream, which goes on without a gap or a repeated row."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from blender_service.blend.requests import SourceSpec
from blender_service.client import BlenderClient, Identity, connect, retry
from blender_service.exceptions import UnauthenticatedError
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from tests.blender_service.certificates import Authority
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.main_path.services import PASSWORD, Wire, free_port, gateway, lake_environment, postgres
from tests.waiting import until

Serve = Callable[..., RunningServer]
ROOT = Path(__file__).parents[2]
OLD, NEW = "the-old-token-of-the-trainer", "the-new-token-of-the-trainer"
RENEWED_PASSWORD = "another one"


def offsets(client: BlenderClient, blend: str, rows: int = 0, **how: int) -> Iterator[int]:
    """Give the offsets of the rows that a read gives, one by one."""
    with client.read(blend, 0, rows, **how) as stream:
        for batch in stream:
            yield from range(batch.offset, batch.end)


def endless(client: BlenderClient, table: PackedFixture) -> str:
    """Make a blend without end."""
    return client.create_blend([SourceSpec(table.identifier, max_epochs=0)]).blend_id


@pytest.mark.parametrize("first", ["server", "client"])
def test_a_stream_outlives_the_rotation_of_its_token(
    first: str, tmp_path: Path, serve: Serve, prose: PackedFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever side gets the new token first, the stream is refused at most until the other side has it too."""
    caplog.set_level("INFO")
    tokens, file = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text(f"trainer {OLD}")
    file.write_text(OLD)
    server = serve(operation=OperationConfig(tokens=tokens))
    with connect(server.address, Identity(token_file=str(file)), retry_seconds=60) as client:
        seen: list[int] = []
        rows = offsets(client, endless(client, prose), max_batch_rows=1)
        seen += [next(rows) for _ in range(5)]
        if first == "client":
            file.write_text(NEW)
        tokens.write_text(f"trainer {NEW}")

        def renew() -> None:
            until(lambda: (" is read again" if first == "server" else f"{tokens}: read again") in caplog.text)
            file.write_text(NEW)

        writer = threading.Thread(target=renew)
        writer.start()
        while writer.is_alive():
            seen.append(next(rows))
        seen += [next(rows) for _ in range(50)]
    assert seen == list(range(len(seen)))


def test_a_token_that_stays_refused_is_one_line(tmp_path: Path, serve: Serve, prose: PackedFixture) -> None:
    """After the time for which a server that is away is tried, the stream ends with the refusal of the server."""
    tokens, file = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text(f"trainer {OLD}")
    file.write_text(OLD)
    server = serve(operation=OperationConfig(tokens=tokens))
    with connect(server.address, Identity(token_file=str(file)), retry_seconds=0.5) as client:
        rows = offsets(client, endless(client, prose), max_batch_rows=1)
        next(rows)
        tokens.write_text("")
        with pytest.raises(UnauthenticatedError, match="nobody has that token") as caught:
            for _ in rows:
                pass
        assert "\n" not in str(caught.value)


def test_only_a_token_file_is_waited_for_and_not_long_before_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake is told at once where no file can mend it, and soon where no row has come; later a minute is given."""
    refused = UnauthenticatedError("nobody has that token")
    paused: list[float] = []
    closed = threading.Event()
    monkeypatch.setattr(closed, "wait", paused.append)
    now = [0.0]
    monkeypatch.setattr(retry.time, "monotonic", lambda: now[0])

    def seconds_until_raised(backoff: retry.Backoff) -> float:
        began = now[0]
        with pytest.raises(UnauthenticatedError):
            while True:
                backoff.wait(refused)
                now[0] += paused[-1]
        return now[0] - began

    assert seconds_until_raised(retry.Backoff(60, closed)) == 0
    backoff = retry.Backoff(60, closed, "token")
    assert 3 < seconds_until_raised(backoff) <= retry.RENEWAL_SECONDS
    backoff.reset()
    assert 50 < seconds_until_raised(backoff) <= 60


def test_a_stream_outlives_the_rotation_of_all_certificates(
    tmp_path: Path, serve: Serve, prose: PackedFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Authority, server's certificate and client's certificate are others, and the stream is on new connections."""
    caplog.set_level("INFO")
    authority = Authority(tmp_path)
    server, trainer = authority.sign("server"), authority.sign("trainer")
    running = serve(
        operation=OperationConfig(
            certificate=server.certificate,
            key=server.key,
            client_authority=authority.path,
            grpc_options="grpc.max_connection_age_ms=300,grpc.max_connection_age_grace_ms=100",
        )
    )
    identity = Identity(authority=str(authority.path), certificate=str(trainer.certificate), key=str(trainer.key))
    with connect(running.address, identity, retry_seconds=60) as client:
        rows = offsets(client, endless(client, prose), max_batch_rows=1)
        seen = [next(rows) for _ in range(5)]
        renewed = Authority(tmp_path)  # the files have the names that they had
        renewed.sign("trainer")
        seen.append(next(rows))
        renewed.sign("server")
        while "was renewed" not in caplog.text:
            seen.append(next(rows))
        ended = time.monotonic() + 1  # longer than any connection lasts
        while time.monotonic() < ended:
            seen.append(next(rows))
    assert seen == list(range(len(seen)))


@contextlib.contextmanager
def replica(folder: Path, environment: dict[str, str], port: int) -> Iterator[None]:
    """A server of a lake in a process of its own, once it serves; it is told to stop at the end."""
    command = [sys.executable, "-m", "blender_service", "--port", str(port), "--drain-seconds", "1"]
    folder.mkdir()
    paths = str(ROOT)
    values = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": paths, **environment}
    log = folder / "log"
    with log.open("w") as into, subprocess.Popen(command, cwd=folder, env=values, stderr=into) as process:
        try:
            until(lambda: process.poll() is not None or "serving at" in log.read_text())
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.nightly
def test_a_stream_outlives_the_rotation_of_the_lakes_password_and_key(tmp_path: Path) -> None:
    """Postgres and the store take new secrets and no others; replicas are started again with them, one by one."""
    program = shutil.which("versitygw")
    if program is None:
        pytest.skip(
            "versitygw, an S3 store that checks signatures, is not on the PATH; see tests/main_path/services.py"
        )
    objects = tmp_path / "objects"
    (objects / "lake").mkdir(parents=True)
    with contextlib.ExitStack() as services:
        database = services.enter_context(postgres("lake"))
        old_store = services.enter_context(contextlib.ExitStack())
        wire = services.enter_context(Wire(old_store.enter_context(gateway(program, objects, PASSWORD))))
        old = lake_environment(database, wire)
        uri = old["PYICEBERG_CATALOG__LAKE__URI"].replace(PASSWORD.replace(" ", "%20"), "another%20one")
        new = {
            **old,
            "PYICEBERG_CATALOG__LAKE__URI": uri,
            "PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY": RENEWED_PASSWORD,
        }
        prefix = "PYICEBERG_CATALOG__LAKE__"
        named = {key.removeprefix(prefix).lower().replace("__", "."): value for key, value in old.items()}
        properties = {name.replace("_", "-"): value for name, value in named.items()}
        table = create_packed(load_catalog("lake", **properties), "main.packed_prose_16")
        for increment in range(8):
            table.append(200, seed=increment, increment=increment)
        ports = free_port(), free_port()
        replicas = [services.enter_context(contextlib.ExitStack()) for _ in ports]
        for one, port in zip(replicas, ports, strict=True):
            one.enter_context(replica(tmp_path / f"old-{port}", old, port))
        address = f"ipv4:{','.join(f'127.0.0.1:{port}' for port in ports)}"
        seen: list[int] = []
        rotated = threading.Event()

        def read() -> None:
            with connect(address, retry_seconds=60) as client:
                blend = client.create_blend([SourceSpec(table.identifier, max_epochs=0)], block_rows=32).blend_id
                for offset in offsets(client, blend, max_batch_rows=4):
                    seen.append(offset)
                    time.sleep(0.001)
                    if rotated.is_set() and len(seen) > 10_000:
                        return

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: len(seen) > 100 or not reader.is_alive())
        words = ("-h", "127.0.0.1", "-p", str(database.port), "-U", "lake", "-d", "lake")
        database.run("psql", *words, "-c", f"ALTER ROLE lake PASSWORD '{RENEWED_PASSWORD}'")
        wire.target = services.enter_context(gateway(program, objects, RENEWED_PASSWORD))
        old_store.close()
        for one, port in zip(replicas, ports, strict=True):
            one.close()
            one.enter_context(replica(tmp_path / f"new-{port}", new, port))
            count = len(seen)
            until(lambda count=count: len(seen) > count + 100 or not reader.is_alive())
        rotated.set()
        reader.join()
    assert len(seen) > 10_000
    assert seen == list(range(len(seen)))
