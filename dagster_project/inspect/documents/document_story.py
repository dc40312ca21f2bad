"""Tell what every step found about one document, in the order of the road, from the tables alone.

    dataset    arrivals, documents, texts, verdicts, dependency_methods
    corpus     members, exact_duplicates, bags, components, repository_containments, repository_removals, removals,
               survivors, what its selections say, ordered, tokens, packed_*
    system     excisions

A step that has not seen the document (it was removed earlier, or the table does not exist yet) has no finding, except
for the first one that should have seen it: its finding names the command to make the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import (
    FoundDocument,
    extraction_place,
    landing_of,
    other_revisions,
)
from dagster_project.inspect.documents.duplicate_findings import duplicate_findings, witness_of
from dagster_project.inspect.documents.findings import TableFinding, Witness, missing, named
from dagster_project.inspect.documents.laid_out import laid_out, untrained
from dagster_project.inspect.documents.selection_findings import (
    cluster_findings,
    failed_rule,
    stage_finding,
)
from dagster_project.inspect.lake.control_names import names_in
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, corpora, find_corpus
from dagster_project.inspect.lake.run_notices import new_generation, returned
from dagster_project.inspect.lake.unread_code import METHODS, counted, no_order, reasons_of, repositories, why_by_path
from dagster_project.inspect.notices import noticed_findings
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.files.wide_values import read_wide_value
from spark_jobs.lake.plan.excisions import EXCISIONS, excisions_of
from spark_jobs.packing.ordinals import find_windows, ordinal_runs
from spark_jobs.selection.stages import LEFT_OUT


@dataclass(frozen=True)
class Story:
    """What every step found about a document.

    Attributes:
        document: that it is about.
        findings: of its dataset's tables, then of each corpus, then of the excisions; in the order of the data.
        witnesses: kept documents behind a removal.
    """

    document: FoundDocument
    findings: tuple[TableFinding, ...]
    witnesses: tuple[Witness, ...]

    @property
    def windows(self) -> dict[str, list[int]]:
        """The ordinals of its parts, by packed table."""
        return {one.table: one.facts["ordinals"] for one in self.findings if one.outcome == "packed"}

    def facts(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "document": self.document.facts(),
            "findings": [
                {"table": one.table, "outcome": one.outcome, "sentence": one.sentence, **one.facts}
                for one in self.findings
            ],
            "witnesses": [vars(witness) for witness in self.witnesses],
        }


def tell_story(catalogue: Catalog, document: FoundDocument, among: Iterable[CorpusFacts]) -> Story:
    """Ask all tables about a document, those of some corpora among them."""
    findings, witnesses = list(dataset_findings(catalogue, document)), list[Witness]()
    for corpus in among:
        said, witness = corpus_findings(catalogue, corpus, document)
        findings += said
        witnesses += [witness] if witness is not None else []
    findings += excision_findings(catalogue, document, [witness.doc_id for witness in witnesses])
    findings += noticed_findings(catalogue, document)
    return Story(document, tuple(findings), tuple(witnesses))


def corpora_of(catalogue: Catalog, document: FoundDocument, name: str | None) -> list[CorpusFacts]:
    """The named corpus, or all corpora with the document's dataset.

    Raises:
        CommandError: there is no such corpus, or it is made of other datasets.
    """
    if name is None:
        return [corpus for corpus in corpora(catalogue) if document.dataset in corpus.datasets]
    corpus = find_corpus(catalogue, name)
    if document.dataset not in corpus.datasets:
        raise CommandError(
            f"document {document.doc_id} is of dataset {document.dataset}, corpus {name} is made of "
            f"{', '.join(corpus.datasets)}; name another corpus"
        )
    return [corpus]


def written_from(metadata: Mapping[str, str]) -> str:
    """Which part of which document a model wrote it from, or what was executed; empty where it is neither."""
    if not {"parent", "parent_dataset"} <= metadata.keys() or metadata.keys().isdisjoint({"model", "executed_with"}):
        return ""
    executed = metadata.get("executed_with")
    how = f"written by {metadata['model']} from" if executed is None else f"executed with {executed}:"
    return (
        f"{how} bytes {metadata.get('parent_bytes', '?')} of {metadata['parent']} of "
        f"{metadata['parent_dataset']}; headrace doc why {metadata['parent'][:12]}"
    )


def dataset_findings(catalogue: Catalog, document: FoundDocument) -> Iterator[TableFinding]:
    """Findings from the tables of its dataset."""
    name = document.dataset
    yield _arrival(catalogue, document)
    yield from _events(catalogue, document)
    licence = document.licence or "no licence known"
    belongs = f"repository {document.repository}" if document.repository else "no repository"
    rows = read_rows(catalogue, f"{name}.documents", ("metadata",), document.row)
    metadata = dict(rows[0]["metadata"]) if rows else {}
    place = extraction_place(metadata) or written_from(metadata)
    extracted = f"; {place}" if place else ""
    kind = f"{document.kind}, {document.language}" if document.language else document.kind
    yield TableFinding(
        f"{name}.documents",
        "landed",
        f"increment {document.increment}: {kind}, {document.byte_count:,} bytes, {licence}, {belongs}{extracted}",
        document.facts(),
    )
    yield _text(catalogue, document)
    yield _verdict(catalogue, document)
    yield from _dependencies(catalogue, document)


def _dependencies(catalogue: Catalog, document: FoundDocument) -> Iterator[TableFinding]:
    """The basis of its repository's order, the files without an answer there, and whether it is among them."""
    if document.repository is None:
        return
    for row in repositories(
        catalogue, document.dataset, And(document.partition, EqualTo("repository", document.repository))
    ):
        by_path = row["method"] == "path"
        basis = f"path alone, {why_by_path(row)}" if by_path else row["method"].replace("_", " ")
        said = f"repository {document.repository} is ordered by {basis}"
        if reasons := reasons_of(row):
            said += f"; {reasons.total():,} of {row['file_count']:,} files had no answer ({counted(reasons)})"
        own = {one["path"]: one["reason"] for one in row["unread"]}.get(document.path)
        if own is None and document.language in {one["language"] for one in row["unordered"]}:
            own = no_order(str(document.language))
        outcome = "unread" if own else "by_path" if by_path else "read"
        yield TableFinding(f"{document.dataset}.{METHODS}", outcome, f"{said}; this file: {own}" if own else said, row)


