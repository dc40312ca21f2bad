"""Tables of this and of other catalogues as sources: what snapshots add, remove, delete from files and rename."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from spark_jobs.exceptions import InputError
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.spark_jobs.sources.conftest import Landing
from tests.tiers import needs_spark


def pages(*texts: str, first: int = 0) -> pa.Table:
    """Rows with an id and a text."""
    return pa.table({"url": [f"u{number}" for number in range(first, first + len(texts))], "body": list(texts)})


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """Another catalogue than the lake's."""
    return load_catalog(**properties(tmp_path))


def properties(root: Path) -> dict[str, str]:
    """Of that catalogue."""
    return {"name": "other", "type": "sql", "uri": f"sqlite:///{root}/other.db", "warehouse": f"file://{root}/other"}


def config(root: Path | None, **others: Any) -> DocumentsConfig:
    """A dataset of its table `web.pages`, or of the lake's where no root is given."""
    source = {"kind": "iceberg", "table": "web.pages", "text_column": "body", "id_column": "url", **others}
    if root is not None:
        source["catalogue"] = properties(root)
    return DocumentsConfig.model_validate({"dataset": "pages", "source": source})


def texts(landed: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None) -> list[str]:
    """What landed."""
    assert landed is not None
    return sorted(row["content"] for row in landed[0])


def test_a_snapshot_is_an_increment(catalogue: Catalog, tmp_path: Path) -> None:
    """Its new files are read and no others; an older one can be named; nothing is copied."""
    catalogue.create_namespace("web")
    table = catalogue.create_table("web.pages", schema=pages("").schema)
    table.append(pages("mill", "race"))
    landing, declared = Landing(), config(tmp_path)
    assert texts(landing.land(declared)) == ["mill", "race"]
    assert landing.land(declared) is None
    table.append(pages("sluice", first=2))
    assert texts(landing.land(declared)) == ["sluice"]
    first = table.snapshots()[0].snapshot_id
    assert texts(Landing().land(config(tmp_path, snapshot=first))) == ["mill", "race"]
    locations = {row["location"] for row in landing.arrivals}
    assert locations == {task.file.file_path for task in table.scan().plan_files()}
    with pytest.raises(InputError, match=f"web.pages has no snapshot 7; the last are {first}, "):
        Landing().land(config(tmp_path, snapshot=7))


def test_files_that_a_snapshot_removed_are_gone(catalogue: Catalog, tmp_path: Path) -> None:
    """A deletion by rewriting: the rows that stayed come with the new file."""
    catalogue.create_namespace("web")
    table = catalogue.create_table("web.pages", schema=pages("").schema)
    table.append(pages("mill", "race"))
    landing = Landing()
    landing.land(config(tmp_path))
    table.delete("url = 'u1'")
    documents, arrivals = landing.land(config(tmp_path)) or ([], [])
    assert [row["content"] for row in documents] == ["mill"]
    assert sorted(row["status"] for row in arrivals) == ["gone", "landed"]


def test_parquet_that_lies_somewhere_is_registered_and_read_there(catalogue: Catalog, tmp_path: Path) -> None:
    """By `add_files`; its files have no field ids."""
    pq.write_table(pages("mill", "race"), tmp_path / "somewhere.parquet")
    catalogue.create_namespace("web")
    table = catalogue.create_table("web.pages", schema=pages("").schema)
    table.add_files([str(tmp_path / "somewhere.parquet")])
    landing = Landing()
    assert texts(landing.land(config(tmp_path))) == ["mill", "race"]
    assert [row["location"] for row in landing.arrivals] == [str(tmp_path / "somewhere.parquet")]


def test_renamed_columns_are_those_of_the_table(catalogue: Catalog, tmp_path: Path) -> None:
    """In files written before too."""
    catalogue.create_namespace("web")
    table = catalogue.create_table("web.pages", schema=pages("").schema)
    table.append(pages("mill"))
    with table.update_schema() as update:
        update.rename_column("body", "text")
    declared = config(tmp_path, text_column="text")
    assert texts(Landing().land(declared)) == ["mill"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"table": "web.page"}, "web.page: the catalogue has no such table"),
        ({"catalogue": {"type": "sql", "uri": "${HEADRACE_NO_SUCH}"}}, "HEADRACE_NO_SUCH is not set"),
        ({"catalogue": {"type": "rest", "uri": "http://127.0.0.1:9"}}, "web.pages: .*check `catalogue`"),
    ],
)
def test_what_cannot_be_reached_is_one_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """With the table, and what to look at."""
    with pytest.raises(InputError, match=said) as error:
        Landing().land(config(tmp_path, **change) if "catalogue" not in change else config(None, **change))
    assert "\n" not in str(error.value)


@needs_spark
def test_rows_deleted_from_a_file_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another engine, in files of positions beside the data; the file is read again without them."""
    spark = lake.session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.web")
    spark.sql(
        "CREATE TABLE lake.web.pages (url string, body string) USING iceberg "
        "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.createDataFrame([(f"u{n}", f"text {n}") for n in range(9)], "url string, body string").coalesce(1).writeTo(
        "lake.web.pages"
    ).append()
    monkeypatch.setattr("spark_jobs.lake.session.catalogue.open_catalogue", lambda settings: lake.catalogue)
    landing, declared = Landing(), config(None)
    assert len(texts(landing.land(declared))) == 9
    spark.sql("DELETE FROM lake.web.pages WHERE url = 'u4'")
    (task,) = lake.catalogue.load_table("web.pages").scan().plan_files()
    assert task.delete_files, "Spark rewrote the file; the test would show nothing"
    assert declared.source.lake_tables == ("web.pages",)  # type: ignore[union-attr]
    _, arrivals = landing.land(declared) or ([], [])
    assert [row["status"] for row in arrivals] == ["unchanged"]
    again = Landing().land(declared)
    assert texts(again) == sorted(f"text {n}" for n in range(9) if n != 4)
