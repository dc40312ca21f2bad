"""`headrace doc`: the text of a document, why it is in a corpus or not, its duplicates and windows, its source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.addresses import document_page
from dagster_project.cli.data.windows import excise, trace
from dagster_project.cli.output import JSON, print_json, print_raw, print_sides, print_table, say, terminal_columns
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.inspect.documents.document_lookup import FoundDocument
    from dagster_project.inspect.documents.findings import Witness
    from dagster_project.inspect.documents.neighbours import Neighbour
    from dagster_project.inspect.lake.corpus_facts import CorpusFacts

_SHOWN_LINES, _SHOWN_CHARACTERS, _SHOWN_BLENDS = 60, 8_000, 6
_Named = tuple[str, int | None]  # what a user typed for a document, and the increment
_MARK_STYLES = {"|": "yellow", "<": "red", ">": "green", "~": "dim"}


_INCREMENT = click.option(
    "--increment", type=click.IntRange(min=0), help="of a path that was edited: the document of this increment"
)


@click.group()
def doc() -> None:
    """One document: DOC is its doc_id, the first 6 or more digits of it, or its path."""


doc.add_command(trace)
doc.add_command(excise)


@doc.command()
@click.argument("doc", metavar="DOC")
@click.option("--corpus", "name", help="only this corpus; by default every corpus of its dataset")
@_INCREMENT
@click.option("--full", is_flag=True, help="show all differences to the witness")
@click.option("--json", "as_json", is_flag=True, help="print JSON, without texts")
def why(doc: str, name: str | None, increment: int | None, full: bool, as_json: bool) -> None:
    """Show what every step found about DOC; a removed duplicate beside the kept document, its witness."""
    from dagster_project.inspect.documents.window_reads import times_read
    from dagster_project.inspect.opened_lake import OpenedLake

    catalogue = lake_catalogue()
    story = OpenedLake(catalogue).why(doc, name, increment)
    document = story.document
    reads = times_read(catalogue, story.windows)
    if as_json:
        return print_json({**story.facts(), "reads": [vars(one) for one in reads]})
    say(f"{document.doc_id}  {document.dataset} {document.path}{_page(document.doc_id)}\n")
    lines = [(finding.table, finding.outcome, finding.sentence) for finding in story.findings]
    if reads:
        more = f"; {len(reads) - _SHOWN_BLENDS} more blends read it" if len(reads) > _SHOWN_BLENDS else ""
        lines.append(("blends", "read", "; ".join(map(str, reads[:_SHOWN_BLENDS])) + more))
    print_table([dict(zip(("table", "", "what it says"), line, strict=True)) for line in lines])
    for group in _by_document(story.witnesses):
        _print_witness(catalogue, document, group, full)


@doc.command()
@click.argument("doc", metavar="DOC")
@click.option("--raw", is_flag=True, help="print the text alone, as it is and all of it")
@click.option("--duplicates", is_flag=True, help="list its duplicates: exact ones, then pairs by weighted Jaccard J")
@click.option(
    "--source", is_flag=True, help="read its file once more: are the bytes the same, and where is DOC in them"
)
@click.option("--windows", is_flag=True, help="list the windows of packed tables that hold parts of it")
@click.option("--corpus", "name", help="with --duplicates: the corpus; needed where several hold the document")
@click.option(
    "--threshold", type=click.FloatRange(0, 1, min_open=True), help="of duplicates: least J; default: all stored pairs"
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="most duplicates shown")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="with --source: write the bytes to this file"
)
@_INCREMENT
@JSON
def show(
    doc: str, raw: bool, duplicates: bool, source: bool, windows: bool, increment: int | None, as_json: bool,
    **more: Any,
) -> None:  # fmt: skip
    """Show the text of DOC and what became of it, edited lines marked ~; or its duplicates, source or windows.

    The text is shown where the declaration of its dataset says `samples: text`.
    """
    if sum((raw, duplicates, source, windows)) > 1:
        raise CommandError("doc show: choose one of --raw, --duplicates, --source and --windows")
    named = (doc, increment)
    if duplicates:
        _show_duplicates(named, more["name"], more["threshold"], more["limit"], as_json)
    elif source or more["output"]:
        _show_source(named, more["output"], as_json)
    elif windows:
        _show_windows(named, as_json)
    else:
        _show_text(named, raw, as_json)


def _show_text(named: _Named, raw: bool, as_json: bool) -> None:
    """Print the text of a document below its head; of a long one its beginning."""
    from dagster_project.inspect.documents.shown_text import shown_text
    from dagster_project.inspect.opened_lake import OpenedLake
    from dagster_project.project.declared import texts_are_shown

    catalogue = lake_catalogue()
    story = OpenedLake(catalogue).why(named[0], increment=named[1])
    table = f"{story.document.dataset}.texts"
    hidden = not texts_are_shown(story.document.dataset)
    hint = f"its text is not shown: the declaration of {table} does not say `samples: text`"
    if raw and hidden:
        raise CommandError(f"document {named[0]}: {hint}")
    shown = shown_text(catalogue, story, with_text=not hidden)
    if as_json:
        return print_json(shown.facts())
    if not raw:
        say("\n".join(shown.head()) + _page(story.document.doc_id) + "\n")
    if shown.text is None:
        say(hint if hidden else f"it has no text yet: headrace run {table}")
        return
    if raw:
        print_raw(shown.text)
        return
    lines = shown.text[:_SHOWN_CHARACTERS].split("\n")[:_SHOWN_LINES]
    for number, line in enumerate(lines):
        say(f"{'~' if number in shown.marked else ' '} {line}".rstrip())
    left = len(shown.text) - len("\n".join(lines))
    if left:
        say(f"\n{left:,} of {len(shown.text):,} characters are left out; headrace doc show {named[0]} --raw has all")


def _page(doc_id: str) -> str:
    """A line with the address of a document's page; empty where no explorer runs."""
    page = document_page(doc_id)
    return f"\n{page}" if page else ""


