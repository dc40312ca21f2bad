"""The child that extracts: a call has it for itself, and who ends it is told apart from what a document does."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.child_processes import end_idle_children, idle_children
from spark_jobs.plugins import attribute
from spark_jobs.sources.opening.parser_process import _kind, read_apart, run_apart
from spark_jobs.sources.refusals import Refusal
from tests.waiting import until

_MEMORY = 400 << 20


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Children end with each test."""
    yield
    end_idle_children()


def echoed(text: str, path: str, memory_bytes: int) -> str:
    """The text; the first process that finds no file at the path waits for its end, or takes that memory."""
    if path and not os.path.exists(path):
        Path(f"{path}.new").write_text(str(os.getpid()))
        os.rename(f"{path}.new", path)
        if not memory_bytes:
            signal.pause()
        bytearray(memory_bytes)
    return text


def numbers(file: Any, count: int, path: str) -> Iterator[Any]:
    """Numbers with bytes of a file; the process waits in the midst of it where there is no file at the path."""
    for number in range(count):
        file.seek(number)
        yield [number, file.read(1), echoed("", path if number == count // 2 else "", 0)]


def test_threads_at_once_get_their_own_answers() -> None:
    """Six on two kinds of children, files that are read by questions among them; no answer is another's."""
    data = bytes(range(97, 123))

    def work(call: int) -> bool:
        texts = [f"{call} {at} " * (1 + 40 * (at % 2)) for at in range(20)]
        alone = [run_apart(echoed, 5, text, "", 0, memory_bytes=_MEMORY + (call % 2 << 20)) for text in texts]
        read = list(read_apart(numbers, 5, io.BytesIO(data[call:]), 9, "", memory_bytes=_MEMORY))
        return alone == texts and read == [[at, data[call + at : call + at + 1], ""] for at in range(9)]

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(16)))
    kinds = (_kind(_MEMORY), _kind(_MEMORY + (1 << 20)))
    assert 1 <= sum(len(idle_children(kind)) for kind in kinds) <= 6


def test_a_document_whose_child_somebody_kills_is_read_again(tmp_path: Path) -> None:
    """By another thread, in the midst of it; nothing comes twice, and a second death is a refusal."""
    calls = {
        "call": lambda path: run_apart(echoed, 5, "text", path, 0, memory_bytes=_MEMORY),
        "file": lambda path: list(read_apart(numbers, 5, io.BytesIO(b"abcde"), 4, path, memory_bytes=_MEMORY)),
    }
    with ThreadPoolExecutor(2) as threads:
        answers = {name: threads.submit(call, str(tmp_path / name)) for name, call in calls.items()}
        for name in calls:
            until((tmp_path / name).exists)
            os.kill(int((tmp_path / name).read_text()), signal.SIGKILL)
    assert answers["call"].result() == "text"
    assert answers["file"].result() == [[at, b"abcde"[at : at + 1], ""] for at in range(4)]


def test_what_a_child_held_of_others_refuses_no_document(tmp_path: Path) -> None:
    """A document for which memory is short is read again in a fresh child, alone; what is too large for that is not."""
    assert run_apart(echoed, 5, "text", str(tmp_path / "once"), _MEMORY, memory_bytes=_MEMORY) == "text"
    assert isinstance(run_apart(bytearray, 5, _MEMORY, memory_bytes=_MEMORY), Refusal)


def test_a_child_that_waits_knows_no_package_of_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked for by name in a folder that is on the path since is called in a fresh child."""
    assert run_apart(attribute, 5, "string:digits", memory_bytes=_MEMORY) == "0123456789"
    assert len(idle_children(_kind(_MEMORY))) == 1
    (tmp_path / "added_since.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run_apart(attribute, 5, "added_since:answer", memory_bytes=_MEMORY) == 42
