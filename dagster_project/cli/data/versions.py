"""`headrace diff`, `headrace release`, and cards of datasets and corpora."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagster_project.cli.output import JSON, print_json, print_raw, print_rows, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue
from spark_jobs.lake.session.catalogue import catalogue_errors

if TYPE_CHECKING:
    from dagster_project.inspect.corpora.snapshot_diff import Diff


@click.command()
@click.argument("first")
@click.argument("second")
@JSON
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare two states of a dataset (documents, changed texts, verdicts by rule) or corpus (members to windows).

    A state is NAME, NAME@SNAPSHOT, NAME@2026-11-20T12:00 or NAME@RELEASE.
    """
    from dagster_project.inspect.corpora import snapshot_diff
    from dagster_project.restrictions import note_read

    catalogue = lake_catalogue()
    states = [snapshot_diff.find_state(catalogue, text) for text in (first, second)]
    note_read(catalogue, [state.name for state in states])
    kind, delta = snapshot_diff.state_diff(catalogue, *states)
    if as_json:
        print_json(delta)
    else:
        _print(delta, kind)


def _print(delta: Diff, kind: str) -> None:
    def line(text: str, name: str = "") -> None:
        some = delta.examples.get(name) or []
        say(f"{text}{'  e.g. ' + ', '.join(doc_id[:12] for doc_id in some) if some else ''}")

    line(f"documents: {delta.before:,} -> {delta.after:,}")
    line(f"  added    {delta.added:>12,}", "added")
    line(f"  removed  {delta.removed:>12,}", "removed")
    if kind == "dataset":
        line(f"  changed  {delta.changed:>12,}  (added and removed: another text at the same path)", "changed")
        for what, moved in (("newly rejected by", delta.newly_failed), ("no longer rejected by", delta.newly_passed)):
            for rule, count in moved.items():
                line(f"{what} {rule}: {count:,}")
        return
    line(f"duplicates since {delta.newly_removed:>12,}", "newly_removed")
    line(f"kept since       {delta.newly_kept:>12,}", "newly_kept")
    for name, (before, after) in delta.stages.items():
        line(f"after {name}: {before:,} -> {after:,}")
    for name, (before, after) in delta.totals.items():
        line(f"{name}: {before:,} -> {after:,}")


def card_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a card to a command showing a dataset or corpus."""
    for option in (
        click.option("--min-group", type=int, help="with noise: smaller groups are merged into `other`; 20 by default"),
        click.option("--epsilon", type=float, help="add noise to counts of the card: epsilon of all of it, such as 1"),
        click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="file to write the card to"),
        click.option("--card", is_flag=True, help="print its card: Markdown with the header that dataset hubs read"),
    ):
        command = option(command)
    return command


def write_card(namespace: str, output: Path | None, epsilon: float | None, min_group: int | None) -> None:
    """Write a card of a dataset or corpus."""
    from dagster_project.inspect.corpora.dataset_card import Privacy
    from dagster_project.inspect.corpora.dataset_card import card as make

    if epsilon is None and min_group is not None:
        raise CommandError(f"card: --min-group {min_group} is for counts with noise; say --epsilon too, such as 1")
    privacy = None if epsilon is None else Privacy(epsilon, 20 if min_group is None else min_group)
    text = make(lake_catalogue(), namespace, privacy)
    if output is None:
        print_raw(text)
    else:
        output.write_text(text)
        say(f"wrote {output}")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    help="make it: a corpus with its datasets; may be repeated",
)
@click.option("--dataset", "datasets", multiple=True, help="make it: a dataset; may be repeated")
@click.option("--note", default="", help="a note that is kept with it")
@click.option("--delete", "deletes", is_flag=True, help="delete it and its tags; the tables stay as they are")
@click.option("--yes", is_flag=True, help="delete without asking")
@JSON
def release(
    name: str | None,
    corpora: tuple[str, ...],
    datasets: tuple[str, ...],
    note: str,
    deletes: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Name the present state of a corpus, so that maintenance keeps it; without --corpus show NAME, or list them."""
    if name is None:
        if corpora or datasets or deletes:
            raise CommandError("release: give it a NAME")
        _list_releases(as_json)
    elif deletes:
        if corpora or datasets:
            raise CommandError(f"release {name}: --delete makes none; leave --corpus and --dataset out")
        _delete_release(name, yes)
    elif corpora or datasets:
        _create_release(name, corpora, datasets, note)
    else:
        _show_release(name, as_json)


def _create_release(name: str, corpora: tuple[str, ...], datasets: tuple[str, ...], note: str) -> None:
    """Tag the present snapshots of all tables of a corpus and of its datasets."""
    from dagster_project.inspect.lake.corpus_facts import find_corpus
    from spark_jobs.lake.run.releases import create_release

    catalogue = lake_catalogue()
    spaces = [
        *corpora,
        *(dataset for corpus in corpora for dataset in find_corpus(catalogue, corpus).datasets),
        *datasets,
    ]
    with catalogue_errors():
        release = create_release(catalogue, name, list(dict.fromkeys(spaces)), note)
    say(f"{name}: {len(release.snapshots)} tables, digest {release.digest[:16]}; a table's tag is release_{name}")


def _list_releases(as_json: bool) -> None:
    """Print the releases, the oldest first."""
    from spark_jobs.lake.run.releases import releases

    rows = [
        {
            "release": release.name,
            "tables": len(release.snapshots),
            "made": f"{release.made_at:%Y-%m-%d %H:%M}",
            "by": release.made_by,
            "digest": release.digest[:16],
            "note": release.note,
        }
        for release in releases(lake_catalogue())
    ]
    print_rows(rows, as_json, "There is no release yet. Make one: headrace release NAME --corpus CORPUS")


def _show_release(name: str, as_json: bool) -> None:
    """Print the tables of a release, with their snapshots and data versions."""
    from spark_jobs.lake.run.releases import find_release

    release = find_release(lake_catalogue(), name)
    if as_json:
        return print_json({**asdict(release), "made_at": release.made_at.isoformat()})
    say(f"{name}, made {release.made_at:%Y-%m-%d %H:%M} by {release.made_by}, digest {release.digest}")
    if release.note:
        say(release.note)
    print_table(
        [
            {"table": table, "snapshot": str(snapshot), "data version": release.versions[table]}
            for table, snapshot in release.snapshots.items()
        ]
    )


def _delete_release(name: str, yes: bool) -> None:
    """Delete a release and its tags."""
    from spark_jobs.lake.run.releases import delete_release

    if not yes:
        click.confirm("Maintenance may then remove its snapshots. Go on?", abort=True)
    with catalogue_errors():
        gone = delete_release(lake_catalogue(), name)
    say(f"{name}: forgotten, {len(gone.snapshots)} tags removed")
