"""What is said of a corpus whose kinds of documents have thresholds of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.expressions import And, EqualTo

from dagster_project.cli.data.corpora import corpus as commands
from dagster_project.cli.data.doc import require_compared
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.duplicate_findings import _removals
from dagster_project.inspect.documents.neighbours import duplicates_of, removed_of
from dagster_project.inspect.lake.corpus_facts import find_corpus
from headrace.tables.settings import load_settings
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.dedup.removal.thresholds import THRESHOLDS
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.inspect.test_lake_status import put


def test_each_document_is_told_by_the_thresholds_of_its_kind(lake_env: Path) -> None:
    """Code goes from .5 on and prose from .8: who went, for whom, which pairs are duplicates, and what commands say."""
    catalogue = open_catalogue(load_settings())
    compared = {"code": [0.5, 0.7], "prose": [0.7, 0.8], "markup": [0.7, 0.8], "data": [0.7, 0.8]}
    applied = {"code": 0.5, "prose": 0.8, "markup": 0.8, "data": 0.8}
    kinds = {"c0": "code", "c1": "code", "c2": "code", "p0": "prose", "p1": "prose", "p2": "prose"}
    put(catalogue, "main", MEMBERS, 0, [{"doc_id": one, "kind": kind} for one, kind in kinds.items()])
    put(catalogue, "main", EXACT_DUPLICATES, 0, [])
    found = [("c1", "c0", 55), ("c2", "c0", 72), ("p1", "p0", 75), ("p2", "p0", 85)]
    pairs = [
        {"kind": kinds[one], "doc_id": one, "better_doc_id": other, "shared_weight": j, "united_weight": 100}
        for one, other, j in found
    ]
    similar = [{**row, "similarity": row["shared_weight"] / 100} for row in pairs]
    put(catalogue, "main", PAIRS, 0, similar, config=json.dumps({"thresholds": compared}))
    removed = [
        {"threshold": at, "doc_id": one, "witness_doc_id": other, "shared_weight": j, "united_weight": 100}
        for one, other, j in found
        for at in (0.5, 0.7, 0.8)
        if j >= 100 * at
    ]
    put(catalogue, "main", REMOVALS, 0, [{**row, "similarity": row["shared_weight"] / 100} for row in removed])
    reads = {"main.removals": {"snapshot_id": "1", "versions": {"0": "v1:1:1:1"}}}
    put(catalogue, "main", SURVIVORS, 0, [], config=json.dumps({"threshold": applied}), inputs=reads)
    counted = [{"threshold": at, "member_count": 6, "kept_count": 6} for at in (0.5, 0.7, 0.8)]
    put(catalogue, "main", THRESHOLDS, 0, counted)

    corpus = find_corpus(catalogue, "main")
    assert corpus.thresholds == (0.5, 0.7, 0.8)
    assert corpus.goes_from == "near-duplicates go from J = 0.5 (code), 0.8 (prose, markup, data) on"
    assert removed_of(catalogue, corpus, kinds) == dict.fromkeys(("c1", "c2", "p2"), "near")
    assert duplicates_of(catalogue, corpus, ["c0", "p0"]) == dict.fromkeys(("c1", "c2", "p2"), "near")
    require_compared(corpus, 0.5, "code")
    with pytest.raises(CommandError, match=r"stores pairs of prose from J = 0.7 on; give that or more"):
        require_compared(corpus, 0.5, "prose")
    outcomes = {
        doc_id: [
            (one.facts["threshold"], one.outcome)
            for one in _removals(catalogue, corpus, And(EqualTo("increment", 0), EqualTo("doc_id", doc_id)), kind)[0]
        ]
        for doc_id, kind in kinds.items()
    }
    assert outcomes["c1"] == [(0.5, "removed"), (0.7, "would_be_kept"), (0.8, "would_be_kept")]
    assert outcomes["p1"] == [(0.7, "would_be_removed"), (0.8, "kept")]
    shown = CliRunner().invoke(commands, ["show", "main", "--thresholds"]).output
    assert "6 members; near-duplicates go from J = 0.5 (code), 0.8 (prose, markup, data) on" in shown
    assert "a kind is compared from its lowest threshold on, below it counts as there: 0.5 (code), 0.7 (prose" in shown
    rows = json.loads(CliRunner().invoke(commands, ["show", "main", "--thresholds", "--json"]).output)
    assert [row["applied_to"] for row in rows] == [["code"], [], ["prose", "markup", "data"]]
