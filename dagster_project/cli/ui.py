"""`headrace ui`: Dagster's web server and daemon on this lake."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from dagster_project.cli.project import dagster_home
from dagster_project.exceptions import CommandError


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", default=3000, show_default=True, help="port to listen on")
def ui(host: str, port: int) -> None:
    """Open Dagster's UI on this lake (Ctrl-C ends it)."""
    home = dagster_home()
    require_free(host, port)
    workspace = _workspace()
    click.echo(f"Dagster on http://{host}:{port}, its history in {home}")
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", host, "-p", str(port)]
    # Dagster warns of `dagster dev` itself, in favour of a command that reads no workspace.yaml.
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    status = subprocess.run(command, check=False, env=environment).returncode
    if status not in (0, 130, -2):
        raise CommandError(f"dagster dev ended with status {status}; its own lines above say why")


def require_free(host: str, port: int) -> None:
    """Refuse a port that is taken.

    Raises:
        CommandError: somebody listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"port {port} on {host}: {error.strerror}; choose another with --port") from error


def _workspace() -> Path:
    """The checkout's workspace.yaml; an installed package brings none, so the same is written."""
    there = Path(__file__).parents[2] / "workspace.yaml"
    if there.is_file():
        return there
    made = Path(tempfile.mkdtemp(prefix="headrace-")) / "workspace.yaml"
    location = "{module_name: dagster_project.definitions, location_name: headrace}"
    made.write_text(f"load_from:\n  - python_module: {location}\n")
    return made
