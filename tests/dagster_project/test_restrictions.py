"""Visibility as it is declared: what loads, what is refused and when, what is recorded, which reads leave a row."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from blender_service.auth.visibility import Visibility, recorded_visibility
from dagster_project.cli import run_command
from dagster_project.exceptions import DefinitionError
from dagster_project.project.loading import load_definitions
from dagster_project.restrictions import (
    note_read,
    parse_visibility,
    record_visibility,
    refuse_forbidden_reads,
    visibility_metadata,
)
from dagster_project.table_asset import Presentation, table_asset
from headrace.tables.settings import load_settings
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from tests.dagster_project.conftest import WriteDefs
from tests.tiers import sampled

ONE = Visibility("restricted", frozenset({"one"}))
ROWS = Table(name="rows", comment="one row per line", columns=(Column("line!", "string", "the line"),))
Said = pytest.CaptureFixture[str]


def dataset(visibility: str, name: str = "notes") -> str:
    """A dataset in YAML."""
    return (
        "type: headrace.Dataset\nattributes:\n"
        f"  name: {name}\n  source: {{kind: files, path: .}}\n  visibility: {visibility}\n"
    )


def corpus(visibility: str) -> str:
    """A corpus of two datasets in YAML."""
    return f"type: headrace.Corpus\nattributes:\n  name: small\n  datasets: [notes, open]\n  visibility: {visibility}\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("pubic", "did you mean 'public'"),
        ({"restrict": ["one"]}, "did you mean 'restricted'"),
        ({"restricted": []}, "names no team"),
        ({"restricted": ["a b"]}, "'a b' is no team's name"),
        ({"restricted": "one"}, "names no team"),
        (3, "write public, on_device or"),
        (None, "write public, on_device or"),
        (["one"], "write public, on_device or"),
    ],
)
def test_a_mistake_names_the_forms(given: object, said: str) -> None:
    """Whatever YAML may hold."""
    with pytest.raises(DefinitionError, match=r"^dataset notes: visibility") as refused:
        parse_visibility("dataset notes", given)
    assert said in str(refused.value) and "\n" not in str(refused.value)


@sampled(2)
@pytest.mark.parametrize(
    ("source", "reader", "mend"),
    [
        ("public", "public", None),
        ("{restricted: [one, two]}", "{restricted: [one]}", None),
        ("{restricted: [one, two]}", "on_device", None),
        ("{restricted: [one, two]}", "public", "declare `visibility: {restricted: [one, two]}` for small"),
        ("{restricted: [one, two]}", "{restricted: [one, three]}", "declare `visibility: {restricted: [one]}`"),
        ("on_device", "{restricted: [one]}", "declare `visibility: on_device` for small"),
    ],
)
def test_a_corpus_is_no_wider_than_its_datasets(
    declare: WriteDefs, lake_env: Path, capfd: Said, source: str, reader: str, mend: str | None
) -> None:
    """Refused when definitions load, so by every command, in one line."""
    declare("notes", dataset(source))
    declare("open", dataset("public", "open"))
    declare("small", corpus(reader))
    if mend is None:
        load_definitions()
        return
    assert run_command(["plan", "small"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and mend in err and "reads notes." in err


def test_a_dataset_of_a_table_is_no_wider_than_that(declare: WriteDefs, lake_env: Path, capfd: Said) -> None:
    """A source of kind iceberg is a way out of a namespace as any step is; a table of another catalogue is not ours."""
    declare("notes", dataset("{restricted: [one]}"))
    source = "{kind: iceberg, table: notes.texts, text_column: content}"
    declare("copy", dataset("public", "copy").replace("{kind: files, path: .}", source))
    assert run_command(["plan"]) == 2
    assert "reads notes.texts: notes is restricted to one, copy is public" in capfd.readouterr().err
    elsewhere = source.replace("}", ", catalogue: {name: other, type: sql, uri: 'sqlite:////nowhere.db'}}")
    declare("copy", dataset("public", "copy").replace("{kind: files, path: .}", elsewhere))
    assert load_definitions()


def test_a_table_of_ones_own_declares_it_too() -> None:
    """A table that reads restricted rows is public until it says otherwise; tables of a namespace say the same."""
    source = dg.AssetSpec(["notes", "texts"], metadata={"headrace/visibility": "restricted one"})

    def graph(*tables: tuple[str, Visibility]) -> dg.Definitions:
        made = [
            table_asset(
                table=name,
                schema=ROWS,
                inputs={"texts": "notes.texts"},
                presentation=Presentation(visibility=visibility),
            )(lambda texts: texts)
            for name, visibility in tables
        ]
        return dg.Definitions([source, *made], resources={"lake": dg.ResourceDefinition.none_resource()})

    refuse_forbidden_reads(graph(("study.rows", ONE)).resolve_asset_graph())
    with pytest.raises(DefinitionError, match=r"^study.rows reads notes.texts: notes is restricted to one, study is"):
        refuse_forbidden_reads(graph(("study.rows", Visibility())).resolve_asset_graph())
    with pytest.raises(DefinitionError, match="a namespace has one visibility"):
        refuse_forbidden_reads(
            graph(("study.rows", ONE), ("study.more", Visibility("on_device"))).resolve_asset_graph()
        )


def test_what_another_project_restricted_is_refused_in_the_plan(lake: Catalog) -> None:
    """A table that only its key is known of is as the lake records it."""

    @dg.asset(key=["study", "rows"], deps=[dg.AssetKey(["notes", "texts"])])
    def made() -> None:
        """Reads a table of another project."""

    own = dg.Definitions([dg.AssetSpec(["notes", "texts"]), made])
    graph = own.resolve_asset_graph()
    refuse_forbidden_reads(graph, recorded_visibility(lake))
    with pytest.raises(DefinitionError, match="notes is restricted to one"):
        refuse_forbidden_reads(graph, {"notes": ONE})


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """The catalogue of an empty lake."""
    return open_catalogue(load_settings())


def test_the_record_follows_the_declaration(declare: WriteDefs, lake: Catalog) -> None:
    """Narrower, wider and public again; a run that changes nothing writes nothing, other namespaces stay."""
    declare("open", dataset("on_device", "open"))
    record_visibility(lake, load_definitions().resolve_asset_graph())
    (Path.cwd() / "declared/defs/open/defs.yaml").unlink()
    for text, expected in (
        ("{restricted: [one]}", {"notes": ONE}),
        ("{restricted: [two, one]}", {"notes": Visibility("restricted", frozenset({"one", "two"}))}),
        ("on_device", {"notes": Visibility("on_device")}),
        ("public", {}),
    ):
        declare("notes", dataset(text))
        graph = load_definitions().resolve_asset_graph()
        wanted = {"open": Visibility("on_device"), **expected}
        assert record_visibility(lake, graph) == recorded_visibility(lake) == wanted
        head = lake.load_table("system.visibility").current_snapshot()
        record_visibility(lake, graph)
        assert lake.load_table("system.visibility").current_snapshot() == head


def test_a_table_beside_anothers_dataset_leaves_it_restricted(lake: Catalog) -> None:
    """Another project's table in the namespace declares nothing of the dataset, whether it reads it or not."""
    ensure_table(lake, "notes.documents", DOCUMENTS, {})
    note = dg.AssetSpec(["notes", "documents"], metadata={"headrace/visibility": "restricted one"})
    record_visibility(lake, dg.Definitions([_made(note)]).resolve_asset_graph())
    beside = _made(dg.AssetSpec(["notes", "mine"], deps=[["notes", "texts"]]))
    for others in ([dg.AssetSpec(["notes", "texts"])], []):
        graph = dg.Definitions([*others, beside]).resolve_asset_graph()
        assert record_visibility(lake, graph) == {"notes": ONE}
    refuse_forbidden_reads(graph, {"notes": ONE})
    graph = dg.Definitions([_made(dg.AssetSpec(["notes", "documents"]))]).resolve_asset_graph()
    assert record_visibility(lake, graph) == {}, "its own project widens it"


