"""`headrace features`: the present features, and the extras for each."""

from __future__ import annotations

import click

from dagster_project.cli.output import JSON, print_rows


@click.command()
@JSON
def features(as_json: bool) -> None:
    """Show the features beside the main road: whether each is there, and the extras that it can use.

    A feature is a folder of headrace_features. What reads, scores or makes something by a feature that is not there is
    refused by name; everything else goes on.
    """
    from spark_jobs.features import features as all_features

    rows = [
        {
            "feature": feature.name,
            "there": "yes" if feature.is_there else "no",
            "extras": ", ".join(feature.extras) or "-",
            "not installed": ", ".join(feature.missing_extras) or "-",
            "brings": feature.about,
        }
        for feature in all_features().values()
    ]
    print_rows(rows, as_json, "no feature is there: headrace_features is not installed; install headrace whole")