def corpus_findings(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument
) -> tuple[list[TableFinding], Witness | None]:
    """Findings from the tables of a corpus, and the witness if the document was removed there as a duplicate."""
    rows = read_rows(catalogue, corpus.own("members"), ("increment", "shard"), EqualTo("doc_id", document.doc_id))
    if not rows:
        return [_no_member(catalogue, corpus, document)], None
    increment = int(rows[0]["increment"])
    of_increment = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    findings = [
        TableFinding(corpus.own("members"), "member", f"taken in with increment {increment}", {"increment": increment})
    ]
    findings += _standing(catalogue, corpus, document)
    duplicates, witness = duplicate_findings(catalogue, corpus, document, increment)
    findings += duplicates
    base = corpus.own(corpus.base)
    if read_rows(catalogue, base, ("doc_id",), of_increment):
        findings.append(TableFinding(base, "survivor", "it goes on"))
    elif any(finding.outcome == "removed" for finding in findings):
        return [*findings, TableFinding(base, "gone", "it does not go on")], witness
    elif all(stage.table != corpus.base for stage in corpus.stages):  # else its first stage says why it is not there
        return [*findings, missing(base)], witness
    findings += cluster_findings(catalogue, corpus, of_increment)
    for stage in corpus.stages:
        finding = stage_finding(catalogue, corpus, document, of_increment, stage)
        findings += [finding] if finding is not None else []
        if finding is not None and finding.outcome in LEFT_OUT:
            return findings, witness_of(catalogue, corpus, of_increment, stage)
    return [*findings, *_after(catalogue, corpus, document, increment)], witness


