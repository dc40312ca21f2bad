"""The child process: whatever a parser does costs one file, and the rest is parsed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.code.syntax.definitions import Definitions
from spark_jobs.code.syntax.syntax_child import SyntaxChild, SyntaxLimits, shared_child
from spark_jobs.exceptions import StepRunError
from tests.waiting import until

_LIMITS = SyntaxLimits(parse_seconds=0.2, memory_bytes=1 << 30, file_bytes=1 << 20)


@pytest.fixture
def child() -> Iterator[SyntaxChild]:
    """A child with the fake parser."""
    with SyntaxChild(_LIMITS, "tests.spark_jobs.code.fake_parser:parse") as made:
        yield made


def parsed(child: SyntaxChild, *sources: str) -> list[str]:
    """What each source gave: its one name, or the reason up to the colon."""
    answers = child.definitions([("C", source.encode()) for source in sources])
    return [answer.defined[0] if isinstance(answer, Definitions) else answer.split(":")[0] for answer in answers]


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
def test_a_bad_file_costs_itself_alone(child: SyntaxChild, source: str, reason: str) -> None:
    """Its reason is recorded, and the files before and after it are parsed."""
    answers = child.definitions([("C", text.encode()) for text in ("a", source, "b")])
    assert answers == [Definitions(("C:a",), ()), reason, Definitions(("C:b",), ())]


def test_every_file_of_a_batch_may_be_bad(child: SyntaxChild) -> None:
    """First, last and one after the other."""
    assert parsed(child, "crash", "exit", "a", "raise", "crash") == ["crash", "crash", "C:a", "ValueError", "crash"]
    assert parsed(child, "b") == ["C:b"]
    assert parsed(child) == []


def test_what_a_parser_prints_is_no_answer(child: SyntaxChild) -> None:
    """Standard output belongs to the answers."""
    assert parsed(child, "print", "a") == ["C:print", "C:a"]


def test_pipes_never_wait_for_each_other(child: SyntaxChild) -> None:
    """Far more bytes in both directions than pipes hold, while a child in the midst of it ends."""
    sources = ["x" * 100_000] * 40 + ["crash"] + ["y" * 10] * 5000
    expected = ["C:" + "x" * 20] * 40 + ["crash"] + ["C:" + "y" * 10] * 5000
    assert parsed(child, *sources) == expected


def test_large_files_are_not_sent(child: SyntaxChild) -> None:
    """The answer says how large the file is."""
    assert parsed(child, "a", "z" * (1 << 21), "b") == ["C:a", "too_large", "C:b"]


def test_one_child_serves_many_batches() -> None:
    """Of one process, until it is closed; closing it twice, or before it was started, is no mistake."""
    child = shared_child(_LIMITS)
    assert child is shared_child(SyntaxLimits(**_LIMITS.model_dump()))
    assert child.definitions([("Python", b"def area(): pass")]) == [Definitions(("area",), ())]
    first = child._process
    assert child.definitions([("Python", b"class A: pass"), ("Lua", b"x = (")])[0] == Definitions(("A",), ())
    assert child._process is first
    child.close()
    child.close()


def test_a_parser_that_cannot_be_imported_is_an_error() -> None:
    """Files do not get reasons that are ours."""
    with SyntaxChild(_LIMITS, "tests.spark_jobs.code.no_such_module:parse") as child, pytest.raises(StepRunError):
        child.definitions([("C", b"a")])


@pytest.mark.nightly
def test_the_child_ends_with_its_parent() -> None:
    """Also when the parent is killed and says nothing, and the child is in a loop."""
    program = """
        import sys, threading
        from spark_jobs.code.syntax.syntax_child import SyntaxChild, SyntaxLimits
        child = SyntaxChild(SyntaxLimits(parse_seconds=600), "tests.spark_jobs.code.fake_parser:parse")
        child.definitions([("C", b"a")])
        print(child._process.pid, flush=True)
        child.definitions([("C", b"hang")])
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")
