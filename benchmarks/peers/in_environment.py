"""What a peer gives of the same sources and documents; runs in the peer's environment, with its packages alone.

`python in_environment.py blend NAME` prints the rows of one pass, and those after a state of each of some places was
loaded into a fresh object. `python in_environment.py packing NAME` reads lengths of documents as JSON and prints, for
each window, its tokens as pairs of document and position. All randomness is seeded.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

SIZES, WEIGHTS = (1000, 100, 10), (0.7, 0.2, 0.1)
SEED = 0
MOST_ROWS = 3000  # of a blend without end
PLACES = (1, 10, 30, 60, 90, 300, 1050)
WINDOW = 2048
Row = list[int]


def rows_of(source: int) -> list[Row]:
    """The rows of a source: its number and the row's."""
    return [[source, row] for row in range(SIZES[source])]


def datasets_blend(strategy: str) -> Iterator[Any]:
    """Fresh blends of `datasets`, with their ways to give and take a state."""
    from datasets import Dataset, interleave_datasets

    def make() -> Any:
        parts = [
            Dataset.from_dict({"source": [source] * size, "row": list(range(size))}).to_iterable_dataset()
            for source, size in enumerate(SIZES)
        ]
        return interleave_datasets(parts, list(WEIGHTS), seed=SEED, stopping_strategy=strategy)

    while True:
        blend = make()
        rows = ([row["source"], row["row"]] for row in blend)
        yield rows, blend.state_dict, blend.load_state_dict


def grain_maps() -> Iterator[Any]:
    """Fresh blends of grain that are functions of a place."""
    import grain

    while True:
        sources = [grain.MapDataset.source(rows_of(source)) for source in range(len(SIZES))]
        rows = iter(grain.MapDataset.mix(sources, WEIGHTS).to_iter_dataset())
        yield rows, rows.get_state, rows.set_state


def grain_iterators() -> Iterator[Any]:
    """Fresh blends of grain that read their sources one row after the other."""
    import grain

    while True:
        sources = [grain.MapDataset.source(rows_of(source)).to_iter_dataset() for source in range(len(SIZES))]
        rows = iter(grain.IterDataset.mix(sources, WEIGHTS))
        yield rows, rows.get_state, rows.set_state


def webdataset_blend(longest: bool) -> Iterator[Any]:
    """Fresh blends of webdataset, which draw from the process's random numbers and have no state."""
    import random

    import webdataset

    while True:
        random.seed(SEED)
        yield (
            iter(webdataset.RandomMix([rows_of(source) for source in range(len(SIZES))], list(WEIGHTS), longest)),
            None,
            None,
        )


def grain_packing(kind: str, bins: int = 0) -> Callable[[list[int]], Iterable[list[list[int]]]]:
    """Windows of grain; documents longer than one are cut before where it refuses them."""

    def windows(lengths: list[int]) -> Iterator[list[list[int]]]:
        import grain
        import grain.experimental
        import numpy as np

        most = None if kind == "ConcatThenSplit" else WINDOW
        documents = [
            {"document": np.full(length, number), "position": np.arange(length)}
            for number, length in enumerate(min(length, most or length) for length in lengths)
        ]
        parent = grain.MapDataset.source(documents).to_iter_dataset()
        options: dict[str, Any] = {"num_packing_bins": bins} if bins else {}
        packed = getattr(grain.experimental, f"{kind}IterDataset")(
            parent, length_struct={"document": WINDOW, "position": WINDOW}, **options
        )
        for window in packed:
            held = window["document_segment_ids"] > 0
            yield np.stack([window["document"][held], window["position"][held]], axis=1).tolist()

    return windows


BLENDS: dict[str, Callable[[], Iterator[Any]]] = {
    "datasets, first_exhausted": lambda: datasets_blend("first_exhausted"),
    "datasets, all_exhausted": lambda: datasets_blend("all_exhausted"),
    "datasets, all_exhausted_without_replacement": lambda: datasets_blend("all_exhausted_without_replacement"),
    "grain, MapDataset.mix": grain_maps,
    "grain, IterDataset.mix": grain_iterators,
    "webdataset, RandomMix": lambda: webdataset_blend(False),
    "webdataset, RandomMix longest": lambda: webdataset_blend(True),
}
PACKINGS = {
    "grain, first fit, 16 bins": grain_packing("FirstFitPack", 16),
    "grain, best fit, 16 bins": grain_packing("BestFitPack", 16),
    "grain, best fit, 256 bins": grain_packing("BestFitPack", 256),
    "grain, concat then split": grain_packing("ConcatThenSplit"),
}


def blend(name: str) -> dict[str, Any]:
    """One pass of a blend, and what comes after each of some states; None where it has no state."""
    fresh = BLENDS[name]()
    whole, state, _ = next(fresh)
    rows = list(itertools.islice(whole, MOST_ROWS))
    if state is None:
        return {"rows": rows, "after": None}
    after = {}
    for place in (place for place in PLACES if place < len(rows)):
        begun, state, _ = next(fresh)
        for _ in range(place):
            next(begun)
        kept = json.loads(json.dumps(state())) if isinstance(state(), dict) else state()
        rest, _, load = next(fresh)
        load(kept)
        after[place] = list(itertools.islice(rest, MOST_ROWS - place))
    return {"rows": rows, "after": after}


if __name__ == "__main__":
    what, name = sys.argv[1:]
    answer = blend(name) if what == "blend" else list(PACKINGS[name](json.load(sys.stdin)))
    print(json.dumps(answer, default=int))
