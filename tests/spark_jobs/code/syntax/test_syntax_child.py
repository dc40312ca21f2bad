"""The child process: whatever a parser does costs one file, and the rest is parsed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.child_processes import end_idle_children, idle_children
from spark_jobs.code.syntax.definitions import Definitions
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser, shared_child
from spark_jobs.exceptions import StepRunError
from tests.tiers import sampled
from tests.waiting import until

_LIMITS = SyntaxLimits(parse_seconds=0.2, memory_bytes=1 << 30, file_bytes=1 << 20)
_PARSER = SyntaxParser(_LIMITS, "tests.spark_jobs.code.fake_parser:parse")
_FRESH = """
    from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser
    parser = SyntaxParser(SyntaxLimits(parse_seconds=600), "tests.spark_jobs.code.fake_parser:parse")
"""


@pytest.fixture(autouse=True, scope="module")
def no_child_is_left() -> Iterator[None]:
    """Children end with the tests of this module."""
    yield
    end_idle_children()


def definitions(*sources: str) -> list[Definitions | str]:
    """What the fake parser makes of each source."""
    return _PARSER.definitions([("C", source.encode()) for source in sources])


def parsed(*sources: str) -> list[str]:
    """What each source gave: its one name, or the reason up to the colon."""
    answers = definitions(*sources)
    return [answer.defined[0] if isinstance(answer, Definitions) else answer.split(":")[0] for answer in answers]


@sampled(2)
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("hang", "timeout: more than 0.2 s of processor time"),
        ("wait", "timeout: killed after 2 s without an answer"),
        ("crash", "crash: the parser ended by SIGSEGV"),
        ("exit", "crash: the parser ended by exit status 7"),
        ("raise", "ValueError: odd source"),
        ("eat", "memory limit"),
    ],
)
def test_a_bad_file_costs_itself_alone(source: str, reason: str) -> None:
    """Its reason is recorded, and the files before and after it are parsed."""
    assert definitions("a", source, "b") == [Definitions(("C:a",), ()), reason, Definitions(("C:b",), ())]


def test_every_file_of_a_batch_may_be_bad() -> None:
    """First, last and one after the other."""
    assert parsed("crash", "exit", "a", "raise", "crash") == ["crash", "crash", "C:a", "ValueError", "crash"]
    assert parsed("b") == ["C:b"]
    assert parsed() == []


def test_what_a_parser_prints_is_no_answer() -> None:
    """Standard output belongs to the answers."""
    assert parsed("print", "a") == ["C:print", "C:a"]


def test_pipes_never_wait_for_each_other() -> None:
    """Far more bytes in both directions than pipes hold, while a child in the midst of it ends."""
    sources = ["x" * 100_000] * 40 + ["crash"] + ["y" * 10] * 5000
    expected = ["C:" + "x" * 20] * 40 + ["crash"] + ["C:" + "y" * 10] * 5000
    assert parsed(*sources) == expected


def test_large_files_are_not_sent() -> None:
    """The answer says how large the file is."""
    assert parsed("a", "z" * (1 << 21), "b") == ["C:a", "too_large", "C:b"]


@sampled()
@pytest.mark.parametrize("word", ["crash", "exit", "eat", "wait"])
def test_a_file_whose_child_ends_is_tried_once_more_alone(tmp_path: Path, word: str) -> None:
    """What the child held of other files, and who killed it, is no property of a file: those beside it go on."""
    sources = [f"{tmp_path / name} first {word}" for name in "bd"]
    assert parsed("a", sources[0], "c", sources[1], "crash", "e") == [
        "C:a",
        "C:again",
        "C:c",
        "C:again",
        "crash",
        "C:e",
    ]


def test_a_file_that_takes_its_time_is_not_tried_again(tmp_path: Path) -> None:
    """Its processor time is its own, whatever the machine does meanwhile."""
    assert parsed("a", f"{tmp_path / 'b'} first hang", "c") == ["C:a", "timeout", "C:c"]


def test_a_child_that_computes_slowly_is_not_killed_for_waiting(tmp_path: Path) -> None:
    """A machine that is busy stops it for most of the time: the file's own processor time decides, not a clock."""
    parser = SyntaxParser(SyntaxLimits(parse_seconds=0.1, memory_bytes=1 << 30), _PARSER.parser)
    path, word = tmp_path / "child", "hang"
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(parser.definitions, [("C", f"{path} first {word}".encode())])
        until(path.exists)
        with contextlib.suppress(ProcessLookupError):
            while not answer.done():
                os.kill(int(path.read_text()), signal.SIGSTOP)
                time.sleep(0.4)
                os.kill(int(path.read_text()), signal.SIGCONT)
                time.sleep(0.02)
    assert answer.result() == ["timeout: more than 0.1 s of processor time"]


