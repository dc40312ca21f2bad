"""The sandbox: every attack is held, as root and as another user, and where one is not, nothing is executed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace_features.synthetic.executed import checks, groups, sandbox
from headrace_features.synthetic.executed.checks import CHECKS, check, require_sandbox
from headrace_features.synthetic.executed.sandbox import Program, ProgramOutcome, interpreter_of, run
from headrace_features.synthetic.execution_config import ExecutionLimits
from spark_jobs.exceptions import SetupError
from tests.headrace_features.synthetic.sandbox_attacks import SCRIPT, attempts

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
pytestmark = needs_bubblewrap

PYTHON = interpreter_of(sys.executable)
LIMITS = ExecutionLimits(idle_seconds=1)


def python(code: str, *arguments: str, limits: ExecutionLimits = LIMITS, **fields: object) -> ProgramOutcome:
    """Run some Python in the sandbox."""
    command = (PYTHON.path, "-I", "-S", "-c", code, *arguments)
    return run(Program(command, PYTHON.folders, **fields), limits)  # type: ignore[arg-type]


def as_user(*command: str) -> list[str]:
    """A command line as the user 65534, who may read this interpreter though it is in the home of root."""
    hidden = next((one for one in reversed(Path(PYTHON.path).parents) if not one.stat().st_mode & 1), None)
    bound = list[str]()
    if hidden is not None:
        below = str(hidden / Path(PYTHON.path).relative_to(hidden).parts[0])
        bound = ["--perms", "0755", "--tmpfs", str(hidden), "--ro-bind", below, below]
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/tmp"]
    return ["bwrap", "--dev-bind", "/", "/", *bound, *user, *command]


def held_as_user(at_once: int) -> list[str]:
    """What is not held where another user than root runs the checks and attacks."""
    code = (
        "import json; from headrace_features.synthetic.executed.checks import check; "
        "from tests.headrace_features.synthetic.sandbox_attacks import attempts; "
        f"print(json.dumps([[one.what, one.harm] for one in (*check(), *attempts({at_once}))]))"
    )
    said = subprocess.run(as_user(sys.executable, "-B", "-c", code), capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert len(found) == 22
    return [harm for _, harm in found if harm]


def processes(mark: str) -> list[int]:
    """Processes of the machine that have a mark in their command line."""
    found = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [one for one in found if mark in groups.read_text(f"/proc/{one}/cmdline")]


def test_every_attack_is_held() -> None:
    """By whoever runs the tests, with the groups of this machine."""
    found = [*check(), *attempts()]
    assert len(found) == 22
    assert [one for one in found if one.harm] == []


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_every_attack_is_held_as_a_user_without_cgroups() -> None:
    """Nothing of the sandbox needs a privilege; a watcher takes the place of groups."""
    assert held_as_user(at_once=4) == []


@pytest.mark.nightly
def test_sixteen_attacks_at_once_change_nothing_beside_them() -> None:
    """What honest programs give while all attacks run is what they give alone."""
    honest = (
        "import hashlib, os; open('x', 'w').write('1'); print(hashlib.sha256(b'x' * 10**6).hexdigest(), os.listdir())"
    )
    alone = python(honest)
    with ThreadPoolExecutor(18) as pool:
        attacked = [pool.submit(lambda: list(attempts(16))) for _ in range(2)]
        beside = [pool.submit(python, honest) for _ in range(60)]
        assert {(one.result().status, one.result().output) for one in beside} == {(0, alone.output)}
        assert [one for done in attacked for one in done.result() if one.harm] == []
    if os.geteuid() == 0:
        assert held_as_user(at_once=16) == []


def test_an_attack_that_is_not_held_is_seen(tmp_path: Path) -> None:
    """Outside of the sandbox the same attacks and checks reach what they are after."""
    (tmp_path / "key").write_text("secret")
    environment = {**os.environ, "SECRET": "1"}
    for name, wanted in (("environment", "variable SECRET"), ("print_much", "512 MB printed")):
        command = [sys.executable, str(SCRIPT), name, "mark"]
        said = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
        assert wanted in json.loads(said[said.rindex(b"[") :])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = [sys.executable, str(Path(checks.__file__).parent / "inside/checks.py"), port, str(tmp_path / "key")]
        reached = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert reached.keys() == CHECKS.keys()
    assert (
        str(tmp_path / "key") in reached["read_files"] and f"connected to port {port} of the host" in reached["network"]
    )
    assert reached["privileges"]


@pytest.mark.parametrize(
    ("settings", "errors", "wanted"),
    [
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, b"bwrap: setting up uid map", "AppArmor"),
        ({"user/max_user_namespaces": "0"}, b"bwrap: No permissions", "max_user_namespaces=15000"),
        ({}, b"bwrap: Creating new namespace failed", "seccomp=unconfined"),
        ({}, b"bwrap: Unknown option --disable-userns", "older than 0.8"),
    ],
)
def test_a_sandbox_that_does_not_start_says_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], errors: bytes, wanted: str
) -> None:
    """A single line, not one for each check; execution is refused with it."""
    monkeypatch.setattr(checks, "run", lambda *_: ProgramOutcome(1, b"", errors, "", 0.0))
    monkeypatch.setattr(checks, "read_text", lambda path: settings.get(str(path).removeprefix("/proc/sys/"), ""))
    (found,) = check()
    assert wanted in found.mend and errors.decode() in found.harm
    require_sandbox.cache_clear()
    with pytest.raises(SetupError, match=r"code is not executed on this machine.*headrace worker --check"):
        require_sandbox()
    require_sandbox.cache_clear()


def test_without_bubblewrap_nothing_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says which package brings it."""
    monkeypatch.setenv("PATH", "/nowhere")
    (found,) = check()
    assert found.mend == "apt install bubblewrap"
    with pytest.raises(SetupError, match="apt install bubblewrap"):
        python("pass")


