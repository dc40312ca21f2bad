"""What a run says of its datasets and corpora, and how the funnel counts what was excised."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from dagster_project.inspect.lake.lake_status import lake_status
from dagster_project.inspect.lake.run_notices import few_kept, left_and_returned, much_removed
from headrace.tables.settings import load_settings
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.membership.revisions import REVISIONS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled

LATER = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """A dataset of which the verdicts keep 3 of 40 documents, one that keeps all, and a corpus of both."""
    catalogue = open_catalogue(load_settings())
    generated = [{"rule": "generated", "value": None, "threshold": None}]
    for name, kept in (("clients", 3), ("notes", 40)):
        put(catalogue, name, DOCUMENTS, 0, [{"doc_id": f"{name}{n}", "dataset": name} for n in range(40)])
        rows = [{"doc_id": f"{name}{n}", "kept": n < kept, "failed": [] if n < kept else generated} for n in range(40)]
        put(catalogue, name, VERDICTS, 0, rows)
    taken = {f"{name}.arrivals": {"snapshot_id": "1", "versions": {"0": "v1:1:1:1"}} for name in ("clients", "notes")}
    put(catalogue, "main", INCREMENTS, 0, [{"dataset": name} for name in ("clients", "notes")], inputs=taken)
    members = [
        {"doc_id": f"{name}{n}", "dataset": name} for name, end in (("clients", 3), ("notes", 40)) for n in range(end)
    ]
    put(catalogue, "main", MEMBERS, 0, members)
    put(catalogue, "main", EXACT_DUPLICATES, 0, [{"doc_id": "notes1", "dataset": "notes"}])
    put(catalogue, "main", SURVIVORS, 0, [one for one in members if one["doc_id"] != "notes1"])
    return catalogue


def test_a_step_that_keeps_less_than_a_tenth_of_a_dataset_is_told(lake: Catalog) -> None:
    """With the rules that failed; of a corpus alone where its dataset is not told already."""
    ledger = Ledger.fresh(lake)
    assert list(few_kept(ledger, {"clients", "notes", "main"})) == [
        "clients.verdicts keeps 3 of 40 documents of increment 0 (generated 37); look: headrace doc why DOC, "
        "headrace policy preview"
    ]
    (clients,) = lake_status(lake, Thresholds(least_rows=40), ("clients",))
    assert [alert.text for alert in clients.alerts if alert.name == "few_kept"] == [
        "7.5% is kept: generated rejects 92.5%"
    ]
    (notes,) = lake_status(lake, Thresholds(least_rows=40), ("notes",))
    assert notes.kept == 1 and not [alert for alert in notes.alerts if alert.name == "few_kept"]
    assert list(few_kept(ledger, {"main"})) == [
        "main.members has 3 of 40 documents of clients in increment 0; look: headrace corpus show main"
    ]


@pytest.mark.nightly
def test_what_left_and_is_at_its_source_again_is_told(lake: Catalog) -> None:
    """By its newest event; nothing of what is gone, or never left."""
    told = [("notes2", 1, "gone"), ("notes2", 2, "returned"), ("notes3", 1, "gone"), ("notes4", 2, "returned")]
    told += [("notes5", 1, "returned"), ("notes5", 2, "gone")]
    for number in (1, 2):
        events = [{"doc_id": doc_id, "status": status} for doc_id, n, status in told if n == number]
        put(lake, "notes", ARRIVALS, number, events)
    left = [
        {"doc_id": one, "dataset": "notes", "leaves": one != "notes4"}
        for one in ("notes2", "notes3", "notes4", "notes5")
    ]
    put(lake, "main", REVISIONS, 1, left)
    assert list(left_and_returned(Ledger.fresh(lake), {"notes", "main"})) == [
        "main: 1 documents that left are at their source again and in no window, first notes2; a new generation takes "
        "them in: headrace corpus refresh main, then headrace run main"
    ]


@pytest.mark.nightly
def test_the_funnel_ends_with_what_was_excised(lake: Catalog) -> None:
    """Documents that are out of every packed table of their dataset; those out of one of two are still there."""
    tables = {"members", "exact_duplicates", "survivors", "packed_notes_64", "packed_notes_128"}
    corpus = CorpusFacts("main", frozenset(tables), ("clients", "notes"), None, None)
    found = {stage.step: stage.documents for stage in funnel(lake, corpus)}
    counts = {"landed": 80, "verdicts": 43, "members": 43, "exact_duplicates": 42, "survivors": 42}
    assert found == counts
    record_excisions(lake, None, {"notes7"}, "by hand", LATER)
    record_excisions(lake, "main.packed_notes_64", {"notes2", "notes3"}, "supersede-1", LATER)
    record_excisions(lake, "main.packed_notes_128", {"notes2", "notes1"}, "supersede-1", LATER)
    found = {stage.step: stage.documents for stage in funnel(lake, corpus)}
    assert found == {**counts, "excised": 40}


@sampled()
@pytest.mark.parametrize("few_words", [False, True])
def test_what_goes_is_looked_at_once_more(lake_env: Path, few_words: bool) -> None:
    """Copies with edits are not doubted, texts of few different words that went for one another are.

    Three quarters of the prose go, which is told, by dataset; at the threshold of the kind alone.
    """
    draw = random.Random(2)
    catalogue = open_catalogue(load_settings())
    words = [f"w{n}" for n in range(40 if few_words else 3000)]
    texts = [" ".join(draw.choices(words, k=300)) for _ in range(15)]
    for one in texts[:15]:
        copies = [one.split() for _ in range(3)]
        for copy in copies:
            for at in draw.sample(range(300), 15):
                copy[at] = draw.choice(words)
            texts.append(" ".join(draw.choices(words, k=300) if few_words else copy))
    ids = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
    rows = [
        {"dataset": "notes", "doc_id": one, "kind": "code", "content": text}
        for one, text in zip(ids, texts, strict=True)
    ]
    put(catalogue, "notes", DOCUMENTS, 0, [])
    written = [{**row, "content": text} for row, text in zip(rows, texts, strict=True)]
    put(catalogue, "notes", TEXTS, 0, written)
    put(catalogue, "main", MEMBERS, 0, [{**row, "dataset": "notes"} for row in rows])
    put(catalogue, "main", EXACT_DUPLICATES, 0, [])
    pairs = [(ids[15 + n], ids[n // 3]) for n in range(45)]
    ends = {"dataset": "notes", "witness_dataset": "notes"}
    removed = [{"threshold": 0.5, "doc_id": one, "witness_doc_id": other, **ends} for one, other in pairs]
    removed += [{"threshold": 0.8, "doc_id": one, "witness_doc_id": ids[0], **ends} for one in ids[1:15]]
    put(catalogue, "main", REMOVALS, 0, removed)
    applied = KindThreshold(code=0.5).model_dump_json()
    reads = {"main.removals": {"snapshot_id": "1", "versions": {"0": "v1:1:1:1"}}}
    kept = [{"dataset": "notes", "doc_id": one} for one in ids[:15]]
    put(catalogue, "main", SURVIVORS, 0, kept, config=f'{{"threshold": {applied}}}', inputs=reads)
    least = min(one for one, _ in pairs)
    most = (
        "main.removals: 45 of 60 documents of notes in increment 0 go for similar ones; look: headrace corpus "
        "show main --thresholds"
    )
    doubted = (
        "main.removals: 45 of 45 removed documents of increment 0 that were looked at have less than 30% of their runs "
        f"of words in common with what they go for; look: headrace doc show {least} --duplicates"
    )
    assert list(much_removed(Ledger.fresh(catalogue), {"main", "notes"})) == [most, *([doubted] if few_words else [])]
    (status,) = lake_status(catalogue, Thresholds(least_rows=60, most_removed=0.9), ("main",))
    told = [(alert.text, alert.value, alert.limit) for alert in status.alerts if alert.name == "removed"]
    assert told == ([(doubted.partition(": ")[2], 1.0, 0.2)] if few_words else [])
