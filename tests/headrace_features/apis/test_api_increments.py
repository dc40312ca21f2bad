"""Increments of an API over real Spark and Iceberg: the step asks, lands, and says what changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagster_project.inspect.documents.document_lookup import find_document, landings_of
from dagster_project.inspect.documents.landed_source import landed_source
from headrace_features.apis.schema_changes import schema_changes
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.documents import documents
from spark_jobs.sources.landing.revisions import PATH, latest_at_paths
from tests.headrace_features.apis.api_server import Api, records, serving
from tests.headrace_features.apis.conftest import api_config

# Spark leaves the socket of each collect() to the garbage collector.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def test_increments_follow_an_api(lake_at: Callable[..., Lake], tmp_path: Path) -> None:
    """Changes, a record that changes back, two versions in one increment, another schema, a fault, nothing new."""
    lake = lake_at(tmp_path / "lake")
    kept = ObjectFolder.of(lake.catalogue, "items")

    def table(name: str) -> Any:
        return lake.session().table(f"lake.items.{name}")

    def latest() -> dict[str, str]:
        found = latest_at_paths(table("documents"), table("arrivals"), PATH, "increment").where("NOT gone")
        rows = found.join(table("documents").select("doc_id", "content"), "doc_id").collect()
        return {row["path"]: row["content"] for row in rows}

    with serving(Api(records(30))) as api:
        config = api_config(api)

        def land() -> tuple[str, ...]:
            done = materialize(lake, Binding(documents, "items", {}, config, driving_table="items.arrivals"))
            inputs = {"arrivals": "items.arrivals"}
            materialize(lake, Binding(schema_changes, "items", inputs, config, driving_table="items.arrivals"))
            return done[0].computed

        def truth() -> dict[str, str]:
            return {f"items#{key}": text for key, text in api.truth.items()}

        assert land() == ("0",) and latest() == truth()
        count = len(api.asked)
        assert land() == () and len(api.asked) == 2 * count  # one listing, and no Spark
        before = api.truth[3]
        api.put(3, "changed", stars=5)
        assert land() == ("1",) and latest() == truth()
        api.put(3, before, stars="many")
        assert land() == ("2",) and latest() == truth()
        returned = table("arrivals").where("status = 'returned'").collect()
        assert sorted(row["path"] for row in returned) == ["items", "items#3"]

        from headrace_features.apis.fetch import fetch_source

        for text in ("first", "second"):  # both are fetched before any lands
            api.put(9, text)
            fetch_source("items", config.source, lake.catalogue, kept, 5)  # type: ignore[arg-type]
        assert land() == ("3",) and latest() == truth()
        assert table("documents").where("path = 'items#9'").count() == 3
        changed = table("schema_changes").where("field = 'stars'").sort("increment").collect()
        assert [(row["old_type"], row["new_type"]) for row in changed] == [(None, "integer"), ("integer", "string")]
        objects = table("arrivals").where("object IS NOT NULL").select("object", "content_sha256").collect()
        assert all(Path(row["object"]).name == row["content_sha256"] for row in objects)
        api.put(40, "on two pages")  # the list is read while it moves
        api.page_size = 3
        fetch_source("items", config.source, lake.catalogue, kept, 5)  # type: ignore[arg-type]
        api.page_size = 4
        assert land() == ("4",) and latest() == truth()
        provenance = table("provenance").sort("increment").collect()
        # Pages with a new document: the record of the last increment is on two of them.
        assert [row["object_count"] for row in provenance] == [5, 1, 0, 2, 2]
        for one in table("documents").where("increment = 0").collect()[::7]:  # doc why and trace name the page
            document = find_document(lake.catalogue, one["doc_id"])
            (arrival,) = landings_of(lake.catalogue, document)
            assert landed_source(lake.catalogue, document).arrival["location"] == arrival["location"]
        config = api_config(api, lists_all=True)
        gone = {7, 9, 40}
        for key in gone:
            del api.records[key]
        assert land() == ("5",) and latest() == truth()
        told = table("arrivals").where("increment = 5 AND status = 'gone' AND doc_id IS NOT NULL").collect()
        assert {row["path"] for row in told} == {f"items#{key}" for key in gone} and len(told) == 3
        assert land() == ()
        api.put(7, "text 7 é")
        api.records = dict(sorted(api.records.items()))  # cursors of the server are ids
        assert land() == ("6",) and latest() == truth()
        config = api_config(api, lists_all=True, unknown_fields="metadata")  # pages are read again, what is gone is not
        land()
        assert latest() == truth()
