"""Findings about a survivor: its cluster, whether the corpus's rules let it go on, what was cut of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.documents.findings import Finding, missing, named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import read_rows


def cluster_findings(catalogue: Catalog, corpus: CorpusFacts, row: And) -> list[Finding]:
    """Its cluster, with the words that name it."""
    if "clusters" not in corpus.tables:
        return []
    table = corpus.own("clusters")
    rows = read_rows(catalogue, table, ("coarse", "cluster", "distance"), row)
    if not rows or rows[0]["cluster"] is None:
        return [Finding(table, "none", "in no cluster: no word of it weighs anything")] if rows else [missing(table)]
    own = EqualTo("cluster", rows[0]["cluster"])
    labels = read_rows(catalogue, corpus.own("centroids"), ("cluster", "label"), own)
    words = f" ({', '.join(labels[0]['label'])})" if labels else ""
    where = f"cluster {rows[0]['cluster']}{words} of coarse cluster {rows[0]['coarse']}"
    return [Finding(table, "clustered", f"in {where}, at a distance of {rows[0]['distance']:.3f}", rows[0])]


def shape_finding(catalogue: Catalog, corpus: CorpusFacts, row: And) -> Finding:
    """Whether the rules of the shape let it go on, and by which ones it is left out."""
    table = corpus.own("shape")
    lost = read_rows(catalogue, table, ("failed",), row)
    if lost:
        said = ", ".join(failed_rule(one) for one in lost[0]["failed"])
        return Finding(table, "left_out", f"left out by {said}", {"failed": lost[0]["failed"]})
    stays = read_rows(catalogue, corpus.own("shaped"), ("doc_id",), row)
    return Finding(corpus.own("shaped"), "stays", "it goes on") if stays else missing(table)


def cut_finding(catalogue: Catalog, corpus: CorpusFacts, row: And) -> Finding:
    """What was cut of it because an earlier document has it, and whether enough is left."""
    table = corpus.own("cut_texts")
    cut = read_rows(catalogue, table, ("edits", "failed"), row)
    if not cut:
        stays = read_rows(catalogue, corpus.own("trimmed"), ("doc_id",), row)
        return Finding(corpus.own("trimmed"), "whole", "nothing is cut of it") if stays else missing(table)
    spans = read_rows(catalogue, corpus.own("passages"), ("start", "end", "words", "first_doc_id"), row)
    size = sum(edit["end"] - edit["start"] for edit in cut[0]["edits"])
    firsts = sorted({span["first_doc_id"] for span in spans})
    others = f" and {len(firsts) - 3:,} more" if len(firsts) > 3 else ""
    where = ", ".join(named(catalogue, corpus, doc_id) for doc_id in firsts[:3]) + others
    sentence = f"{size:,} bytes cut in {len(cut[0]['edits']):,} places, which stay in {where}"
    facts = {**cut[0], "passages": spans}
    if cut[0]["failed"]:
        too_short = ", ".join(failed_rule(one) for one in cut[0]["failed"])
        return Finding(table, "left_out", f"{sentence}; left out by {too_short}", facts)
    return Finding(table, "cut", sentence, facts)


def benchmark_finding(catalogue: Catalog, corpus: CorpusFacts, row: And) -> Finding | None:
    """The items of benchmarks that it holds, and whether it is left out for them."""
    table = corpus.own("contaminated")
    rows = read_rows(catalogue, table, ("findings", "max_share", "removed"), row)
    if not rows:
        return None
    held = Counter((one["eval_set"], one["kind"]) for one in rows[0]["findings"])
    said = ", ".join(f"{count} of {name} ({kind})" for (name, kind), count in sorted(held.items()))
    outcome = "contaminated" if rows[0]["removed"] else "holds_items"
    then = "it does not go on" if rows[0]["removed"] else "too little of them to be left out"
    sentence = f"holds items of benchmarks: {said}, at most {rows[0]['max_share']:.0%} of one; {then}"
    return Finding(table, outcome, sentence, rows[0])


def failed_rule(failed: Mapping[str, Any]) -> str:
    """A rule that a document failed, with its value and the bound."""
    if failed["value"] is None:
        return str(failed["rule"])
    return f"{failed['rule']} ({failed['value']:g}, the bound is {failed['threshold']:g})"
