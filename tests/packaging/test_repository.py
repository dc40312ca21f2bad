"""What every file of the repository keeps to, and the files that other programs read."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

# Written in halves, so that this file is not its own first finding.
FORBIDDEN = {
    "a package index": "|".join(("pypi" + r"\.org", "python" + r"hosted\.org", "pytorch" + r"\.org/whl")),
    "a jar repository": "|".join(("repo1" + r"\.maven", r"repo\.maven" + r"\.apache", "spark-packages" + r"\.org")),
    "a container registry": "|".join(("gh" + r"cr\.io", "registry-1" + r"\.docker", r"quay" + r"\.io")),
    "a path of somebody's machine": r"(?<![\w.~}-])/(?:work|root|home/\w+|Users/\w+)/",
}


def _tracked(repository: Path) -> list[Path]:
    command = ["git", "-c", f"safe.directory={repository}", "ls-files", "-z"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [repository / name for name in done.stdout.split("\0") if name and (repository / name).is_file()]


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, dict[str, dict[str, object]]]:
    """docker-compose.yml with anchors and merges resolved."""
    return YAML(typ="safe").load((repository / "docker-compose.yml").read_text("utf-8"))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_names(repository: Path, what: str) -> None:
    """A clone works against any index and mirror, on any machine."""
    pattern = re.compile(FORBIDDEN[what].encode())
    found = [str(path) for path in _tracked(repository) if pattern.search(path.read_bytes())]
    assert found == [], f"{what} is named in {found}"


def test_ci_runs_what_people_run(repository: Path) -> None:
    """.ci/run is `make test` and nothing else, from any directory."""
    script = repository / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "make test"]


def test_bare_make_lists_every_command(repository: Path) -> None:
    """Each target of the Makefile has its line, and nothing is run."""
    text = (repository / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    assert {"demo", "test", "setup", "lint", "lock", "ui", "serve", "clean"} <= set(targets)
    # Run by `make test`, make would say which directory it enters.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    listing = subprocess.run(["make"], cwd=repository, env=plain, capture_output=True, text=True, check=True).stdout
    assert [line.split()[:2] for line in listing.splitlines()] == [["make", target] for target in sorted(targets)]
    assert all(len(line.split()) > 3 for line in listing.splitlines())


def test_command_of_the_distribution_exists(repository: Path) -> None:
    """The console script that pyproject.toml promises can be imported, and says what it does."""
    scripts = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts == {"headrace": "dagster_project.command:main"}
    program = Path(sys.executable).with_name("headrace")
    if not program.exists():
        pytest.skip("headrace is not installed here; run: make setup")
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: headrace")


@pytest.mark.parametrize("package", ["dagster_project", "spark_jobs", "blender_service", "headrace.blender.v1"])
def test_package_is_installed_from_this_checkout(repository: Path, package: str) -> None:
    """The three packages and the generated protos are importable under their names, from anywhere."""
    code = f"import {package} as package; print(package.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(repository)


def test_workspace_names_the_definitions(repository: Path) -> None:
    """`dagster dev -w workspace.yaml` loads one location, with a name of its own."""
    workspace = YAML(typ="safe").load((repository / "workspace.yaml").read_text("utf-8"))
    location = {"module_name": "dagster_project.definitions", "location_name": "headrace"}
    assert workspace == {"load_from": [{"python_module": location}]}
    assert (repository / "dagster_project" / "definitions.py").exists()


def test_services_of_compose_fit_together(repository: Path, compose: dict[str, dict[str, dict[str, object]]]) -> None:
    """Every dependency and volume exists, images are pinned or built here, ports are open to this machine only."""
    services = compose["services"]
    assert set(services) == {
        *("postgres", "objects", "store", "bucket", "spark-master", "spark-worker", "blender"),
        *("dagster-code", "dagster-webserver", "dagster-daemon", "lake-metrics", "prometheus", "grafana"),
        *("postgres-exporter", "store-exporter", "node-exporter"),
    }
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for volume in service.get("volumes", ()):
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            there = source in compose["volumes"] or source in ("./warehouse", "/") or (repository / source).exists()
            assert there, f"{name}: {source}"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        _, _, tag = service["image"].partition(":")
        assert tag and (tag != "latest"), name
        if "build" in service:
            assert (repository / service["build"] / "Dockerfile").is_file()
        health = service.get("healthcheck", {}).get("test", [])
        for argument in [*service.get("command", ()), *health]:
            assert isinstance(argument, str), f"{name}: {argument!r} is not text"
            for word in re.findall(r"setup/\S+", argument):
                assert (repository / word).is_file(), word
        if name in ("objects", "bucket"):
            assert service["restart"] == "no"
        else:
            assert service["restart"] == "unless-stopped" and health, name


def test_services_of_compose_are_bounded(compose: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Each has a user that is not root, an end of its memory and of its log, and the time that it needs to stop."""
    least_seconds = {"blender": 5 + 15, "postgres": 60, "dagster-code": 60}
    for name, service in compose["services"].items():
        assert str(service["user"]).partition(":")[0] in {"10001", "472", "postgres", "nobody"}, name
        assert re.fullmatch(r"\d+[gm]", service["mem_limit"]), name
        options = service["logging"]["options"]
        assert service["logging"]["driver"] == "json-file" and options["max-size"] and int(options["max-file"]) > 1, (
            name
        )
        assert (
            service["init"] and service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
        )
        assert int(service["stop_grace_period"].removesuffix("s")) >= least_seconds.get(name, 10), name
        for mount in service.get("volumes", ()):
            volume, path = mount.split(":")[:2]
            if volume in compose["volumes"] and service["image"] == "headrace:local":
                assert path in _owned_folders(), f"{name}: a new volume at {path} would belong to root"


