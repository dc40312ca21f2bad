"""Tell what every step found about one document, in the order in which data flows, from the tables alone.

    dataset    arrivals, documents, texts, verdicts
    corpus     members, exact_duplicates, bags, components, repository_containments, repository_removals, removals,
               survivors, contaminated, ordered, tokens, packed_*
    system     excisions

A step that has not seen the document (it was removed earlier, or the table does not exist yet) has no finding, except
for the first one that should have seen it: its finding names the command that makes the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In

from dagster_project.inspect.documents.document_lookup import (
    FoundDocument,
    extraction_place,
    landing_of,
    members_named,
    other_revisions,
)
from dagster_project.inspect.documents.neighbours import removed_of
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import read_columns, read_rows
from spark_jobs.lake.run.excisions import EXCISIONS, excisions_of


@dataclass(frozen=True)
class Finding:
    """What one table says about the document.

    Attributes:
        table: identifier.
        outcome: one word: landed, kept, rejected, member, removed, survivor, missing, ...
        sentence: the finding for people.
        facts: the finding for programs.
    """

    table: str
    outcome: str
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Witness:
    """The kept document that justifies a removal at the applied threshold.

    Attributes:
        corpus: of the removal.
        doc_id: the witness.
        why: bytes, letters, or near.
        shared_weight: numerator of J; 1 for exact duplicates.
        united_weight: denominator of J; 1 for exact duplicates.
    """

    corpus: str
    doc_id: str
    why: str
    shared_weight: int = 1
    united_weight: int = 1


def dataset_findings(catalogue: Catalog, document: FoundDocument) -> Iterator[Finding]:
    """Findings from the tables of its dataset."""
    name = document.dataset
    yield _arrival(catalogue, document)
    yield from _events(catalogue, document)
    licence = document.licence or "no licence known"
    belongs = f"repository {document.repository}" if document.repository else "no repository"
    rows = read_rows(catalogue, f"{name}.documents", ("metadata",), document.row)
    place = extraction_place(dict(rows[0]["metadata"])) if rows else None
    extracted = f"; {place}" if place else ""
    kind = f"{document.kind}, {document.language}" if document.language else document.kind
    yield Finding(
        f"{name}.documents",
        "landed",
        f"increment {document.increment}: {kind}, {document.byte_count:,} bytes, {licence}, {belongs}{extracted}",
        document.facts(),
    )
    yield _text(catalogue, document)
    yield _verdict(catalogue, document)


def corpus_findings(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument
) -> tuple[list[Finding], Witness | None]:
    """Findings from the tables of a corpus, and the witness if the document was removed there as a duplicate."""
    rows = read_rows(catalogue, corpus.own("members"), ("increment", "shard"), EqualTo("doc_id", document.doc_id))
    if not rows:
        return [_no_member(catalogue, corpus, document)], None
    increment = int(rows[0]["increment"])
    of_increment = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    findings = [
        Finding(corpus.own("members"), "member", f"taken in with increment {increment}", {"increment": increment})
    ]
    findings += _standing(catalogue, corpus, document)
    duplicates, witness = _duplicates(catalogue, corpus, document, increment)
    findings += duplicates
    survivors = read_rows(catalogue, corpus.own("survivors"), ("doc_id",), of_increment)
    if not survivors and all(finding.outcome != "removed" for finding in findings):
        return [*findings, _missing(corpus.own("survivors"))], witness
    if not survivors:
        return [*findings, Finding(corpus.own("survivors"), "gone", "it does not go on")], witness
    findings.append(Finding(corpus.own("survivors"), "survivor", "it goes on"))
    findings += _cluster(catalogue, corpus, of_increment)
    if corpus.shaped:
        findings.append(_shape(catalogue, corpus, of_increment))
        if findings[-1].outcome != "stays":
            return findings, witness
    held = _contaminated(catalogue, corpus, of_increment) if corpus.decontaminated else None
    if held is not None and held.outcome == "contaminated":
        return [*findings, held], witness
    findings += [held] if held is not None else []
    return [*findings, *_after(catalogue, corpus, document, increment)], witness


def excision_findings(catalogue: Catalog, document: FoundDocument, witnesses: Iterable[str]) -> Iterator[Finding]:
    """Excisions of the document and of its witnesses: from which tables, when, and by whom."""
    for doc_id in dict.fromkeys((document.doc_id, *witnesses)):
        for row in excisions_of(catalogue, doc_id):
            where = "every packed table" if row["table"] is None else row["table"]
            when = row["recorded_at"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            facts = {
                "doc_id": doc_id,
                "out_of": row["table"],
                "run_id": row["run_id"],
                "at": row["recorded_at"].isoformat(),
            }
            said = f"taken out of {where} on {when} by {row['run_id']}"
            if doc_id == document.doc_id:
                yield Finding(EXCISIONS, "excised", said, facts)
            else:
                said = f"its witness {doc_id} was {said}; it stays removed, excise --with-duplicates takes it too"
                yield Finding(EXCISIONS, "witness_excised", said, facts)


def _contaminated(catalogue: Catalog, corpus: CorpusFacts, of_increment: BooleanExpression) -> Finding | None:
    """The items of benchmarks that it holds, and whether it is left out for them."""
    table = corpus.own("contaminated")
    rows = read_rows(catalogue, table, ("findings", "max_share", "removed"), of_increment)
    if not rows:
        return None
    held = Counter((one["eval_set"], one["kind"]) for one in rows[0]["findings"])
    said = ", ".join(f"{count} of {name} ({kind})" for (name, kind), count in sorted(held.items()))
    outcome = "contaminated" if rows[0]["removed"] else "holds_items"
    then = "it does not go on" if rows[0]["removed"] else "too little of them to be left out"
    sentence = f"holds items of benchmarks: {said}, at most {rows[0]['max_share']:.0%} of one; {then}"
    return Finding(table, outcome, sentence, rows[0])


def _missing(table: str) -> Finding:
    return Finding(table, "missing", f"says nothing of it yet; bring it up to date: headrace run {table}")


def _arrival(catalogue: Catalog, document: FoundDocument) -> Finding:
    """The file that it came from, and where its bytes are kept."""
    table = f"{document.dataset}.arrivals"
    if not catalogue.table_exists(table):
        return _missing(table)
    file = landing_of(catalogue, document)
    if file is None:
        several = f"from one of several files of increment {document.increment} at its path"
        return Finding(table, "landed", f"{several}; headrace doc source {document.doc_id} tells which")
    facts = {**file, "modified": file["modified"].isoformat() if file["modified"] else None}
    kept = f", kept as {file['object']}" if file["object"] else ""
    return Finding(table, "landed", f"from {file['location']}, {file['byte_count'] or 0:,} bytes{kept}", facts)


def _events(catalogue: Catalog, document: FoundDocument) -> Iterator[Finding]:
    """Whether its source has deleted it or has it again, by the newest such arrival."""
    table = f"{document.dataset}.arrivals"
    rows = read_rows(catalogue, table, ("increment", "location", "status"), EqualTo("doc_id", document.doc_id))
    rows = [row for row in rows if row["status"] != "landed"]  # where several versions landed, it only names the latest
    if not rows:
        return
    last = max(rows, key=lambda row: int(row["increment"]))
    said = "gone" if last["status"] == "gone" else "the latest at its path again"
    where = f", {last['location']}" if last["status"] == "gone" else ""
    yield Finding(table, last["status"], f"{said} since increment {last['increment']}{where}", last)


def _standing(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> list[Finding]:
    """Its standing among the revisions at its path, where that ever changed."""
    table = corpus.own("revisions")
    columns = ("increment", "standing", "other_doc_id", "leaves")
    rows = read_rows(catalogue, table, columns, EqualTo("doc_id", document.doc_id))
    if not rows:
        return []
    last = max(rows, key=lambda row: int(row["increment"]))
    other = last["other_doc_id"] and _named(catalogue, corpus, last["other_doc_id"])
    words = {
        "superseded": f"superseded by {other}",
        "latest": f"the latest at its path, after {other}" if other else "the latest at its path again",
        "gone": "gone",
    }
    leaves = ", so it leaves what is packed" if last["leaves"] else ""
    sentence = f"{words[last['standing']]} since increment {last['increment']}{leaves}"
    return [Finding(table, last["standing"], sentence, last)]


def _text(catalogue: Catalog, document: FoundDocument) -> Finding:
    """How its text was edited."""
    table = f"{document.dataset}.texts"
    rows = read_rows(catalogue, table, ("doc_id", "edits.element.rule"), document.row)
    if not rows:
        return _missing(table)
    counts = Counter(edit["rule"] for edit in rows[0]["edits"])
    if not counts:
        return Finding(table, "unchanged", "as it came: no edit", {"edits": {}})
    said = ", ".join(f"{rule} {count:,}" for rule, count in sorted(counts.items()))
    return Finding(table, "edited", f"edits by rule: {said}", {"edits": dict(counts)})


def _verdict(catalogue: Catalog, document: FoundDocument) -> Finding:
    """Kept, or every failed rule."""
    table = f"{document.dataset}.verdicts"
    rows = read_rows(catalogue, table, ("kept", "failed"), document.row)
    if not rows:
        return _missing(table)
    failed = rows[0]["failed"]
    if rows[0]["kept"]:
        return Finding(table, "kept", "no rule failed", {"failed": []})
    said = ", ".join(_rule(one) for one in failed)
    return Finding(table, "rejected", f"failed {said}", {"failed": failed})


def _rule(failed: Mapping[str, Any]) -> str:
    if failed["value"] is None:
        return str(failed["rule"])
    return f"{failed['rule']} ({failed['value']:g}, the bound is {failed['threshold']:g})"


def _cluster(catalogue: Catalog, corpus: CorpusFacts, row: And) -> list[Finding]:
    """Its cluster, with the words that name it."""
    if "clusters" not in corpus.tables:
        return []
    table = corpus.own("clusters")
    rows = read_rows(catalogue, table, ("coarse", "cluster", "distance"), row)
    if not rows or rows[0]["cluster"] is None:
        return [Finding(table, "none", "in no cluster: no word of it weighs anything")] if rows else [_missing(table)]
    own = EqualTo("cluster", rows[0]["cluster"])
    named = read_rows(catalogue, corpus.own("centroids"), ("cluster", "label"), own)
    words = f" ({', '.join(named[0]['label'])})" if named else ""
    where = f"cluster {rows[0]['cluster']}{words} of coarse cluster {rows[0]['coarse']}"
    return [Finding(table, "clustered", f"in {where}, at a distance of {rows[0]['distance']:.3f}", rows[0])]


def _shape(catalogue: Catalog, corpus: CorpusFacts, row: And) -> Finding:
    """Whether the rules of the shape let it go on, and by which ones it is left out."""
    table = corpus.own("shape")
    lost = read_rows(catalogue, table, ("failed",), row)
    if lost:
        said = ", ".join(_rule(one) for one in lost[0]["failed"])
        return Finding(table, "left_out", f"left out by {said}", {"failed": lost[0]["failed"]})
    stays = read_rows(catalogue, corpus.own("shaped"), ("doc_id",), row)
    return Finding(corpus.own("shaped"), "stays", "it goes on") if stays else _missing(table)


def _no_member(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> Finding:
    """Why a document of the corpus's datasets is not in it."""
    table = corpus.own("members")
    taken = {
        int(row["dataset_increment"]): int(row["increment"])
        for row in read_rows(
            catalogue,
            corpus.own("increments"),
            ("increment", "dataset_increment"),
            EqualTo("dataset", document.dataset),
        )
    }
    if document.increment not in taken:
        return Finding(
            table,
            "not_taken_in",
            f"increment {document.increment} of {document.dataset} was not taken in yet; headrace run {corpus.name}",
        )
    judged = corpus.verdicts.get(document.dataset, f"{document.dataset}.verdicts")
    verdict = read_rows(catalogue, judged, ("kept",), document.row)
    if verdict and not verdict[0]["kept"]:
        return Finding(table, "rejected", f"not a member: its verdict rejected it{_variant(judged)}")
    return _replaced(catalogue, table, document, taken) or _missing(table)


