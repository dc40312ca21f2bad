"""How long it takes to count how often a blend read each document, from its order and arrays of segments.

    python benchmarks/bench_repeats.py [--documents N]

Four sources of one table each, weights 5 : 3 : 2 : 1, an update half way, counted inside of an epoch; four documents a
window, each fifth in a second window, each fifth a near-duplicate of another. Tables are not read. Seconds are CPU's.
"""

from __future__ import annotations

import resource
import time

import command
import numpy as np

from blender_service.order.offsets import reads_before
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Pin, SourceOrder, cut_segments, resolve_segments
from dagster_project.inspect.documents.blend_documents import TableParts
from headrace_features.composition.repeats import count_repeats

_A_WINDOW, _WEIGHTS = 4, (5, 3, 2, 1)


def main() -> None:
    """Print seconds of each part, after a small round that compiles."""
    parser = command.parser(__doc__)
    parser.add_argument("--documents", type=int, default=10_000_000)
    given = command.read(parser, documents=40_000)
    count(4_000)
    print(f"{'documents':>12} {'order s':>9} {'documents and clusters s':>25} {'histogram s':>12} {'MiB':>7}")
    seconds = count(given.documents)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{given.documents:>12,} {seconds[0]:>9.2f} {seconds[1]:>25.2f} {seconds[2]:>12.2f} {peak:>7,}", flush=True)


def count(documents: int) -> list[float]:
    """Seconds for the windows' reads, the documents' and clusters', and the histogram."""
    chance = np.random.default_rng(0)
    windows = documents // len(_WEIGHTS) // _A_WINDOW
    pins = [Pin("", name, "1", windows, "") for name in "abcd"]
    first = [SourceOrder(pin.table_uuid, weight, pin, 0, True) for pin, weight in zip(pins, _WEIGHTS, strict=True)]
    half = windows * 3
    segments = resolve_segments(first, cut_segments(resolve_segments(first), half), half)
    order, offset = BlendOrder(7, segments, 2048, 16), 2 * half + 12_345
    keys = chance.integers(0, 1 << 63, (documents, 2), dtype=np.uint64)
    parts = []
    for at in range(len(pins)):
        mine = keys[at :: len(pins)]
        cut = mine[::5]
        window = np.concatenate([np.arange(len(mine)) // _A_WINDOW, chance.integers(0, windows, len(cut))])
        parts.append((np.minimum(window, windows - 1), np.concatenate([mine, cut])))
    links = [(keys[::5], keys[chance.integers(0, documents, len(keys[::5]))])]
    began = time.process_time()
    reads = [reads_before(order, pin.table_uuid, offset, np.arange(windows)) for pin in pins]
    ordered = time.process_time()
    tables = [
        TableParts(each, window, mine, np.ones_like(window)) for each, (window, mine) in zip(reads, parts, strict=True)
    ]
    repeats = count_repeats(tables, links)
    counted = time.process_time()
    assert sum(line["documents_whole"] for line in repeats.histogram()) == documents
    return [ordered - began, counted - ordered, time.process_time() - counted]


if __name__ == "__main__":
    main()
