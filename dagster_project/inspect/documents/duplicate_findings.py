"""Findings of the levels of deduplication about one document of a corpus, and its witness where it was removed.

exact_duplicates, bags, components, repository_containments, repository_removals, removals
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.documents.findings import TableFinding, Witness, named
from dagster_project.inspect.documents.neighbours import removed_of, stand_ins
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.selection.stages import SelectionStage


def duplicate_findings(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int
) -> tuple[list[TableFinding], Witness | None]:
    """Findings of the levels of deduplication, in the order of the levels."""
    row = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    of_repository = list(_repository(catalogue, corpus, document, increment))
    exact = corpus.own("exact_duplicates")
    found = read_rows(catalogue, exact, ("witness_doc_id", "matched"), row)
    if found and stand_ins(catalogue, corpus, [document.doc_id]):
        repeated = named(catalogue, corpus, found[0]["witness_doc_id"])
        sentence = f"kept: the same {found[0]['matched']} as {repeated}, which goes with its repository"
        return [TableFinding(exact, "kept", sentence, dict(found[0])), *of_repository], None
    if found:
        witness = Witness(corpus.name, found[0]["witness_doc_id"], found[0]["matched"])
        sentence = f"removed: the same {witness.why} as {_witness_named(catalogue, corpus, witness.doc_id)}"
        return [TableFinding(exact, "removed", sentence, dict(found[0])), *of_repository], witness
    copies = read_rows(catalogue, exact, ("doc_id",), EqualTo("witness_doc_id", document.doc_id))
    count = len(copies)
    stands = "" if count == 0 else f"; it stands for {count} {'other' if count == 1 else 'others'} that repeat it"
    findings = [TableFinding(exact, "kept", f"repeats no member before it{stands}", {"stands_for": len(copies)})]
    if "bags" in corpus.tables:
        findings.append(_bag(catalogue, corpus, row))
    if "components" in corpus.tables:
        findings += _components(catalogue, corpus, document)
    findings += of_repository
    near = None
    if "removals" in corpus.tables:
        removals, near = _removals(catalogue, corpus, row, document.kind)
        findings += removals
    return findings, near


def _witness_named(catalogue: Catalog, corpus: CorpusFacts, doc_id: str) -> str:
    """A witness with its names, and the later level behind its own removal, if any."""
    level = removed_of(catalogue, corpus, [doc_id]).get(doc_id)
    turn = f", which the level {level} removed in its turn" if level is not None else ""
    return named(catalogue, corpus, doc_id) + turn


def _bag(catalogue: Catalog, corpus: CorpusFacts, row: And) -> TableFinding:
    rows = read_rows(catalogue, corpus.own("bags"), ("token_count", "total_weight"), row)
    if not rows:
        return TableFinding(corpus.own("bags"), "empty", "no token to compare, so it is nobody's near-duplicate")
    sentence = f"{rows[0]['token_count']:,} distinct tokens, total weight {rows[0]['total_weight']:,}"
    return TableFinding(corpus.own("bags"), "weighed", sentence, rows[0])


def _components(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> list[TableFinding]:
    """Its component at the applied threshold, by the newest row."""
    if corpus.applied is None:
        return []
    applied = corpus.applied.of(document.kind)
    at = And(EqualTo("threshold", applied), EqualTo("doc_id", document.doc_id))
    columns = ("increment", "component", "document_count")
    rows = sorted(read_rows(catalogue, corpus.own("components"), columns, at), key=lambda one: int(one["increment"]))
    if not rows:
        return []
    sentence = f"one of {rows[-1]['document_count']:,} documents that pairs link at {applied:g}"
    return [TableFinding(corpus.own("components"), "linked", sentence, rows[-1])]


def _repository(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int
) -> Iterator[TableFinding]:
    """Containments of its repository, and its removal: the kept repository, and the similarity of the two."""
    name = document.repository
    if name is None:
        return
    if "repository_containments" in corpus.tables:
        yield from _containments(catalogue, corpus, document)
    if "repository_removals" not in corpus.tables:
        return
    own = And(EqualTo("increment", increment), EqualTo("dataset", document.dataset), EqualTo("repository", name))
    columns = ("witness_dataset", "witness_repository", "shared_weight", "united_weight", "similarity", "containment")
    for one in read_rows(catalogue, corpus.own("repository_removals"), columns, own):
        file = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
        leaves = bool(read_rows(catalogue, corpus.own("repository_removal_files"), ("doc_id",), file))
        sentence = (
            f"its repository {name} goes for {one['witness_repository']} of {one['witness_dataset']}, "
            f"J = {one['shared_weight']:,} / {one['united_weight']:,} = {one['similarity']:.4f}, "
            f"containment {one['containment']:.4f}; of its files those go that something kept is like"
        )
        sentence += "" if leaves else "; this one is judged by itself"
        yield TableFinding(corpus.own("repository_removals"), "leaves" if leaves else "stays", sentence, dict(one))


def _containments(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> Iterator[TableFinding]:
    """One finding for each repository above or below its own by containment."""
    table = corpus.own("repository_containments")
    columns = ("dataset", "repository", "container_dataset", "container_repository", "containment", "similarity")
    for side, outcome in (("", "contained"), ("container_", "contains")):
        own = And(EqualTo(f"{side}dataset", document.dataset), EqualTo(f"{side}repository", document.repository))
        rows = read_rows(catalogue, table, columns, own)
        for one in sorted(rows, key=lambda row: (-row["containment"], row["repository"], row["container_repository"])):
            sentence = (
                f"{one['containment']:.4f} of repository {one['repository']} of {one['dataset']} is in "
                f"{one['container_repository']} of {one['container_dataset']}, J = {one['similarity']:.4f}"
            )
            yield TableFinding(table, outcome, sentence, dict(one))


def _removals(
    catalogue: Catalog, corpus: CorpusFacts, row: And, kind: str
) -> tuple[list[TableFinding], Witness | None]:
    """Kept or removed at every threshold of its kind; the witness at the applied one."""
    table = corpus.own("removals")
    columns = ("threshold", "witness_doc_id", "shared_weight", "united_weight", "similarity", "repository")
    by_threshold = {float(one["threshold"]): one for one in read_rows(catalogue, table, columns, row)}
    findings, witness = [], None
    lowest = corpus.compared.lowest.of(kind) if corpus.compared is not None else 0.0
    for threshold in (one for one in corpus.thresholds if one >= lowest):
        applied = corpus.applied is not None and threshold == corpus.applied.of(kind)
        at = f"at {threshold:g}{' (applied)' if applied else ''}"
        one = by_threshold.get(threshold)
        if one is None:
            sentence = f"{at}: kept, no better document that is kept reaches it"
            outcome = "kept" if applied else "would_be_kept"
            findings.append(TableFinding(table, outcome, sentence, {"threshold": threshold, "applied": applied}))
            continue
        removed = "removed" if one.get("repository") is None else "removed with its repository"
        sentence = (
            f"{at}: {removed}, J = {one['shared_weight']:,} / {one['united_weight']:,} = {one['similarity']:.4f} to "
            f"{(_witness_named if applied else named)(catalogue, corpus, one['witness_doc_id'])}"
        )
        outcome = "removed" if applied else "would_be_removed"
        findings.append(TableFinding(table, outcome, sentence, {**one, "applied": applied}))
        if applied:
            weights = (int(one["shared_weight"]), int(one["united_weight"]))
            witness = Witness(corpus.name, one["witness_doc_id"], "near", *weights)
    return findings, witness


def witness_of(catalogue: Catalog, corpus: CorpusFacts, row: And, stage: SelectionStage) -> Witness | None:
    """The kept document behind a rejection by a selection of duplicates; None of other selections."""
    if not stage.repeats:
        return None
    columns = ("witness_doc_id", "shared_weight", "united_weight")
    rows = read_rows(catalogue, corpus.own(stage.reasons), columns, row)
    if not rows:
        return None
    weights = (int(rows[0]["shared_weight"]), int(rows[0]["united_weight"]))
    return Witness(corpus.name, rows[0]["witness_doc_id"], stage.name, *weights)
