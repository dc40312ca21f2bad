"""From texts to verdicts on Spark: what each scorer costs a MB, with the policy of English web pages behind them.

    python benchmarks/bench_filters.py [--sizes 40 160]

RFCs of two sizes are landed and scored, each size in a process and a lake of its own, one step at a time. The slope of
a step is the time of a further MB; MB/s and core count both cores that it could use, MB a CPU second what all processes
spent, which a machine shared with others changes less. The model is one of two labels, trained on pieces of RFCs
against code of this Python environment before the clock starts. The peers of single kernels are in
`bench_filters_heuristics.py`, `bench_filters_models.py`, `bench_filters_personal.py` and
`bench_filters_contamination.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path

import command
from bench_pipeline import texts_of, write
from corpora import rfcs, some_python_files
from cpu_time import of_all_processes as cpu_seconds
from whole_way import quiet, use_lake

_CORES = 2
_STEPS = ("texts", "signals", "heuristics", "languages", "personal_data", "model_scores", "verdicts")


def measure(folder: Path, texts: int) -> dict[str, tuple[float, float]]:
    """Land and judge the files of a folder in this process; seconds and CPU seconds of each step from texts on."""
    import dagster as dg

    from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
    from dagster_project.definitions import build
    from dagster_project.executor import run_here
    from headrace_features.models.registered import add_model
    from spark_jobs.lake.ledger.ledger_table import LEDGER
    from spark_jobs.lake.session.catalogue import open_catalogue

    catalogue = open_catalogue(use_lake(folder / "lake"))
    model = add_model(catalogue, "prose", trained_model(texts)).label
    dataset = DatasetDeclaration(
        name="web",
        source={"kind": "files", "path": str(folder / "texts"), "text_column": "text"},
        shards=2,
        scorers={
            **{name: {} for name in ("heuristics", "languages", "personal_data")},
            "model_scores": {"models": {model: ["rfc"]}},
        },
        policy={
            "extends": ["web_en"],
            "rules": [{"rule": "like_code", "signal": "model_scores.prose_rfc", "below": 0.5}],
        },
    )
    spent: dict[str, float] = {}
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(dg.Definitions(assets=dataset_assets(dataset))).resolve_job_def("everything")
        landed = [dg.AssetKey(["web", table]) for table in ("documents", "arrivals", "repositories", "provenance")]
        for keys in (landed, *([dg.AssetKey(["web", step])] for step in _STEPS)):
            before = cpu_seconds()
            assert run_here(job, instance, quiet(1), keys).success
            spent[keys[0].path[-1]] = cpu_seconds() - before
    rows = catalogue.load_table(LEDGER).scan().to_arrow().to_pylist()
    seconds = {row["step"]: row["seconds"] for row in rows}
    return {step: (seconds[step], spent[step]) for step in _STEPS}


def trained_model(count: int) -> bytes:
    """A classifier that tells pieces of RFCs from pieces of code, about so many of each."""
    import pyarrow as pa

    from headrace_features.models.classifier_training import train

    prose = [text[4_000:8_000] for text in rfcs(count)]
    code = [text[:4_000] for text in some_python_files(count)]
    labels = ["rfc"] * len(prose) + ["code"] * len(code)
    return train(pa.table({"content": prose + code, "label": labels}))[0].to_bytes()


def main() -> None:
    """Print a line for each step, and the sum."""
    parser = command.parser(__doc__)
    parser.add_argument("--sizes", type=float, nargs=2, default=[40, 160], help="MB of RFCs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.set_defaults(texts=1000)
    given = command.read(parser, sizes=[0.1, 0.2], texts=60)
    if given.one:
        print(json.dumps(measure(Path(given.one), given.texts)))
        return
    sizes, runs = [], []
    for size in sorted(given.sizes):
        with tempfile.TemporaryDirectory(prefix="filters-") as scratch:
            sizes.append(write(Path(scratch) / "texts", texts_of(size)) / 1e6)
            runs.append(command.again(__file__, "--one", scratch, *([command.SMALL] if given.small else [])))
    less, more = runs
    whole = "texts to verdicts"
    for run in runs:
        run[whole] = [sum(column) for column in zip(*(run[step] for step in _STEPS), strict=True)]
    print(f"{'step':<18}{sizes[0]:>7.0f} MB{sizes[1]:>7.0f} MB{'MB/s/core':>11}{'MB/CPU s':>10}")
    for step in (*_STEPS, whole):
        (small, small_cpu), (large, large_cpu) = less[step], more[step]
        further = sizes[1] - sizes[0]
        rate, cpu_rate = (
            further / (more_ - less_) if more_ > less_ else math.nan
            for less_, more_ in ((small, large), (small_cpu, large_cpu))
        )
        print(f"{step:<18}{small:>9.1f}s{large:>9.1f}s{rate / _CORES:>11.1f}{cpu_rate:>10.1f}")


if __name__ == "__main__":
    main()
