"""CPU and wall-clock seconds by file of tests, printed at the end of a session: `--cpu-by-file 20`.

CPU seconds are those of the test process (Sail runs in it) and of its children: commands, browsers, the JVM of Spark.
A process that left the tree of the test process, as a daemon does, is not in them. What a fixture of a module, or of
the whole session, takes is in the first test that needs it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

OPTION = "--cpu-by-file"
_PROPERTY = "cpu_and_wall_seconds"


def add_option(parser: pytest.Parser) -> None:
    """Add the option to pytest's."""
    parser.addoption(OPTION, type=int, metavar="N", help="print CPU and wall seconds of the N dearest files, N tests")


def configure(config: pytest.Config) -> None:
    """Measure tests and print the figures where the option is set."""
    if config.getoption(OPTION):
        config.pluginmanager.register(CpuByFile(config.getoption(OPTION)), "cpu-by-file")


def cpu_seconds() -> float:
    """CPU seconds of this process and all its children so far, of those too that have ended."""
    import psutil  # of the extra bench

    seconds = 0.0
    process = psutil.Process()
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.Error:  # it ended just now: its parent has its seconds
            continue
        seconds += sum(times[:4])  # user, system, and both of children that ended
    return seconds


class CpuByFile:
    """Seconds of each phase of a test go to the controller in its report."""

    def __init__(self, shown: int) -> None:
        """Print `shown` files and tests."""
        self._shown = shown
        self._last = (0.0, 0.0)
        self._tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._starts: list[float] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin to count; what imports and collection took is told apart."""
        self._last = (cpu_seconds(), time.monotonic())
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_PROPERTY] = self._last[0]
        elif not session.config.getoption("numprocesses", None):
            self._starts.append(self._last[0])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keep what the start of a test process took."""
        self._starts.append(getattr(node, "workeroutput", {}).get(_PROPERTY, 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Write the seconds since the last report into this one."""
        report = yield
        now = (cpu_seconds(), time.monotonic())
        cpu = max(now[0] - self._last[0], 0.0)  # less than none where a process left the tree with its seconds
        report.user_properties.append((_PROPERTY, [cpu, now[1] - self._last[1]]))
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the seconds of a phase to those of its test."""
        for name, seconds in report.user_properties:
            if name == _PROPERTY:
                self._tests[report.nodeid] = [a + b for a, b in zip(self._tests[report.nodeid], seconds, strict=True)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the dearest files and tests."""
        files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for test, (cpu, wall) in self._tests.items():
            file = files[test.partition("::")[0]]
            file[:] = file[0] + cpu, file[1] + wall, file[2] + 1
        start, total = sum(self._starts), sum(cpu for cpu, *_ in files.values())
        terminalreporter.section("CPU seconds by file")
        processes = f"{start:.1f} of them to start {len(self._starts)} processes"
        terminalreporter.line(f"{total + start:.1f} CPU seconds, {processes}")
        terminalreporter.line(f"{'cpu':>8} {'wall':>8} {'tests':>6}")
        for file, (cpu, wall, count) in sorted(files.items(), key=lambda each: -each[1][0])[: self._shown]:
            terminalreporter.line(f"{cpu:8.1f} {wall:8.1f} {count:6} {file}")
        for test, (cpu, wall) in sorted(self._tests.items(), key=lambda each: -each[1][0])[: self._shown]:
            terminalreporter.line(f"{cpu:8.1f} {wall:8.1f} {'':6} {test}")
