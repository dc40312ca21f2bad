"""The explorer's pages of experiments: what came out, how sure that is, how the data of their variants differ."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.pages import PageAnswer, PageRequest, Pages, Picture
from headrace_features.experiments.declared import declared_report
from spark_jobs.exceptions import nearest
from spark_jobs.lake.run.evaluations import known_rows

if TYPE_CHECKING:
    from headrace_features.experiments.mix_report import FittedMix
    from headrace_features.experiments.report import Report

_PICTURES = RecentlyUsed[tuple[str, str, datetime], bytes](16)  # by the state of their rows
_REPORTS: RecentlyUsed[tuple[str, str], Report | FittedMix] = RecentlyUsed(32)  # by the digest of their rows
_REPORTING = threading.Lock()
_SHOWN = ("key", "variant", "seed", "learning_rate", "tokens", "document_count", "blend", "scores")


def experiments(request: PageRequest) -> PageAnswer:
    """The experiments with runs on tables visible to the reader."""
    lines: dict[str, dict[str, Any]] = {}
    for row in _rows(request):
        line = lines.setdefault(row["experiment"], {"name": row["experiment"], "runs": 0, "variants": [], "last": ""})
        line["runs"] += 1
        line["variants"] = list(dict.fromkeys([*line["variants"], row["variant"]]))
        line["last"] = row["recorded_at"].isoformat(timespec="seconds")
    return PageAnswer("experiments.html", {"experiments": [*lines.values()]})


def experiment(request: PageRequest) -> PageAnswer:
    """The runs of one, their means, and what each variant was trained on; verdicts come later, by `report`."""
    from headrace_features.experiments.report import mean_rows

    so_far = _runs(request)
    name, rows = so_far.experiment, so_far.rows
    variants = []
    for row in {row["variant"]: row for row in reversed(rows)}.values():
        sources = {source: about["tokens"] for source, about in json.loads(row["sources"]).items()}
        total = sum(sources.values()) or 1
        variants.append(
            {
                "variant": row["variant"], "blend": row["blend"], "documents": row["document_count"],
                "tokens": row["tokens"], "sources": sources, "left_out": json.loads(row["left_out"]),
                "snapshots": row["snapshots"], "_shares": [tokens / total for tokens in sources.values()],
            }
        )  # fmt: skip
    shown = {
        "experiment": name, "means": list(mean_rows(rows)), "variants": variants[::-1],
        "rows": [{field: row[field] for field in _SHOWN} for row in rows],
    }  # fmt: skip
    return PageAnswer("experiment.html", shown)


def report(request: PageRequest) -> PageAnswer:
    """Verdicts with their intervals, and what differs between the data: a piece of the page that may come late.

    Making them reads the data of the runs, so they are made once for each state of the rows.
    """
    from headrace_features.experiments.report import Report

    so_far = _runs(request)
    name = so_far.experiment
    try:
        results = _results(so_far)
    except CommandError as error:
        return PageAnswer("experiment_report.html", {"experiment": name, "said": str(error), "verdicts": []})
    if not isinstance(results, Report):
        lines = [*results.notes, *results.trade_offs(), *results.repeats()]
        shown = {"experiment": name, "said": str(results), "verdicts": list(results.front_rows()), "differences": lines}
        return PageAnswer("experiment_report.html", {**shown, "is_mix": True})
    shown = {
        "experiment": name, "said": f"{len(results.rows)} of {results.planned} runs are done",
        "verdicts": list(results.verdict_rows()), "differences": results.differences,
        "tells_nothing": results.tell_nothing(),
    }  # fmt: skip
    return PageAnswer("experiment_report.html", shown)


def picture(request: PageRequest) -> Picture:
    """Scores of each variant on each set, every seed a point."""
    so_far = _runs(request)
    key = so_far.experiment, so_far.digest, max(row["recorded_at"] for row in so_far.rows)
    return Picture(_PICTURES.find(key, so_far.plot))


def front(request: PageRequest) -> Picture:
    """What each mix of the front wins and loses on each set.

    Raises:
        CommandError: it has no mixes, or runs are missing.
    """
    from headrace_features.experiments.mix_report import FittedMix

    results = _results(_runs(request))
    if not isinstance(results, FittedMix):
        raise CommandError(f"experiment {results.experiment} has variants, and no front of mixes")
    return Picture(results.plot())


def _results(so_far: Report) -> Report | FittedMix:
    """What `headrace experiment show` says of these runs, made once."""
    with _REPORTING:
        return _REPORTS.find((so_far.experiment, so_far.digest), lambda: declared_report(so_far.experiment))


def _rows(request: PageRequest, name: str | None = None) -> list[dict[str, Any]]:
    """Rows of `system.evaluations` with tables all visible to the reader."""
    return [
        row
        for row in known_rows(request.catalogue, name)
        if all(request.may_read(table.split(".")[0]) for table in row["snapshots"])
    ]


def _runs(request: PageRequest) -> Report:
    """The runs of the experiment of an address, without a comparison; of a run measured twice, the last result.

    Raises:
        CommandError: it has none.
    """
    from headrace_features.experiments.report import Report

    name = request.parts["experiment"]
    rows = list({(row["key"], row["variant"], row["seed"]): row for row in _rows(request, name)}.values())
    if not rows:
        near = nearest(name, sorted({row["experiment"] for row in _rows(request)}))
        raise CommandError(f"experiment {name} has no run here{near}; run: headrace run {name}")
    return Report(name, rows, len(rows), None, ())


PAGES: Final = Pages(
    {
        "/experiments": experiments,
        "/experiments/{experiment}": experiment,
        "/experiments/{experiment}/report": report,
        "/experiments/{experiment}/scores.png": picture,
        "/experiments/{experiment}/front.png": front,
    },
    Path(__file__).parent / "templates",
)
