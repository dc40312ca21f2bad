"""Croissant is valid and reads every row, SPDX has each licence with its count; neither says what nobody knows."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from dagster_project import standards
from dagster_project.exceptions import CommandError
from headrace_features.rights import command
from headrace_features.rights.standards import standards_command
from headrace_features.rights.standards.croissant import WANTED, croissant
from headrace_features.rights.standards.described import describe
from headrace_features.rights.standards.spdx import spdx
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import create_packed, open_lake

LICENCES = ["MIT", "MIT", "Apache-2.0 OR MIT", "LicenseRef-stated-Dual-License", None, "GPL-2.0-or-later"]
NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the lake."""
    return tmp_path_factory.mktemp("standards") / "warehouse"


@pytest.fixture(scope="module")
def lake(warehouse: Path) -> Catalog:
    """A corpus `main` with two packed tables; its documents lie in `notes`."""
    catalogue = open_lake(warehouse)
    fixtures = [create_packed(catalogue, f"main.packed_{size}").append(40, seed=size) for size in (16, 32)]
    catalogue.create_table("main.members", pa.schema({"doc_id": pa.string()}))  # a namespace with it is a corpus
    doc_ids = sorted({segment[0] for packed in fixtures for row in packed.rows for segment in row.segments})
    table = ensure_table(catalogue, "notes.documents", DOCUMENTS, {SCOPE_PROPERTY: "test"})
    for increment in range(2):
        rows = [row_of(doc_id, increment, at) for at, doc_id in enumerate(doc_ids) if at % 2 == increment]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return catalogue


def row_of(doc_id: str, increment: int, number: int) -> dict[str, Any]:
    """A row of `documents`."""
    return {
        "increment": increment, "shard": 0, "doc_id": doc_id, "path": f"{number}.txt", "kind": "prose",
        "language": ("en", "de", "Python")[number % 3], "licence": LICENCES[number % len(LICENCES)], "content": "é\n",
        "encoding": "utf-8", "content_sha256": "0" * 64, "byte_count": 3, "metadata": [("a", "b")],
    }  # fmt: skip


