"""`headrace evals`: the benchmarks to search documents for."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, lists_all, print_json, print_rows, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue
from headrace.tables.quarantine import SUFFIX

_SHOWN = 20


@click.group()
def evals() -> None:
    """Add, show and delete benchmarks; show which documents of a corpus hold their items."""


@evals.command("add")
@click.argument("name")
@click.option(
    "--from", "file", required=True, type=click.Path(path_type=Path, dir_okay=False), help="JSONL, CSV, Parquet"
)
@click.option("--columns", required=True, help="columns that hold the items, e.g. question,answer")
@click.option("--version", default="1", show_default=True, help="a name and version always mean the same items")
def add(name: str, file: Path, columns: str, version: str) -> None:
    """Enter the items of a benchmark's FILE into the registry as NAME."""
    from dagster_project.inspect.lake.quarantined_files import quarantine_of_file
    from spark_jobs.filters.contamination.eval_set import encode, read_eval_set
    from spark_jobs.lake.run.registry import record

    catalogue = lake_catalogue(make=True)
    if quarantine := quarantine_of_file(catalogue, file):
        raise CommandError(
            f"evals add {name}: {file} belongs to {quarantine}, and everybody may read the registry; release it first: "
            f"headrace quarantine show {quarantine.removesuffix(SUFFIX)}"
        )
    eval_set = read_eval_set(name, file, [column.strip() for column in columns.split(",") if column.strip()])
    entry = record(catalogue, "eval_set", name, version, encode(eval_set.items))
    say(f"{eval_set}; hash {entry.content_hash[:16]}")
    say(
        f"From its next run on every corpus searches for {entry.label} and packs nothing that holds it. What is packed "
        "already: headrace run CORPUS.decontaminated, then headrace evals show CORPUS"
    )


@evals.command("delete")
@click.argument("name")
def delete(name: str) -> None:
    """Stop searching for the benchmark NAME; its versions stay in the registry, and a new one starts it again."""
    from spark_jobs.filters.contamination.decontaminated import retire as enter

    entry = enter(lake_catalogue(), name)
    say(f"{entry.label}: from its next run on no corpus searches for {name}")


@evals.command("show")
@click.argument("corpus", required=False, shell_complete=complete_names)
@click.option(
    "--to", type=click.Path(path_type=Path, dir_okay=False), help="write ids of packed documents to this file"
)
@JSON
def show(corpus: str | None, to: Path | None, as_json: bool) -> None:
    """List the benchmarks of the registry; say which documents, windows and blends of CORPUS hold their items."""
    if lists_all(corpus) or corpus is None:
        _list_benchmarks(as_json)
    else:
        _show_findings(corpus, to, as_json)


def _list_benchmarks(as_json: bool) -> None:
    """Print the benchmarks of the registry."""
    from spark_jobs.filters.contamination.decontaminated import present_evals
    from spark_jobs.filters.contamination.eval_set import decode
    from spark_jobs.lake.run.registry import entries

    catalogue = lake_catalogue()
    present = present_evals(catalogue)
    rows = [
        {
            "eval set": entry.label,
            "items": len(decode(entry.content)),
            "hash": entry.content_hash[:16],
            "by": entry.by,
        }
        for entry in entries(catalogue, "eval_set")
    ]
    print_rows(rows, as_json, "the registry has no benchmark; headrace evals add NAME --from FILE --columns a,b")
    if rows and not as_json:
        say(f"Packed tables searched for the newest of each have the property headrace.evals={present.digest}")


def _show_findings(corpus: str, to: Path | None, as_json: bool) -> None:
    """Print which documents of a corpus hold items of benchmarks, and which windows and blends hold them."""
    from dagster_project.inspect.corpora.contamination import contamination_report

    report = contamination_report(lake_catalogue(), corpus)
    if to is not None:
        to.write_text("".join(f"{document.doc_id}\n" for document in report.packed))
    if as_json:
        return print_json(report)
    rows = [
        {
            "document": document.doc_id,
            "dataset": document.dataset,
            "share": f"{document.share:.2f}",
            "items": "; ".join(document.items),
            "windows": "; ".join(f"{count} of {table}" for table, count in document.windows.items()) or "none",
        }
        for document in report.documents
    ]
    print_rows(rows[:_SHOWN], False, f"{corpus} holds no item of {', '.join(report.evals)}")
    if len(rows) > _SHOWN:
        say(f"and {len(rows) - _SHOWN:,} more documents; --json names all")
    for table, blends in report.blends.items():
        say(f"{table}: served by {', '.join(blends) if blends else 'no blend'}")
    if report.packed:
        at_head = any("@" not in table for document in report.packed for table in document.windows)
        anew = f"`headrace run {corpus}` packs without them; to" if at_head else "To"
        say(
            f"{len(report.packed):,} documents lie in windows. {anew} take them out of what blends pinned: headrace "
            f"evals show {corpus} --to FILE; headrace doc excise --from-file FILE"
        )