def _variant(judged: str) -> str:
    """Which verdict, where it is not that of the dataset's policy."""
    return "" if judged.endswith(".verdicts") else f" ({judged})"


def _replaced(catalogue: Catalog, table: str, document: FoundDocument, taken: Mapping[int, int]) -> Finding | None:
    """The revision that became a member instead of it, or that its file was gone before it was taken in.

    The state of its path after the last dataset increment that was taken in together with its own decides.
    """
    together = {number for number, ours in taken.items() if ours == taken[document.increment]}
    revisions = [document, *other_revisions(catalogue, document)]
    states = [(-one.increment, one.doc_id, "landed") for one in revisions if one.increment in together]
    events = read_rows(
        catalogue,
        f"{document.dataset}.arrivals",
        ("increment", "doc_id", "status"),
        In("doc_id", {one.doc_id for one in revisions}),
    )
    states += [(-row["increment"], row["doc_id"], row["status"]) for row in events if row["increment"] in together]
    age, doc_id, status = min(states)
    if doc_id != document.doc_id:
        sentence = f"not a member: an older revision; {doc_id} of increment {-age} replaced it"
        return Finding(table, "older_revision", sentence, {"newer_doc_id": doc_id, "newer_increment": -age})
    if status == "gone":
        return Finding(table, "gone", f"not a member: gone since increment {-age}, before it was taken in")
    return None


