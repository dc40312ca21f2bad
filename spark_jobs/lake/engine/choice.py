"""Which engine a process takes, and why.

    HEADRACE_ENGINE=auto             Sail where one machine will do, else Spark
    HEADRACE_ENGINE=spark, sail      that one
    HEADRACE_EMBEDDED_BYTES=2g       how much text a step of a run on Sail may read; a number of bytes, or with k, m, g

Sail works on this machine, in the memory of one process; Spark has machines to spread over. So `auto` takes Sail for a
run reading little of a lake in local files, by headrace's own steps: whoever writes steps may use all of Spark. How
little depends on the free memory (`memory`). A process runs one engine, so the first choice holds until it
ends; without one it is Spark.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.process.allocation import set_allocators
from spark_jobs.exceptions import SetupError, nearest
from spark_jobs.lake.engine.memory import MOST_BYTES, embedded_memory, little_for_spark, most_text_bytes, shown

ENGINE = "HEADRACE_ENGINE"
SPARK, SAIL, AUTO = "spark", "sail", "auto"
CAREFUL = "careful sail"
WAYS = (SAIL, SPARK, CAREFUL)
"""Ways to compute a table, in the order in which they are tried."""
SAIL_VERSION = "0.7.2"  # the only version whose rows were compared with Spark's
_chosen: list[Choice] = []
_lock = threading.Lock()


class Needs(NamedTuple):
    """What a run asks of an engine.

    Attributes:
        byte_count: the most bytes of text read as new by one step; None where unknown.
        spark: why it must be Spark; empty where it need not.
        joined: the most bytes of text joined by one step.
        unmanaged: the table an engine did not manage when it last tried; empty where it did.
        instead: the way to compute it then, of `WAYS`.
        full: whether Sail's pool was too small for it; else its process ended.
    """

    byte_count: int | None
    spark: str = ""
    joined: int = 0
    unmanaged: str = ""
    instead: str = ""
    full: bool = False


@dataclass(frozen=True)
class Choice:
    """An engine.

    Attributes:
        engine: `spark` or `sail`.
        reason: why it was chosen, as a part of a sentence.
        joined: the most bytes of text joined by a step of the run; None where unknown, or a setting decided.
        careful: whether Sail computes one step at a time, in half of its pool.
        roomy: whether it does so in twice its pool, too small before: sorts and joins fail below some 10 MB each.
    """

    engine: str
    reason: str
    joined: int | None = None
    careful: bool = False
    roomy: bool = False

    @property
    def way(self) -> str:
        """One of `WAYS`."""
        return CAREFUL if self.careful else self.engine

    def __str__(self) -> str:
        """The choice as the first line of a run prints it."""
        part = "twice" if self.roomy else "half of"
        careful = f", in {part} its pool and one step at a time" if self.careful else ""
        what = "Spark" if self.engine == SPARK else f"Sail, in this process{careful}"
        return f"engine: {what} ({self.reason})"


def engine_name() -> str:
    """The engine of this process: `spark` or `sail`.

    Raises:
        SetupError: the environment names another one.
    """
    name = _named()
    return chosen().engine if name == AUTO else name


def chosen() -> Choice:
    """The choice of this process; without a choice it is Spark."""
    return _chosen[0] if _chosen else Choice(SPARK, "nothing was chosen")


def choose(warehouse: str, needs: Callable[[], Needs] | None = None, needs_spark: str = "") -> Choice:
    """Choose the engine of this process, unless that was done before.

    Args:
        warehouse: root of the lake's files, a path or a URI.
        needs: gives what the run asks of an engine; called only if that decides. Without it nothing is known.
        needs_spark: why it must be Spark, where that is known beforehand.

    Raises:
        SetupError: a setting has an unknown value.
    """
    with _lock:
        if not _chosen:
            _chosen.append(choice(warehouse, needs, needs_spark))
        return _chosen[0]


def choice(warehouse: str, needs: Callable[[], Needs] | None = None, needs_spark: str = "") -> Choice:
    """What `choose` would give, without fixing it for this process; for forecasts of a run."""
    name, most = _named(), most_text_bytes()
    if name == SPARK:
        return Choice(name, f"{ENGINE}={name}")
    if name == SAIL:
        needed = needs() if needs is not None else Needs(None)
        why = f"{ENGINE}={name}{needed.unmanaged and f'; {needed.unmanaged}'}"
        joined = None if needed.byte_count is None else needed.joined
        return Choice(name, why, joined, bool(needed.unmanaged), needed.full)
    reason = (
        ("PYSPARK_GATEWAY_PORT" in os.environ and "spark-submit started it")
        or (os.environ.get("HEADRACE_SPARK_MASTER") and "HEADRACE_SPARK_MASTER is set")
        or ("://" in warehouse and f"the lake is in {warehouse.partition('://')[0]}://")
        or needs_spark
        or missing_sail()
    )
    if reason:
        return Choice(SPARK, reason)
    needed = needs() if needs is not None else Needs(None)
    if needed.spark or needed.byte_count is None:
        return Choice(SPARK, needed.spark or "how much it reads is not known")
    reason_of_size = f"it reads {shown(needed.byte_count)} of text"
    if needed.unmanaged:
        is_spark = needed.instead == SPARK
        return Choice(SPARK if is_spark else SAIL, needed.unmanaged, needed.joined, not is_spark, needed.full)
    if needed.byte_count > most:
        if not (little := little_for_spark()):
            return Choice(SPARK, f"{reason_of_size}, {MOST_BYTES} is {shown(most)}", needed.joined)
        reason_of_size += f", which is much: {little}"
    return Choice(SAIL, reason_of_size, needed.joined)


def require_settings() -> None:
    """Refuse a wrong setting of the engines, also where nothing is computed.

    Raises:
        SetupError: one has an unknown value.
    """
    _named()
    embedded_memory(), most_text_bytes()


def missing_sail() -> str:
    """Why Sail cannot start, with the mend; empty where it can."""
    set_allocators()
    try:
        import grpc_status  # noqa: F401  PySpark asks for it when it is too late to say so in one line
        import pysail
    except ImportError as error:
        return f"a package of Sail is missing, {error.name}: pip install 'headrace[platform]'"
    if pysail.__version__ != SAIL_VERSION:
        return f"pysail {pysail.__version__} is installed, not {SAIL_VERSION}: pip install pysail=={SAIL_VERSION}"
    return ""


def _named() -> str:
    name = os.environ.get(ENGINE, "") or AUTO
    names = (SPARK, SAIL, AUTO)
    if name not in names:
        raise SetupError(f"{ENGINE}={name}: there is no such engine{nearest(name, names)}; set {', '.join(names)}")
    return name
