"""Findings about a survivor: its cluster, whether the corpus's rules let it go on, what was cut of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.documents.findings import TableFinding, missing, named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.plugins import attribute
from spark_jobs.selection.stages import SelectionStage


def cluster_findings(catalogue: Catalog, corpus: CorpusFacts, row: And) -> list[TableFinding]:
    """Its cluster, with the words of the cluster's label."""
    if "clusters" not in corpus.tables:
        return []
    table = corpus.own("clusters")
    rows = read_rows(catalogue, table, ("coarse", "cluster", "distance"), row)
    if not rows or rows[0]["cluster"] is None:
        return (
            [TableFinding(table, "none", "in no cluster: no word of it weighs anything")] if rows else [missing(table)]
        )
    own = EqualTo("cluster", rows[0]["cluster"])
    labels = read_rows(catalogue, corpus.own("centroids"), ("cluster", "label"), own)
    words = f" ({', '.join(labels[0]['label'])})" if labels else ""
    where = f"cluster {rows[0]['cluster']}{words} of coarse cluster {rows[0]['coarse']}"
    return [TableFinding(table, "clustered", f"in {where}, at a distance of {rows[0]['distance']:.3f}", rows[0])]


def stage_finding(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, row: And, stage: SelectionStage
) -> TableFinding | None:
    """What became of a document at a stage: by the stage's finding, else by the rules it failed and what was cut."""
    if stage.finding:
        finding: TableFinding | None = attribute(stage.finding)(catalogue, corpus, document, row, stage)
        return finding
    table, columns = corpus.own(stage.reasons), ("failed", "edits") if stage.cuts else ("failed",)
    rows = read_rows(catalogue, table, columns, row)
    if not rows:
        stays = read_rows(catalogue, corpus.own(stage.table), ("doc_id",), row)
        return TableFinding(corpus.own(stage.table), "stays", "it goes on") if stays else missing(table)
    return _judged(table, cut_sentence(rows[0]["edits"]) if stage.cuts and rows[0]["edits"] else "", rows[0])


def _judged(table: str, cut: str, facts: dict[str, Any]) -> TableFinding:
    """What a row says of failed rules, behind what was cut."""
    if not facts["failed"]:
        return TableFinding(table, "cut", cut, facts)
    failed = ", ".join(failed_rule(one) for one in facts["failed"])
    return TableFinding(table, "left_out", f"{cut}{'; ' if cut else ''}left out by {failed}", facts)


def cut_sentence(edits: Sequence[Mapping[str, Any]]) -> str:
    """How much was cut."""
    size = sum(edit["end"] - edit["start"] for edit in edits)
    return f"{size:,} bytes cut in {len(edits):,} places"


def passage_finding(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, row: And, stage: SelectionStage
) -> TableFinding:
    """What was cut of it because an earlier document has it, and whether enough is left."""
    table = corpus.own(stage.reasons)
    cut = read_rows(catalogue, table, ("edits", "failed"), row)
    if not cut:
        stays = read_rows(catalogue, corpus.own(stage.table), ("doc_id",), row)
        return TableFinding(corpus.own(stage.table), "whole", "nothing is cut of it") if stays else missing(table)
    spans = read_rows(catalogue, corpus.own("passages"), ("start", "end", "words", "first_doc_id"), row)
    firsts = sorted({span["first_doc_id"] for span in spans})
    others = f" and {len(firsts) - 3:,} more" if len(firsts) > 3 else ""
    where = ", ".join(named(catalogue, corpus, doc_id) for doc_id in firsts[:3]) + others
    return _judged(table, f"{cut_sentence(cut[0]['edits'])}, which stay in {where}", {**cut[0], "passages": spans})


def semantic_finding(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, row: And, stage: SelectionStage
) -> TableFinding | None:
    """The document of the same meaning behind its removal; without a vector, why it was not compared."""
    table = corpus.own(stage.reasons)
    rows = read_rows(
        catalogue, table, ("witness_doc_id", "shared_weight", "united_weight", "similarity", "threshold"), row
    )
    if rows:
        cosine = f"cosine = {rows[0]['similarity']:.4f}, at least {rows[0].pop('threshold'):g}"
        sentence = f"removed: {cosine}, to {named(catalogue, corpus, rows[0]['witness_doc_id'])}"
        return TableFinding(table, "removed", sentence, dict(rows[0]))
    ledger = Ledger.fresh(catalogue)
    compared = [*ledger.increments_there(corpus.own("semantic_cells")).values()][-1]
    vectors = next((one for one in compared.inputs if one.startswith(f"{document.dataset}.vectors_")), None)
    if vectors is None:
        return None
    reasons = read_rows(catalogue, vectors, ("reason",), document.row)
    if reasons and reasons[0]["reason"] is not None:
        sentence = f"no vector ({reasons[0]['reason']}), so it is compared with nothing by what it means"
        return TableFinding(vectors, "not_compared", sentence, reasons[0])
    threshold = json.loads([*ledger.increments_there(table).values()][-1].config)["threshold"]
    sentence = f"kept, no better document that is kept was found at a cosine of {threshold:g}"
    return TableFinding(table, "kept", sentence, {"threshold": threshold})


def benchmark_finding(
    catalogue: Catalog, corpus: CorpusFacts, document: FoundDocument, row: And, stage: SelectionStage
) -> TableFinding | None:
    """Its items of benchmarks, and whether it is left out for them."""
    table = corpus.own(stage.reasons)
    rows = read_rows(catalogue, table, ("findings", "max_share", "removed"), row)
    if not rows:
        return None
    held = Counter((one["eval_set"], one["kind"]) for one in rows[0]["findings"])
    said = ", ".join(f"{count} of {name} ({kind})" for (name, kind), count in sorted(held.items()))
    outcome = "contaminated" if rows[0]["removed"] else "holds_items"
    then = "it does not go on" if rows[0]["removed"] else "too little of them to be left out"
    sentence = f"holds items of benchmarks: {said}, at most {rows[0]['max_share']:.0%} of one; {then}"
    return TableFinding(table, outcome, sentence, rows[0])


def failed_rule(failed: Mapping[str, Any]) -> str:
    """A failed rule of a document, with its value and the bound, as far as there are any."""
    measured = [] if failed["value"] is None else [f"{failed['value']:g}"]
    measured += [] if failed["threshold"] is None else [f"the bound is {failed['threshold']:g}"]
    return f"{failed['rule']} ({', '.join(measured)})" if measured else str(failed["rule"])