def _duplicates(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int
) -> tuple[list[Finding], Witness | None]:
    """Findings of the levels of deduplication, in the order of the levels."""
    row = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    of_repository = list(_repository(catalogue, corpus, document, increment))
    exact = corpus.own("exact_duplicates")
    found = read_rows(catalogue, exact, ("witness_doc_id", "matched"), row)
    if found:
        witness = Witness(corpus.name, found[0]["witness_doc_id"], found[0]["matched"])
        sentence = f"removed: the same {witness.why} as {_named(catalogue, corpus, witness.doc_id)}"
        level = removed_of(catalogue, corpus, [witness.doc_id]).get(witness.doc_id)
        sentence += f", which the level {level} removed in its turn" if level is not None else ""
        return [Finding(exact, "removed", sentence, dict(found[0])), *of_repository], witness
    copies = read_rows(catalogue, exact, ("doc_id",), EqualTo("witness_doc_id", document.doc_id))
    count = len(copies)
    stands = "" if count == 0 else f"; it stands for {count} {'other' if count == 1 else 'others'} that repeat it"
    findings = [Finding(exact, "kept", f"repeats no member before it{stands}", {"stands_for": len(copies)})]
    if "bags" in corpus.tables:
        findings.append(_bag(catalogue, corpus, row))
    if "components" in corpus.tables:
        findings += _components(catalogue, corpus, document)
    findings += of_repository
    if "removals" not in corpus.tables:
        return findings, None
    removals, near = _removals(catalogue, corpus, row)
    return findings + removals, near


