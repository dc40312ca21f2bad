"""Croissant 1.1 of a dataset, a corpus or a packed table, with the fields of its RAI vocabulary that a lake knows.

Files are named by their paths below the warehouse, so that the document works beside a copy of it; their SHA-256 is
there where somebody had them read. What only people know (creator, address, citation) they state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import ListType, MapType, NestedField, StructType

from headrace_features.rights.standards.described import Described

CONFORMS_TO: Final = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
WANTED: Final = ("url", "creator", "datePublished", "citeAs", "version")
"""What the standard asks for and only people know."""
_PARQUET: Final = "application/x-parquet"  # as the standard has it; readers know no other name of it
_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileProperty fileObject fileSet format "
    "includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
_CONTEXT: Final[Mapping[str, Any]] = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}  # fmt: skip
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "sc:Boolean", "int": "cr:Int32", "long": "cr:Int64", "float": "cr:Float32", "double": "cr:Float64",
    "date": "sc:Date", "timestamp": "sc:DateTime", "timestamptz": "sc:DateTime",
}  # fmt: skip
_COLLECTION: Final[Mapping[str, str]] = {"api": "Web API", "hub": "Secondary Data Analysis"}


def croissant(described: Described, stated: Mapping[str, Any], hashes_files: bool = False) -> dict[str, Any]:
    """The document as JSON-LD.

    Args:
        described: what it is of.
        stated: further properties, and values in place of its own.
        hashes_files: whether each data file is read for its SHA-256.
    """
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": described.name,
        "conformsTo": list(CONFORMS_TO),
        "description": described.about,
        "license": _licences(described),
        "inLanguage": [name for name, _, _ in described.languages if name and len(name) in (2, 3) and name.islower()],
        "dateModified": f"{described.landed[-1]:%Y-%m-%dT%H:%M:%S}" if described.landed else None,
        "keywords": ["headrace"],
        "rai:dataCollection": described.collection,
        "rai:dataCollectionType": sorted(filter(None, set(map(_collection, described.sources.values())))),
        "rai:dataCollectionTimeframe": [f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in described.landed],
        "rai:dataPreprocessingProtocol": list(described.steps),
        "distribution": [
            part for name, table in described.tables.items() for part in _files(name, table, hashes_files)
        ],
        "recordSet": [_records(name, table) for name, table in described.tables.items()],
        **stated,
    }
    return {key: value for key, value in document.items() if value not in (None, [], "")}


def _collection(source: Mapping[str, Any]) -> str | None:
    """The word of the RAI vocabulary for kinds of sources that can be nothing else."""
    is_crawl = "urls" in source or source.get("format") == "warc"
    return "Web Scraping" if is_crawl else _COLLECTION.get(source.get("kind", ""))


def _licences(described: Described) -> list[str]:
    """Addresses of the licences on SPDX's list; the others as they are named."""
    ids = described.licence_ids
    listed = {
        f"https://spdx.org/licenses/{name.removesuffix('+')}" for name in ids if not name.startswith("LicenseRef-")
    }
    return sorted(listed) + [name for name in ids if name.startswith("LicenseRef-")]


def _files(name: str, table: IcebergTable, hashes_files: bool) -> Iterator[dict[str, Any]]:
    """A file set of the data files of the newest snapshot, and each of them with its hash."""
    files = sorted((task.file for task in table.scan().plan_files()), key=lambda file: file.file_path)
    folder = table.location().rstrip("/").rpartition("/")[0].rpartition("/")[0]
    paths = [file.file_path.removeprefix(folder).lstrip("/") for file in files]
    yield {
        "@type": "cr:FileSet", "@id": f"{name}/files", "name": f"{name}/files", "encodingFormat": _PARQUET,
        "description": f"{len(files):,} data files of snapshot {table.metadata.current_snapshot_id}", "includes": paths,
    }  # fmt: skip
    for path, file in zip(paths, files if hashes_files else (), strict=False):
        with table.io.new_input(file.file_path).open() as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type] # it reads as files do
        yield {
            "@type": "cr:FileObject", "@id": path, "name": path.rpartition("/")[2], "contentUrl": path,
            "contentSize": f"{file.file_size_in_bytes} B", "encodingFormat": _PARQUET, "sha256": sha256,
        }  # fmt: skip


def _records(name: str, table: IcebergTable) -> dict[str, Any]:
    files = {"fileSet": {"@id": f"{name}/files"}}
    fields = [_field(name, column, {**files, "extract": {"column": column.name}}) for column in table.schema().fields]
    rows = sum(task.file.record_count for task in table.scan().plan_files())
    return {
        "@type": "cr:RecordSet", "@id": name, "name": name, "description": f"{rows:,} rows of {name}", "field": fields,
    }  # fmt: skip


def _field(above: str, column: NestedField, source: dict[str, Any], place: str = "$") -> dict[str, Any]:
    """A field; of a structure one for each of its parts, taken by their place in the column."""
    path, of = f"{above}/{column.name}", column.field_type
    field: dict[str, Any] = {"@type": "cr:Field", "@id": path, "name": path, "description": column.doc}
    if isinstance(of, ListType | MapType):
        field, place = field | {"isArray": True, "arrayShape": "-1"}, f"{place}[*]"
    of = of.element_type if isinstance(of, ListType) else of
    parts = of.fields if isinstance(of, StructType) else ()
    parts = (of.key_field, of.value_field) if isinstance(of, MapType) else parts
    field["subField"] = [_field(path, part, source, f"{place}.{part.name}") for part in parts]
    if not parts:
        source = source | ({"transform": {"jsonPath": place}} if "." in place else {})
        field |= {"dataType": _TYPES.get(str(of), "sc:Text"), "source": source}
    return {key: value for key, value in field.items() if value}
