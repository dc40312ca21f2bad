"""Answer one SELECT by DuckDB, in a process that ends where it takes too much memory or time (`run_apart`).

What a limit of DuckDB's own does not count (a text of a gigabyte) is counted there, and a function that does not heed
an interruption ends with its process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

SETTINGS: Final[Mapping[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": "2",
}
_MOST_CHARACTERS: Final = 2000  # of a value that is shown
_CUT: Final = {"VARCHAR": "left({0}, {1})", "BLOB": "left(hex({0}), {1})"}


def answered(
    query: str,
    views: Sequence[str],
    sources: Mapping[str, Any],
    limits: tuple[float, int],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The first rows of a query, with the name and type of each column; or `error`, what is wrong with it.

    Args:
        query: one SELECT that was checked.
        views: the statements that make the tables of its reader, before the configuration is locked.
        sources: what these read, by names that nobody can guess.
        limits: seconds, and most rows.
        environment: variables by which a store knows this process.
    """
    import duckdb
    import pyarrow.dataset  # noqa: F401 - without it DuckDB does not know what it is to read

    os.environ.update(environment)
    (seconds, most), began = limits, time.monotonic()
    with duckdb.connect(":memory:", config=dict(SETTINGS)) as opened:
        stop = threading.Timer(seconds, opened.interrupt)
        try:
            stop.start()
            for name, source in sources.items():
                opened.register(name, source)
            for view in views:
                opened.execute(view)
            opened.execute("SET lock_configuration = true")
            described = opened.execute(f"DESCRIBE SELECT * FROM ({query})").fetchall()
            columns = [(str(row[0]), str(row[1])) for row in described]
            names = [f"c{at}" for at in range(len(columns))]
            shown = (
                _CUT.get(kind, "{0}").format(name, _MOST_CHARACTERS)
                for name, (_, kind) in zip(names, columns, strict=True)
            )
            whole = f"SELECT {', '.join(shown)} FROM ({query}) AS t({', '.join(names)}) LIMIT {most + 1}"
            rows = [[_plain(value) for value in row] for row in opened.execute(whole).fetchall()]
        except duckdb.InterruptException:
            return {"error": f"it takes longer than {seconds:g} s; ask for less"}
        except duckdb.Error as error:
            return {"error": str(error).strip()[:2000]}
        finally:
            stop.cancel()
    return {"columns": columns, "rows": rows[:most], "more": len(rows) > most, "seconds": time.monotonic() - began}


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it has not, such as a time, as text."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)
