"""`headrace rights summary`: a run, a blend or a corpus in the fields of the Commission's template."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.cli.output import JSON, print_json, say
from dagster_project.exceptions import CheckFailedError, CommandError
from dagster_project.project.loading import lake_catalogue


@click.command(
    "summary", epilog="\b\nExample: headrace rights summary --run llm-7b --facts facts.yaml --output summary.docx"
)
@click.option("--run", help="a training run: what its model learnt from, by the run register")
@click.option("--blend", help="a blend")
@click.option("--corpus", help="a corpus: each packed window once")
@click.option("--table", metavar="PACKED", help="with --corpus: which packed table; by default the first")
@click.option("--at", "offset", type=click.IntRange(1), metavar="OFFSET", help="rows before it, as of a checkpoint")
@click.option("--facts", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="YAML of what people state")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="a .md, .docx or .json file")
@click.option("--check", is_flag=True, help="end with status 3 where something is missing")
@JSON
def summary(
    run: str | None, blend: str | None, corpus: str | None, table: str | None, offset: int | None,
    facts: Path | None, output: Path | None, check: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write the public summary of training content (AI Act, Art. 53(1)(d)): counted, stated, or listed as missing."""
    from headrace_features.rights.summary.summary import build
    from headrace_features.rights.summary.summary_counts import (
        Counts,
        Rows,
        blend_counts,
        corpus_parts,
        count,
        in_windows,
        run_rows,
    )
    from headrace_features.rights.summary.summary_facts import read_facts
    from headrace_features.rights.summary.summary_writing import markdown, write

    if sum(name is not None for name in (run, blend, corpus)) != 1:
        raise CommandError("rights summary: name one of --run, --blend and --corpus")
    if corpus is not None and offset is not None:
        raise CommandError("rights summary: --at is a row of a blend; leave it out, or name --run or --blend")
    stated, catalogue = read_facts(facts), lake_catalogue()
    before = "" if offset is None else f" before row {offset:,}"
    counts: Counts
    if corpus is not None:
        from dagster_project.inspect.lake.corpus_facts import find_corpus

        identifier, parts = corpus_parts(catalogue, find_corpus(catalogue, corpus), table)
        counts = count(catalogue, f"corpus {corpus} ({identifier})", [in_windows([parts])])
    else:
        from blender_service.server.blender import Blender

        blender = Blender(catalogue)
        if run is not None:
            rows = run_rows(catalogue, blender, run, offset)
            counts = blend_counts(catalogue, blender, f"run {run}{before}", rows)
        else:
            rows = [Rows(blender.resolve(str(blend)), 0, offset)]
            counts = blend_counts(catalogue, blender, f"blend {blend}{before}", rows)
    built = build(catalogue, counts, stated)
    if output is not None:
        write(built, output)
    if as_json:
        print_json(built.facts())
    elif output is None:
        say(markdown(built))
    else:
        say(f"{output}: {counts.documents.num_rows:,} documents, {counts.tokens_read:,} tokens read")
        for line in built.missing:
            say(f"  missing: {line}")
    if check and built.missing:
        raise CheckFailedError(f"{len(built.missing)} fields of the summary are missing; first {built.missing[0]}")
