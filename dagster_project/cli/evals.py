"""`headrace evals`: the benchmarks that documents are searched for."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.cli.output import print_rows
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings


@click.group()
def evals() -> None:
    """Add and list benchmarks that documents are searched for."""


@evals.command("add")
@click.argument("name")
@click.option(
    "--from", "file", required=True, type=click.Path(path_type=Path, dir_okay=False), help="JSONL, CSV, Parquet"
)
@click.option("--columns", required=True, help="those that hold items, e.g. question,answer")
@click.option("--version", default="1", show_default=True, help="a name and version never mean another content")
def add(name: str, file: Path, columns: str, version: str) -> None:
    """Enter the items of a benchmark's FILE into the registry as NAME."""
    from spark_jobs.filters.contamination.eval_set import encode, read_eval_set
    from spark_jobs.filters.registry import record

    found = read_eval_set(name, file, [one.strip() for one in columns.split(",") if one.strip()])
    entry = record(open_catalogue(load_settings()), "eval_set", name, version, encode(found.items))
    click.echo(f"{found}; hash {entry.content_hash[:16]}")
    click.echo(f"Next, in a dataset's declaration: `scorers: {{contamination: {{evals: [{entry.label}]}}}}`")


@evals.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_evals(as_json: bool) -> None:
    """List the benchmarks of the registry."""
    from spark_jobs.filters.contamination.eval_set import decode
    from spark_jobs.filters.registry import entries

    rows = [
        {
            "eval set": one.label,
            "items": len(decode(one.content)),
            "hash": one.content_hash[:16],
            "by": f"{one.recorded_by}, {one.recorded_at:%Y-%m-%d}",
        }
        for one in entries(open_catalogue(load_settings()), "eval_set")
    ]
    print_rows(rows, as_json, "the registry has no benchmark; headrace evals add NAME --from FILE --columns a,b")
