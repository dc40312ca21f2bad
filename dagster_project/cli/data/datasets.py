"""`headrace dataset`: declare, show, verify, archive and delete datasets."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.data.declare import add_dataset, remove_declaration
from dagster_project.cli.data.versions import card_options, write_card
from dagster_project.cli.output import JSON, lists_all, print_json, print_rows, print_tables, say
from dagster_project.exceptions import CheckFailedError, CommandError
from dagster_project.project.declared import (
    DATASET,
    dataset_file,
    declaration,
    declarations,
    refuse_in_corpora,
    texts_are_shown,
)
from dagster_project.project.diagnosis import short_path
from dagster_project.project.loading import lake_catalogue, load_definitions, open_lake, run_id_of
from headrace.tables.catalogue import tables_in
from headrace.tables.identity import require_own
from headrace.tables.quarantine import quarantine_of
from headrace.tables.settings import load_settings
from spark_jobs.credentials import without_literals
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.ledger import Ledger

_DAY_SECONDS = 86_400
_LEASE_SECONDS = 5  # that a command waits for a run to end


@click.group()
def dataset() -> None:
    """Declare, show, verify, archive and delete datasets."""


@dataset.command("delete")
@click.argument("name", shell_complete=complete_names)
@click.option("--increment", type=click.IntRange(min=0), help="this increment alone; the dataset stays")
@click.option("--with-duplicates", is_flag=True, help="of an increment: excise duplicates of its documents, too")
@click.option("--plan", "only_plan", is_flag=True, help="only say what would be deleted and what depends on it")
@click.option("--reason", help="why; it is kept in system.audit")
@click.option("--declaration", is_flag=True, help="delete its declaration instead; its tables stay")
@click.option("--tables", is_flag=True, help="with --declaration: also drop its tables; their files stay")
@click.option("--yes", is_flag=True, help="do it; without it only the plan is shown")
def delete_command(
    name: str, increment: int | None, with_duplicates: bool, only_plan: bool, reason: str | None, declaration: bool,
    tables: bool, yes: bool,
) -> None:  # fmt: skip
    """Delete a dataset from the lake for good: rows, files, kept bytes, and its documents in packed tables.

    If it was interrupted, the same command finishes it. The declaration stays; --declaration deletes that.
    With --increment this increment alone is deleted; its files land again only if their bytes change.
    """
    if declaration or tables:
        if not declaration or increment is not None or with_duplicates or only_plan or reason:
            raise CommandError("dataset delete: --declaration takes --tables and --yes, and nothing else")
        remove_declaration(name, tables, yes)
        return
    from dagster_project.deletion.datasets import delete_dataset, plan_deletion
    from dagster_project.deletion.excised_tables import duplicate_lines, known_duplicates
    from dagster_project.deletion.increments import delete_increment, plan_increment

    lake = open_lake(run_id_of("dataset delete"))
    catalogue = lake.catalogue
    if increment is not None:
        part = plan_increment(catalogue, name, increment)
        for line in (*part.lines(), *duplicate_lines(known_duplicates(catalogue, part.documents), with_duplicates)):
            say(line)
        if not only_plan:
            _require_reason(name, yes, reason)
            for line in delete_increment(lake, part, str(reason), with_duplicates):
                say(line)
            say(f"{name}, increment {increment}, is deleted; {part.follow_up()}")
        return
    plan = plan_deletion(catalogue, name)
    for line in plan.lines():
        say(line)
    if only_plan:
        return
    refuse_in_corpora(name)
    _require_reason(name, yes, reason)
    for line in delete_dataset(lake, plan, str(reason)):
        say(line)
    packed = [table for of_corpus in plan.corpora.values() for table in of_corpus]
    again = f", headrace maintain {' '.join(packed)} --only expiry --days 0 for their old files" if packed else ""
    again += f", then headrace run {' '.join(plan.corpora)}" if plan.corpora else ""
    say(f"{name} is deleted. Next: headrace dataset delete {name} --declaration{again}")


def _require_reason(name: str, yes: bool, reason: str | None) -> None:
    """Refuse a deletion without --yes or without a reason."""
    if not yes or not (reason or "").strip():
        raise CommandError(f'dataset delete {name}: it cannot be undone; to do it, give --yes --reason "WHY"')


@dataset.command("verify")
@click.argument("name", shell_complete=complete_names)
@JSON
def verify_dataset(name: str, as_json: bool) -> None:
    """Read what landed and all rows again; compare hashes with `arrivals`, and data versions with the ledger."""
    from dagster_project.inspect.documents.landed_source import landed_faults
    from dagster_project.inspect.lake.verification import verified
    from spark_jobs.lake.session.session import start_session

    dataset_file(name)
    settings = load_settings()
    catalogue = lake_catalogue()
    ledger = Ledger.fresh(catalogue)
    spaces = (name, quarantine_of(name))
    tables = [table for space in spaces for table in tables_in(catalogue, space)]
    if not tables:
        raise CommandError(f"dataset {name} has no tables yet; fill it: headrace run {name}")
    spark = start_session(settings)
    lines, bad = [], []
    for identifier in tables:
        rows, verdict, is_sound = verified(spark, ledger, identifier)
        lines.append({"table": identifier, "rows": rows, "verdict": verdict})
        bad += [] if is_sound else [identifier]
        if not as_json:
            say(f"{identifier:<36} {rows:>12,} rows  {verdict}")
    faults = landed_faults(spark, catalogue, ledger, name)
    if as_json:
        print_json([*lines, *({"location": where, "verdict": fault} for where, fault in faults)])
    else:
        say("\n".join(f"{where}: {fault}" for where, fault in faults) or "what landed is as it landed")
    if bad:
        raise CheckFailedError(
            f"{len(bad)} of {len(lines)} tables are not as recorded, first {bad[0]}; compute them anew: "
            f"headrace table delete {' '.join(bad)}, then headrace run {name}"
        )
    if faults:
        raise CheckFailedError(f"{len(faults)} of what landed are not as they landed, first {': '.join(faults[0])}")


dataset.add_command(add_dataset)


@dataset.command()
@click.argument("name", shell_complete=complete_names)
@click.option(
    "--reason", "reasons", multiple=True, required=True, help="of the refusal, as status has it: rejected, .."
)
def reopen(name: str, reasons: tuple[str, ...]) -> None:
    """Have the next run ask again what a model refused to NAME, a generated dataset or a judge (DATASET.JUDGE).

    Answers that were accepted stay, and what the refused ones cost stays counted.
    """
    from spark_jobs.sources.landing.derivations import derivation_of, derivations

    catalogue = lake_catalogue()
    if (derivation := derivation_of(name, catalogue)) is None:
        there = {dataset for each in derivations() for dataset in each.datasets(catalogue)}
        raise CommandError(f"dataset reopen {name}: no model was asked for it{nearest(name, there)}")
    counts = derivation.reopen(name, reasons, catalogue, _LEASE_SECONDS)
    by_reason = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
    space = name.partition(".")[0]
    say(f"{name}: {sum(counts.values()):,} requests are open again ({by_reason}); next: headrace run {space}")


@dataset.command()
@click.argument("name", shell_complete=complete_names)
@click.option("--to", "cold", help="folder, or a URI such as s3://bucket/cold; by default that of freeze_after")
@click.option("--days", type=click.FloatRange(min=0), help="least age of what moves; by default that of freeze_after")
@click.option("--thaw", is_flag=True, help="move all cold bytes back instead")
def archive(name: str, cold: str | None, days: float | None, thaw: bool) -> None:
    """Move bytes of NAME that landed at least --days ago to a cold folder, and read them there.

    For datasets with `landing: copy`. Each copy is compared with its hash before the first one is removed. What
    `freeze_after` declares is done by headrace maintain, too.
    """
    dataset_file(name)
    from dagster_project.lake_asset import assets_of, keeping_by_dataset

    # Loaded, since a path in YAML may be {{ project_root }}/cold.
    declared = keeping_by_dataset(assets_of(load_definitions()))[name].freezing
    if declared is not None:
        cold, days = cold or declared.to, declared.days if days is None else days
    catalogue = lake_catalogue()
    folders = [ObjectFolder.of(catalogue, space) for space in (name, quarantine_of(name))]
    require_own(catalogue)
    try:
        if thaw:
            say(f"moved {sum(folder.thaw() for folder in folders):,} objects back to the warehouse")
            return
        if cold is None or days is None:
            raise CommandError(
                f"dataset archive {name}: give --to and --days, or declare `freeze_after: {{days: .., to: ..}}`"
            )
        moved = sum(folder.freeze(cold, time.time() - days * _DAY_SECONDS) for folder in folders)
    except OSError as error:
        raise CommandError(f"dataset archive {name}: {error}") from error
    say(f"moved {moved:,} objects to {cold.rstrip('/')}/{name}")


@dataset.command("show")
@click.argument("name", required=False, shell_complete=complete_names)
@click.argument("count", metavar="[N]", type=click.IntRange(min=0), default=5)
@card_options
@JSON
def show_dataset(name: str | None, count: int, card: bool, as_json: bool, **of_card: Any) -> None:
    """List the declared datasets; of NAME show source, increments, refusals, and the first words of N (5) documents.

    Without a NAME, --json alone may be given.
    """
    if lists_all(name) or name is None:
        _list_datasets(as_json)
    elif card:
        write_card(name, **of_card)
    else:
        _show_dataset(name, count, as_json)


def _list_datasets(as_json: bool) -> None:
    """Print the declared datasets, with increments, the documents that count, and the bytes of their texts."""
    from dagster_project.inspect.documents.counted import count_documents

    catalogue = lake_catalogue()
    ledger = Ledger.fresh(catalogue)
    rows = []
    for _, declared in declarations(DATASET):
        counts = count_documents(catalogue, declared["name"])
        rows.append(
            {
                "dataset": declared["name"],
                "source": declared["source"].get("kind", ""),
                "increments": len(ledger.increments(f"{declared['name']}.documents")),
                "documents": counts.documents,
                "bytes": counts.byte_count,
            }
        )
    print_rows(rows, as_json, "No dataset is declared. Declare one: headrace dataset add NAME --from PATH")


def _show_dataset(name: str, count: int, as_json: bool) -> None:
    """Print a dataset: source, increments, what was refused, first documents."""
    from dagster_project.inspect.documents.dataset_view import dataset_view, first_documents
    from dagster_project.restrictions import note_read

    file, declared = declaration(DATASET, name)
    declared = without_literals(declared)
    catalogue = lake_catalogue()
    view = dataset_view(catalogue, name)
    documents: list[dict[str, Any]] = []
    if count and view.increments:
        note_read(catalogue, [name])
        documents = first_documents(catalogue, name, count, texts_are_shown(name))
    if as_json:
        return print_json({"dataset": name, "source": declared["source"], **asdict(view), "first": documents})
    source = " ".join(f"{key}={value}" for key, value in declared["source"].items())
    say(f"{name}: {declared.get('description') or source}\ndeclared in {short_path(file)}\n")
    if not view.increments:
        say(f"It holds nothing yet. Fill it: headrace run {name}")
        return
    went = (
        f"; {view.landed - view.documents:,} went of {view.landed:,} that came" if view.landed > view.documents else ""
    )
    say(f"{view.documents:,} documents, {view.byte_count:,} bytes of text{went}\n")
    print_tables(view.increments, view.refused, [{**row, "doc_id": row["doc_id"][:12]} for row in documents])
    if documents:
        say(f"\nOne of them: headrace doc show {documents[0]['doc_id'][:12]}")
