"""`headrace blend repeats`: how often documents and their near-duplicates were read."""

from __future__ import annotations

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue


@click.command("repeats", epilog="\b\nExample: headrace blend repeats mix --at 400000 --document notes/one.md")
@click.argument("reference", metavar="BLEND")
@click.option("--at", "offset", type=click.IntRange(0), metavar="OFFSET", help="rows before it count; default: the end")
@click.option("--document", "doc", metavar="ID", help="of this one: a doc_id, its first digits, or a path")
@JSON
def repeats(reference: str, offset: int | None, doc: str | None, as_json: bool) -> None:
    """Count how often each document of BLEND is read up to a row, and each cluster of near-duplicates.

    A document in several windows is read whole as often as its least read part, in part as often as its most read one.
    """
    from blender_service.server.blender import Blender
    from dagster_project.inspect.documents.document_lookup import find_document
    from headrace_features.composition.repeats_tables import blend_repeats

    catalogue = lake_catalogue()
    blender = Blender(catalogue)
    blend_id = blender.resolve(reference)
    document = find_document(catalogue, doc) if doc is not None else None
    counted = blend_repeats(catalogue, blender, blend_id, offset)
    facts = {"id": blend_id, "offset": blender.head(blend_id).end if offset is None else offset}
    before = f"blend {reference}, before row {facts['offset']:,}"
    if document is None:
        lines = counted.histogram()
        if as_json:
            return print_json(facts | {"histogram": lines})
        say(f"{before}: documents and clusters by how often they are read")
        words = {
            "documents_whole": "documents, whole",
            "documents_in_part": "documents, in part",
            "clusters": "clusters",
        }
        ranges = [" to ".join(f"{edge:,}" for edge in sorted({one["reads"], one["most_reads"]})) for one in lines]
        rows = [{name: one[key] for key, name in words.items()} for one in lines]
        return print_table([{"reads": reads, **row} for reads, row in zip(ranges, rows, strict=True)])
    reads = counted.of(document.doc_id)
    if reads is None:
        raise CommandError(f"document {document.doc_id} is in no table of blend {reference}, nor a duplicate of one")
    if as_json:
        return print_json(facts | {"doc_id": document.doc_id, **reads._asdict()})
    say(f"{document.doc_id}  {document.dataset} {document.path}")
    where = "" if reads.is_packed else " (it is in no window)"
    say(f"{before}: read {reads.whole:,} times whole, {reads.in_part:,} in part{where}")
    say(f"its cluster of {reads.cluster_documents:,} near-duplicates, itself included: read {reads.of_cluster:,} times")
