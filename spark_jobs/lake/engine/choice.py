"""Which engine a process takes, and why.

    HEADRACE_ENGINE=auto             Sail where one machine will do, else Spark
    HEADRACE_ENGINE=spark, sail      that one
    HEADRACE_EMBEDDED_BYTES=512m     how much a run of Sail may read at most; a number of bytes, or with k, m, g

Sail holds what it joins in memory, on this machine; Spark spills, and has machines to spread over. So `auto` takes Sail
for a run that reads little of a lake in local files, by headrace's own steps: whoever writes steps may use all of
Spark. A process runs one engine, so the first choice holds until it ends; without one it is Spark.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from spark_jobs.exceptions import SetupError, nearest

ENGINE = "HEADRACE_ENGINE"
MOST_BYTES, MEMORY = "HEADRACE_EMBEDDED_BYTES", "HEADRACE_EMBEDDED_MEMORY"
SPARK, SAIL, AUTO = "spark", "sail", "auto"
SAIL_VERSION = "0.7.2"  # the only version whose rows were compared with Spark's
_DEFAULT_BYTES = 512 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
Needs = Callable[[], tuple[int | None, str]]
_chosen: list[Choice] = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Choice:
    """An engine, `spark` or `sail`, and why it was chosen, as a part of a sentence."""

    engine: str
    reason: str

    def __str__(self) -> str:
        """The choice as the first line of a run prints it."""
        what = "Spark" if self.engine == SPARK else "Sail, in this process"
        return f"engine: {what} ({self.reason})"


def engine_name() -> str:
    """The engine of this process: `spark` or `sail`.

    Raises:
        SetupError: the environment names another one.
    """
    name = _named()
    if name != AUTO:
        return name
    return _chosen[0].engine if _chosen else SPARK


def choose(warehouse: str, needs: Needs | None = None, needs_spark: str = "") -> Choice:
    """Choose the engine of this process, unless that was done before.

    Args:
        warehouse: root of the lake's files, a path or a URI.
        needs: gives the most bytes that one step reads, as they lie in files, None where that is not known, and why it
            must be Spark, empty where it need not; called only if that decides. Without it nothing is known.
        needs_spark: why it must be Spark, where that is known beforehand.

    Raises:
        SetupError: a setting has an unknown value.
    """
    with _lock:
        if not _chosen:
            _chosen.append(choice(warehouse, needs, needs_spark))
        return _chosen[0]


def choice(warehouse: str, needs: Needs | None = None, needs_spark: str = "") -> Choice:
    """What `choose` would give, without fixing it for this process; for forecasts of a run."""
    name, most = _named(), size_setting(MOST_BYTES, _DEFAULT_BYTES)
    if name != AUTO:
        return Choice(name, f"{ENGINE}={name}")
    reason = (
        ("PYSPARK_GATEWAY_PORT" in os.environ and "spark-submit started it")
        or (os.environ.get("HEADRACE_SPARK_MASTER") and "HEADRACE_SPARK_MASTER is set")
        or ("://" in warehouse and f"the lake is in {warehouse.partition('://')[0]}://")
        or needs_spark
        or missing_sail()
    )
    if reason:
        return Choice(SPARK, reason)
    byte_count, own_needs = needs() if needs is not None else (None, "")
    if own_needs or byte_count is None:
        return Choice(SPARK, own_needs or "how much it reads is not known")
    if byte_count > most:
        return Choice(SPARK, f"it reads {_shown(byte_count)}, {MOST_BYTES} is {_shown(most)}")
    return Choice(SAIL, f"it reads {_shown(byte_count)}")


def require_settings() -> None:
    """Refuse a wrong setting of the engines, also where nothing is computed.

    Raises:
        SetupError: one has an unknown value.
    """
    _named()
    for name in (MOST_BYTES, MEMORY):
        size_setting(name, _DEFAULT_BYTES)


def missing_sail() -> str:
    """Why Sail cannot start, with the mend; empty where it can."""
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


def size_setting(name: str, default: int) -> int:
    """Bytes that a variable of the environment names.

    Raises:
        SetupError: it is no size.
    """
    text = os.environ.get(name, "").strip()
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text.lower())
    if text and found is None:
        raise SetupError(f"{name}={text}: it is no size; write e.g. 512m or 2g")
    return int(found[1]) * _UNITS[found[2]] if found else default


def _shown(byte_count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.3g} {unit}"
    return f"{byte_count} bytes"
