"""`headrace ui`: Dagster's web server and daemon on this lake."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from dagster_project import dagster_pages
from dagster_project.addresses import DAGSTER, EXPLORER_PORT, EXPLORER_VARIABLE, announced, require_tokens
from dagster_project.cli.output import say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import dagster_home, project_folder


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", default=3000, show_default=True, help="port to listen on")
@click.option(
    "--tokens",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="file of tokens, a name and its token a line; needed where --host is open to other machines",
)
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="another name of this server")
@click.option(
    "--explore", "explores", is_flag=True, help="serve the explorer too, at port 4141; each links to the other"
)
def ui(host: str, port: int, tokens: Path | None, allowed_hosts: tuple[str, ...], explores: bool) -> None:
    """Open Dagster's UI on this lake (Ctrl-C ends it)."""
    home = dagster_home()
    require_free(host, port)
    require_tokens("ui", host, tokens)
    with (
        _workspace() as workspace,
        announced(DAGSTER, f"http://{host}:{port}"),
        _explorer(explores) as beside,
    ):
        access = "" if tokens is None else " (each reader opens it with ?token=..)"
        say(f"Dagster on http://{host}:{port}{access}, its history in {home}")
        command = [sys.executable, "-m", dagster_pages.__name__, "dev", "-w", str(workspace), "-h", host]
        command += ["-p", str(port)]
        # Dagster warns of `dagster dev` itself, in favour of a command that reads no workspace.yaml.
        environment = {**os.environ, **beside, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        environment |= {dagster_pages.HOSTS: ",".join([host, *allowed_hosts])}
        environment |= {dagster_pages.TOKENS: str(tokens.absolute()) if tokens is not None else ""}
        status = run_until_stopped(command, environment)
    if status not in (0, 130, -2):
        raise CommandError(f"dagster dev ended with status {status}; its own lines above say why")


@contextlib.contextmanager
def _explorer(is_wanted: bool) -> Iterator[dict[str, str]]:
    """Run the explorer in another process, if wanted; gives the environment variable with its address."""
    if not is_wanted:
        yield {}
        return
    from spark_jobs.plugins import reference

    reference("commands", "explore", ())  # refuses where the feature is not there
    require_free("127.0.0.1", EXPLORER_PORT)
    command = [sys.executable, "-m", "dagster_project.cli", "explore", "--port", str(EXPLORER_PORT)]
    with subprocess.Popen(command, start_new_session=True) as program:
        try:
            yield {EXPLORER_VARIABLE: f"http://127.0.0.1:{EXPLORER_PORT}"}
        finally:
            program.terminate()


def run_until_stopped(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end, or until this process gets a signal to stop; give its exit status, 0 if it was stopped.

    At the first signal the program is interrupted as by Ctrl-C, so that it stops the processes it has started; at the
    second it is killed. Its process group is killed after it has ended, so a signal to this process alone is enough.
    Handlers are installed before the program starts: it would otherwise inherit ignored signals, as in the
    background of a script. An ignored hang-up (`nohup`) stays ignored.
    """
    running: list[subprocess.Popen[bytes]] = []
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)
        for program in running:
            program.send_signal(signal.SIGINT if len(stopped) == 1 else signal.SIGKILL)

    handled = [signal.SIGINT, signal.SIGTERM]
    handled += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    before = {sign: signal.signal(sign, stop) for sign in handled}
    try:
        with subprocess.Popen(command, env=environment, start_new_session=True) as program:
            running.append(program)
            if stopped:
                program.send_signal(signal.SIGINT)
            try:
                status = program.wait()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    return 0 if stopped else status


def require_free(host: str, port: int) -> None:
    """Refuse a taken port.

    Raises:
        CommandError: another program listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"port {port} on {host}: {error.strerror}; choose another with --port") from error


@contextlib.contextmanager
def _workspace() -> Iterator[Path]:
    """A temporary workspace.yaml naming the project's definitions."""
    folder = project_folder()
    location = {
        "module_name": f"{folder.module}.definitions",
        "working_directory": str(folder.package.parent),
        "location_name": folder.location,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-") as temporary:
        file = Path(temporary) / "workspace.yaml"
        file.write_text(json.dumps({"load_from": [{"python_module": location}]}))  # JSON is YAML
        yield file
