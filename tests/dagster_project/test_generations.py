"""What `headrace run` and `headrace corpus refresh` say of a generation before they touch it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.cli import run_command
from dagster_project.cli.run.execution import _foretold_changes
from dagster_project.resources import LakeResource
from dagster_project.run_plan import plan_runs
from dagster_project.table_asset import step_asset
from headrace.tables.settings import load_settings
from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue
from tests.blender_service.packed_tables import create_packed
from tests.dagster_project.conftest import WriteDefs
from tests.spark_jobs.lake.steps import FROZEN, NUMBERS, FactorConfig, frozen

CORPUS = "type: headrace.Corpus\nattributes: {name: small, datasets: [notes]}\n"
Said = pytest.CaptureFixture[str]


@pytest.fixture
def catalogue(lake_env: Path) -> Catalog:
    """The catalogue of a lake with one corpus: two increments, a frozen table, a packed one with two blends."""
    opened = open_catalogue(load_settings())
    packed = create_packed(opened, "small.packed_notes_16", scope="increment").append(20, seed=1)
    record(opened, packed.identifier, 0, {"small.frozen": {"versions": {"0": str(DataVersion())}}})
    create_packed(opened, "small.tokens")
    for live in (False, True):
        name = "followed" if live else "running"
        Blender(opened).create(BlendSpec((SourceSpec(packed.identifier, live=live),), seed=1, name=name))
    taken = {"dataset": "notes", "dataset_increment": 0, "arrival_count": 1}
    for increment in (0, 1):
        append(opened, "small.increments", INCREMENTS, Scope.INTAKE, {**taken, "increment": increment})
        record(opened, "small.increments", increment, {})
    append(opened, "small.numbers", NUMBERS, Scope.INCREMENT, {"n": 1, "text": "one", "increment": 0})
    record(opened, "small.numbers", 0, {})
    append(opened, "small.frozen", FROZEN, Scope.FROZEN, {"n": 1, "increment": 0})
    record(opened, "small.frozen", 0, {"small.numbers": {"versions": {"0": str(DataVersion())}}})
    return opened


def append(catalogue: Catalog, identifier: str, declared: Table, scope: Scope, row: dict[str, object]) -> None:
    """Write a row of a table."""
    table = ensure_table(catalogue, identifier, declared, {SCOPE_PROPERTY: scope.value})
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))


def record(catalogue: Catalog, identifier: str, increment: int, inputs: dict[str, object]) -> None:
    """Have the ledger say that an increment was computed with factor 2."""
    table = catalogue.load_table(identifier)
    head = table.current_snapshot()
    assert head is not None
    where = (head.snapshot_id, head.sequence_number or 0, str(table.metadata.table_uuid))
    facts = ("key", DataVersion(), "1", '{"factor":2}', inputs, *where, 1, 1, 1.0, "test", None)
    Ledger(catalogue).record([Materialization(identifier, str(increment), "frozen", *facts)])


def foretold(catalogue: Catalog, namespace: str, factor: int) -> list[str]:
    """What a run says beforehand of a frozen table of a namespace, declared with a factor."""
    config = FactorConfig(factor=factor)
    asset = step_asset(frozen, namespace, {"numbers": "small.numbers"}, config, driving_table="small.increments")
    ledger = Ledger(catalogue)
    ledger.refresh()
    with dg.DagsterInstance.ephemeral() as instance:
        definitions = dg.Definitions([asset], resources={"lake": LakeResource()})
        runs = plan_runs(definitions, [asset.key], None, instance, ledger, catalogue)
        return list(_foretold_changes(catalogue, runs))


def test_a_run_tells_what_is_frozen_before_it_starts(catalogue: Catalog) -> None:
    """Other settings leave a frozen table, and the line says so; with those that it has there is no line."""
    for factor, expected in (
        (2, []),
        (7, ["frozen with factor 2 (declared: 7); to compute it anew: headrace corpus refresh small"]),
    ):
        assert foretold(catalogue, "small", factor) == [f"small.frozen stays {line}" for line in expected]


@pytest.mark.nightly
def test_a_run_tells_before_it_starts_that_frozen_rows_cannot_have_new_columns(catalogue: Catalog) -> None:
    """They are computed anew; a column that is not declared any more changes nothing."""
    more = (*FROZEN.columns, Column("former", "int", "of an earlier version"))
    append(catalogue, "old.frozen", replace(FROZEN, columns=more), Scope.FROZEN, {"n": 1, "former": 1, "increment": 0})
    record(catalogue, "old.frozen", 0, {})
    (told,) = foretold(catalogue, "old", factor=2)
    assert "columns" not in told
    former = tuple(replace(column, type="string") if column.name == "n" else column for column in FROZEN.columns)
    append(catalogue, "older.frozen", replace(FROZEN, columns=former), Scope.FROZEN, {"n": "1", "increment": 0})
    record(catalogue, "older.frozen", 0, {})
    assert foretold(catalogue, "older", factor=2) == [
        "older.frozen is computed anew, and all that follows from it: its columns changed: older.frozen: "
        "column n is string not null, declared is long not null"
    ]


@pytest.mark.nightly
def test_refreeze_names_the_blends_that_stand_on_what_it_leaves(
    catalogue: Catalog, declare: WriteDefs, capfd: Said
) -> None:
    """It says what becomes of them and forgets what the corpus has computed; tables stay readable until the run."""
    declare("small", CORPUS)
    generation = catalogue.load_table("small.packed_notes_16").properties[GENERATION_PROPERTY]
    assert run_command(["corpus", "refresh", "small", "--yes"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert (
        "small.packed_notes_16: blends running go on with the rows that they pinned; blends followed follow it" in out
    )
    assert "4 tables of small are to be computed anew. Next: headrace run small" in out
    ledger = Ledger(catalogue)
    ledger.refresh()
    for table in ("small.increments", "small.frozen", "small.packed_notes_16"):
        assert ledger.increments(table) == {}, table
    head = catalogue.load_table("small.packed_notes_16")
    assert (head.properties[GENERATION_PROPERTY], len(head.scan().to_arrow())) == (generation, 20)
    assert run_command(["corpus", "refresh", "small", "--yes"]) == 0, "again, it changes nothing"
