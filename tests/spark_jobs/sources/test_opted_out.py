"""What people opted out of is refused where it is read, and everything else lands as it would without them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.config import permissions
from spark_jobs.sources.config.permissions import is_withdrawn, refusal_of
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules
from spark_jobs.sources.refusals import Refusal
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS

Row = dict[str, Any]


@dataclass(frozen=True)
class Opted:
    """Opt-outs of some texts, repositories, paths and hashes of files."""

    sha256s: frozenset[str] = frozenset()
    repositories: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @property
    def has_hashes(self) -> bool:
        """Whether files are hashed first."""
        return bool(self.files)

    def refusal(self, facts: Mapping[str, Any]) -> Refusal | None:
        """By any of them."""
        named = facts.get("path") in self.paths or facts.get("repository") in self.repositories
        return refusal_of("e", "named") if named or facts.get("content_sha256") in self.files | self.sha256s else None

    def holds(self, entry: str) -> bool:
        """All do."""
        return True


def read(config: DocumentsConfig, opted: Opted | None) -> list[Row]:
    """The rows of all files of a source."""
    listing = discover(config, ARRIVAL_ROWS.empty_table())
    assert listing is not None
    rules = ReadingRules(config.dataset, 1, 10**6, config.source, opt_outs=opted)
    rows = [row for batch in read_files(iter(listing.to_batches()), rules) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def documents(rows: list[Row]) -> dict[str, Row]:
    """Documents by identity."""
    return {row["doc_id"]: row for row in rows if row["doc_id"]}


def arrivals(rows: list[Row]) -> dict[str, Row]:
    """The others, by the end of their location."""
    return {Path(row["location"]).name: row for row in rows if not row["doc_id"] and not row["facts"]}


def write(folder: Path) -> None:
    """Records as JSONL, as Parquet and in an archive, and texts."""
    records = [{"text": f"The mill of {name}.", "repo": f"o/{name}"} for name in "abcdef"]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    (folder / "a.jsonl").write_bytes(lines)
    pq.write_table(pa.Table.from_pylist([{**one, "text": one["text"] + "!"} for one in records]), folder / "b.parquet")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("c.jsonl", lines.replace(b"mill", b"well"))
        archive.writestr("c.txt", b"A text in an archive.")
    (folder / "c.zip").write_bytes(inner.getvalue())
    for name in ("d.txt", "e.txt"):
        (folder / name).write_text(f"The text {name}.")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_what_is_not_opted_out_is_as_it_would_be(
    data: st.DataObject, files_config: Callable[..., DocumentsConfig], tmp_path: Path
) -> None:
    """Each document of the source lands as it is, or is a row with the reason at its file or in it."""
    folder = tmp_path / "data"
    if not (folder / "a.jsonl").exists():
        write(folder)
    config = files_config(text_column="text", repository_column="repo")
    without = read(config, None)
    texts = {row["content_sha256"] for row in documents(without).values()}
    opted = Opted(
        frozenset(data.draw(st.sets(st.sampled_from(sorted(texts))))),
        frozenset(data.draw(st.sets(st.sampled_from([f"o/{name}" for name in "abcdef"])))),
        frozenset(data.draw(st.sets(st.sampled_from(["d.txt", "a.jsonl"])))),
        frozenset(data.draw(st.sets(st.sampled_from([_hash_of(without, name) for name in ("e.txt", "b.parquet")])))),
    )
    rows = read(config, opted)
    whole = {name for name, row in arrivals(rows).items() if row["reason"] == "opted_out" and "#" not in name}
    kept = {
        key: row
        for key, row in documents(without).items()
        if row["content_sha256"] not in opted.sha256s
        and row["repository"] not in opted.repositories
        and Path(row["location"]).name not in opted.paths
        and _hash_of(without, Path(row["location"]).name) not in opted.files
    }
    assert documents(rows) == kept
    lost = [row for key, row in documents(without).items() if key not in kept]
    in_files = [row for row in lost if Path(row["location"]).name not in whole]
    parts = [row for name, row in arrivals(rows).items() if row["reason"] == "opted_out" and "#" in name]
    assert {row["content_sha256"] for row in in_files} <= {row["content_sha256"] for row in parts}
    landed = {Path(row["location"]).name for row in kept.values()}
    assert landed.isdisjoint(whole) and landed | whole == {"a.jsonl", "b.parquet", "c.zip", "d.txt", "e.txt"}
    facts = {json.loads(row["facts"])["repository"] for row in rows if row["facts"]}
    assert facts.isdisjoint(opted.repositories)


def _hash_of(rows: list[Row], name: str) -> str:
    return str(arrivals(rows)[name]["content_sha256"])


@pytest.mark.parametrize(
    ("detail", "opted", "withdrawn"),
    [
        (refusal_of("5f", "domain a.example").detail, Opted(), False),
        (refusal_of("5f", "domain a.example").detail, None, True),
        ("robots.txt, line 3: it lets nobody in", None, False),
        (None, None, False),
    ],
)
def test_a_refusal_stays_while_its_opt_out_holds(detail: str | None, opted: Opted | None, withdrawn: bool) -> None:
    """What a site says does not hang on the register."""
    assert is_withdrawn(detail, opted) == withdrawn


def test_the_default_stands_in_no_config(files_config: Callable[..., DocumentsConfig]) -> None:
    """So that lakes from before the setting read nothing again; another choice does."""
    default, changed = files_config(), files_config(rights={"ask": "register"})
    assert "rights" not in config_json(default) and '"ask":"register"' in config_json(changed)
    assert files_config(rights={"ask": "site"}) == default


def test_without_the_feature_a_register_is_not_overlooked(
    files_config: Callable[..., DocumentsConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lake has none, or nobody is to be asked, the core goes on."""
    monkeypatch.setattr(permissions, "brought", lambda group: {})
    monkeypatch.setattr(permissions, "missing", lambda group: {"rights": "rights"})
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    config = files_config()
    assert permissions.permissions_of(config, catalogue) is None
    declared = Table(name="opt_outs", comment="A table.", columns=(Column("a!", "int", "a"),))
    ensure_table(catalogue, "system.opt_outs", declared, {})
    with pytest.raises(ConfigError, match="the lake has opt-outs"):
        permissions.permissions_of(config, catalogue)
    nobody = files_config(rights={"ask": "nobody", "reason": "a test"})
    assert permissions.permissions_of(nobody, catalogue) is None
