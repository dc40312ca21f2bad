"""Searches for mixes in planted worlds: how much worse than the best mix is the one that a search proposes?

    python benchmarks/bench_mixes.py                minutes on one core
    python benchmarks/bench_mixes.py --worlds 100

A world (tests/spark_jobs/mixes/worlds.py) has 2 to 12 sources, three sets, and losses by power laws with repeats that
decay, which no form of the fitted law is; runs have the noise between seeds that was measured of the smallest models.
Regret is how much of the best loss the proposed mix is worse: mean, most. `off` is the predicted loss to the true one;
`holds` how often the 90% interval of the proposed mix has its true loss.

Then worlds with .7 epochs of data and up to 16 passes, with small runs thinned, so that repeats match, and not;
searches that go on from a former one where the last sources are new, beside searches anew; and worlds with sets that
want other sources, and with sets that want the same one: in how many of them a trade-off is told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import command
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.spark_jobs.mixes.worlds import Found, scarce, searched, searched_again, torn, world


def main() -> None:
    """Print the four tables."""
    arguments = command.parser(__doc__)
    arguments.add_argument("--worlds", type=int, default=24, help="of each row")
    arguments.add_argument("--sources", type=int, nargs="+", default=[2, 3, 4, 6, 8, 12])
    given = command.read(arguments, worlds=2, sources=[2, 3])
    worlds = range(given.worlds)
    for count in given.sources:
        _row(f"{count:>2} sources", [searched(world(seed, count), seed) for seed in worlds])
    for count in given.sources[1:4:2]:
        for thinned in (True, False):
            found = [searched(scarce(seed, count), seed, thinned=thinned) for seed in worlds]
            _row(f"{count:>2} sources, scarce, {'matched' if thinned else 'unmatched'}", found)
    for count, added in ((7, 1), (9, 2), (12, 2), (12, 3)) if max(given.sources) > 3 else ((3, 1),):
        _row(f"{count:>2} sources, anew", [searched(world(seed, count), seed) for seed in worlds])
        _row(
            f"{count:>2} sources, {added} new", [searched_again(world(seed, count), seed, added)[0] for seed in worlds]
        )
    for count in given.sources[1:4]:
        for is_torn in (True, False):
            found = [searched(torn(seed, count, is_torn), seed) for seed in worlds]
            seen = sum(bool(each.front.conflicts(each.law.held_out.set_errors)) for each in found)
            print(f"{count:>2} sources, sets {'differ' if is_torn else 'agree'}: trade-off in {seen} of {len(found)}")


def _row(label: str, found: Sequence[Found]) -> None:
    regrets, natural = [each.regret for each in found], np.mean([each.natural for each in found])
    off = np.mean([abs(each.off) for each in found])
    print(
        f"{label:<30} {len(found[0].runs.mixes):>3} runs   regret {np.mean(regrets):.5f} (most {max(regrets):.5f})   "
        f"natural mix {natural:.4f}   off {off:.4f}   holds {sum(each.holds for each in found)} of {len(found)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
