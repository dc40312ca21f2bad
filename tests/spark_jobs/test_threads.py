"""What steps compute is the same from many threads at once: tasks of Sail are threads, and kernels run without the GIL.

Code that Numba loads from its cache keeps the GIL; so a process of its own compiles everything anew.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.filters.scorer import HARD_TEXTS
from spark_jobs.lake.declare.step import NoConfig
from spark_jobs.registry import find_scorer
from spark_jobs.threads import made_once, without_warnings
from spark_jobs.tokens.hf_tokenizer import load_encoder

_THREADS, _TIMES = 4, 12
_SCORERS = ("heuristics", "languages", "personal_data", "profanity")


def texts_of(number: int) -> pa.Array:
    """Texts that differ by thread."""
    words = f"the mill race {number} turns a wheel, and nobody knows why it has {number * 7} buckets. ".split()
    prose = [" ".join(words[(at * step) % len(words)] for at in range(90)) for step in range(1, 12)]
    return pa.array([*prose, *HARD_TEXTS[: 5 + number]])


def computations() -> dict[str, Callable[[int], Any]]:
    """What is tried, by name: a function of the number of a thread."""
    from spark_jobs.dedup.bags.features import Features, token_rules
    from spark_jobs.dedup.bags.token_counts import count_tokens
    from spark_jobs.text.text_columns import normalized

    def counted(number: int) -> Any:
        texts = texts_of(number).cast(pa.large_string())
        rules = token_rules(["prose"] * len(texts), [None] * len(texts), Features())
        found = count_tokens(texts, *rules)
        return [column.tolist() for column in (found.offsets, found.hashes, found.counts)]

    def scored(name: str) -> Callable[[int], Any]:
        one = find_scorer(name)
        prepared = () if one.config is NoConfig else (one.prepare(one.config()),)
        return lambda number: {
            key: column.to_pylist() for key, column in one.score(texts_of(number), *prepared).items()
        }

    found = {name: scored(name) for name in _SCORERS}
    return {
        **found,
        "tokens": counted,
        "normalized": lambda number: [part.to_pylist() for part in normalized(texts_of(number))],
    }


def compare() -> None:
    """Each computation from several threads, and from one; prints the name of each that is equal."""
    for name, compute in computations().items():
        alone = [compute(number) for number in range(_THREADS)]
        wrong: list[int] = []

        def work(number: int, compute: Callable[[int], Any] = compute, alone: list[Any] = alone) -> None:
            wrong.extend(number for _ in range(_TIMES) if compute(number) != alone[number])  # noqa: B023

        threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not wrong, f"{name}: {len(wrong)} of {_THREADS * _TIMES} differ"
        sys.stdout.write(f"{name} equal\n")


def test_a_value_is_made_once_however_many_threads_ask_first() -> None:
    """One for each argument; who asks meanwhile waits; what was not made by an error is made by the next one."""
    gate, made = threading.Barrier(8), list[int]()

    @made_once
    def value(number: int) -> object:
        made.append(number)
        time.sleep(0.01)
        if made.count(number) == 1 and number == 2:
            raise ValueError
        return object()

    def ask(thread: int) -> object:
        gate.wait()
        with contextlib.suppress(ValueError):
            return value(thread % 3)

    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(ask, range(8)))
    assert sorted(made) == [0, 1, 2, 2] and len({id(one) for one in values if one is not None}) == 3
    assert value.count == 3
    value.forget()
    assert value(0) not in values


def test_no_more_values_are_kept_than_that() -> None:
    """The newest are."""
    value = made_once(most=2)(lambda number: [number])
    first = value(1)
    assert value(1) is first and [value(number) for number in (2, 3)] == [[2], [3]]
    assert value(1) is not first and value.count == 2
    assert pickle.loads(pickle.dumps(load_encoder)) is load_encoder


def test_ignoring_warnings_leaves_them_as_they_were() -> None:
    """Of many threads that do it in turns: who sets them back last sets back what was before all of them."""
    before, interval = list(warnings.filters), sys.getswitchinterval()

    def ignore(_: int) -> None:
        for _ in range(50):
            with without_warnings():
                warnings.warn("ignored", stacklevel=1)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(ignore, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before


@pytest.mark.nightly
def test_freshly_compiled_code_gives_the_same_from_many_threads(tmp_path: Path) -> None:
    """Every scorer that compiles, the counting of tokens, and normalization."""
    code = "from tests.spark_jobs.test_threads import compare; compare()"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("equal") == len(computations())
