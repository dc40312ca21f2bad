"""What shows that a list moved while its pages were read: records that came or went shift all behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from headrace_features.apis.api_config import NumberedPages
from headrace_features.apis.paging import record_keys
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.paged.checkpoints import StoredPage
from spark_jobs.sources.paged.page_records import records_in


def moved_total(totals: Sequence[int], count: Callable[[], int]) -> str | None:
    """What the totals that a server stated show; None where nothing does.

    Args:
        totals: as stated by one page after the other.
        count: the different records that were read, which opens all pages.
    """
    if any(then > now for then, now in pairwise(totals)):
        return "the total number of records shrank while they were read"
    if totals and (read := count()) < totals[-1]:
        return f"{read} records were read, the server says that there are {totals[-1]}"
    return None


def moved_pages(pages: Sequence[StoredPage], end: int | None, paginator: Any) -> str | None:
    """What the sizes of addressable pages, in order, show; None where nothing does. `end` is the first empty place."""
    if any(end is not None and page.place > end and page.record_count for page in pages):
        return "there are records behind the first empty page"
    counts = [page.record_count for page in pages if page.record_count]
    is_even = not counts or (len(set(counts[:-1])) < 2 and counts[-1] <= counts[0])
    if isinstance(paginator, NumberedPages) and not is_even:
        return f"pages have {min(counts)} to {max(counts)} records"
    return None


def distinct_records(pages: Sequence[StoredPage], objects: ObjectFolder, records_path: str, id_column: str) -> int:
    """How many different records some pages hold, from their objects."""
    keys: set[str] = set()
    for page in pages:
        if page.object is None:  # nothing in it, or deleted for good
            keys |= {f"{page.cursor} {number}" for number in range(page.record_count)}
        else:
            with objects.open(page.object) as file:
                records = records_in(bytes(file.read()), records_path)
            keys |= record_keys(records if isinstance(records, list) else [], id_column)
    return len(keys)
