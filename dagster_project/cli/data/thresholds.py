"""What each threshold of a corpus keeps."""

from __future__ import annotations

from typing import Any

from dagster_project.cli.output import print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_of, share_text
from dagster_project.project.loading import lake_catalogue


def print_thresholds(name: str, as_json: bool) -> None:
    """Print what each threshold of a corpus keeps: documents, bytes, components, over all increments."""
    from dagster_project.inspect.corpora.kept_at_thresholds import kept_at_thresholds
    from dagster_project.inspect.lake.corpus_facts import find_corpus
    from dagster_project.inspect.lake.run_notices import LEAST_KEPT

    catalogue = lake_catalogue()
    corpus = find_corpus(catalogue, name)
    rows = kept_at_thresholds(catalogue, corpus)
    if not rows:
        raise CommandError(
            f"{name}.thresholds is not in the lake; give corpus {name} the level near and run: headrace run {name}"
        )
    if as_json:
        return print_json(rows)
    applied = f"; {corpus.goes_from}" if corpus.goes_from else ""
    say(f"corpus {name}: {rows[0]['member_count']:,} members{applied}\n")
    shown = [_readable(row) for row in rows]
    if not any(row["repository"] for row in shown):  # most corpora do not compare repositories
        shown = [{name: value for name, value in row.items() if name != "repository"} for row in shown]
    print_table(shown)
    if corpus.compared is not None and not corpus.compared.lowest.is_one:
        say(f"\na kind is compared from its lowest threshold on, below it counts as there: {corpus.compared.lowest}")
    few = [row for row in rows if row["kept_count"] < LEAST_KEPT * row["member_count"]]
    if few:
        lost = ", ".join(f"{row['threshold']:g}" for row in few)
        say(
            f"\nless than a tenth is kept at J = {lost}: look at some of the pairs (headrace doc show DOC --duplicates)"
        )
    say("\nwhole documents are compared; passages that two kept documents share stay (docs/prepare/passages.md)")


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with short column names and the share of documents kept."""
    return {
        "J": f"{row['threshold']:g}",
        "exact": row["exact_removed_count"],
        "near": row["near_removed_count"],
        "repository": row["repository_removed_count"],
        "kept": row["kept_count"],
        "share": share_text(share_of(row["kept_count"], row["member_count"]), ".2%"),
        "bytes kept": row["kept_byte_count"],
        "bytes gone": row["removed_byte_count"],
        "components": row["component_count"],
        "largest": row["largest_component"],
    }
