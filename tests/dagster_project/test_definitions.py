"""The project as Dagster loads it: the demo's assets with all that the UI shows of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.definitions import definitions
from dagster_project.project.loading import load_definitions
from tests.dagster_project.project import key

_DOCS = "plugin_component_types_json"
DATASET_TABLES = (
    *("arrivals", "documents", "repositories", "provenance", "texts", "signals", "verdicts"),
    *("dependencies", "dependency_methods"),
)
CORPUS_TABLES = {
    "members": ("increments", "members", "revisions"),
    "duplicates": (
        *("exact_duplicates", "vocabulary", "bags", "background", "signatures", "buckets", "bands", "pairs"),
        *("large_buckets", "components", "removals", "survivors"),
    ),
    "tokens": ("ordered", "tokenizer", "tokenizer_certificate", "tokens"),
    "measures": ("token_statistics", "thresholds"),
}
PACKED = tuple(f"packed_{dataset}_{length}" for dataset in ("python_code", "python_docs") for length in (512, 2048))
TABLES = {
    **{f"python_code.{table}": "python_code" for table in DATASET_TABLES},
    **{f"python_docs.{table}": "python_docs" for table in DATASET_TABLES},
    **{f"main.{table}": f"main_{stage}" for stage, tables in CORPUS_TABLES.items() for table in tables},
    **{f"main.{table}": "main_packed" for table in PACKED},
}


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    """The project's own definitions."""
    return load_definitions()


def test_the_demo_declares_exactly_these_tables(loaded: dg.Definitions) -> None:
    """A dataset in the group of its name, a corpus in one for each stage, and what maintains the lake."""
    graph = loaded.resolve_asset_graph()
    groups = {".".join(asset.path): graph.get(asset).group_name for asset in graph.get_all_asset_keys()}
    tasks = ("ledger", "compaction", "expiry", "orphans", "retention", "freezing", "history")
    upkeep = {f"maintenance.{task}": "maintenance" for task in tasks}
    assert groups == {**TABLES, **upkeep}


def test_a_command_loads_no_docs_of_components(loaded: dg.Definitions) -> None:
    """Schemas of all components, a page of a code server's: for the assets of a command nobody makes them."""
    served: dg.Definitions = definitions.load_fn()
    assert [_DOCS in metadata for metadata in (served.metadata, loaded.metadata)] == [True, False]
    keys = [loaded.resolve_asset_graph().get_all_asset_keys(), served.resolve_asset_graph().get_all_asset_keys()]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("table", TABLES)
def test_every_asset_says_what_it_is(loaded: dg.Definitions, table: str) -> None:
    """Kinds, owners, description, domain, code version, columns with comments, and the code behind it."""
    node = loaded.resolve_asset_graph().get(key(table))
    assert node.kinds == {"iceberg"}
    assert list(node.owners) == ["team:headrace"]
    assert len(node.description or "") > 40
    assert node.tags["headrace/domain"] in {"sources", "text", "filters", "dedup", "code", "packing", "lake"}
    assert node.code_version
    columns = node.metadata["dagster/column_schema"].columns
    assert columns and all(column.description for column in columns)
    step, declaration = node.metadata["dagster/code_references"].code_references
    assert "spark_jobs" in Path(step.file_path).parts and step.line_number > 1
    assert Path(declaration.file_path).name == "defs.yaml"  # added by Dagster
    assert node.pools and all(pool.startswith("lake_") for pool in node.pools)


WARNINGS = {
    "arrivals": {"nothing_rejected", "few_rejected"},
    "verdicts": {"rejects_as_before"},
    "signals": {"means_as_before"},
    "removals": {"removed_are_alike"},
    "survivors": {"duplicates_as_before"},
}


def test_every_table_has_blocking_checks(loaded: dg.Definitions) -> None:
    """No table is published unaudited, and what depends on it waits for its checks."""
    graph = loaded.resolve_asset_graph()
    for table in TABLES:
        checks = graph.get(key(table)).check_keys
        assert checks, table
        warnings = {check.name for check in checks if not graph.get(check).blocking}
        assert warnings == WARNINGS.get(table.partition(".")[2], set()), table


def test_the_job_everything_holds_every_asset(loaded: dg.Definitions) -> None:
    """One job for schedules and for the UI."""
    job = loaded.resolve_job_def("everything")
    assert {".".join(asset.path) for asset in job.asset_layer.executable_asset_keys} == set(TABLES)


@pytest.mark.nightly
def test_loading_needs_neither_torch_nor_a_jvm() -> None:
    """Definitions load in seconds: no torch, no session, no step's heavy library."""
    code = (
        "import sys, json; from dagster_project.project.loading import load_definitions; load_definitions();"
        "from pyspark import SparkContext;"
        "print(json.dumps([sorted({'torch','numba','matplotlib'} & set(sys.modules)),"
        " SparkContext._active_spark_context is None]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True]
