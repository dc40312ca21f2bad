"""Every process of ours ends on SIGTERM, though a script's background or Dagster started it with signals ignored."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import sampled

_ROOT = Path(__file__).parents[3]
# They print one thing and end, end with the process that started them, or begin as a program that heeds them does.
_SHORT = {
    "dagster_project/cli/__main__.py",  # calls `headrace` itself, which heeds them
    "spark_jobs/code/syntax/syntax_worker.py",
    "spark_jobs/lake/session/class_archive.py",
    "spark_jobs/lake/session/jars.py",
    "spark_jobs/lake/session/java.py",
    "spark_jobs/sources/licences/texts/templates.py",
    "headrace_features/synthetic/executed/inside/main.py",
}


def entries() -> list[Path]:
    """Modules of our packages that are run as programs."""
    packages = ("spark_jobs", "dagster_project", "blender_service", "headrace", "headrace_features")
    files = [file for package in packages for file in (_ROOT / package).rglob("*.py")]
    return [file for file in files if file.name == "__main__.py" or '__name__ == "__main__"' in file.read_text()]


@pytest.mark.parametrize("file", entries(), ids=lambda file: str(file.relative_to(_ROOT)))
def test_every_program_heeds_interrupts(file: Path) -> None:
    """As the first thing that it does."""
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert ("heed_interrupts" in calls) != (str(file.relative_to(_ROOT)) in _SHORT)


_CALL = "from headrace.process.interrupts import heed_interrupts; heed_interrupts()"
_CODE_SERVER = (
    "from dagster_project.definitions "
    "import load_project\ntry: load_project(__import__('pathlib').Path('nowhere'))\nexcept Exception: pass"
)
_IGNORED = (("SIGINT", "SIGTERM"), ("SIGINT",), ("SIGTERM",))


@sampled()
@pytest.mark.parametrize(
    ("entry", "ignored"),
    [
        *(pytest.param(_CALL, ignored, id=f"call-{'+'.join(ignored)}") for ignored in _IGNORED),
        *(  # a code server takes five seconds to load; what it calls is tried with each signal above
            pytest.param(
                _CODE_SERVER,
                ignored,
                id=f"code server-{'+'.join(ignored)}",
                marks=[] if len(ignored) == len(_IGNORED[0]) else pytest.mark.nightly,
            )
            for ignored in _IGNORED
        ),
    ],
)
def test_a_process_that_inherited_ignored_signals_ends(entry: str, ignored: tuple[str, ...]) -> None:
    """After a step of Dagster too, which gives SIGTERM the handler of SIGINT."""
    ignore = "".join(f"signal.signal(signal.{name}, signal.SIG_IGN)\n" for name in ignored)
    program = (
        f"import signal, time\n{ignore}{entry}\nfrom dagster._utils.interrupts import capture_interrupts\n"
        "with capture_interrupts(): pass\nprint('up', flush=True)\n"
        "while True: time.sleep(0.1)"  # one long sleep does not hear a signal that comes just before it begins
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline() == b"up\n"
        started.send_signal(signal.SIGTERM)
        try:
            assert started.wait(60) != 0
        finally:
            started.kill()
