"""What is told of a document whose repository goes, or lies inside another one, from tables of a few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from dagster_project.inspect.corpora.kept_at_thresholds import kept_at_thresholds
from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.documents.document_story import corpus_findings
from dagster_project.inspect.documents.neighbours import removed_of
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from headrace.tables.settings import settings_at
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, KindThresholds
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.dedup.removal.thresholds import THRESHOLDS
from spark_jobs.dedup.repository.containments import REPOSITORY_CONTAINMENTS
from spark_jobs.dedup.repository.removals import REPOSITORY_REMOVAL_FILES, REPOSITORY_REMOVALS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

FORKED, OWN, KEPT, STOOD, STAND_IN = (letter * 32 for letter in "abcde")
WEIGHTS = {"shared_weight": 75, "united_weight": 100, "similarity": 0.75}
ROWS: list[tuple[Table, list[dict[str, Any]]]] = [
    (
        MEMBERS,
        [
            {"doc_id": doc_id, "repository": repository, "path": path, "shard": 0, "place": 1, "kind": "code"}
            for doc_id, repository, path in (
                (FORKED, "valkey", "src/db.c"),
                (OWN, "valkey", "src/own.c"),
                (KEPT, "redis", "src/db.c"),
                (STOOD, "valkey", "src/sds.c"),
                (STAND_IN, "redis", "src/sds.c"),
            )
        ],
    ),
    (EXACT_DUPLICATES, [{"doc_id": STAND_IN, "witness_doc_id": STOOD, "matched": "bytes"}]),
    (
        REPOSITORY_CONTAINMENTS,
        [
            {
                "repository": "lua",
                "repository_id": "1",
                "container_dataset": "code",
                "container_repository": "valkey",
                "container_repository_id": "2",
                "shared_weight": 9,
                "total_weight": 10,
                "container_weight": 100,
                "containment": 0.9,
                "similarity": 9 / 101,
            }
        ],
    ),
    (
        REPOSITORY_REMOVALS,
        [
            {
                "repository": "valkey",
                "repository_id": "2",
                "witness_dataset": "code",
                "witness_repository": "redis",
                "witness_repository_id": "3",
                **WEIGHTS,
                "containment": 0.95,
            }
        ],
    ),
    (
        REPOSITORY_REMOVAL_FILES,
        [
            *({"doc_id": doc_id, "repository": "valkey"} for doc_id in (FORKED, OWN)),
            {"doc_id": STOOD, "repository": "valkey", "stand_in_dataset": "code", "stand_in_doc_id": STAND_IN},
        ],
    ),
    (
        REMOVALS,
        [
            {
                "threshold": threshold,
                "doc_id": FORKED,
                "witness_dataset": "code",
                "witness_doc_id": KEPT,
                **WEIGHTS,
                "repository": "valkey",
            }
            for threshold in (0.7, 0.8)
        ]
        + [
            {
                "threshold": 0.8,
                "doc_id": STOOD,
                "witness_dataset": "code",
                "witness_doc_id": STAND_IN,
                "shared_weight": 1,
                "united_weight": 1,
                "similarity": 1.0,
                "repository": "valkey",
            }
        ],
    ),
    (SURVIVORS, [{"doc_id": doc_id, "shard": 0} for doc_id in (OWN, KEPT, STAND_IN)]),
    (
        THRESHOLDS,
        [
            {
                "threshold": threshold,
                "member_count": 3,
                "exact_removed_count": 0,
                "near_removed_count": 0,
                "repository_removed_count": 1,
                "kept_count": 2,
                "kept_byte_count": 2,
                "removed_byte_count": 1,
                "component_count": 1,
                "largest_component": 2,
            }
            for threshold in (0.7, 0.8)
        ],
    ),
]
COMPARED = KindThresholds.model_validate([0.7, 0.8])
CORPUS = CorpusFacts("main", frozenset(table.name for table, _ in ROWS), ("code",), COMPARED, KindThreshold())


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with the tables of one corpus."""
    found = open_catalogue(settings_at(Path(tmp_path_factory.mktemp("lake"))))
    for table, rows in ROWS:
        made = ensure_table(found, f"main.{table.name}", table, {})
        schema = schema_to_pyarrow(made.schema(), include_field_ids=False)
        filled = {field.name: {"large_string": "", "double": 0.0}.get(str(field.type), 0) for field in schema}
        shared = {"dataset": "code", "increment": 0}
        made.append(pa.Table.from_pylist([{**filled, **shared, **row} for row in rows], schema))
    return found


def told(catalogue: Catalog, doc_id: str) -> dict[str, list[tuple[str, str]]]:
    """Outcomes and sentences by table."""
    document = FoundDocument(doc_id, "code", 0, 0, "valkey", "src/x.c", "code", "C", None, 1, "")
    found: dict[str, list[tuple[str, str]]] = {}
    for one in corpus_findings(catalogue, CORPUS, document)[0]:
        found.setdefault(one.table.removeprefix("main."), []).append((one.outcome, one.sentence))
    return found


def test_a_file_that_goes_with_its_repository_names_both_and_how_alike_they_are(catalogue: Catalog) -> None:
    """The repository, its witness, J and containment; then the file's own witness, below the threshold as well."""
    found = told(catalogue, FORKED)
    ((outcome, sentence),) = found["repository_removals"]
    assert outcome == "leaves"
    assert sentence.startswith(
        "its repository valkey goes for redis of code, J = 75 / 100 = 0.7500, containment 0.9500"
    )
    assert found["repository_containments"] == [
        ("contains", "0.9000 of repository lua of code is in valkey of code, J = 0.0891")
    ]
    (_, (outcome, sentence)) = found["removals"]
    assert outcome == "removed"
    assert sentence == (
        f"at 0.8 (applied): removed with its repository, J = 75 / 100 = 0.7500 to {KEPT} "
        "(code, repository redis, src/db.c)"
    )
    assert removed_of(catalogue, CORPUS, [FORKED, OWN]) == {FORKED: "repository"}


def test_a_file_that_its_repository_alone_has_is_told_to_stay(catalogue: Catalog) -> None:
    """Its repository goes, and it is a survivor."""
    found = told(catalogue, OWN)
    assert [outcome for outcome, _ in found["repository_removals"]] == ["leaves"]
    assert [outcome for outcome, _ in found["removals"]] == ["would_be_kept", "kept"]
    assert [outcome for outcome, _ in found["survivors"]] == ["survivor"]


def test_a_stand_in_is_told_to_be_kept_and_the_file_to_go_for_it(catalogue: Catalog) -> None:
    """Though exact duplicates were found before repositories were compared."""
    ((outcome, sentence),) = told(catalogue, STAND_IN)["exact_duplicates"]
    assert outcome == "kept"
    assert (
        sentence
        == f"kept: the same bytes as {STOOD} (code, repository valkey, src/sds.c), which goes with its repository"
    )
    assert [outcome for outcome, _ in told(catalogue, STAND_IN)["survivors"]] == ["survivor"]
    assert told(catalogue, STOOD)["removals"][-1] == (
        "removed",
        f"at 0.8 (applied): removed with its repository, J = 1 / 1 = 1.0000 to {STAND_IN} "
        "(code, repository redis, src/sds.c)",
    )
    assert removed_of(catalogue, CORPUS, [STOOD, STAND_IN]) == {STOOD: "repository"}


def test_thresholds_count_what_goes_with_repositories(catalogue: Catalog) -> None:
    """Apart from near-duplicates."""
    assert [row["repository_removed_count"] for row in kept_at_thresholds(catalogue, CORPUS)] == [1, 1]