def _bag(catalogue: Catalog, corpus: CorpusFacts, row: And) -> Finding:
    rows = read_rows(catalogue, corpus.own("bags"), ("token_count", "total_weight"), row)
    if not rows:
        return Finding(corpus.own("bags"), "empty", "no token to compare, so it is nobody's near-duplicate")
    sentence = f"{rows[0]['token_count']:,} distinct tokens, total weight {rows[0]['total_weight']:,}"
    return Finding(corpus.own("bags"), "weighed", sentence, rows[0])


def _components(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> list[Finding]:
    """Its component at the applied threshold, by the newest row."""
    if corpus.applied is None:
        return []
    at = And(EqualTo("threshold", corpus.applied), EqualTo("doc_id", document.doc_id))
    columns = ("increment", "component", "document_count")
    rows = sorted(read_rows(catalogue, corpus.own("components"), columns, at), key=lambda one: int(one["increment"]))
    if not rows:
        return []
    sentence = f"one of {rows[-1]['document_count']:,} documents that pairs link at {corpus.applied:g}"
    return [Finding(corpus.own("components"), "linked", sentence, rows[-1])]


def _repository(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int) -> Iterator[Finding]:
    """Containments of its repository, and its removal: for which other one, and how similar the two are."""
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
        yield Finding(corpus.own("repository_removals"), "leaves" if leaves else "stays", sentence, dict(one))


def _containments(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> Iterator[Finding]:
    """One finding for each repository that contains its own, or is contained in it."""
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
            yield Finding(table, outcome, sentence, dict(one))


def _removals(catalogue: Catalog, corpus: CorpusFacts, row: And) -> tuple[list[Finding], Witness | None]:
    """Kept or removed at every threshold; the witness of the one that is applied."""
    table = corpus.own("removals")
    columns = ("threshold", "witness_doc_id", "shared_weight", "united_weight", "similarity", "repository")
    by_threshold = {float(one["threshold"]): one for one in read_rows(catalogue, table, columns, row)}
    findings, witness = [], None
    for threshold in corpus.thresholds:
        applied = threshold == corpus.applied
        at = f"at {threshold:g}{' (applied)' if applied else ''}"
        one = by_threshold.get(threshold)
        if one is None:
            sentence = f"{at}: kept, no better document that is kept reaches it"
            outcome = "kept" if applied else "would_be_kept"
            findings.append(Finding(table, outcome, sentence, {"threshold": threshold, "applied": applied}))
            continue
        removed = "removed" if one.get("repository") is None else "removed with its repository"
        sentence = (
            f"{at}: {removed}, J = {one['shared_weight']:,} / {one['united_weight']:,} = {one['similarity']:.4f} to "
            f"{_named(catalogue, corpus, one['witness_doc_id'])}"
        )
        outcome = "removed" if applied else "would_be_removed"
        findings.append(Finding(table, outcome, sentence, {**one, "applied": applied}))
        if applied:
            weights = (int(one["shared_weight"]), int(one["united_weight"]))
            witness = Witness(corpus.name, one["witness_doc_id"], "near", *weights)
    return findings, witness


def _named(catalogue: Catalog, corpus: CorpusFacts, doc_id: str) -> str:
    """A doc_id with its dataset and path."""
    about = members_named(catalogue, corpus, [doc_id]).get(doc_id)
    return doc_id if about is None else f"{doc_id} ({about['dataset']} {about['path']})"


def _after(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int) -> Iterator[Finding]:
    """Findings about a survivor: its rank, its tokens, its windows."""
    row = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    ranks = read_rows(catalogue, corpus.own("ordered"), ("rank", "package"), row)
    if ranks:
        where = f"of repository {document.repository}" if document.repository else "alone, it has no repository"
        yield Finding(corpus.own("ordered"), "ranked", f"rank {ranks[0]['rank']:,} {where}", ranks[0])
    else:
        yield _missing(corpus.own("ordered"))
    tokens = read_rows(catalogue, corpus.own("tokens"), ("token_count",), row)
    if not tokens:
        yield _missing(corpus.own("tokens"))
        return
    yield Finding(corpus.own("tokens"), "encoded", f"{tokens[0]['token_count']:,} tokens", tokens[0])
    prefix = f"packed_{document.dataset}_"
    lengths = sorted(int(name.removeprefix(prefix)) for name in corpus.tables if _is_packed(name, prefix))
    for length in lengths:
        yield _windows(catalogue, corpus.own(f"{prefix}{length}"), document.doc_id, increment)


def _is_packed(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix).isdigit()


def _windows(catalogue: Catalog, table: str, doc_id: str, increment: int) -> Finding:
    """Ordinals of the windows that hold a part of it."""
    columns = ("ordinal", "segments.element.doc_id")
    rows = read_columns(catalogue, table, columns, EqualTo("increment", increment))
    ordinals: list[int] = []
    if rows is not None and len(rows):
        ordinals = sorted({int(ordinal) for ordinal in _holding(rows, doc_id)})
    if rows is None or not len(rows):
        return _missing(table)
    if not ordinals and any(row["table"] in (None, table) for row in excisions_of(catalogue, doc_id)):
        return Finding(table, "excised", f"in no window of increment {increment}: it was excised", {"ordinals": []})
    if not ordinals:
        return Finding(table, "absent", f"in no window of increment {increment}", {"ordinals": []})
    listed = ", ".join(map(str, ordinals[:10])) + (" ..." if len(ordinals) > 10 else "")
    some = f"in {len(ordinals):,} windows, ordinals" if len(ordinals) > 1 else "in one window, ordinal"
    return Finding(table, "packed", f"{some} {listed}", {"ordinals": ordinals})


def _holding(rows: pa.Table, doc_id: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Ordinals of rows with a segment of the document."""
    segments = rows["segments"].combine_chunks()
    flat = pc.struct_field(pc.list_flatten(segments), "doc_id")
    parents = pc.list_parent_indices(segments)
    found = parents.filter(pc.equal(flat, doc_id))
    return np.asarray(rows["ordinal"].take(found).to_numpy(), np.int64)
