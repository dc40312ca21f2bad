"""The commands of docker-compose.yml as plain processes, each until its health check is content; then what they do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dagster_project.cli import run_command
from spark_jobs.lake.session.java import java_home
from tests.main_path.services import PASSWORD, free_port, object_store, postgres, wait_until

pytestmark = pytest.mark.nightly

_SECRETS = {
    "LAKE_PASSWORD": PASSWORD.replace(" ", "%20"),
    "STORE_SECRET_KEY": PASSWORD,
    "SPARK_SECRET": PASSWORD,
    "BLENDER_TOKENS": "trainer a-token-that-is-long-enough",
    "GRAFANA_PASSWORD": PASSWORD,
}
# In the order in which compose starts them; Postgres and the store are services of the test, Prometheus and Grafana
# are images that nobody here can run.
_STARTED = (
    *("spark-master", "spark-worker", "dagster-code", "dagster-webserver", "dagster-daemon"),
    *("blender", "lake-metrics"),
)


class Compose:
    """The services, with every host and port of a container replaced by one of this machine."""

    def __init__(self, repository: Path, folder: Path, postgres_port: int, store_port: int) -> None:
        text = (repository / "docker-compose.yml").read_text("utf-8")
        self.services: dict[str, Any] = YAML(typ="safe").load(text)["services"]
        self.repository, self.folder = repository, folder
        ports = {name: free_port() for name in ("master", "web", "worker", "code", "ui", "blender", "metrics", "lake")}
        self.replaced = {
            "postgres:5432": f"127.0.0.1:{postgres_port}",
            "store:7070": f"127.0.0.1:{store_port}",
            "spark-master:7077": f"127.0.0.1:{ports['master']}",
            "spark-master:8080": f"127.0.0.1:{ports['web']}",
            "$$HOSTNAME:8081": f"127.0.0.1:{ports['worker']}",
            "localhost:3000": f"127.0.0.1:{ports['ui']}",
            "localhost:9108": f"127.0.0.1:{ports['metrics']}",
            "localhost:9109": f"127.0.0.1:{ports['lake']}",
            "/var/lib/dagster": str(folder / "dagster"),
            "setup/compose/workspace.yaml": str(folder / "workspace.yaml"),
            "0.0.0.0": "127.0.0.1",
            "dagster_project.definitions": "mill.definitions",
        }
        self.alone = {  # words that are replaced only where they are the whole argument
            **{"spark-master": "127.0.0.1", "dagster-code": "127.0.0.1", "7077": str(ports["master"])},
            **{"4000": str(ports["code"]), "3000": str(ports["ui"]), "9109": str(ports["lake"])},
            **{"3g": "1500m"},
        }
        self.project = folder / "project"  # what DEFINITIONS would be: declarations that change
        self.started_services: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            "HEADRACE_PROJECT": str(self.project),
            "PYTHONPATH": str(self.project),
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER_WEBUI_PORT": str(ports["web"]),
            "SPARK_WORKER_WEBUI_PORT": str(ports["worker"]),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "HEADRACE_SPARK_MEMORY": "1g",
            "HEADRACE_SPARK_EXECUTOR_MEMORY": "900m",
            "BLENDER_FOLDER": str(folder / "blender"),
            "BLENDER_PORT": str(ports["blender"]),
            "BLENDER_METRICS_PORT": str(ports["metrics"]),
        }
        home = folder / "dagster"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text((repository / "setup/compose/dagster.yaml").read_text())
        workspace = (repository / "setup/compose/workspace.yaml").read_text()
        workspace = workspace.replace("host: dagster-code", "host: 127.0.0.1").replace("4000", str(ports["code"]))
        (folder / "workspace.yaml").write_text(workspace)

    def here(self, text: str) -> str:
        """A word of the compose file as it is on this machine."""
        if text in self.alone:
            return self.alone[text]
        text = re.sub(r"\$\{(\w+)(?::[?-]([^}]*))?\}", lambda found: _SECRETS.get(found[1], found[2] or ""), text)
        for name, ours in self.replaced.items():
            text = text.replace(name, ours)
        return text

    def values(self, service: str) -> dict[str, str]:
        """The environment of a service."""
        given = {name: self.here(str(value)) for name, value in self.services[service].get("environment", {}).items()}
        return {**given, **self.environment}

    def check(self, service: str) -> subprocess.CompletedProcess[bytes]:
        """Run the health check of a service once."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        words = [sys.executable if word == "python" else self.here(word) for word in words]
        command = ["sh", "-c", words[0]] if kind == "CMD-SHELL" else words
        return subprocess.run(
            command, env=self.values(service), cwd=self.repository, capture_output=True, check=False, timeout=60
        )

    @contextlib.contextmanager
    def started(self, service: str) -> Iterator[None]:
        """A service, started and healthy."""
        command = [self.here(word) for word in self.services[service]["command"]]
        log = self.folder / f"{service}.log"
        with log.open("wb") as into:
            process = subprocess.Popen(
                command,
                env=self.values(service),
                cwd=self.repository,
                stdout=into,
                stderr=into,
                start_new_session=True,
            )
        self.started_services[service] = process
        try:

            def healthy() -> bool:
                assert process.poll() is None, f"{service} ended: {log.read_text(errors='replace')[-3000:]}"
                return self.check(service).returncode == 0

            wait_until(healthy, service, seconds=180)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()

    def stop(self, service: str) -> bool:
        """Ask a service to end, as compose does; gives whether it did within its grace period."""
        process = self.started_services[service]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=int(self.services[service].get("stop_grace_period", "10s").removesuffix("s")))
        return process.poll() is not None

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the driver is."""
        values = {**self.values("dagster-code"), "HEADRACE_SPARK_CORES": "1", **environment}
        return subprocess.run(
            words, env=values, cwd=self.repository, capture_output=True, text=True, check=False, timeout=600
        )

    def ask(self, query: str) -> str:
        """What the web server answers to a query of its own page."""
        url = f"http://{self.here('localhost:3000')}/graphql"
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """Everything that compose would start, on this machine, with the declarations of a new project."""
    repository, tmp_path = Path(__file__).parents[2], tmp_path_factory.mktemp("compose")
    with (
        postgres("lake", "dagster") as database,
        object_store(tmp_path / "objects") as store,
        contextlib.ExitStack() as running,
    ):
        made = Compose(repository, tmp_path / "compose", database.port, store.port)
        assert run_command(["init", "mill", "--at", str(made.project)]) == 0
        for service in _STARTED:
            running.enter_context(made.started(service))
        yield made


def test_what_compose_starts_is_healthy_and_computes(compose: Compose) -> None:
    """Each service answers its own health check; a dataset is run on the cluster, and no secret is told."""
    done = compose.run("headrace", "run", "notes.documents")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "notes.documents" in done.stdout and PASSWORD not in done.stdout + done.stderr
    assert "Registered app" in (compose.folder / "spark-master.log").read_text()
    for service in _STARTED:
        assert compose.check(service).returncode == 0, service


@pytest.mark.parametrize("secret", ["", "another one"])
def test_a_driver_without_the_secret_is_refused(compose: Compose, secret: str) -> None:
    """With none, and with a wrong one: the master registers no further application."""
    log = compose.folder / "spark-master.log"
    before = log.read_text().count("Registered app")
    done = compose.run("headrace", "run", "notes.texts", HEADRACE_SPARK_SECRET=secret)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert log.read_text().count("Registered app") == before


def test_the_code_server_loads_declarations_anew(compose: Compose) -> None:
    """When the UI says "Reload", as `dagster api grpc` would not."""
    assets = "{assetNodes{assetKey{path}}}"
    assert '"notes"' in (first := compose.ask(assets)) and '"later"' not in first
    declared = (compose.project / "mill/defs/notes/defs.yaml").read_text()
    (compose.project / "mill/defs/later").mkdir()
    (compose.project / "mill/defs/later/defs.yaml").write_text(declared.replace("name: notes", "name: later"))
    reload = 'mutation{reloadRepositoryLocation(repositoryLocationName:"headrace"){__typename}}'
    assert "WorkspaceLocationEntry" in compose.ask(reload)
    assert '"later"' in compose.ask(assets)


def test_services_end_within_their_grace_period(compose: Compose) -> None:
    """Asked by SIGTERM in the order in which compose stops them; this test is the last, since nothing runs after it."""
    assert [service for service in reversed(_STARTED) if not compose.stop(service)] == []
