"""setup/install.sh on machines that lack something, or are pulled away under it. No package is really installed."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TOOLS = (
    *("awk", "bash", "cat", "chmod", "cut", "date", "df", "dirname", "env", "flock", "grep", "head", "mkdir", "mv"),
    *("rm", "sed", "sha256sum", "sort", "tail", "touch", "tr"),
)
COPIED = ("setup", "pyproject.toml", "requirements.lock", "spark_jobs/lake/session/jars.lock")

# Stands for uv: makes a .venv whose Python only pretends, and does to the installation what FAKE_UV says.
FAKE_UV = """#!/bin/sh
if [ "$1" = --version ]; then echo "uv ${FAKE_UV_VERSION:-0.13.8}"; exit; fi
echo "$*" >> uv-calls
if [ "$1" = venv ]; then
  mkdir -p .venv/bin
  printf '#!/bin/sh\\n[ "$1" != -m ] || echo "set-up: $2"\\n' > .venv/bin/python
  chmod +x .venv/bin/python
fi
case "$*" in *--require-hashes*) eval "${FAKE_UV:-true}" ;; esac
"""


@dataclass
class Machine:
    """A directory with the set-up script, and a PATH with little on it."""

    checkout: Path
    programs: Path

    def add(self, name: str, text: str) -> None:
        """Put a program on the PATH."""
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o755)

    def set_up(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the script with these arguments, and these environment variables alone."""
        environment = {"PATH": str(self.programs), "HOME": str(self.checkout), **variables}
        command = ["bash", "setup/install.sh", *words]
        return subprocess.run(
            command, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def machine(repository: Path, tmp_path: Path) -> Machine:
    """A user without root, without any Python, uv or Java."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    programs.mkdir()
    for name in COPIED:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (repository / name).is_dir() else shutil.copy
        copy(repository / name, checkout / name)
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where is not None, tool
        (programs / tool).symlink_to(where)
    machine = Machine(checkout, programs)
    machine.add("id", "#!/bin/sh\necho 1000\n")
    return machine


@pytest.fixture
def with_python(machine: Machine) -> Machine:
    """The same with the Python of these tests."""
    machine.add("python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return machine


def _only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on standard error of a run that failed as it should."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("set-up: ")
    return done.stderr


def test_missing_python_is_one_line(machine: Machine) -> None:
    """Without a Python the message says which versions do and how to get one."""
    line = _only_line(machine.set_up())
    assert "needs Python 3.11 to 3.14, found none" in line
    assert "apt-get install python3.11" in line


@pytest.mark.parametrize("words", [("usre",), ("user", "spark")])
def test_a_word_that_is_none_installs_nothing(with_python: Machine, words: tuple[str, ...]) -> None:
    """A misspelt `user` would install 8.6 GB."""
    with_python.add("uv", FAKE_UV)
    assert "write user, spark, or nothing" in _only_line(with_python.set_up(*words))
    assert not (with_python.checkout / "uv-calls").exists()


def test_old_python_is_one_line(machine: Machine) -> None:
    """A Python that is too old is named."""
    machine.add("python3", '#!/bin/sh\n[ "$1" != --version ] || echo "Python 3.9.2"\n[ "$1" != -c ]\n')
    assert "needs Python 3.11 to 3.14, found Python 3.9.2" in _only_line(machine.set_up())


def test_named_python_is_used_though_the_first_on_the_path_is_old(with_python: Machine) -> None:
    """HEADRACE_PYTHON, and the versioned names, are tried as well."""
    with_python.add("uv", FAKE_UV)
    with_python.add("python3", "#!/bin/sh\nexit 1\n")
    done = with_python.set_up(HEADRACE_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert sys.executable in (with_python.checkout / "uv-calls").read_text("utf-8")


def test_debian_python_without_venv_and_without_root_is_one_line(with_python: Machine, tmp_path: Path) -> None:
    """Debian ships Python without pip and ensurepip; who cannot install packages is told which one to ask for."""
    blocker = tmp_path / "site"
    blocker.mkdir()
    text = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ensurepip", "pip"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocker())
"""
    (blocker / "sitecustomize.py").write_text(text, "utf-8")
    line = _only_line(with_python.set_up(PYTHONPATH=str(blocker)))
    assert f"sudo apt-get install python3.{sys.version_info.minor}-venv" in line


def test_set_up_runs_once_and_again_when_a_lock_changes(with_python: Machine) -> None:
    """Nothing changed: no output, no work. A changed lock or pyproject: everything is brought up to date."""
    with_python.add("uv", FAKE_UV)
    first = with_python.set_up()
    assert first.returncode == 0, first.stderr
    assert "spark_jobs" not in first.stdout  # neither Java nor jars
    calls = (with_python.checkout / "uv-calls").read_text("utf-8")
    assert "--require-hashes -r requirements.lock" in calls

    second = with_python.set_up()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")

    for name in ("requirements.lock", "pyproject.toml"):
        _change(with_python, name)
        again = with_python.set_up()
        assert "ready after" in again.stdout, name


def test_users_get_no_tools_of_tests(with_python: Machine) -> None:
    """Extras of users alone, at the versions and hashes of the lock; whoever has all packages needs no more.

    Spark's jars, which Sail does without, come with a developer's.
    """
    with_python.add("uv", FAKE_UV)
    spark = "mkdir -p .venv/lib/python3/site-packages/pyspark/jars"
    done = with_python.set_up("user", FAKE_UV=spark)
    assert done.returncode == 0, done.stderr
    assert not [*with_python.checkout.glob(".venv/lib/*/site-packages/pyspark/jars")]
    installed = (with_python.checkout / "uv-calls").read_text("utf-8").splitlines()[1]
    assert "--require-hashes -r pyproject.toml" in installed and "--constraint requirements.lock" in installed
    extras = {word.removeprefix("--extra=") for word in installed.split() if word.startswith("--extra=")}
    assert "platform" in extras
    assert not extras & {"bench", "dev", "docs", "frameworks", "java", "readers"}
    assert with_python.set_up("user").stdout == ""
    assert "ready after" in with_python.set_up(FAKE_UV=spark).stdout  # a developer's is more
    calls = with_python.checkout / "uv-calls"
    assert calls.read_text("utf-8").count("--reinstall-package pyspark") == 1
    _change(with_python, "pyproject.toml")
    assert "ready after" in with_python.set_up().stdout
    assert calls.read_text("utf-8").count("--reinstall-package pyspark") == 1
    assert with_python.set_up("user").stdout == ""


@pytest.mark.parametrize("folder", ["clone & [2]", "clone.2"])
def test_a_moved_clone_is_mended(with_python: Machine, folder: str) -> None:
    """Its scripts call the Python beside them; where their first line could not name it, all is made anew."""
    with_python.add("uv", FAKE_UV)
    assert with_python.set_up().returncode == 0
    programs, before = with_python.checkout / ".venv" / "bin", with_python.checkout
    (programs / "activate").write_text(f"VIRTUAL_ENV='{before}/.venv'\nexport VIRTUAL_ENV\n", "utf-8")
    (programs / "headrace").write_text(f"#!{programs}/python\n", "utf-8")
    with_python.checkout = before.rename(before.with_name(folder))
    done = with_python.set_up()
    assert done.returncode == 0 and "ready after" in done.stdout, done.stderr
    programs = with_python.checkout / ".venv" / "bin"
    if " " in folder:
        assert not (programs / "headrace").exists() and (programs / "python").exists()
    else:
        assert (programs / "headrace").read_text("utf-8") == f"#!{programs}/python\n"
    again = with_python.set_up()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_spark_is_set_up_when_it_is_asked_for(with_python: Machine) -> None:
    """Java and jars, once, and again when their lock changes; a first time the packages before them."""
    with_python.add("uv", FAKE_UV)
    asked = ["set-up: spark_jobs.lake.session.java", "set-up: spark_jobs.lake.session.jars"]
    for name, count in ((None, 2), ("spark_jobs/lake/session/jars.lock", 1), ("pyproject.toml", 2)):
        if name is not None:
            _change(with_python, name)
        done = with_python.set_up("spark")
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if "spark_jobs" in line] == asked
        assert done.stdout.count("ready after") == count, name
        again = with_python.set_up("spark")
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def _change(machine: Machine, name: str) -> None:
    """Add a line to a file of the checkout."""
    with (machine.checkout / name).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")


