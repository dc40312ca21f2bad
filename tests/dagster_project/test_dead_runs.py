"""`kill -9` wherever a run can live: it ends as failed, and the daemon's next run of the same table is done."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.project.loading import dagster_home
from dagster_project.run_process import run_processes
from tests.dagster_project.conftest import PACKAGE
from tests.main_path.services import free_port
from tests.waiting import until

pytestmark = pytest.mark.nightly

_TABLE = """\
import os
import time
from pathlib import Path

import dagster as dg

FOLDER = Path(os.environ["HOLD_FOLDER"])


@dg.asset(key=["mine", "slow"], pool="lake_mine_slow")
def slow():
    (FOLDER / "pid.new").write_text(str(os.getpid()))
    (FOLDER / "pid.new").rename(FOLDER / "pid")
    while (FOLDER / "hold").exists():
        time.sleep(0.05)
"""
# The daemon of another container: it cannot look, and here it need not wait so long.
_ELSEWHERE = """\
from dagster_project import run_process
run_process._SILENT_SECONDS = 45.0
from dagster._daemon.cli import main
main()
"""


class Services:
    """A code server and a daemon as compose has them, and what runs there."""

    def __init__(self, folder: Path, defs: Path) -> None:
        (defs / "tables").mkdir()
        (defs / "tables" / "slow.py").write_text(_TABLE)
        self.folder, self.port = folder, free_port()
        self.home = dagster_home()
        settings = (self.home / "dagster.yaml").read_text()
        (self.home / "dagster.yaml").write_text(settings.replace("seconds: 60", "seconds: 2"))
        with dg.DagsterInstance.get() as instance:  # makes its databases, which two programs at once may fail to
            instance.all_instigator_state()
        location = {"host": "127.0.0.1", "port": self.port, "location_name": "here"}
        (folder / "workspace.yaml").write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
        self.environment = {
            **os.environ,
            "HOLD_FOLDER": str(folder),
            "PYTHONPATH": str(folder),
            "PYTHONWARNINGS": "ignore",
        }

    @contextlib.contextmanager
    def process(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program in a group of its own, killed at the end."""
        with (
            (self.folder / "programs.log").open("ab") as log,
            subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            ) as program,
        ):
            try:
                yield program
            finally:
                kill_group(program)

    def code_server(self) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """The program that runs are started by."""
        command = ["-m", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(self.port)]
        return self.process(sys.executable, *command, "--module-name", f"{PACKAGE}.definitions")

    def daemon(self, *before: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """The daemon, which may run inside of another program."""
        program = ["-c", _ELSEWHERE] if before else ["-m", "dagster._daemon"]
        return self.process(*before, sys.executable, *program, "run", "-w", str(self.folder / "workspace.yaml"))

    def launch(self) -> str:
        """Ask the daemon for a run of the table, as the UI and schedules do; gives its id."""
        run_id = str(uuid.uuid4())
        command = ["-m", "dagster", "job", "launch", "-w", str(self.folder / "workspace.yaml"), "-j", "mine"]

        def accepted() -> bool:
            words = [sys.executable, *command, "--run-id", run_id]
            return subprocess.run(words, env=self.environment, check=False, capture_output=True).returncode == 0

        until(accepted)  # the code server may just be starting
        return run_id

    def status(self, run_id: str) -> str:
        """What Dagster says of a run."""
        with dg.DagsterInstance.get() as instance:
            run = instance.get_run_by_id(run_id)
            return run.status.value if run is not None else ""

    def beat(self, run_id: str) -> float:
        """When the process of a run gave its last sign of life."""
        with dg.DagsterInstance.get() as instance:
            return run_processes(instance, [run_id])[run_id].beat

    def run_ids(self) -> list[str]:
        """All runs, the newest first."""
        with dg.DagsterInstance.get() as instance:
            return [run.run_id for run in instance.get_runs()]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Whoever computes the table meanwhile stays in the middle of it; the block begins once somebody does."""
        (self.folder / "pid").unlink(missing_ok=True)
        (self.folder / "hold").touch()
        yield
        (self.folder / "hold").unlink()

    def worker(self) -> int:
        """The process that computes the table."""
        until((self.folder / "pid").exists)
        return int((self.folder / "pid").read_text())


def kill_group(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


@pytest.fixture
def services(tmp_path: Path, defs: Path, lake_env: Path) -> Services:
    """The project and where its programs run."""
    return Services(tmp_path, defs)


def require_next(services: Services, dead: str) -> None:
    """The dead run ends as failed, and the next one of its table is done."""
    after = services.launch()
    until(lambda: services.status(dead) == "FAILURE")
    until(lambda: services.status(after) not in ("QUEUED", "STARTING", "STARTED"))
    assert services.status(after) == "SUCCESS"


def test_a_killed_run_holds_up_nobody(services: Services) -> None:
    """In a command, in a process of the code server, and with the code server itself, which is started again."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(services.code_server())
        stack.enter_context(services.daemon())
        with services.held(), services.process(sys.executable, "-m", "dagster_project.cli", "run", "mine") as command:
            assert services.worker() == command.pid
            (dead,) = services.run_ids()
            kill_group(command)
        require_next(services, dead)
        with services.held():
            dead = services.launch()
            os.kill(services.worker(), signal.SIGKILL)
        require_next(services, dead)
        with services.held():
            dead = services.launch()
            services.worker()
            kill_group(server)
        stack.enter_context(services.code_server())
        require_next(services, dead)


def test_a_daemon_that_cannot_look_goes_by_the_clock(services: Services) -> None:
    """It is in another PID namespace, as in another container: what lives is left alone, what is silent is ended."""
    inside = ["unshare", "-p", "-f", "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a PID namespace")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(services.code_server())
        stack.enter_context(services.daemon(*inside))
        with services.held():
            alive = services.launch()
            services.worker()
            for _ in range(3):  # a minute: longer than silence may last
                beat = services.beat(alive)
                until(lambda beat=beat: services.beat(alive) > beat)
            assert services.status(alive) == "STARTED"
        until(lambda: services.status(alive) == "SUCCESS")
        with services.held():
            dead = services.launch()
            services.worker()
            kill_group(server)
        stack.enter_context(services.code_server())
        require_next(services, dead)
