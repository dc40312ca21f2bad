"""Blends in YAML: assets downstream of their tables, created once, called name.1, name.2, .., never changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from blender_service.server.blender import Blender
from blender_service.server.server import start
from dagster_project.asset_options import APART
from dagster_project.assets.blends import _declared_json, blend_asset, declare_blend
from dagster_project.assets.prewarming import prewarmed_asset
from dagster_project.cli import run_command
from dagster_project.exceptions import DefinitionError
from dagster_project.project.loading import load_definitions
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.project import Project, key

BLEND = """\
type: headrace.Blend
attributes:
  name: mix
  seed: 3
  owners: ["team:training"]
  sources:
    - {table: main.packed_code_16, name: code, weight: 0.7}
    - {table: main.packed_prose_16, name: prose, weight: 0.3, max_epochs: 0}
  schedule:
    - {from_offset: 20, weights: {code: 1, prose: 1}, align: true}
    - {from_offset: 50, changes: [{name: prose, remove: true}]}
"""


def declared(**changed: Any) -> dict[str, Any]:
    """What the YAML above declares, with changes."""
    sources = [
        {"table": "main.packed_code_16", "name": "code", "weight": 0.7},
        {"table": "main.packed_prose_16", "name": "prose", "weight": 0.3, "max_epochs": 0},
    ]
    return {"name": "mix", "seed": 3, "sources": sources, **changed}


def tables() -> list[dg.AssetsDefinition]:
    """Stand-ins for the assets of the packed tables."""

    def made(name: str) -> dg.AssetsDefinition:
        @dg.asset(name=name, key_prefix="main")
        def table() -> None: ...

        return table

    return [made("packed_code_16"), made("packed_prose_16")]


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """A lake with two packed tables, at the place that the assets use."""
    (tmp_path / "lake").mkdir()
    return open_catalogue(settings_at(tmp_path / "lake"))


@pytest.fixture
def packed(catalogue: Catalog) -> list[PackedFixture]:
    """Its tables."""
    return [create_packed(catalogue, f"main.packed_{name}_16").append(100, seed=1) for name in ("code", "prose")]


def project(tmp_path: Path, given: dict[str, Any], instance: dg.DagsterInstance | None = None) -> Project:
    """The project with one blend."""
    return Project(tmp_path / "lake", *tables(), blend_asset(declare_blend(given)), instance=instance)


def test_materializing_creates_the_blend_or_says_it_is_unchanged(
    tmp_path: Path, catalogue: Catalog, packed: list[PackedFixture]
) -> None:
    """The same declaration over the same tables is one blend; other weights or more data make the next one."""
    first = project(tmp_path, declared())
    assert first.run("blends.mix").success
    made = first.facts("blends.mix")
    blender = Blender(catalogue)
    assert blender.names() == {made["blend"]: ["mix.1"]}
    assert [source.weight for source in blender.config(made["blend"]).sources] == [7, 3]
    assert (made["called"], made["skipped"]) == ("mix.1", False)
    assert "| code | main.packed_code_16 |" in made["reads"]

    assert first.run("blends.mix").success
    again = first.facts("blends.mix")
    assert (again["called"], again["skipped"], again["blend"]) == ("mix.1", True, made["blend"])

    sources = [{**source, "weight": "1/2"} for source in declared()["sources"]]
    other = project(tmp_path, declared(sources=sources), first.instance)
    assert other.run("blends.mix").success
    assert other.facts("blends.mix")["called"] == "mix.2"
    packed[0].append(10, seed=2, increment=1)
    assert other.run("blends.mix").success
    assert other.facts("blends.mix")["called"] == "mix.3"
    assert blender.config(blender.resolve("mix.1")).sources[0].rows == 100


def test_a_blend_of_cells_hangs_on_their_table(tmp_path: Path, catalogue: Catalog) -> None:
    """Its sources are the cells; the table is the asset before it."""
    cells = [f'{{"quality":{number}}}' for number in range(4)]
    create_packed(catalogue, "main.packed_code_16", cells=True).append_cells(1, 0, dict.fromkeys(cells, 5))
    sources = [
        {"table": "main.packed_code_16[quality >= 2]", "weight": 3},
        {"table": "main.packed_code_16[quality<2]", "weight": 1, "name": "low"},
    ]
    given = declare_blend({"name": "mix", "sources": sources})
    assert given.tables == ["main.packed_code_16"]
    assert declare_blend({"name": "x", "sources": [{"table": "main.t[site='a\nb]']"}]}).tables == ["main.t"]
    first = project(tmp_path, {"name": "mix", "sources": sources})
    assert first.run("blends.mix").success
    config = Blender(catalogue).config(first.facts("blends.mix")["blend"])
    assert [(source.name, source.cells, source.rows) for source in config.sources] == [
        ("low", "quality<2", 10), ("main.packed_code_16.quality-ge-2", "quality>=2", 10),
    ]  # fmt: skip


def test_a_blend_is_prewarmed_before_a_training(
    tmp_path: Path, catalogue: Catalog, packed: list[PackedFixture]
) -> None:
    """Its newest version, at each server; no job of everything asks servers; one that is away fails the asset."""
    with start(catalogue) as server:
        given = declare_blend(declared(prewarm={"servers": [server.address], "rows": 50}))
        made = Project(tmp_path / "lake", *tables(), blend_asset(given), prewarmed_asset(given))
        assert not made.run("blends.mix_prewarmed").success
        assert made.run("blends.mix").success and made.run("blends.mix_prewarmed").success
        assert (
            f"{server.address}: rows 0 to 50 of mix.1 are in its cache" in made.facts("blends.mix_prewarmed")["servers"]
        )
    assert not made.run("blends.mix_prewarmed").success
    assert APART in next(iter(prewarmed_asset(given).specs)).tags and declare_blend(declared()).prewarm is None


def test_a_blend_goes_on_from_a_parent(tmp_path: Path, catalogue: Catalog, packed: list[PackedFixture]) -> None:
    """With parent and schedule the asset makes an update; a refused one fails with Blender's message."""
    first = project(tmp_path, declared())
    first.run("blends.mix")
    stage = {"from_offset": 40, "weights": {"code": 1, "prose": 1}}
    given = {"name": "later", "parent": "mix.1", "schedule": [stage]}
    second = project(tmp_path, given, first.instance)
    assert second.run("blends.later").success
    blender = Blender(catalogue)
    child = blender.config(blender.resolve("later.1"))
    assert (child.parent, child.from_offset) == (blender.resolve("mix.1"), "40")
    failed = project(tmp_path, {**given, "schedule": [{**stage, "weights": {"code": 1}}]}, first.instance)
    result = failed.run("blends.later")
    assert not result.success
    assert "prose has no weight and others have" in str(result.all_events)


