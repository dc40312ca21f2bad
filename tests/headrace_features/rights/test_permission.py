"""Ingest refuses what a plan would name: both ask one matcher about the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from headrace_features.rights.hits import named
from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.landing.permission import RegisterOptOuts
from headrace_features.rights.register.register import Entry, OptOut, author_hash
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS, REPOSITORIES
from tests.blender_service.packed_tables import open_lake

SALT, NOW = "salt", datetime(2026, 11, 1, tzinfo=UTC)
ADDRESSES = (
    "https://a.example/x", "http://www.a.example:8080/y?z=1", "https://b.example/", "ftp://a.example/x",
    "https://%62.example/y", "\u3000https://a.example/x", "\x0bHTTPS://b.example", "\ufeffhttp://x@a.example/x\xa0",
)  # fmt: skip
NAMES = ("Ann Lee", "Lee, Ann <ann@b.example>; Bob", "Cy")
VALUES = {
    "domain": ("a.example", "b.example", "example"),
    "url_prefix": ("https://a.example/x", "https://b.example/"),
    "repository": ("ann/pump", "ann/*", "mill"),
    "path": ("docs/*", "a.md", "b.jsonl"),
    "sha256": ("0" * 64, "1" * 64),
    "record": ("0" * 32, "b.jsonl#7"),
    "author": tuple(author_hash(SALT, name) for name in ("ann lee", "ann@b.example", "ann", "bob")),
    "dataset": ("web", "other"),
}


def rows() -> list[dict[str, Any]]:
    """Documents with every value in some column."""
    made = []
    for number in range(84):
        path = ("a.md", "docs/x/y.md", "b.jsonl#7", ADDRESSES[number % len(ADDRESSES)], "c.md")[number % 5]
        repository = (None, "ann/pump", "Ann/Other", "mill")[number % 4]
        metadata = [
            ("url", ADDRESSES[number % len(ADDRESSES)]),
            ("author", NAMES[number % 3]),
            ("other", "https://b.example/"),
        ]
        row: dict[str, Any] = dict.fromkeys(column.name for column in DOCUMENTS.all_columns)
        row |= {"doc_id": f"{number:032x}", "path": path, "repository": repository, "content_sha256": f"{number:064x}"}
        row |= {"metadata": metadata[number % 3 : number % 3 + 2], "shard": 0, "kind": "prose", "content": "a"}
        made.append({**row, "encoding": "utf-8", "byte_count": 1, "increment": 0})
    return made


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A lake with those documents, of no git repository."""
    lake = open_lake(Path(tmp_path_factory.mktemp("lake")))
    for declared in (DOCUMENTS, REPOSITORIES, ARRIVALS):
        table = ensure_table(lake, f"web.{declared.name}", declared, {})
        if declared is DOCUMENTS:
            table.append(pa.Table.from_pylist(rows(), schema=table.schema().as_arrow()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named, "paths_of_authors", lambda *_: {})
        yield lake


OPT_OUTS = st.sampled_from([(kind, value) for kind, values in VALUES.items() for value in values])


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(OPT_OUTS, max_size=5), later=st.booleans())
def test_ingest_refuses_what_a_plan_names(catalogue: Catalog, asked: list[Any], later: bool) -> None:
    """Whatever is entered; an entry whose day has not come names nothing."""
    entries = [
        Entry(OptOut("o", kind, (value,), since=NOW + timedelta(later)), f"{number}", number, NOW)
        for number, (kind, value) in enumerate(asked)
    ]
    matcher = Matcher.of(entries, SALT, NOW)
    hits = named.named_documents(catalogue, matcher)
    opted = RegisterOptOuts("web", matcher, {entry.entry: "words" for entry in entries})
    refused = {row["doc_id"] for row in rows() if opted.refusal({**row, "metadata": dict(row["metadata"])})}
    assert refused == hits.doc_ids
    assert not (later and refused)