def excision_findings(catalogue: Catalog, document: FoundDocument, witnesses: Iterable[str]) -> Iterator[TableFinding]:
    """Excisions of the document and of its witnesses: tables, time and person."""
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
                yield TableFinding(EXCISIONS, "excised", said, facts)
            else:
                said = f"its witness {doc_id} was {said}; it stays removed, excise --with-duplicates takes it too"
                yield TableFinding(EXCISIONS, "witness_excised", said, facts)


def _arrival(catalogue: Catalog, document: FoundDocument) -> TableFinding:
    """Its source file, and where its bytes are kept."""
    table = f"{document.dataset}.arrivals"
    if not catalogue.table_exists(table):
        return missing(table)
    file = landing_of(catalogue, document)
    if file is None:
        several = f"from one of several files of increment {document.increment} at its path"
        return TableFinding(table, "landed", f"{several}; headrace doc show {document.doc_id} --source tells which")
    facts = {**file, "modified": file["modified"].isoformat() if file["modified"] else None}
    kept = f", kept as {file['object']}" if file["object"] else ""
    return TableFinding(table, "landed", f"from {file['location']}, {file['byte_count'] or 0:,} bytes{kept}", facts)


def _events(catalogue: Catalog, document: FoundDocument) -> Iterator[TableFinding]:
    """Whether its source has deleted it or has it again, by the newest such arrival."""
    table = f"{document.dataset}.arrivals"
    rows = read_rows(catalogue, table, ("increment", "location", "status"), EqualTo("doc_id", document.doc_id))
    rows = [row for row in rows if row["status"] != "landed"]  # where several versions landed, it only names the latest
    if not rows:
        return
    last = max(rows, key=lambda row: int(row["increment"]))
    said = "gone" if last["status"] == "gone" else "the latest at its path again"
    where = f", {last['location']}" if last["status"] == "gone" else ""
    yield TableFinding(table, last["status"], f"{said} since increment {last['increment']}{where}", last)


