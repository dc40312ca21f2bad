"""Blends and packing of peers beside headrace's own, made again: the two tables of docs/start/compare.md as Markdown.

    python benchmarks/peers/compare.py [--python PYTHON]

Each peer runs in one environment that is made in a temporary folder, with the versions below, by `uv` where it is
there, else by pip; `--python` names one that is there already. What a peer gives is judged here, row by row and token
by token. headrace's rows are the order of its blends and the plan of its packing, run in this process. Neither needs a
lake. Peers of the page that need torch (streaming, litdata, torchdata, trl, axolotl, torchtune, torchtitan, megatron,
energon, llamafactory) are not among these: their rows are of 2026-11-28.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from blender_service.order.interleave import build_cycle, reduce_weights
from spark_jobs.packing.plan.best_fit import plan_slots
from spark_jobs.packing.plan.units import cut_documents

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from command import environment
from in_environment import BLENDS, PACKINGS, SIZES, WEIGHTS, WINDOW, Row

PACKAGES = ("datasets==5.2.0", "grain==0.2.18", "webdataset==1.0.2")
DOCUMENTS, MEDIAN, SPREAD, LONGEST = 2000, 398, 0.6, 3423
SECONDS = 600


def asked(python: Path, what: str, name: str, given: str = "") -> Any:
    """What a peer gives; the reason where it does not run."""
    program = Path(__file__).with_name("in_environment.py")
    done = subprocess.run(
        [python, program, what, name], input=given, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return json.loads(done.stdout) if not done.returncode else (done.stderr.strip().splitlines() or ["no reason"])[-1]


def deviations(rows: Sequence[Row]) -> tuple[float, float]:
    """The largest distance of a source's count from its share: until a source has given its last row, and in all."""
    counts, seen = [0] * len(SIZES), [set[int]() for _ in SIZES]
    until, largest = 0.0, 0.0
    has_ended = False
    for number, (source, row) in enumerate(rows, start=1):
        counts[source] += 1
        seen[source].add(row)
        off = max(abs(count - number * weight) for count, weight in zip(counts, WEIGHTS, strict=True))
        largest = max(largest, off)
        until = until if has_ended else largest
        has_ended = has_ended or any(len(rows) == size for rows, size in zip(seen, SIZES, strict=True))
    return until, largest


def resumed(rows: Sequence[Row], after: dict[str, list[Row]] | None) -> str:
    """What is lost, and what comes twice, after a state was loaded."""
    if after is None:
        return "has no state"
    worst = (0, 0, "")
    for place, rest in after.items():
        expected, given = (Counter(map(tuple, part)) for part in (rows[int(place) :], rest))
        worst = max(worst, ((expected - given).total(), (given - expected).total(), place))
        if rest != rows[int(place) :] and worst[:2] == (0, 0):
            return f"another order after row {place}"
    return f"{worst[0]} rows lost, {worst[1]} twice, after row {worst[2]}" if any(worst[:2]) else "exact"


def blend_row(name: str, rows: Sequence[Row], resume: str) -> str:
    """A row of the table of blends."""
    first, whole = deviations(rows)
    times = Counter(map(tuple, rows))
    twice = sum(count > 1 for count in times.values())
    return f"| {name} | {len(rows):,} | {first:.1f}, {whole:.1f} | {sum(SIZES) - len(times):,}, {twice:,} | {resume} |"


def own_blend() -> list[Row]:
    """One pass of headrace's order where the first source that ends ends the blend: row j of a source is its j-th."""
    cycle = build_cycle(reduce_weights([Fraction(str(weight)) for weight in WEIGHTS]))
    rows = list[Row]()
    while True:
        slot = len(rows) % cycle.rows
        source = int(cycle.source[slot])
        row = int(cycle.rank[slot]) + len(rows) // cycle.rows * cycle.weights[source]
        if row == SIZES[source]:
            return rows
        rows.append([source, row])


def lengths_of_documents() -> list[int]:
    """Log-normal lengths, each with the token that ends its document; the first is the longest."""
    draw = random.Random(0)
    lengths = [LONGEST]
    while len(lengths) < DOCUMENTS:
        length = round(math.exp(draw.normalvariate(math.log(MEDIAN), SPREAD)))
        lengths += [length] if 1 < length <= LONGEST else []
    return lengths


def own_packing(lengths: Sequence[int]) -> Iterator[list[list[int]]]:
    """Headrace's plan: documents in the fewest pieces, pieces in windows by best fit."""
    pieces = cut_documents(np.array(lengths) - 1, WINDOW)
    table = plan_slots(Counter(pieces.length.tolist()), WINDOW)
    order = np.argsort(-pieces.length, kind="stable")
    windows, _ = table.look_up(np.arange(len(order)), pieces.length[order])
    found = dict[int, list[list[int]]]()
    for window, piece in zip(windows.tolist(), order.tolist(), strict=True):
        document, start, length = (int(part[piece]) for part in (pieces.document, pieces.start, pieces.length))
        found.setdefault(window, []).extend([document, at] for at in range(start, start + length))
    return iter(found.values())


def packing_row(name: str, windows: Sequence[list[list[int]]], lengths: Sequence[int]) -> str:
    """A row of the table of packing; a window with too many tokens, or a token that comes twice, is told in it."""
    places = dict[int, set[int]]()
    tokens = Counter[tuple[int, int]]()
    for number, window in enumerate(windows):
        for document, position in window:
            tokens[document, position] += 1
            places.setdefault(document, set()).add(number)
    cut = sum(length <= WINDOW and len(places.get(document, ())) > 1 for document, length in enumerate(lengths))
    faults = sum(count > 1 for count in tokens.values()), sum(len(window) > WINDOW for window in windows)
    told = f" ({faults[0]} twice, {faults[1]} windows too full)" if any(faults) else ""
    counts = sum(lengths) - len(tokens), cut, len(lengths) - len(places)
    return f"| {name} | {len(windows):,}{told} | {' | '.join(f'{count:,}' for count in counts)} |"


def tables(python: Path) -> Iterator[str]:
    """The lines of both tables."""
    yield "| peer | rows of a pass | off: to the first end, whole | never, twice | resume |"
    yield "|---|---|---|---|---|"
    yield blend_row("**headrace**, order of its blends", own_blend(), "exact: a row is a function of its offset")
    for name in BLENDS:
        answer = asked(python, "blend", name)
        is_there = isinstance(answer, dict)
        yield blend_row(name, answer["rows"], resumed(**answer)) if is_there else f"| {name} | {answer} | | | |"
    lengths = lengths_of_documents()
    longer = sum(length > WINDOW for length in lengths)
    yield ""
    yield (
        f"{DOCUMENTS:,} documents, {sum(lengths):,} tokens, {longer} longer than a window; ideally "
        f"{-(-sum(lengths) // WINDOW):,} windows of {WINDOW:,}.\n"
    )
    yield "| peer | windows | tokens never read | cut | gone |"
    yield "|---|---|---|---|---|"
    yield packing_row("**headrace**, its plan", list(own_packing(lengths)), lengths)
    for name in PACKINGS:
        answer = asked(python, "packing", name, json.dumps(lengths))
        is_there = isinstance(answer, list)
        yield packing_row(name, answer, lengths) if is_there else f"| {name} | {answer} | | | |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, help="of an environment with the peers; by default one is made")
    given = parser.parse_args().python
    with tempfile.TemporaryDirectory() as folder:
        for line in tables(given or environment(Path(folder), *PACKAGES)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
