"""What an engine makes of random frames, as data versions: `python -m tests.main_path.random_frames FOLDER SEEDS`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.tables.settings import settings_at
from spark_jobs.lake.engine.arrangement import dealt, grouped, persist, release
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.session.session import start_session
from spark_jobs.spark_sql import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ä",
    "a\u0308",
    "\U0001f600",
    "\u0000",
    "null",
    "10",
    "9",
    "\uffff",
    "x" * 300,
    "a\nb\t'\"`",
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda draw: draw.choice([0, -1, 2**31 - 1, -(2**31), draw.randrange(-5, 5)]),
    "bigint": lambda draw: draw.choice([0, 2**63 - 1, -(2**63), draw.getrandbits(62), draw.randrange(3)]),
    "double": lambda draw: draw.choice(
        [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, draw.gauss(0, 1e9), 0.1]
    ),
    "float": lambda draw: draw.choice([0.0, -0.0, float("nan"), 0.5, float(draw.randrange(9))]),
    "boolean": lambda draw: draw.random() < 0.5,
    "string": lambda draw: draw.choice(_TEXTS),
    "date": lambda draw: date(1900, 1, 1) + timedelta(days=draw.randrange(90_000)),
    "timestamp": lambda draw: _EPOCH + timedelta(microseconds=draw.randrange(-(10**14), 10**16)),
    "decimal(18,3)": lambda draw: Decimal(draw.randrange(-(10**12), 10**12)).scaleb(-3),
    "array<string>": lambda draw: [draw.choice([None, *_TEXTS]) for _ in range(draw.randrange(4))],
    "array<bigint>": lambda draw: [draw.randrange(-9, 9) for _ in range(draw.randrange(4))],
    "struct<a:int,b:string>": lambda draw: {"a": draw.choice([None, 1, 2]), "b": draw.choice([None, *_TEXTS])},
    "array<struct<a:int,b:string>>": lambda draw: [
        {"a": draw.choice([None, 1]), "b": draw.choice(_TEXTS)} for _ in range(draw.randrange(3))
    ],
}
_KEYS = ("int", "bigint", "string", "boolean", "date")
_CALL = pa.schema([("place", pa.int64()), ("number", pa.int64())])


def _places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where in its call each row stands, counted from the first row of its key."""
    numbers = [row for batch in batches for row in batch.select(["key", "number"]).to_pylist()]
    seen: dict[Any, int] = {}
    rows = []
    for row in numbers:
        seen[row["key"]] = seen.get(row["key"], -1) + 1
        rows.append({"place": seen[row["key"]], "number": row["number"]})
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _CALL)


def versions(session: Any, seed: int) -> dict[str, str]:
    """Data versions of a random frame and of what steps do with one."""
    draw = random.Random(seed)
    kinds = draw.choices([*_KINDS], k=draw.randrange(1, 6))
    key_kind, count = draw.choice(_KEYS), draw.choice([0, 1, 7, 300, 5_000])
    ddl = ", ".join([f"key {key_kind}", "number bigint", *(f"c{at} {kind}" for at, kind in enumerate(kinds))])
    keys = [_KINDS[key_kind](draw) for _ in range(draw.randrange(1, 40))]
    rows = [
        (
            None if draw.random() < 0.1 else draw.choice(keys),
            number,
            *(None if draw.random() < 0.2 else _KINDS[kind](draw) for kind in kinds),
        )
        for number in range(count)
    ]
    frame: DataFrame = session.createDataFrame(rows, ddl).repartition(draw.randrange(1, 5))
    names = [f"c{at}" for at in range(len(kinds))]
    order = [name for name, kind in zip(names, kinds, strict=True) if kind in _KINDS and kind in _KEYS]
    others = frame.filter("number % 3 = 0").select("key", F.col("number").alias("other")).limit(10**6)
    kept = persist(frame.filter("number % 2 = 0"))
    made = {
        "rows": frame,
        "kept": kept,
        "grouped": grouped(frame, ["key"], [*order, "number"]).map(_places, _CALL).to_frame(),
        "dealt": dealt(frame, 3, F.expr("cast(number % 3 as int)"), ["key", "number"]).map(_places, _CALL).to_frame(),
        "joined": frame.join(others, "key").select("key", "number", "other"),
        "left": frame.join(others, "key", "left_anti").select("key", "number"),
        "summed": frame.groupBy("key").agg(
            F.count("*").alias("rows"),
            F.min("number").alias("least"),
            F.to_json(F.struct(F.array_sort(F.collect_list("number")))).alias("all"),
        ),
        "distinct": frame.select("key", *names).distinct() if not any("struct" in kind for kind in kinds) else frame,
        "ranked": frame.select(
            "number", F.expr("row_number() over (partition by key order by number desc)").alias("rank")
        ),
    }
    found = {name: str(digest(one)) for name, one in made.items()}
    release(kept)
    return found


if __name__ == "__main__":
    session = start_session(settings_at(Path(sys.argv[1])))
    sys.stdout.write(json.dumps({seed: versions(session, int(seed)) for seed in sys.argv[2].split(",")}))
