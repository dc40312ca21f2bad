"""From texts to verdicts on Spark: what each scorer costs a MB, with the policy of English web pages behind them.

    python benchmarks/bench_filters.py [--sizes 40 160] [--all ../shared/data/evals/gsm8k_test.jsonl.gz]

RFCs of two sizes are landed and scored, each size in a process and a lake of its own, one step at a time. The slope of
a step is the time of a further MB; MB/s and core count both cores that it could use, MB a CPU second what all processes
spent, which a machine shared with others changes less. The model is one of two labels, trained on pieces of RFCs
against code of this Python environment before the clock starts. `--all` adds the scorers templates, profanity and
contamination, which searches for the items of a file. Last comes the largest memory of a Python worker, sampled twice a
second: what it maps, and its part of that where several share it. The peers of single kernels are in
`bench_filters_heuristics.py`, `bench_filters_models.py`, `bench_filters_personal.py` and
`bench_filters_contamination.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from bench_filters_models import installed_code
from bench_pipeline import texts_of, write

_CORES = 2
_MORE = ("templates", "profanity", "contamination")
_STEPS = ("texts", "signals", "heuristics", "languages", "personal_data", "model_scores", "verdicts")


def measure(folder: Path, evals: Path | None) -> dict[str, tuple[float, float]]:
    """Land and judge the files of a folder in this process; seconds and CPU seconds of each step from texts on."""
    import dagster as dg

    from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
    from dagster_project.definitions import build
    from dagster_project.executor import run_here
    from spark_jobs.filters.contamination.eval_set import encode, read_eval_set
    from spark_jobs.filters.models.registered import add_model
    from spark_jobs.filters.registry import record
    from spark_jobs.lake.ledger.ledger import LEDGER
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import settings_at

    settings = settings_at(folder / "lake")
    for name, value in settings.properties.items():
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
    model = add_model(open_catalogue(settings), "prose", trained_model()).label
    more: dict[str, dict[str, object]] = {}
    if evals:
        items = read_eval_set("gsm8k", evals, ["question", "answer"]).items
        record(open_catalogue(settings), "eval_set", "gsm8k", "1", encode(items))
        more = {"templates": {}, "profanity": {}, "contamination": {"evals": ["gsm8k@1"]}}
    dataset = DatasetDeclaration(
        name="web",
        source={"kind": "files", "path": str(folder / "texts"), "text_column": "text"},
        shards=2,
        scorers={
            **{name: {} for name in ("heuristics", "languages", "personal_data")},
            "model_scores": {"models": {model: ["rfc"]}},
            **more,
        },
        policy={
            "extends": ["web_en"],
            "rules": [{"rule": "like_code", "signal": "model_scores.prose_rfc", "below": 0.5}],
        },
    )
    quiet = {
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        "execution": {"config": {"max_concurrent": 1}},
    }
    spent: dict[str, float] = {}
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(dg.Definitions(assets=dataset_assets(dataset))).resolve_job_def("everything")
        landed = [dg.AssetKey(["web", table]) for table in ("documents", "arrivals", "repositories", "provenance")]
        names = [name for step in steps(evals) for name in (["template_lines"] if step == "templates" else []) + [step]]
        for keys in (landed, *([dg.AssetKey(["web", name])] for name in names)):
            before = cpu_seconds()
            assert run_here(job, instance, quiet, keys).success
            spent[keys[0].path[-1]] = cpu_seconds() - before
    rows = open_catalogue(settings).load_table(LEDGER).scan().to_arrow().to_pylist()
    seconds = {row["step"]: row["seconds"] for row in rows}
    return {step: (seconds[step], spent[step]) for step in steps(evals)}


def steps(evals: object) -> list[str]:
    """The steps that are timed, in order."""
    return [*_STEPS[:-1], *(_MORE if evals else ()), _STEPS[-1]]


@contextlib.contextmanager
def sampled_memory(largest: dict[str, float]) -> Iterator[None]:
    """Note the largest Python worker of Spark in MB: `rss`, and `pss`, its part of what several map."""
    import psutil

    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any("pyspark" in part for part in process.cmdline()):
                        memory = process.memory_full_info()
                        for name in ("rss", "pss"):
                            largest[name] = max(largest.get(name, 0), getattr(memory, name) / 1e6)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        done.set()
        sampler.join()


def cpu_seconds() -> float:
    """Of this process and all that it started, Java and Python workers: what a busy machine leaves as it is."""
    import psutil

    me = psutil.Process()
    spent = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(process.cpu_times()[:4])  # user and system, of its own and of children that have ended
    return spent


def trained_model() -> bytes:
    """A classifier that tells pieces of RFCs from pieces of code, about as many of each."""
    import pyarrow as pa

    from spark_jobs.filters.models.classifier_training import train

    rfcs = [text[4_000:8_000] for text in texts_of(60)]
    code = [text[:4_000] for text in installed_code(len(rfcs))]
    labels = ["rfc"] * len(rfcs) + ["code"] * len(code)
    return train(pa.table({"content": rfcs + code, "label": labels}))[0].to_bytes()


def main() -> None:
    """Print a line for each step, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs=2, default=[40, 160], help="MB of RFCs")
    parser.add_argument("--all", type=Path, help="all scorers; contamination searches for the items of this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        memory: dict[str, float] = {}
        with sampled_memory(memory):
            measured = measure(Path(given.one), given.all)
        print(json.dumps({**measured, "memory": memory}))
        return
    sizes, runs = [], []
    for size in sorted(given.sizes):
        with tempfile.TemporaryDirectory(prefix="filters-") as scratch:
            sizes.append(write(Path(scratch) / "texts", texts_of(size)) / 1e6)
            command = [sys.executable, __file__, "--one", scratch, *(["--all", str(given.all)] if given.all else [])]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    less, more = runs
    whole = "texts to verdicts"
    for run in runs:
        run[whole] = [sum(column) for column in zip(*(run[step] for step in steps(given.all)), strict=True)]
    print(f"{'step':<18}{sizes[0]:>7.0f} MB{sizes[1]:>7.0f} MB{'MB/s/core':>11}{'MB/CPU s':>10}")
    for step in (*steps(given.all), whole):
        (small, small_cpu), (large, large_cpu) = less[step], more[step]
        further = sizes[1] - sizes[0]
        rate, cpu_rate = (
            further / max(more_ - less_, 1e-9) for less_, more_ in ((small, large), (small_cpu, large_cpu))
        )
        print(f"{step:<18}{small:>9.1f}s{large:>9.1f}s{rate / _CORES:>11.1f}{cpu_rate:>10.1f}")
    for size, run in zip(sizes, runs, strict=True):
        print(f"largest worker at {size:.0f} MB: {run['memory']['rss']:.0f} MB, {run['memory']['pss']:.0f} of its own")


if __name__ == "__main__":
    main()