def _show_duplicates(named: _Named, name: str | None, threshold: float | None, limit: int, as_json: bool) -> None:
    """Print the duplicates of a document: exact ones first, then pairs by J."""
    from dagster_project.inspect.documents.document_lookup import members_named
    from dagster_project.inspect.documents.document_story import corpora_of
    from dagster_project.inspect.documents.neighbours import find_neighbours, removed_of, representative_of

    catalogue = lake_catalogue()
    document = _find(catalogue, *named)
    having = [
        corpus
        for corpus in corpora_of(catalogue, document, name)
        if members_named(catalogue, corpus, [document.doc_id])
    ]
    if not having:
        raise CommandError(
            f"document {document.doc_id} ({document.dataset} {document.path}) is no member of "
            f"{f'corpus {name}' if name else 'any corpus'}; headrace doc why {document.doc_id} tells the reason"
        )
    if len(having) > 1:
        names = ", ".join(corpus.name for corpus in having)
        raise CommandError(f"document {document.doc_id} is in the corpora {names}; choose one with --corpus")
    corpus = having[0]
    require_compared(corpus, threshold, document.kind)
    neighbours = find_neighbours(catalogue, corpus, document.doc_id, threshold)
    removed = removed_of(catalogue, corpus, [document.doc_id]).get(document.doc_id)
    rows = [_neighbour_row(neighbour) for neighbour in neighbours[:limit]]
    if as_json:
        about = {"doc_id": document.doc_id, "dataset": document.dataset, "path": document.path, "removed": removed}
        kind = document.kind
        applied_at = corpus.applied.of(kind) if corpus.applied is not None else None
        facts = {**about, "corpus": corpus.name, "applied": applied_at, "found": len(neighbours), "neighbours": rows}
        return print_json(facts)
    applied = f", {corpus.goes_from}" if corpus.goes_from else ""
    say(f"{document.doc_id}  {document.dataset} {document.path}{_page(document.doc_id)}")
    say(f"corpus {corpus.name}: {_state(removed)}{applied}")
    representative = representative_of(catalogue, corpus, document.doc_id)
    if representative != document.doc_id:
        say(f"its near-duplicates are those of {representative}, which was compared in its place")
    if not rows:
        say("\nno neighbour" + (f" of J >= {threshold:g}" if threshold is not None else ""))
        return
    say()
    print_table([_shown(neighbour) for neighbour in neighbours[:limit]])
    if len(neighbours) > limit:
        say(f"{len(neighbours) - limit:,} more; --limit {len(neighbours)} shows all")


def _show_source(named: _Named, output: Path | None, as_json: bool) -> None:
    """Print whether the file of a document has the same bytes, and where the document stands in them."""
    from dagster_project.inspect.documents.landed_source import landed_source, write_bytes

    catalogue = lake_catalogue()
    landed = landed_source(catalogue, _find(catalogue, *named))
    if output is not None:
        write_bytes(landed, output)
    if as_json:
        return print_json(landed.facts())
    print_table([{"": name, "landed": value} for name, value in landed.lines()])
    if output is not None:
        say(f"wrote {output}")


