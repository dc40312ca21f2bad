"""`headrace corpus evaluate`, against known duplicates, and what each threshold of a corpus keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_of, share_text
from dagster_project.project.loading import lake_catalogue

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.inspect.corpora.evaluation import Evaluation
    from dagster_project.inspect.lake.corpus_facts import CorpusFacts
    from spark_jobs.dedup.evaluate.scores import Score

_EXAMPLES = 5


@click.command()
@click.argument("name", metavar="CORPUS")
@click.argument("truth", metavar="[TRUTH_FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--against", type=click.Choice(["datasketch"]), help="in place of a file: its weighted MinHash LSH")
@click.option(
    "--sample",
    default=2_000,
    show_default=True,
    type=click.IntRange(2, 20_000),
    help="with --against: documents compared, those with the smallest ids",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="least J of a pair; default: each threshold",
)
@JSON
def evaluate(
    name: str, truth: Path | None, against: str | None, sample: int, threshold: float | None, as_json: bool
) -> None:
    """Print precision, recall and F1 of the pairs of CORPUS against the pairs of TRUTH_FILE, or what datasketch finds.

    TRUTH_FILE has one pair in each line, two identifiers separated by white space, a comma or a tab, or is Parquet with
    two columns. An identifier is a doc_id, a path, or the id of a record. Exact duplicates are pairs of J = 1. The last
    column counts known pairs that were missed although both documents have the same witness.

    With --against datasketch all pairs of a sample are compared by brute force, with the weights and the applied
    threshold of the corpus, and the pairs are counted that either tool found and missed.
    """
    from dagster_project.cli.data.doc import require_compared
    from dagster_project.inspect.corpora.evaluation import evaluate as evaluate_corpus
    from dagster_project.inspect.lake.corpus_facts import find_corpus
    from dagster_project.restrictions import note_read

    if (truth is None) == (against is None):
        raise CommandError("corpus evaluate: give either TRUTH_FILE or --against datasketch")
    catalogue = lake_catalogue()
    corpus = find_corpus(catalogue, name)
    require_compared(corpus, threshold)
    note_read(catalogue, [corpus.name, *corpus.datasets])
    if truth is None:
        _print_peer(catalogue, corpus, threshold, sample, as_json)
        return
    found = evaluate_corpus(catalogue, corpus, truth, threshold)
    if as_json:
        return print_json(_as_json(name, found))
    say(f"{truth}: {found.pairs:,} pairs{_set_aside(found)}")
    for text, unresolved in (("no member", found.names.unknown), ("several members", found.names.ambiguous)):
        if unresolved:
            more = ", ..." if len(unresolved) > _EXAMPLES else ""
            listed = ", ".join(unresolved[:_EXAMPLES])
            say(f"identifiers that name {text}: {len(unresolved):,} ({listed}{more})")
    say()
    print_table([_row(one) for one in found.scores])
    if not corpus.thresholds:
        say(f"corpus {name} removes exact duplicates alone: only these count as found")


def _print_peer(catalogue: Catalog, corpus: CorpusFacts, threshold: float | None, sample: int, as_json: bool) -> None:
    """Print what headrace and datasketch found of the similar pairs of a sample."""
    from dagster_project.inspect.corpora.peer_evaluation import compare_with_datasketch

    found = compare_with_datasketch(catalogue, corpus, threshold, sample)
    if as_json:
        return print_json({"corpus": corpus.name, **dataclasses.asdict(found)})
    say(
        f"{found.sampled:,} of {found.documents:,} documents: {found.truth:,} pairs reach J = "
        f"{corpus.applied if threshold is None else threshold}, all compared in {found.brute_force_seconds:g} s\n"
    )
    print_table([vars(one) for one in found.scores])
    say(
        f"\nof the pairs that headrace missed it keeps both documents of {found.both_kept:,}; its seconds are those of "
        "the steps from signatures to pairs over the whole corpus, fixed costs of jobs among them"
    )


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


def _set_aside(found: Evaluation) -> str:
    """A remark on pairs of the file that were not scored, such as ` (2 of a document with itself, in no score)`."""
    parts = [
        f"{count:,} {text}"
        for count, text in (
            (found.unresolved, "with an identifier that cannot be resolved, in no score"),
            (found.with_itself, "of a document with itself, in no score"),
            (found.repeated, "written more than once"),
        )
        if count
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _row(one: Score) -> dict[str, Any]:
    return {
        "J": f"{one.threshold:g}",
        "found": one.found,
        "known": one.known,
        "both": one.both,
        "precision": _share(one.precision),
        "recall": _share(one.recall),
        "F1": _share(one.f1),
        "one witness": one.same_witness,
    }


def _share(value: float | None) -> str:
    return share_text(value, ".4f")


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


def _as_json(name: str, found: Evaluation) -> dict[str, Any]:
    scores = [{**vars(one), "precision": one.precision, "recall": one.recall, "f1": one.f1} for one in found.scores]
    return {
        "corpus": name,
        "pairs": found.pairs,
        "repeated": found.repeated,
        "with_itself": found.with_itself,
        "unresolved": {
            "pairs": found.unresolved,
            "unknown": len(found.names.unknown),
            "ambiguous": len(found.names.ambiguous),
            "examples": [*found.names.unknown[:_EXAMPLES], *found.names.ambiguous[:_EXAMPLES]],
        },
        "thresholds": scores,
    }
