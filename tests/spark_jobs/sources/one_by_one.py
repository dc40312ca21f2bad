"""Records of a reader that gives columns, for tests that look at each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from spark_jobs.sources.records.columns import Records
from spark_jobs.sources.records.records import Record, Refused


def one_by_one(found: Iterable[Record | Records | Refused]) -> list[Record | Refused]:
    """Records and refusals by their number; those of the whole file last."""
    records = list[Record | Refused]()
    for part in found:
        if isinstance(part, Records):
            columns = [column.to_pylist() for column in part[:-1]]
            for *row, metadata, facts in zip(*columns, part.facts or [{}] * len(part.number), strict=True):
                records.append(Record._make([*row, dict(metadata), facts]))
        else:
            records.append(part)
    return sorted(records, key=lambda record: math.inf if record.number is None else record.number)
