"""Cached machine code is that of all sources that it was made of."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled, inner, sources_digest

PACKAGE = {
    "__init__.py": "",
    "caller.py": """
from headrace.kernels.compiling import compiled
from made.callee import (  # by name, on lines of their own
    twice,
)
from made import numbers as n
@compiled
def call(x):
    return twice(x) + n.ADDED
""",
    "callee.py": "from numba import njit\n@njit\ndef twice(x):\n    return 2 * x\n",
    "numbers.py": "ADDED = 1\n",
    "other.py": "UNUSED = 1\n",
}


def fresh(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The caller as a new process has it."""
    monkeypatch.syspath_prepend(root)
    for name in [name for name in sys.modules if name.partition(".")[0] == "made"]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    sources_digest.cache_clear()
    return importlib.import_module("made.caller").call


def test_a_change_of_what_is_called_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A callee and a constant of other modules; what the caller does not import leaves its code cached."""
    made = tmp_path / "made"
    made.mkdir()
    for name, text in PACKAGE.items():
        (made / name).write_text(text)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files change within a second, with their size

    def value_and_hits() -> tuple[int, int]:
        call = fresh(tmp_path, monkeypatch)
        folders.append(Path(call.stats.cache_path))
        return call(5), sum(call.stats.cache_hits.values())

    folders: list[Path] = []
    assert value_and_hits() == (11, 0)
    assert [file.suffix for file in sorted(folders[0].iterdir())] == [".nbc", ".nbi"]
    (made / "other.py").write_text("UNUSED = 2\n")
    assert value_and_hits() == (11, 1)
    (made / "callee.py").write_text(PACKAGE["callee.py"].replace("2 * x", "3 * x"))
    assert value_and_hits() == (16, 0)
    week = time.time() - 8 * 24 * 3600
    os.utime(folders[0], (week, week))
    (made / "numbers.py").write_text("ADDED = 2\n")
    assert value_and_hits() == (17, 0)
    assert [folder.is_dir() for folder in folders] == [False, False, True, True]  # a week old: removed


_NEEDS_A_KERNEL = """
import numpy as np
from headrace.kernels.utf8 import code_points_at
print(flush=True)
input()
code_points_at(np.frombuffer(b"a", np.uint8), np.zeros(1, np.int64))
print(sum(code_points_at.stats.cache_hits.values()))
"""


@pytest.mark.nightly
def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    """One compiles; the other waits, and loads what that made."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _NEEDS_A_KERNEL]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(int(process.communicate()[0]) for process in processes) == [0, 1]


def test_constants_of_the_core_reach_kernels_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature's kernel compiles them in, from another package than its own."""
    from headrace_features.models import ngram_kernel
    from spark_jobs.lexing import word_characters

    sources_digest.cache_clear()
    before = sources_digest(ngram_kernel.__name__)
    assert word_characters.__spec__ is not None
    loader = type(word_characters.__spec__.loader)
    source = loader.get_source  # type: ignore[union-attr]
    changed = {word_characters.__name__: "FIRST_SCRIPT = 99"}
    monkeypatch.setattr(loader, "get_source", lambda self, name: changed.get(name) or source(self, name))
    sources_digest.cache_clear()
    assert sources_digest(ngram_kernel.__name__) != before
    monkeypatch.undo()
    sources_digest.cache_clear()


def test_every_kernel_is_cached_by_its_sources() -> None:
    """Numba's own cache, which looks at one file alone, is used nowhere."""
    root = Path(__file__).parents[2]
    files = [
        file
        for package in ("spark_jobs", "headrace_features", "blender_service")
        for file in (root / package).rglob("*.py")
    ]
    assert [file for file in files if "cache=True" in file.read_text()] == []


@inner
def _checked(value: int) -> int:
    """What `_summed` is made of."""
    if value < 0:
        raise ValueError("below zero")
    return value + 1


@compiled
def _summed(values: NDArray[np.int64]) -> int:
    """A sum that may raise in its part, in arrays that Numba's own functions make."""
    total = 0
    for value in np.sort(values):
        total += _checked(value)
    return total


@pytest.mark.parametrize("values", [[], [3], [5, 1, 2], [1, -1]])
def test_a_part_computes_and_raises_within_its_callers(values: list[int]) -> None:
    """As it would alone; Python that calls it is refused, and its memory stays whole."""
    array = np.array(values, np.int64)
    if any(value < 0 for value in values):
        with pytest.raises(ValueError, match="below zero"):
            _summed(array)
    else:
        assert _summed(array) == sum(values) + len(values)
        with pytest.raises(TypeError):
            _checked(1)
    assert njit(lambda numbers: _checked(np.sort(numbers)[-1]))(np.array([4, 2])) == 5  # in code of a user's own


SAME_NAMES = """
import itertools
import numpy as np
from numba import njit
from numba.core.bytecode import FunctionIdentity
from headrace.kernels.compiling import _WholeCompiler

def whole(function, *arguments):
    return njit(pipeline_class=_WholeCompiler, no_cfunc_wrapper=True)(function)(*arguments).tolist()

for kind, apart in zip(("i1", "u2", "f4"), range(-2, 1)):
    values = np.array([4, 2, 3], kind)
    FunctionIdentity._unique_ids = itertools.count(10**6)
    assert whole(lambda values: np.argsort(values), values) == [1, 2, 0], (kind, apart)
    FunctionIdentity._unique_ids = itertools.count(10**6 + apart)
    assert whole(lambda values: np.sort(values), values) == [2, 3, 4], (kind, apart)

from headrace.kernels.permutation import domain_bits, inverted, mix, permuted

def there_and_back(size, word):
    bits, rotation = domain_bits(size), mix(word) % size
    for k in range(size):
        if inverted(permuted(np.uint64(k), word, size, bits, rotation), word, size, bits, rotation) != np.uint64(k):
            return np.array([0])
    return np.array([1])

def often(word, size, bits, rotation):
    total = np.zeros(1, np.uint64)
    for k in range(size):
        at = permuted(np.uint64(k), word, size, bits, rotation)
        half = np.uint64(k) // np.uint64(2)
        at = permuted(at, word, size, bits, rotation) + permuted(half, word, size, bits, rotation)
        total[0] += permuted(at % size, word, size, bits, rotation) ^ permuted(np.uint64(0), word, size, bits, rotation)
    return total

whole(often, np.uint64(7), np.uint64(300), 9, np.uint64(5))
assert njit(there_and_back)(np.uint64(300), np.uint64(7)).tolist() == [1]
assert whole(there_and_back, np.uint64(300), np.uint64(7)) == [1]
"""


def test_parts_of_two_functions_may_have_one_name() -> None:
    """Numba's names end in a count of the process; code from the cache has those of another, so here it counts anew.

    Each kind of numbers once, since a process compiles `sort` once for each. And parts of a function, which may take
    fewer arguments there than they say, are not those of code that is compiled by Numba alone.
    """
    subprocess.run([sys.executable, "-c", SAME_NAMES], check=True, timeout=300)