def test_killed_set_up_starts_its_environment_anew(with_python: Machine) -> None:
    """After a kill in the middle of an installation nothing of the half-made environment is trusted."""
    with_python.add("uv", FAKE_UV)
    killed = with_python.set_up(FAKE_UV="touch .venv/half-installed; kill -9 $PPID")
    assert killed.returncode == -9
    assert (with_python.checkout / ".venv" / "half-installed").exists()
    done = with_python.set_up()
    assert done.returncode == 0, done.stderr
    assert "ready after" in done.stdout
    assert not (with_python.checkout / ".venv" / "half-installed").exists()


def test_failed_installation_is_one_line_and_is_not_taken_for_done(with_python: Machine) -> None:
    """The reason out of uv's report is in the line; the next run tries again."""
    with_python.add("uv", FAKE_UV)
    report = "echo Resolved; echo 'error: Failed to fetch something' >&2; echo '  Caused by: dns error' >&2; exit 1"
    line = _only_line(with_python.set_up(FAKE_UV=report))
    assert "installing packages failed: Caused by: dns error" in line
    assert ".uv/set-up.log" in line
    assert "ready after" in with_python.set_up().stdout


def test_full_disk_is_named_as_such(with_python: Machine) -> None:
    """When an installation fails on a nearly full disk, the line says how much is left and how much it takes."""
    with_python.add("uv", FAKE_UV)
    with_python.add("df", "#!/bin/sh\nprintf 'header\\n/dev/x 9 9 1048576 99%% /\\n'\n")
    line = _only_line(with_python.set_up(FAKE_UV="echo 'error: No space left on device' >&2; exit 2"))
    assert "No space left on device; the disk has 1 GiB left" in line