def _owned_folders() -> list[str]:
    """Folders that the Dockerfile gives to the user of the containers."""
    text = (Path(__file__).parents[2] / "Dockerfile").read_text("utf-8")
    (owned,) = re.findall(r"chown 10001:10001 (.+)", text)
    assert "USER 10001:10001" in text
    return str(owned).split()


def test_spark_of_compose_asks_for_its_secret(compose: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Master and workers want it of whoever connects, and the container with the driver has the same."""
    services = compose["services"]
    for name in ("spark-master", "spark-worker"):
        assert services[name]["environment"]["SPARK_DAEMON_JAVA_OPTS"] == "-Dspark.authenticate=true"
        assert "SPARK_SECRET" not in " ".join(services[name]["command"]), "every user of a machine reads command lines"
        wanted = services[name]["environment"]["_SPARK_AUTH_SECRET"]
        assert services["dagster-code"]["environment"]["HEADRACE_SPARK_SECRET"] == wanted


def test_compose_has_no_password_of_its_own(repository: Path, compose: dict[str, dict[str, dict[str, object]]]) -> None:
    """A password that is not chosen stops compose with the mend; .env.example names every variable there is."""
    text = (repository / "docker-compose.yml").read_text("utf-8")
    variables = dict(re.findall(r"\$\{(\w+)(:[-?])?", text))
    example = dict(re.findall(r"^(\w+)=(.*)$", (repository / ".env.example").read_text("utf-8"), re.MULTILINE))
    assert variables.keys() == example.keys()
    secret = {name for name in variables if re.search("PASSWORD|SECRET|TOKENS", name)}
    assert len(secret) == 5 and not any(example[name] for name in secret)
    assert not re.findall(rf"\$\{{(?:{'|'.join(secret)}):-", text)
    assert ".env" in (repository / ".gitignore").read_text("utf-8").split()


def test_dagster_of_compose_has_the_settings_of_the_project(repository: Path) -> None:
    """Its own dagster.yaml hides that of the project, so it repeats it; what it adds is Postgres."""
    from dagster_project.project.loading import _INSTANCE

    yaml = YAML(typ="safe")
    own = yaml.load((repository / "setup/compose/dagster.yaml").read_text("utf-8"))
    assert own.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert own == yaml.load(_INSTANCE)


def test_what_prometheus_scrapes_is_served(repository: Path, compose: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Every target is a service of compose, at the port of its health check; Grafana finds both dashboards."""
    scrape = YAML(typ="safe").load((repository / "setup/compose/prometheus.yml").read_text("utf-8"))
    services = compose["services"]
    targets = {}
    for job in scrape["scrape_configs"]:
        for found in job.get("static_configs", ()):
            targets |= dict.fromkeys(found["targets"], job)
        for found in job.get("dns_sd_configs", ()):
            targets |= {f"{name}:{found['port']}": job for name in found["names"]}
    assert {target.partition(":")[0] for target in targets} == {
        *("lake-metrics", "blender", "postgres-exporter", "store-exporter", "node-exporter"),
        *("spark-master", "spark-worker"),
    }
    for target, job in targets.items():
        service, _, port = target.partition(":")
        assert f":{port}" in " ".join(services[service]["healthcheck"]["test"]), target
        if service.startswith("spark"):
            kind = service.removeprefix("spark-")
            options = services[service]["environment"][f"SPARK_{kind.upper()}_OPTS"]
            path = job["metrics_path"].rstrip("/")
            assert f"-Dspark.metrics.conf.{kind}.sink.prometheusServlet.path={path}" in options
    assert "http://localhost:9109/metrics" in services["lake-metrics"]["healthcheck"]["test"]
    assert "http://localhost:9108/ready" in services["blender"]["healthcheck"]["test"]  # it has metrics while it drains
    assert {file.name for file in (repository / "setup/grafana").iterdir()} == {"blender.json", "lake.json"}
    assert scrape["rule_files"] == ["/etc/prometheus/rules/*.yml"]
    assert "./setup/prometheus:/etc/prometheus/rules:ro" in services["prometheus"]["volumes"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is of Debian's package prometheus")
def test_prometheus_takes_its_files(repository: Path, tmp_path: Path) -> None:
    """The scrapes and the rules, as Prometheus itself reads them."""
    config = (repository / "setup/compose/prometheus.yml").read_text("utf-8")
    file = tmp_path / "prometheus.yml"
    file.write_text(config.replace("/etc/prometheus/rules", str(repository / "setup/prometheus")))
    subprocess.run(["promtool", "check", "config", str(file)], check=True, capture_output=True)


def test_every_metric_of_rules_and_dashboards_exists(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the registries of the code, under the labels that are asked for; a rule says who is called, and what to do."""
    from blender_service.server.limits import StreamLimits
    from blender_service.server.metrics import Metrics
    from blender_service.tables.block_cache import BlockCache
    from dagster_project.cli.run.status import lake_registry
    from dagster_project.inspect.lake.automation_health import AutomationHealth

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    blender = Metrics(StreamLimits(1, 1), BlockCache(), lambda: 0).registry
    there = {"up"}
    for family in (*blender.collect(), *lake_registry(list, AutomationHealth).collect()):
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        there |= {family.name + ending for ending in endings}
    groups = YAML(typ="safe").load((repository / "setup/prometheus/headrace.yml").read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    texts = [rule["expr"] for rule in rules]
    texts += [file.read_text("utf-8") for file in (repository / "setup/grafana").iterdir()]
    named = {name for text in texts for name in re.findall(r"\bup\b(?=\{)|\bheadrace_(?:blender|lake)_\w+", text)}
    assert named - there == set() and len({rule["alert"] for rule in rules}) == len(rules)
    jobs = YAML(typ="safe").load((repository / "setup/compose/prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert {job for text in texts for job in re.findall(r'up\{job="([\w-]+)"', text)} == {
        job["job_name"] for job in jobs
    }
    for rule in rules:
        summary, mend = rule["annotations"]["summary"], rule["annotations"]["mend"]
        assert rule["labels"]["severity"] in ("page", "ticket") and len(summary) > 40 < 2 * len(mend), rule["alert"]


def test_environment_of_compose_is_a_lake(
    compose: dict[str, dict[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the containers are told is understood as Postgres and S3, by PyIceberg and for Spark."""
    from headrace.tables.settings import load_settings
    from spark_jobs.lake.session.spark_settings import jar_purposes, spark_properties

    for key, value in compose["services"]["blender"]["environment"].items():
        filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        monkeypatch.setenv(key, re.sub(r"\$\{\w+(:\?[^}]*)?\}", "lake-password", filled))
    settings = load_settings()
    assert jar_purposes(settings) == {"core", "postgres", "s3"}
    spark = spark_properties(settings)
    assert spark["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://postgres:5432/lake"
    assert spark["spark.sql.catalog.lake.jdbc.password"] == "lake-password"
    assert spark["spark.sql.catalog.lake.s3.access-key-id"] == "lake"
    assert spark["spark.sql.catalog.lake.client.region"] == "us-east-1"


def test_bucket_of_compose_is_made_once(
    compose: dict[str, dict[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program in the compose file makes the bucket of the warehouse, and can run again."""
    boto3 = pytest.importorskip("boto3", reason="boto3 is in the extra s3")
    moto = pytest.importorskip("moto", reason="moto is in the extra dev")
    [_, _, program] = compose["services"]["bucket"]["command"]
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with moto.mock_aws():
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for _ in range(2):
            exec(program, {})  # the program is a file of this repository
        assert [bucket.name for bucket in boto3.resource("s3").buckets.all()] == ["lake"]


def test_blender_on_kubernetes_is_told_what_it_understands(repository: Path) -> None:
    """Every flag exists, ports and files are those of the manifest, and the grace is what a drain needs."""
    from blender_service.__main__ import serve

    (blender,) = (one for one in manifests(repository, "blender") if one["kind"] == "Deployment")
    pod = blender["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])
    known = {flag.removeprefix("--") for option in serve.params for flag in option.opts}
    assert given.keys() <= known
    assert {int(given["port"]), int(given["metrics-port"])} == {port["containerPort"] for port in container["ports"]}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for name in ("tokens", "rules", "certificate", "key"):
        assert any(given[name].startswith(folder) for folder in mounts), name
    assert pod["securityContext"]["runAsNonRoot"] and container["resources"]["limits"]["memory"]
    assert pod["terminationGracePeriodSeconds"] >= int(given["drain-seconds"]) + 15


def test_settings_on_kubernetes_are_a_lake(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the manifest with the secret that its first lines name; every name in other files is declared."""
    from headrace.tables.settings import load_settings
    from spark_jobs.lake.session.spark_settings import jar_purposes

    found = manifests(repository, "lake")
    lake, spark = (one for one in found if one["kind"] == "ConfigMap")
    for name, value in lake["data"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "postgresql+psycopg2://lake:secret@postgres:5432/lake")
    settings = load_settings()
    assert jar_purposes(settings) == {"core", "postgres", "s3"} and settings.warehouse == "s3://lake/warehouse"
    assert all(len(line.split()) == 2 for line in spark["data"]["spark-defaults.conf"].splitlines())
    (values,) = manifests(repository, "dagster-values")
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["dagsterApiGrpcArgs"] == ["--module-name", "dagster_project.definitions"]
    assert spark["data"]["spark-defaults.conf"].split()[:2] == ["spark.authenticate", "true"]
    daemon = values["dagsterDaemon"]
    assert daemon["runRetries"]["enabled"] and daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert deployment["podSecurityContext"]["runAsNonRoot"] and deployment["resources"]["limits"]["memory"]
    run = values["runLauncher"]["config"]["k8sRunLauncher"]
    assert run["runK8sConfig"]["podSpecConfig"]["serviceAccountName"] in {
        one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"
    }
    assert deployment["envConfigMaps"] == run["envConfigMaps"] == [{"name": lake["metadata"]["name"]}]


def manifests(repository: Path, name: str) -> list[dict[str, Any]]:
    """The documents of a file of `setup/kubernetes`."""
    return list(YAML(typ="safe").load_all((repository / "setup/kubernetes" / f"{name}.yaml").read_text("utf-8")))
