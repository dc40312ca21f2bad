"""`headrace review`: people judge what rules removed, and how often a rule is right is measured by it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_of
from dagster_project.project.loading import dagster_home, lake_catalogue
from spark_jobs.lake.session.settings import user_name

if TYPE_CHECKING:
    from dagster_project.inspect.corpora.reviews import Precision


@click.group()
def review() -> None:
    """Judge a sample of what a rule removed; see how often each rule was right."""


@review.command()
@click.argument("dataset")
@click.option("--rule", help="only documents that failed this rule; by default any")
@click.option("--count", default=50, show_default=True, type=click.IntRange(min=1), help="most documents")
@click.option("--near-threshold", is_flag=True, help="those nearest to the threshold, in place of a random choice")
@click.option("--variant", help="variant of the policy; by default the dataset's own policy")
@click.option("--seed", default=0, show_default=True, help="another seed draws other documents")
@click.option("--to", "path", default="review.json", show_default=True, type=click.Path(dir_okay=False, path_type=Path))
def sample(
    dataset: str, rule: str | None, count: int, near_threshold: bool, variant: str | None, seed: int, path: Path
) -> None:
    """Write a sample of documents that DATASET's rules removed as JSON, with empty decisions to be filled in.

    People decide by keyboard, with the texts, in the explorer: headrace explore, page /datasets/DATASET/review.
    """
    from dagster_project.inspect.corpora import reviews
    from dagster_project.restrictions import note_read

    catalogue = lake_catalogue()
    verdicts = f"{dataset}.verdicts_{variant}" if variant else f"{dataset}.verdicts"
    chosen = reviews.sample(catalogue, verdicts, rule, count, near_threshold, seed)
    note_read(catalogue, [verdicts])
    path.write_text(json.dumps(reviews.undecided(verdicts, chosen), indent=1), encoding="utf-8")
    shown = f"/datasets/{dataset}/review?rule={chosen[0].rule}" if chosen else ""
    say(f"{len(chosen)} documents in {path}; write each decision (right, wrong or unsure) into it, then:")
    say(f"  headrace review record {dataset} {path}\nor read and decide in the explorer: headrace explore, {shown}")


@review.command()
@click.argument("dataset")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--by", "person", help="who decided; by default you")
def record(dataset: str, file: Path, person: str | None) -> None:
    """Record the decisions of FILE; empty ones (null) are skipped."""
    from dagster_project.inspect.corpora import reviews

    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{file}: no JSON: {error}") from error
    if not isinstance(given, dict):
        raise CommandError(f"{file}: no object; give the JSON of headrace review sample")
    catalogue = lake_catalogue()
    count = reviews.record(catalogue, dataset, given, person or user_name())
    _show_in_ui(given["verdicts"], reviews.precisions(catalogue, dataset, given["verdicts"]))
    say(f"{count} decisions recorded in {dataset}.reviews; headrace policy preview {dataset} . shows them by rule")


def _show_in_ui(verdicts: str, found: Sequence[Precision]) -> None:
    """Report how often rules were found right as an observation of the verdicts, which Dagster shows on their page."""
    import dagster as dg

    lines = ["| rule | found right |", "|---|---|", *(f"| {one.rule} | {one} |" for one in found)]
    seen = dg.AssetObservation(verdicts.split("."), metadata={"reviewed_rules": dg.MetadataValue.md("\n".join(lines))})
    dagster_home()
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(seen)


@review.command()
@click.argument("dataset")
@JSON
def show(dataset: str, as_json: bool) -> None:
    """Show how often people found each rule of DATASET right, with the 95% interval."""
    from dagster_project.inspect.corpora import reviews

    found = reviews.precisions(lake_catalogue(), dataset)
    if not found:
        raise CommandError(
            f"{dataset}: nothing was reviewed; begin with: headrace explore, page /datasets/{dataset}/review"
        )
    rows = [
        {
            "rule": one.rule,
            "right": one.right,
            "wrong": one.wrong,
            "unsure": one.unsure,
            **{name: None if value is None else round(value, 3) for name, value in _figures(one).items()},
        }
        for one in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


def _figures(one: Precision) -> dict[str, float | None]:
    """The share that people found right, with its interval; None of a rule about which nobody has decided."""
    share = share_of(one.right, one.right + one.wrong)
    return {"precision": share, "low": None, "high": None} | (
        {} if share is None else {"low": one.low, "high": one.high}
    )