@pytest.mark.nightly
def test_uv_that_is_too_old_is_not_used(with_python: Machine) -> None:
    """An old uv on the PATH is passed over for the pinned one, which here cannot be had."""
    with_python.add("uv", FAKE_UV)
    settings = {"FAKE_UV_VERSION": "0.4.30", "PIP_INDEX_URL": "file:///nowhere", "PIP_NO_INDEX": "1"}
    settings |= {"PIP_CONFIG_FILE": os.devnull}
    line = _only_line(with_python.set_up(**settings))
    assert "fetching uv failed" in line


def test_long_step_shows_that_it_lives(with_python: Machine) -> None:
    """While an installation lasts a line appears now and then, and none after it."""
    script = with_python.checkout / "setup" / "install.sh"
    text = script.read_text("utf-8")
    script.write_text(text.replace("HEARTBEAT_SECONDS=20", "HEARTBEAT_SECONDS=1"), "utf-8")
    with_python.add("uv", FAKE_UV)
    (with_python.programs / "sleep").symlink_to(shutil.which("sleep") or "")
    done = with_python.set_up(FAKE_UV="sleep 2.5")
    assert done.stdout.count("installing packages, ") == 2


def test_index_of_pip_is_given_to_uv(with_python: Machine) -> None:
    """A machine whose pip is set to a mirror needs no second setting for uv."""
    with_python.add("uv", FAKE_UV)
    done = with_python.set_up(PIP_INDEX_URL="https://mirror.example/simple", FAKE_UV='echo "$UV_DEFAULT_INDEX" > index')
    assert done.returncode == 0, done.stderr
    assert (with_python.checkout / "index").read_text("utf-8") == "https://mirror.example/simple\n"
