"""From texts to verdicts on Spark: what each scorer costs a MB, with the policy of English web pages behind them.

    python benchmarks/bench_filters.py [--sizes 40 160]

RFCs of two sizes are landed and scored, each size in a process and a lake of its own, one step at a time. The slope of
a step is the time of a further MB; MB/s and core count both cores that it could use. The peers of single kernels are
in `bench_filters_heuristics.py`, `bench_filters_models.py`, `bench_filters_personal.py` and
`bench_filters_contamination.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_pipeline import texts_of, write

_CORES = 2
_STEPS = ("texts", "signals", "heuristics", "languages", "personal_data", "verdicts")


def measure(folder: Path) -> dict[str, float]:
    """Land and judge the files of a folder in this process; seconds of each step from texts to verdicts."""
    import dagster as dg

    from dagster_project.datasets import DatasetDeclaration, dataset_assets
    from dagster_project.definitions import build
    from dagster_project.executor import run_here
    from spark_jobs.lake.ledger.ledger import LEDGER
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import settings_at

    settings = settings_at(folder / "lake")
    for name, value in settings.properties.items():
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
    dataset = DatasetDeclaration(
        name="web",
        source={"kind": "files", "path": str(folder / "texts"), "text_column": "text"},
        shards=2,
        scorers={"heuristics": {}, "languages": {}, "personal_data": {}},
        policy="web_en",
    )
    quiet = {
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        "execution": {"config": {"max_concurrent": 1}},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(dg.Definitions(assets=dataset_assets(dataset))).resolve_job_def("everything")
        assert run_here(job, instance, quiet).success
    rows = open_catalogue(settings).load_table(LEDGER).scan().to_arrow().to_pylist()
    return {row["step"]: row["seconds"] for row in rows if row["step"] in _STEPS}


def main() -> None:
    """Print a line for each step, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs=2, default=[40, 160], help="MB of RFCs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(Path(given.one))))
        return
    sizes, runs = [], []
    for size in sorted(given.sizes):
        with tempfile.TemporaryDirectory(prefix="filters-") as scratch:
            sizes.append(write(Path(scratch) / "texts", texts_of(size)) / 1e6)
            command = [sys.executable, __file__, "--one", scratch]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    less, more = runs
    print(f"{'step':<16}{sizes[0]:>7.0f} MB{sizes[1]:>7.0f} MB{'ms/MB':>9}{'MB/s/core':>11}")
    for name, small, large in [
        *((step, less[step], more[step]) for step in _STEPS),
        ("texts to verdicts", sum(less.values()), sum(more.values())),
    ]:
        slope = max(large - small, 1e-9) / (sizes[1] - sizes[0])
        print(f"{name:<16}{small:>9.1f}s{large:>9.1f}s{slope * 1000:>9.2f}{1 / slope / _CORES:>11.1f}")


if __name__ == "__main__":
    main()
