"""Experiments: what came out, how sure that is, and what differs between the data of their variants."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.explore.answers import answer, explorer_of, principal_of
from dagster_project.explore.charts import share_bar
from dagster_project.explore.offset_charts import COLOURS
from spark_jobs.exceptions import nearest
from spark_jobs.lake.run.evaluations import known_rows

if TYPE_CHECKING:
    from dagster_project.experiments.report import Report

_PICTURES = RecentlyUsed[tuple[str, str, datetime], bytes](16)  # by the state of their rows
_SHOWN = ("key", "variant", "seed", "learning_rate", "tokens", "document_count", "blend", "scores")


def experiments(request: Request) -> Response:
    """The experiments that have runs on tables which the reader may see."""
    found: dict[str, dict[str, Any]] = {}
    for row in _rows(request):
        one = found.setdefault(row["experiment"], {"name": row["experiment"], "runs": 0, "variants": [], "last": ""})
        one["runs"] += 1
        one["variants"] = list(dict.fromkeys([*one["variants"], row["variant"]]))
        one["last"] = row["recorded_at"].isoformat(timespec="seconds")
    return answer(request, "experiments.html", {"experiments": [*found.values()]})


def experiment(request: Request) -> Response:
    """The runs of one, their means, and what each variant was trained on; verdicts come later, by `report`."""
    from dagster_project.experiments.report import mean_rows

    so_far = _runs(request)
    name, rows = so_far.experiment, so_far.rows
    variants = []
    for row in {row["variant"]: row for row in reversed(rows)}.values():
        sources = {one: about["tokens"] for one, about in json.loads(row["sources"]).items()}
        total = sum(sources.values()) or 1
        shares = [(f"c{at % COLOURS}", tokens / total) for at, tokens in enumerate(sources.values())]
        variants.append(
            {
                "variant": row["variant"], "blend": row["blend"], "documents": row["document_count"],
                "tokens": row["tokens"], "sources": sources, "left_out": json.loads(row["left_out"]),
                "snapshots": row["snapshots"], "_bar": share_bar(shares, "tokens by source"),
            }
        )  # fmt: skip
    shown = {
        "experiment": name, "means": list(mean_rows(rows)), "variants": variants[::-1], "_colours": COLOURS,
        "rows": [{field: row[field] for field in _SHOWN} for row in rows],
    }  # fmt: skip
    return answer(request, "experiment.html", shown)


def report(request: Request) -> Response:
    """Verdicts with their intervals, and what differs between the data: a piece of the page that may come late."""
    so_far = _runs(request)
    name = so_far.experiment
    try:
        found = explorer_of(request).report(name, so_far.digest)
    except CommandError as error:
        return answer(request, "experiment_report.html", {"experiment": name, "said": str(error), "verdicts": []})
    shown = {
        "experiment": name, "said": f"{len(found.rows)} of {found.planned} runs are done",
        "verdicts": list(found.verdict_rows()), "differences": found.differences, "tells_nothing": found.tell_nothing(),
    }  # fmt: skip
    return answer(request, "experiment_report.html", shown)


def picture(request: Request) -> Response:
    """Scores of each variant on each set, every seed a point; a PNG."""
    so_far = _runs(request)
    key = so_far.experiment, so_far.digest, max(row["recorded_at"] for row in so_far.rows)
    return Response(_PICTURES.find(key, so_far.plot), media_type="image/png")


def _rows(request: Request, name: str | None = None) -> list[dict[str, Any]]:
    """Rows of `system.evaluations` whose tables the reader may all see."""
    explorer, principal = explorer_of(request), principal_of(request)
    return [
        row
        for row in known_rows(explorer.catalogue, name)
        if all(explorer.may_read(principal, table.split(".")[0]) for table in row["snapshots"])
    ]


def _runs(request: Request) -> Report:
    """The runs of the experiment of an address, without a comparison; of a run measured twice, the last result.

    Raises:
        CommandError: it has none.
    """
    from dagster_project.experiments.report import Report

    name = request.path_params["experiment"]
    rows = list({(row["key"], row["variant"], row["seed"]): row for row in _rows(request, name)}.values())
    if not rows:
        near = nearest(name, sorted({row["experiment"] for row in _rows(request)}))
        raise CommandError(f"experiment {name} has no run here{near}; run: headrace run {name}")
    return Report(name, rows, len(rows), None, ())


PATHS = {
    "/experiments": experiments,
    "/experiments/{experiment}": experiment,
    "/experiments/{experiment}/report": report,
    "/experiments/{experiment}/scores.png": picture,
}