SUBJECTS = {
    "notes": ["notes.documents"],
    "main": ["main.packed_16", "main.packed_32"],
    "main.packed_32": ["main.packed_32"],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib, as mlcroissant uses it
@pytest.mark.parametrize("hashes", [False, True])
@pytest.mark.parametrize("name", SUBJECTS)
def test_croissant_is_valid_and_reads_every_row(lake: Catalog, warehouse: Path, name: str, hashes: bool) -> None:
    """By its own validator and reader, beside the files; with hashes these are those of the files."""
    mlcroissant = pytest.importorskip("mlcroissant")
    document = croissant(describe(lake, name), {"url": "https://mill.example"}, hashes)
    file = warehouse / "croissant.json"
    file.write_text(json.dumps(document))
    dataset = mlcroissant.Dataset(str(file))
    assert not dataset.metadata.ctx.issues.errors
    for part in document["distribution"]:
        if part["@type"] == "cr:FileObject":
            data = (warehouse / part["contentUrl"]).read_bytes()
            assert part["sha256"] == hashlib.sha256(data).hexdigest() and part["contentSize"] == f"{len(data)} B"
    assert any(part["@type"] == "cr:FileObject" for part in document["distribution"]) == hashes
    fields = {one.name: one for records in dataset.metadata.record_sets for one in records.fields}
    for identifier in SUBJECTS[name]:
        lists = {"notes": {"metadata"}}.get(name, {"input_ids", "segments"})
        of = {key.rpartition("/")[2]: one for key, one in fields.items() if key.startswith(f"{identifier}/")}
        assert {key for key, one in of.items() if one.is_array} == lists
        rows = list(dataset.records(identifier))
        table = lake.load_table(identifier).scan().to_arrow()
        key = "doc_id" if name == "notes" else "ordinal"
        read = [row[f"{identifier}/{key}"] for row in rows]
        assert sorted(one.decode() if isinstance(one, bytes) else one for one in read) == sorted(table[key].to_pylist())
        assert {column.partition("/")[2] for column in rows[0]} == set(table.column_names)


@pytest.mark.parametrize("name", SUBJECTS)
def test_croissant_says_what_the_lake_knows_and_no_more(lake: Catalog, name: str) -> None:
    """Licences by address, natural languages alone, times of landing; nothing that only people know."""
    document = croissant(describe(lake, name), {})
    assert document["license"] == [
        *(f"https://spdx.org/licenses/{one}" for one in ("Apache-2.0", "GPL-2.0-or-later", "MIT")),
        "LicenseRef-stated-Dual-License",
    ]
    assert sorted(document["inLanguage"]) == ["de", "en"]
    assert not set(WANTED) & set(document) and "creator" not in document
    unknown = ("rai:dataBiases", "rai:dataCollectionType", "rai:personalSensitiveInformation", "rai:dataCollection")
    assert not set(unknown) & set(document)
    described = [column["@id"] for records in document["recordSet"] for column in records["field"]]
    columns = [
        f"{table}/{column}" for table in SUBJECTS[name] for column in lake.load_table(table).schema().column_names
    ]
    assert described == [column for column in columns if column.count(".") < 2]


def test_sources_are_told_as_they_are_declared(lake: Catalog) -> None:
    """In both standards, as JSON; the kind of collection where it can be nothing else."""
    sources = {"web": {"kind": "files", "urls": "é"}, "api": {"kind": "api"}, "git": {"kind": "git"}, "notes": {}}
    described = replace(describe(lake, "main"), sources=sources)
    document = croissant(described, {})
    assert (
        document["rai:dataCollection"]
        == 'web: {"kind": "files", "urls": "é"}; api: {"kind": "api"}; git: {"kind": "git"}'
    )
    assert document["rai:dataCollectionType"] == ["Web API", "Web Scraping"]
    assert document["description"].startswith("corpus main of web, api, git, notes: ")
    assert document["rai:dataCollection"] in str(spdx(described, None, NOW))


@pytest.mark.parametrize("supplier", [None, "Mill GmbH"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_spdx_counts_documents_by_licence(lake: Catalog, name: str, supplier: str | None) -> None:
    """Each expression once, documents without to NoAssertion; the counts are those of the documents."""
    document = spdx(describe(lake, name), supplier, NOW)
    elements = {element.get("spdxId"): element for element in document["@graph"]}
    assert len(elements) == len(document["@graph"]) and all(
        element["creationInfo"] for key, element in elements.items() if key
    )
    counted = Counter[str | None]()
    for element in elements.values():
        if element["type"] == "Relationship":
            named = elements.get(element["to"][0], {}).get("simplelicensing_licenseExpression")
            assert (named is None) == element["to"][0].endswith("NoAssertionLicense")
            counted[named] += int(element["comment"].split(" ", 1)[0].replace(",", ""))
    rows = lake.load_table("notes.documents").scan().to_arrow().to_pylist()
    packed = [segment["doc_id"] for table in SUBJECTS[name] if name != "notes" for row in
              lake.load_table(table).scan().to_arrow().to_pylist() for segment in row["segments"]]  # fmt: skip
    wanted = Counter(row["licence"] for row in rows if name == "notes" or row["doc_id"] in set(packed))
    assert counted == wanted and sum(wanted.values()) > 20
    [package] = [element for element in elements.values() if element["type"] == "dataset_DatasetPackage"]
    assert ("originatedBy" in package) == (supplier is not None)


@pytest.mark.parametrize("name", SUBJECTS)
def test_spdx_is_read_by_its_model(lake: Catalog, name: str) -> None:
    """With every type, name and reference known to it."""
    model = pytest.importorskip("spdx_python_model").v3_0_1
    objects = model.SHACLObjectSet()
    text = json.dumps(spdx(describe(lake, name), "Mill GmbH", NOW))
    model.JSONLDDeserializer().read(io.BytesIO(text.encode()), objects)
    assert not objects.missing_ids
    [package] = objects.foreach_type(model.dataset_DatasetPackage)
    assert package.dataset_datasetType == [model.dataset_DatasetType.text]
    named = {
        entry.key: objects.find_by_id(entry.value).simplelicensing_licenseText
        for expression in objects.foreach_type(model.simplelicensing_LicenseExpression)
        for entry in expression.simplelicensing_customIdToUri
    }
    assert named == {"LicenseRef-stated-Dual-License": "Dual License"}


def test_commands_write_files_and_name_what_people_have_to_say(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--set` states it; an unknown name is an error with its like."""
    monkeypatch.setattr(standards_command, "lake_catalogue", lambda: lake)
    file = tmp_path / "notes.json"
    stated = ["--set", "url=https://mill.example", "--set", "creator=Mill GmbH"]
    shown = CliRunner().invoke(command.rights, ["croissant", "notes", *stated, "--output", str(file)])
    document = json.loads(file.read_text())
    assert shown.exit_code == 0 and document["creator"] == {"@type": "sc:Organization", "name": "Mill GmbH"}
    assert "datePublished" in shown.output and "url" not in shown.output.partition("people know")[2]
    printed = CliRunner().invoke(command.rights, ["spdx", "main.packed_16"])
    assert json.loads(printed.output)["@graph"]
    with pytest.raises(CommandError, match="notes"):
        describe(lake, "note")
    refused = CliRunner().invoke(command.rights, ["croissant", "notes", "--set", "url"])
    assert refused.exit_code == 1 and "PROPERTY=VALUE" in str(refused.exception)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("notes.documents", "notes"),
        ("main.packed_2048", "main.packed_2048"),
        ("notes.verdicts", None),
        ("documents", None),
    ],
)
def test_pages_of_documents_and_packed_tables_name_the_commands(
    table: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the feature is there; the words are those of its commands."""
    commands = [] if name is None else [f"`headrace rights {one} {name}`" for one in ("croissant", "spdx")]
    text = standards.standards_of_table(table)
    assert all(one in text for one in commands) and bool(text) == bool(commands)
    assert {"croissant", "spdx"} <= set(command.rights.commands)
    monkeypatch.setattr(standards, "brought", lambda group: {})
    assert standards.standards_of_table(table) == ""