def _made(spec: dg.AssetSpec) -> dg.AssetsDefinition:
    @dg.multi_asset(specs=[spec])
    def made() -> None:
        """Materializes nothing."""

    return made


@pytest.mark.parametrize(
    "wrong",
    [
        Visibility("restricted", frozenset({"a b"})),  # would be read as two teams
        Visibility("restricted", frozenset({"a,b"})),
        Visibility("on_device", frozenset({"a"})),  # would let the team in
        Visibility("restricted"),
        Visibility("restrcted", frozenset({"a"})),
    ],
)
def test_python_declares_no_more_than_yaml(wrong: Visibility) -> None:
    """What a record would not keep as it was meant is refused."""
    with pytest.raises(DefinitionError, match=r"^study.rows: visibility"):
        visibility_metadata("study.rows", wrong)


def test_a_look_at_restricted_rows_leaves_a_row(declare: WriteDefs, lake: Catalog) -> None:
    """Of public namespaces nothing is written; the row says who looked at what, and how."""
    declare("notes", dataset("{restricted: [one]}"))
    record_visibility(lake, load_definitions().resolve_asset_graph())
    note_read(lake, ["open.documents", "open"])
    assert not lake.table_exists("system.audit")
    note_read(lake, ["notes.documents", "open.documents", "notes.texts"])
    (row,) = lake.load_table("system.audit").scan().to_arrow().to_pylist()
    assert (row["act"], row["subject"]) == ("read", "notes") and row["who"] and row["how"].startswith("headrace")
