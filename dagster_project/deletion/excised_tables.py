"""Excise documents from packed tables, and report their duplicates, the changes of each table, and failures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.dependent_blends import DependentBlend, dependent_blends, pinned_snapshots
from spark_jobs.lake.plan.excisions import record_excisions

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake
    from spark_jobs.packing.excise import Excised

_SHOWN = 20


@dataclass(frozen=True)
class TableExcision:
    """The result of an excision for one packed table.

    Attributes:
        excised: what was changed, and what still holds the documents.
        blends: blends now served from a new snapshot, ascending.
        failure: why the table, or a part of it, was not changed; empty for a success.
    """

    excised: Excised
    blends: tuple[str, ...] = ()
    failure: str = ""


def known_duplicates(catalogue: Catalog, doc_ids: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Duplicates of some documents, by doc_id: for each corpus the level of its removal, None where it was kept."""
    from dagster_project.inspect.documents.neighbours import duplicates_of
    from dagster_project.inspect.lake.corpus_facts import corpora

    duplicates: dict[str, dict[str, str | None]] = {}
    for corpus in corpora(catalogue):
        for doc_id, removed in duplicates_of(catalogue, corpus, doc_ids).items():
            duplicates.setdefault(doc_id, {})[corpus.name] = removed
    return dict(sorted(duplicates.items()))


def excised_for_good(lake: Lake, dataset: str, tables: Collection[str], doc_ids: Collection[str]) -> Iterator[str]:
    """Record the documents of a deleted dataset as excised, take them out of packed tables, and give the lines.

    Raises:
        CommandError: a table could not be changed; then nothing else may be deleted.
    """
    record_excisions(lake.catalogue, None, doc_ids, lake.run_id)
    done = excise_documents(lake, tables, doc_ids) if tables else []
    for excision in done:
        yield from excision_lines(excision)
    if failed := [excision.failure for excision in done if excision.failure]:
        raise CommandError(f"dataset delete {dataset}: {failed[0]}; nothing else was deleted, run it again")


def duplicate_lines(duplicates: Mapping[str, Mapping[str, str | None]], taken: bool) -> Iterator[str]:
    """Lines about duplicates: kept ones are still served, removed ones would return without their witness."""
    if not duplicates:
        return
    kept = [doc_id for doc_id, removed in duplicates.items() if None in removed.values()]
    what = "go along" if taken else "stay; --with-duplicates takes them too"
    yield f"{len(duplicates)} duplicates of the documents {what} ({len(kept)} of them were kept):"
    for doc_id, removed in list(duplicates.items())[:_SHOWN]:
        states = ", ".join(
            f"{'kept' if how is None else f'removed as {how}'} in {name}" for name, how in removed.items()
        )
        yield f"  {doc_id}  {states}"
    if len(duplicates) > _SHOWN:
        yield f"  and {len(duplicates) - _SHOWN:,} more; --json names all"


def excise_documents(lake: Lake, tables: Collection[str], doc_ids: Collection[str]) -> list[TableExcision]:
    """Excise documents from packed tables, one table after the other; a failure does not stop the others.

    Args:
        lake: of the tables.
        tables: the packed tables; none for all of the lake.
        doc_ids: the documents.
    """
    from dagster_project.inspect.documents.document_windows import packed_tables
    from spark_jobs.exceptions import SparkJobsError
    from spark_jobs.packing.excise import Excised, excise

    chosen = list(tables) or packed_tables(lake.catalogue)
    _choose_engine(lake.catalogue, chosen)
    blends = dependent_blends(lake.catalogue, chosen)
    done = []
    for table in chosen:
        try:
            excised = excise(lake, table, doc_ids, pinned_snapshots(blends[table]))
            done.append(TableExcision(excised, _moved(lake.catalogue, excised, blends[table])))
        except SparkJobsError as error:
            done.append(TableExcision(Excised(table), failure=str(error)))
    return done


def _choose_engine(catalogue: Catalog, tables: Collection[str]) -> None:
    """Take the engine that the bytes of the tables ask for: Spark's start takes longer than a small rewrite."""
    from headrace.tables.catalogue import load_table
    from spark_jobs.lake.engine.choice import Needs, choose
    from spark_jobs.lake.files.scans import scan_of

    def needs() -> Needs:
        there = [table for name in tables if (table := load_table(catalogue, name)) is not None]
        return Needs(sum(task.file.file_size_in_bytes for table in there for task in scan_of(table).plan_files()))

    choose(catalogue.properties.get("warehouse", ""), needs)


def _moved(catalogue: Catalog, excised: Excised, blends: Collection[DependentBlend]) -> tuple[str, ...]:
    """Blends with a new successor of their pinned snapshot, and live ones, since they follow the new head."""
    from headrace.tables.generations import successors

    heads = {part.new_snapshot_id for part in excised.earlier} | {excised.new_snapshot_id} - {None}
    later = successors(catalogue.load_table(excised.identifier))
    moved = {blend.blend for blend in blends if blend.snapshot_id is not None and later.get(blend.snapshot_id) in heads}
    live = {blend.blend for blend in blends if blend.snapshot_id is None and excised.new_snapshot_id is not None}
    return tuple(sorted(moved | live))


def excision_lines(excision: TableExcision) -> Iterator[str]:
    """Lines with the result for one table."""
    excised = excision.excised
    if excision.failure:
        yield f"{excised.identifier}: could not be changed, or not wholly; run again: {excision.failure}"
        return
    if not excised.doc_ids:
        yield f"{excised.identifier}: holds none of them"
    else:
        yield f"{excised.identifier}: {len(excised.doc_ids)} documents are out"
    if excised.new_snapshot_id is not None:
        yield (
            f"  head: {excised.tokens_removed:,} tokens out of {_windows(excised.ordinals)}; {excised.files_rewritten} "
            f"files rewritten, {excised.rows_rewritten:,} rows; snapshot {excised.new_snapshot_id} succeeds "
            f"{excised.old_snapshot_id}"
        )
    for part in excised.earlier:
        yield (
            f"  generation {part.generation}: {part.tokens_removed:,} tokens out of {_windows(part.ordinals)}; "
            f"{part.files_rewritten} files rewritten, {part.rows_rewritten:,} rows; snapshot {part.new_snapshot_id} "
            f"succeeds {part.old_snapshot_id}"
        )
    if excised.tags_moved:
        yield f"  tags moved: {', '.join(excised.tags_moved)}"
    if excision.blends:
        yield f"  blends served without them: {', '.join(excision.blends)}"
    for line in excised.left:
        yield f"  could not change: {line}"


def _windows(ordinals: Collection[int]) -> str:
    shown = ", ".join(map(str, list(ordinals)[:_SHOWN])) + (", .." if len(ordinals) > _SHOWN else "")
    return f"{len(ordinals):,} windows ({shown})"
