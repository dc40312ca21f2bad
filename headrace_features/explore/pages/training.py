"""Training runs: what they read of blends, their losses over offsets, and the batches where the loss rose."""

from __future__ import annotations

import bisect
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.inspect.lake.training_runs import (
    RecordedRun,
    find_run,
    open_register,
    running_medians,
    spikes,
    training_runs,
)
from headrace_features.explore.added_pages import address_of
from headrace_features.explore.answers import address, answer, explorer_of, principal_of, quoted
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.offset_charts import Series, plot
from headrace_features.explore.pages.blends import MOST_ROWS


def training(request: Request) -> Response:
    """The runs whose blends the reader may see."""
    explorer, principal = explorer_of(request), principal_of(request)
    runs = [*map(_line, seen_runs(explorer, principal))]
    return answer(request, "training.html", {"runs": runs})


def run(request: Request) -> Response:
    """One run: its reads, its losses beside the offset where it reported them, and the largest rises."""
    explorer, principal = explorer_of(request), principal_of(request)
    name = request.path_params["run"]
    training = find_run(seen_runs(explorer, principal), name)
    row = training.evaluation or {}
    reported = {point["offset"]: point["loss"] for point in row.get("losses", ())}
    if training.evaluation is None:
        reported = open_register(explorer.catalogue).losses(name)
    offsets, losses = [*reported], [*reported.values()]
    blend = (
        training.reads[-1].blend_id if training.reads else row.get("blend", "")
    )  # an update keeps the rows before it
    rises = spikes(offsets, losses)
    step = training.reads[-1].step_rows if training.reads else 0

    def link(offset: float) -> str:
        at = max(0, bisect.bisect_right(offsets, offset) - 1)  # the step that read it
        rows = step or (offsets[at + 1] - offsets[at] if at + 1 < len(offsets) else 0)
        return address(f"/blends/{blend}/rows/{offsets[at]}", rows=min(rows, MOST_ROWS) or None)

    curves = [
        Series("median of the losses before", "quiet", offsets, running_medians(losses).tolist()),
        Series("loss", "c0", offsets, losses),
    ]
    points = [
        (spike.offset, spike.loss, f"{spike.loss:.4f} at {spike.offset:,}, {spike.rise:.4f} above") for spike in rises
    ]
    about = ("experiment", "variant", "seed", "learning_rate", "model", "tokens", "document_count", "device", "commit")
    there = address_of("experiments", quoted(row.get("experiment", "")))
    shown: dict[str, Any] = {
        **_line(training), "_experiment_page": there, "_losses_page": address_of("losses", quoted(name)),
        "reads": [read._asdict() for read in training.reads],
        "losses": list(zip(offsets, losses, strict=True)),
        "spikes": [{**vars(spike), "batch": link(spike.offset)} for spike in rises],
        "about": {fact: row[fact] for fact in about if row.get(fact) not in (None, "")},
        "scores": row.get("scores", []), "snapshots": row.get("snapshots", []),
        "_plot": plot(curves, "loss over offsets", link, points) if losses else None,
    }  # fmt: skip
    return answer(request, "run.html", shown)


def seen_runs(explorer: Explorer, principal: str) -> list[RecordedRun]:
    """Runs of which the reader may see the blends or, of an experiment, the tables."""
    runs = training_runs(explorer.catalogue)
    if explorer.reads_all(principal):
        return runs
    blends = set(explorer.blender(principal).list_ids())

    def sees(run: RecordedRun) -> bool:
        tables = run.evaluation["snapshots"] if run.evaluation is not None else []
        there = (explorer.may_read(principal, table.split(".")[0]) for table in tables)
        return all(read.blend_id in blends for read in run.reads) and all(there)

    return [run for run in runs if sees(run)]


def _line(run: RecordedRun) -> dict[str, Any]:
    """A run as a line of the list."""
    row = run.evaluation
    if row is None:
        blends = list(dict.fromkeys(read.blend_id for read in run.reads))
        last = run.reads[-1]
        rows = max(read.end if read.consumed is None else read.consumed for read in run.reads)
        return {"run": run.name, "said": run.name, "began": run.reads[0].began, "blends": blends, "rows": rows,
                "by": last.principal, "ended": last.status, "experiment": None}  # fmt: skip
    title = f"{row['experiment']}, {row['variant']}, seed {row['seed']}, rate {row['learning_rate']:g}"
    return {"run": run.name, "said": title, "began": row["recorded_at"].isoformat(timespec="seconds"),
            "blends": [row["blend"]], "rows": None, "by": row["device"], "ended": "OK",
            "experiment": row["experiment"]}  # fmt: skip


PATHS = {"/training": training, "/training/{run}": run}