def _show_windows(named: _Named, as_json: bool) -> None:
    """Print the windows of packed tables that hold parts of a document."""
    from dagster_project.inspect.documents.document_windows import windows_of

    catalogue = lake_catalogue()
    document = _find(catalogue, *named)
    parts = windows_of(catalogue, document)
    if as_json:
        return print_json({"document": document.facts(), "windows": [vars(part) for part in parts]})
    say(f"{document.doc_id}  {document.dataset} {document.path}{_page(document.doc_id)}")
    if not parts:
        say(f"it is in no packed table; headrace doc why {document.doc_id} tells the reason")
        return
    say()
    print_table([vars(part) for part in parts])


def _find(catalogue: Catalog, name: str, increment: int | None = None) -> FoundDocument:
    """Find a document by doc_id, its first digits, or path; one that is not public leaves a row of system.audit."""
    from dagster_project.inspect.documents.document_lookup import find_document
    from dagster_project.restrictions import note_read

    document = find_document(catalogue, name, increment)
    note_read(catalogue, [document.dataset])
    return document


def require_compared(corpus: CorpusFacts, threshold: float | None, kind: str | None = None) -> None:
    """Refuse a threshold below the lowest compared: pairs below it were never stored.

    Raises:
        CommandError: the threshold is below the lowest one of the kind, or of all kinds.
    """
    if threshold is None or corpus.compared is None:
        return
    lowest = corpus.thresholds[0] if kind is None else corpus.compared.lowest.of(kind)
    if threshold < lowest:
        of_kind = "" if kind is None or corpus.compared.lowest.is_one else f" of {kind}"
        raise CommandError(
            f"--threshold {threshold:g}: corpus {corpus.name} stores pairs{of_kind} from J = {lowest:g} on; "
            "give that or more, or lower the first of its thresholds"
        )


def _by_document(witnesses: Sequence[Witness]) -> list[list[Witness]]:
    """Group the witnesses of several corpora by document, so that each text is shown once."""
    groups: dict[str, list[Witness]] = {}
    for witness in witnesses:
        groups.setdefault(witness.doc_id, []).append(witness)
    return list(groups.values())


def _print_witness(catalogue: Catalog, document: FoundDocument, group: Sequence[Witness], full: bool) -> None:
    """Print the differences of a document and its witness side by side."""
    from dagster_project.inspect.documents.document_lookup import read_text
    from dagster_project.inspect.documents.side_by_side import compare

    witness = _find(catalogue, group[0].doc_id)
    first = group[0]
    measure = "J" if first.why == "near" else f"{first.why} similarity"
    is_exact = first.why in ("bytes", "letters")
    how = f"the same {first.why}" if is_exact else f"{measure} = {first.shared_weight / first.united_weight:.4f}"
    names = ", ".join(loss.corpus for loss in group)
    say(f"\nwitness in {names}: {witness.doc_id}  {witness.dataset} {witness.path}, {how}")
    mine, theirs = read_text(catalogue, document), read_text(catalogue, witness)
    if mine is None or theirs is None:
        say("one of the two texts is not in the lake any more, so they cannot be compared")
        return
    shown = compare(mine, theirs, max(16, (terminal_columns() - 4) // 2), most_rows=None if full else 40)
    if not shown.rows and not shown.pieces_not_compared:
        say("the two texts are equal")
        return
    rows = [((row.left, row.mark, row.right), _MARK_STYLES.get(row.mark, "")) for row in shown.rows]
    print_sides(("this document, removed", "", "the witness"), rows)
    say(f"{shown.changed_count:,} lines or sentences differ{_left_out(shown.rows_left_out)}")
    if shown.pieces_not_compared:
        say(f"{shown.pieces_not_compared:,} further lines or sentences were not compared; --full compares all")


def _left_out(count: int) -> str:
    return f"; {count:,} rows are left out, --full shows all" if count else ""


def _state(removed: str | None) -> str:
    words = {
        "exact": "exact duplicate",
        "near": "near-duplicate",
        "repository": "part of a repository like another",
    }
    return "kept" if removed is None else f"removed as {words.get(removed, f'{removed} duplicate')}"


def _neighbour_row(neighbour: Neighbour) -> dict[str, Any]:
    return {**vars(neighbour), "kept": neighbour.removed is None}


def _shown(neighbour: Neighbour) -> dict[str, Any]:
    shelf = f"{neighbour.repository}: " if neighbour.repository else ""
    return {
        "J": f"{neighbour.similarity:.4f}",
        "weights": f"{neighbour.shared_weight:,} / {neighbour.united_weight:,}"
        if neighbour.match == "near"
        else f"same {neighbour.match}",
        "doc_id": neighbour.doc_id[:12],
        "document": f"{neighbour.dataset} {shelf}{neighbour.path}",
        "": "kept" if neighbour.removed is None else f"removed ({neighbour.removed})",
    }