def test_a_file_whose_child_somebody_kills_is_tried_once_more(tmp_path: Path) -> None:
    """By another thread, in the midst of a file, of several calls at once."""
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(parsed, "a", f"{tmp_path / str(call)} first wait", "b") for call in range(4)]
        for call in range(4):
            path = tmp_path / str(call)
            until(path.exists)
            os.kill(int(path.read_text()), signal.SIGKILL)
    assert [answer.result() for answer in answers] == [["C:a", "C:again", "C:b"]] * 4


def test_threads_at_once_get_their_own_answers() -> None:
    """Eight of them, with bad files among the others, equal to one after the other; no answer is another's."""
    bad = {7: "crash", 40: "raise"}
    calls = [[bad.get(at + 5 * call, f"{call}-{at}") for at in range(120)] for call in range(24)]
    alone = [[f"C:{name}" if "-" in name else name.replace("raise", "ValueError") for name in names] for names in calls]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda names: parsed(*names), calls)) == alone
    assert 1 <= len(idle_children(_PARSER)) <= 8


def test_a_child_outlives_the_thread_that_needed_it_first() -> None:
    """The kernel ends a child with the thread that started it: that is another one, which ends with the process."""
    end_idle_children()
    seen = set()
    for _ in range(6):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(parsed, "a").result() == ["C:a"]
        seen |= {child.pid for child in idle_children(_PARSER)}
    assert len(seen) == 1


def test_a_child_that_ended_while_it_waited_is_no_matter() -> None:
    """Another one answers the next call."""
    parsed("a")
    for child in idle_children(_PARSER):
        os.kill(child.pid, signal.SIGKILL)
    assert parsed("b", "c") == ["C:b", "C:c"]


def test_calls_of_the_same_limits_share_their_children() -> None:
    """One child serves many calls."""
    assert shared_child(_LIMITS) == shared_child(SyntaxLimits(**_LIMITS.model_dump()))
    assert shared_child(_LIMITS).definitions([("Python", b"def area(): pass")]) == [Definitions(("area",), ())]
    first = idle_children(shared_child(_LIMITS))
    files = [("Python", b"class A: pass"), ("Lua", b"x = (")]
    assert shared_child(_LIMITS).definitions(files)[0] == Definitions(("A",), ())
    assert idle_children(shared_child(_LIMITS)) == first


def test_a_parser_that_cannot_be_imported_is_an_error() -> None:
    """Files do not get reasons that are ours."""
    with pytest.raises(StepRunError):
        SyntaxParser(_LIMITS, "tests.spark_jobs.code.no_such_module:parse").definitions([("C", b"a")])


@pytest.mark.nightly
def test_a_forked_process_has_children_of_its_own() -> None:
    """While another thread is in a call: what was forked answers, and its parent's children go on as before."""
    program = (
        _FRESH
        + """
    import os, threading
    from spark_jobs.child_processes import idle_children
    parser.definitions([("C", b"a")])
    before = idle_children(parser)[0].pid
    wrong, stop = [], threading.Event()
    def ask():
        while not stop.is_set():
            wrong.extend(one for one in parser.definitions([("C", b"x")] * 50) if one.defined != ("C:x",))
    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        if (pid := os.fork()) == 0:
            is_right = not idle_children(parser) and parser.definitions([("C", b"b")])[0].defined == ("C:b",)
            os._exit(0 if is_right and idle_children(parser)[0].pid != before else 1)
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    thread.join()
    assert not wrong and parser.definitions([("C", b"c")])[0].defined == ("C:c",)
    print("right")
    """
    )
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.nightly
def test_the_child_ends_with_its_parent() -> None:
    """Also when the parent is killed and says nothing, and the child is in a loop."""
    program = (
        _FRESH
        + """
    from spark_jobs.child_processes import idle_children
    parser.definitions([("C", b"a")])
    print(idle_children(parser)[0].pid, flush=True)
    parser.definitions([("C", b"hang")])
    """
    )
    command = [sys.executable, "-c", textwrap.dedent(program)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment())
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")