def test_yaml_becomes_an_asset_downstream_of_its_tables(
    declare: WriteDefs, defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blend hangs on its packed tables, in the group blends, with its declaration as code version."""
    declare("mix", BLEND)
    (defs / "tables").mkdir()
    (defs / "tables" / "packed.py").write_text(
        "import dagster as dg\n\n"
        "@dg.asset(key_prefix='main')\ndef packed_code_16() -> None: ...\n\n"
        "@dg.asset(key_prefix='main')\ndef packed_prose_16() -> None: ...\n"
    )
    node = load_definitions().resolve_asset_graph().get(key("blends.mix"))
    assert node.parent_keys == {key("main.packed_code_16"), key("main.packed_prose_16")}
    assert (node.group_name, list(node.owners)) == ("blends", ["team:training"])
    before = node.code_version
    declare("mix", BLEND.replace("0.7", "0.6"))
    assert load_definitions().resolve_asset_graph().get(key("blends.mix")).code_version != before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (declared(parent="x"), "give sources for a new blend, or parent and schedule"),
        ({"name": "mix", "parent": "x"}, "schedule is empty"),
        (declared(sources=[{"table": "main"}]), "config sources.0.table: String should match pattern"),
        (declared(sources=[{"table": "a.b[quality>]"}]), "a value should"),
        (
            declared(sources=[{"table": "a.b", "weight": "many"}]),
            "config sources.0.weight: String should",
        ),
        (
            declared(sources=[{"table": "a.b", "epochs": 2}]),
            "config sources.0.epochs: there is no such field; did you mean 'max_epochs'",
        ),
        (
            declared(schedule=[{"from_offset": -1}]),
            "config schedule.0.from_offset: Input should",
        ),
        (
            declared(schedule=[{"from_offset": 1, "weights": {"a": 1}, "changes": [{"name": "a"}]}]),
            "schedule.0 has a in weights and in changes",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_the_project_loads(given: dict[str, Any], said: str) -> None:
    """One line that names the blend, the field and the value."""
    with pytest.raises(DefinitionError, match="blend mix") as caught:
        declare_blend(given)
    assert said in str(caught.value)


def test_headrace_run_makes_blends(
    declare: WriteDefs, defs: Path, lake_env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the blend's name, then unchanged; no Spark session starts."""
    catalogue = open_catalogue(settings_at(lake_env))
    for name in ("code", "prose"):
        create_packed(catalogue, f"main.packed_{name}_16").append(100, seed=1)
    declare("mix", BLEND)
    (defs / "tables").mkdir()
    (defs / "tables" / "packed.py").write_text(
        "import dagster as dg\n\n"
        "@dg.asset(key_prefix='main')\ndef packed_code_16() -> None: ...\n\n"
        "@dg.asset(key_prefix='main')\ndef packed_prose_16() -> None: ...\n"
    )
    statuses = []
    for _ in range(2):
        assert run_command(["run", "blends.mix", "--json"]) == 0
        line = json.loads(capsys.readouterr().out)
        statuses.append((line["table"], line["status"], line["detail"]))
    assert statuses == [("blends.mix", "computed", "mix.1"), ("blends.mix", "unchanged", "")]


def test_later_settings_change_no_blend_that_does_not_declare_them() -> None:
    """Dagster would show every blend as changed; the digest is that of the settings of November 2026."""
    sources = [{"table": "main.packed_a_16", "weight": "2"}]
    schedule: list[dict[str, Any]] = [{"from_offset": 5, "weights": {"main.packed_a_16": "1"}}]
    declared = {"name": "mix", "sources": sources, "schedule": schedule}

    def digest(**more: Any) -> str:
        return hashlib.sha256(_declared_json(declare_blend(declared | more)).encode()).hexdigest()

    assert digest() == "20df49c9f6605cc4d8968cc7229c3123190d41599167f2b0811d819f4002551f"
    others = [{"turn_rows": 2}, {"seed": 1}, {"schedule": [schedule[0] | {"window_tokens": 32}]}]
    assert len({digest(), *(digest(**more) for more in others)}) == 4