def _standing(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> list[TableFinding]:
    """The finding of `revisions`: whether this is the latest revision at its path; none if that never changed."""
    table = corpus.own("revisions")
    columns = ("increment", "standing", "other_doc_id", "leaves")
    rows = read_rows(catalogue, table, columns, EqualTo("doc_id", document.doc_id))
    if not rows:
        return []
    last = max(rows, key=lambda row: int(row["increment"]))
    other = last["other_doc_id"] and named(catalogue, corpus, last["other_doc_id"])
    words = {
        "superseded": f"superseded by {other}",
        "latest": f"the latest at its path, after {other}" if other else "the latest at its path again",
        "gone": "gone",
    }
    leaves = ", so it leaves what is packed" if last["leaves"] else ""
    if last["leaves"] and returned(catalogue, document.dataset, {document.doc_id}):
        leaves += "; it is at its source again, and in no window until a new generation takes it in: " + new_generation(
            corpus.name
        )
    sentence = f"{words[last['standing']]} since increment {last['increment']}{leaves}"
    return [TableFinding(table, last["standing"], sentence, last)]


def _text(catalogue: Catalog, document: FoundDocument) -> TableFinding:
    """How its text was edited."""
    table = f"{document.dataset}.texts"
    rows = read_rows(catalogue, table, ("doc_id", "edits.element.rule"), document.row)
    if not rows:
        return missing(table)
    counts = Counter(edit["rule"] for edit in rows[0]["edits"])
    if not counts:
        return TableFinding(table, "unchanged", "as it came: no edit", {"edits": {}})
    said = ", ".join(f"{rule} {count:,}" for rule, count in sorted(counts.items()))
    return TableFinding(table, "edited", f"edits by rule: {said}", {"edits": dict(counts)})


def _verdict(catalogue: Catalog, document: FoundDocument) -> TableFinding:
    """Kept, or every failed rule."""
    table = f"{document.dataset}.verdicts"
    rows = read_rows(catalogue, table, ("kept", "failed"), document.row)
    if not rows:
        return missing(table)
    failed = rows[0]["failed"]
    if rows[0]["kept"]:
        return TableFinding(table, "kept", "no rule failed", {"failed": []})
    said = ", ".join(failed_rule(one) for one in failed)
    return TableFinding(table, "rejected", f"failed {said}", {"failed": failed})


def _no_member(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument) -> TableFinding:
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
        return TableFinding(
            table,
            "not_taken_in",
            f"increment {document.increment} of {document.dataset} was not taken in yet; headrace run {corpus.name}",
        )
    judged = corpus.verdicts.get(document.dataset, f"{document.dataset}.verdicts")
    verdict = read_rows(catalogue, judged, ("kept",), document.row)
    if verdict and not verdict[0]["kept"]:
        return TableFinding(table, "rejected", f"not a member: its verdict rejected it{_variant(judged)}")
    return _replaced(catalogue, table, document, taken) or missing(table)


def _variant(judged: str) -> str:
    """The variant behind a verdict, in words; empty for the dataset's own policy."""
    return "" if judged.endswith(".verdicts") else f" ({judged})"


def _replaced(catalogue: Catalog, table: str, document: FoundDocument, taken: Mapping[int, int]) -> TableFinding | None:
    """Why it did not become a member: a newer revision did, or its file was deleted before the corpus took it in.

    What counts is the state of its path at the last of the dataset increments that the corpus took in with its own.
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
        return TableFinding(table, "older_revision", sentence, {"newer_doc_id": doc_id, "newer_increment": -age})
    if status == "gone":
        return TableFinding(table, "gone", f"not a member: gone since increment {-age}, before it was taken in")
    return None


def _after(catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, increment: int) -> Iterator[TableFinding]:
    """Findings about a survivor: its rank, its tokens, its windows."""
    row = And(EqualTo("increment", increment), EqualTo("doc_id", document.doc_id))
    ranks = read_rows(catalogue, corpus.own("ordered"), ("rank", "package"), row)
    if ranks:
        where = f"of repository {document.repository}" if document.repository else "alone, it has no repository"
        yield TableFinding(corpus.own("ordered"), "ranked", f"rank {ranks[0]['rank']:,} {where}", ranks[0])
    else:
        yield missing(corpus.own("ordered"))
    tokens = read_rows(catalogue, corpus.own("tokens"), ("token_count",), row)
    if not tokens:
        yield missing(corpus.own("tokens"))
        return
    text = read_wide_value(catalogue, f"{document.dataset}.texts", "content", document.doc_id, document.partition)
    names = names_in(catalogue, corpus.name, text or "")
    masked, facts = untrained(catalogue, corpus.name, row, text or "")
    laid = laid_out(catalogue, corpus.name, row, text or ""), masked
    said = "; ".join(
        [f"{tokens[0]['token_count']:,} tokens", *([f"its text has {names}"] if names else []), *filter(None, laid)]
    )
    yield TableFinding(corpus.own("tokens"), "encoded", said, {**tokens[0], **facts})
    prefix = f"packed_{document.dataset}_"
    lengths = sorted(int(name.removeprefix(prefix)) for name in corpus.tables if _is_packed(name, prefix))
    for length in lengths:
        yield _windows(catalogue, corpus.own(f"{prefix}{length}"), document.doc_id, increment)


def _is_packed(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix).isdigit()


def _windows(catalogue: Catalog, table: str, doc_id: str, increment: int) -> TableFinding:
    """Ordinals of the windows with a part of it."""
    iceberg = load_table(catalogue, table)
    if iceberg is None or not ordinal_runs(table, iceberg, narrow=EqualTo("increment", increment)):
        return missing(table)
    ordinals = [ordinal for _, ordinal, _ in find_windows(table, iceberg, [doc_id], [increment])]
    if not ordinals and any(row["table"] in (None, table) for row in excisions_of(catalogue, doc_id)):
        return TableFinding(
            table, "excised", f"in no window of increment {increment}: it was excised", {"ordinals": []}
        )
    if not ordinals:
        return TableFinding(table, "absent", f"in no window of increment {increment}", {"ordinals": []})
    listed = ", ".join(map(str, ordinals[:10])) + (" ..." if len(ordinals) > 10 else "")
    some = f"in {len(ordinals):,} windows, ordinals" if len(ordinals) > 1 else "in one window, ordinal"
    return TableFinding(table, "packed", f"{some} {listed}", {"ordinals": ordinals})
