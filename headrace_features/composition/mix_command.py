"""`headrace mix plan`: from a curve or a table of repeats to a blend of the cells of a corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue


@click.group(short_help="Plan how often each cell of a corpus is read.")
def mix() -> None:
    """Plan how often each cell of a corpus is read, and make it a blend."""


@mix.command("plan", epilog="\b\nExample: headrace mix plan main --curve quality:curve.yaml --tokens 20B --create olmo")
@click.argument("corpus", shell_complete=complete_names)
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--curve", metavar="DIMENSION:FILE", help="curve of a measure's quantiles: points, steps, or drop and most"
)
@click.option("--tokens", metavar="N", help="in all, such as 20B; default: as many as the curve gives")
@click.option("--max-repeats", type=float, help="refuse to read a cell more often; default: most of the curve, or 7")
@click.option("--table", help="packed table; default: all of the corpus that have cells")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="of the blend's shuffles")
@click.option("--create", "name", metavar="NAME", help="create the blend, and bind NAME to it")
@JSON
def plan(corpus: str, file: Path | None, curve: str | None, name: str | None, as_json: bool, **given: Any) -> None:
    """Print how often each cell of CORPUS is read: unique and planned tokens, repeats, shares, what a cell lacks.

    FILE is YAML with curve, repeats or shares, tokens, max_repeats, table, seed; options count first. Nothing is made
    without --create.
    """
    from blender_service.blend.describe import ending_lines, source_ends
    from blender_service.server.blender import Blender
    from headrace_features.composition.mix_config import read_mix
    from headrace_features.composition.mix_plan import packed_cells, plan_mix

    config = read_mix(file, curve, given)
    catalogue = lake_catalogue()
    planned = plan_mix(packed_cells(catalogue, corpus, config.table), config)
    facts = planned.facts()
    lacking = [line for line in facts if line["lacks_tokens"]]
    if lacking:
        _print_cells(lacking)
        lacks = sum(line["lacks_tokens"] for line in lacking)
        raise CommandError(
            f"mix plan: {len(lacking):,} cells would be read more than {planned.max_repeats:g} times, they lack "
            f"{lacks:,} tokens; lower --tokens, raise --max-repeats, or drop less"
        )
    blender = Blender(catalogue)
    draft, head, _ = blender.draft(planned.spec)
    endings = ending_lines(source_ends(draft, head), head.end)
    totals = {name: sum(line[name] for line in facts) for name in ("planned_tokens", "unique_tokens")}
    totals["rows"] = min(planned.rows, head.end or planned.rows)
    rounding = max(abs(line["repeats"] - line["wanted"]) for line in facts)
    if as_json:
        print_json({"id": draft.blend_id, **totals, "end": head.end, "cells": facts, "endings": endings})
    else:
        _print_cells([line for line in facts if line["repeats"]])
        never = [line["unique_tokens"] for line in facts if not line["repeats"]]
        say(f"{len(never):,} cells are never read, {sum(never):,} tokens" if never else "every cell is read")
        say("planned: {rows:,} rows, {planned_tokens:,} tokens, of {unique_tokens:,} unique ones".format(**totals))
        say(f"weights are whole numbers: repeats are within {rounding:.4f} of those wanted")
        for line in endings:
            say(line)
    if name is not None:
        made = blender.create(replace(planned.spec, name=name))
        say(f"blend {name}: {made.blend_id}; next: headrace serve, and train for {totals['rows']:,} rows", err=as_json)


def _print_cells(lines: list[dict[str, Any]]) -> None:
    """Print what is planned of cells."""
    several = len({line["table"] for line in lines}) > 1
    print_table(
        [
            {
                **({"table": line["table"]} if several else {}), "cell": line["cell"],
                "unique tokens": line["unique_tokens"], "repeats": f"{line['repeats']:.3f}",
                "planned tokens": line["planned_tokens"], "% of tokens": 100 * line["share"],
                "lacks": line["lacks_tokens"],
            }
            for line in lines
        ]
    )  # fmt: skip