def test_a_program_is_no_user_that_the_machine_knows() -> None:
    """Neither root inside, nor outside, nor the same in two sandboxes of root."""
    mark = uuid.uuid4().hex
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(python, "import time; time.sleep(5)", mark)
        while len(found := [one for one in processes(mark) if _is_program(one)]) < 2:
            time.sleep(0.02)
        owners = [os.stat(f"/proc/{one}").st_uid for one in found]
    assert 0 not in owners
    assert len(set(owners)) == 2 or os.geteuid() != 0


def _is_program(pid: int) -> bool:
    return groups.read_text(f"/proc/{pid}/cmdline").startswith(PYTHON.path)


def test_a_program_ends_with_its_worker() -> None:
    """A worker that is killed leaves nothing that runs."""
    mark = uuid.uuid4().hex
    code = (
        "import sys; from tests.headrace_features.synthetic.test_sandbox import python; "
        "python('import time; time.sleep(60)', sys.argv[1], limits=python.__globals__['ExecutionLimits']())"
    )
    with subprocess.Popen([sys.executable, "-B", "-c", code, mark]) as worker:
        while not any(_is_program(one) for one in processes(mark)):
            time.sleep(0.02)
        worker.send_signal(signal.SIGKILL)
    end = time.monotonic() + 20
    while processes(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert processes(mark) == []


def test_sockets_are_of_a_namespace_of_networks() -> None:
    """Others, such as AF_VSOCK, lead out of a virtual machine to its host; queues of System V hold memory nowhere."""
    code = """
import ctypes, os, socket
for family in range(64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try: socket.socket(family, kind).close()
        except OSError: continue
        print(family)
        break
print(ctypes.CDLL(None).msgget(0, 0o1600), ctypes.CDLL(None).semget(0, 1, 0o1600))
"""
    assert set(python(code).output.decode().split()) <= {"1", "2", "10", "16", "-1"}


def test_output_is_read_while_a_program_writes_it() -> None:
    """More than a pipe holds, on both streams, and input that it does not read."""
    code = "import os\nfor _ in range(64): os.write(1, b'x' * 8192); os.write(2, b'y' * 8192)"
    done = python(code, given=b"z" * (1 << 20), output_bytes=2 << 20)
    assert (done.status, len(done.output), len(done.errors), done.reason) == (0, 1 << 19, 1 << 19, "")


def test_a_busy_machine_is_no_reason_to_stop_a_program() -> None:
    """Sixteen programs on a few cores wait for each other longer than one may idle; none is stopped."""
    code = "import time\nend = time.process_time() + .3\nwhile time.process_time() < end: pass\nprint('done')"
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda _: python(code), range(16)))
    assert {(one.output, one.reason) for one in done} == {(b"done\n", "")}


def test_processes_are_counted_without_a_cgroup_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher sees memory that is shared once, files, and the CPU of children that nobody waits for."""
    monkeypatch.setattr(sandbox, "_layout", lambda: None)
    limits = ExecutionLimits(idle_seconds=2, memory_bytes=200 << 20, files=500)
    shared = "import mmap, os, time\nm = mmap.mmap(-1, 120 << 20)\nm.write(b'x' * len(m))\n"
    forks = "for _ in range(5):\n    if os.fork() == 0: break\ntime.sleep(.5)\n"
    assert python(shared + forks, limits=limits).reason == ""
    each = "import os, time\nfor _ in range(3):\n    if os.fork() == 0: break\nx = b'x' * (80 << 20)\ntime.sleep(5)"
    assert python(each, limits=limits).reason == groups.MEMORY
    assert python("for n in range(50000): open(str(n), 'w').close()", limits=limits).reason == groups.FILES
    lost = "import os, signal, time\nsignal.signal(17, signal.SIG_IGN)\nfor _ in range(3):\n    if os.fork() == 0:\n"
    lost += "        while time.process_time() < .6: pass\n        os._exit(0)\nwhile True: time.sleep(.01)"
    assert python(lost, limits=limits, cpu_seconds=1).reason == groups.CPU


def test_groups_are_made_where_the_machine_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of version 1 below those of this process, of version 2 beside it; none where the files cannot be written."""
    monkeypatch.setattr(groups.time, "sleep", lambda _: None)
    own = tmp_path / "own"
    v1 = tmp_path / "v1"
    for name in ("memory", "pids", "cpuacct"):
        (v1 / name / "job").mkdir(parents=True)
    own.write_text("4:memory:/job\n3:pids:/job\n2:cpuacct:/job\n")
    found = groups.find_cgroups(LIMITS, v1, own)
    assert found is not None and not found.is_v2 and found.folders[0] == v1 / "memory/job"
    v2 = tmp_path / "v2"
    (v2 / "user/job").mkdir(parents=True)
    (v2 / "cgroup.subtree_control").write_text("cpu memory pids")
    (v2 / "user/cgroup.subtree_control").write_text("memory pids")
    (v2 / "user/job/cgroup.subtree_control").write_text("")
    own.write_text("0::/user/job\n")
    found = groups.find_cgroups(LIMITS, v2, own)
    assert found is not None and found.is_v2 and found.folders == (v2 / "user",)
    assert groups.find_cgroups(LIMITS, v2, tmp_path / "nothing") is None
