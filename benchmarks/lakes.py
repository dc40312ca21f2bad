"""Lakes of benchmarks; in that of deduplication documents land from Parquet files, then all steps run as they are."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.session import start_session
from spark_jobs.registry import config_model, find_step

NEAR_STEPS = ("vocabulary", "bags", "background", "signatures", "buckets", "pairs", "components", "removals")
_IDENTITY = (
    Column("dataset!", "string", "dataset"),
    Column("shard!", "int", "shard"),
    Column("doc_id!", "string", "identity"),
    Column("kind!", "string", "kind"),
)
TEXTS = Table(
    name="texts",
    comment="one row per document",
    columns=(*_IDENTITY, Column("language", "string", "language"), Column("content!", "string", "text")),
    partition=("increment",),
)
MEMBERS = Table(
    name="members",
    comment="one row per document",
    columns=(*_IDENTITY, Column("place!", "long", "order")),
    partition=("increment",),
)
EXACT = Table(
    name="exact_duplicates",
    comment="none",
    columns=(Column("doc_id!", "string", "identity"),),
    partition=("increment",),
)
ARRIVALS = Table(
    name="arrivals", comment="files", columns=(Column("location!", "string", "file"),), partition=("increment",)
)


def lake_at(root: Path, master: str | None = None, extra: Mapping[str, str] | None = None) -> Lake:
    """The lake in a folder; its session starts with the first step."""
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    return Lake(catalogue, Ledger(catalogue), functools.cache(lambda: start_session(settings, master, extra)))


class FolderConfig(BaseModel):
    """Where documents come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: str


def _discover(config: FolderConfig, known: pa.Table, reread: bool, catalogue: object = None) -> pa.Table | None:
    seen = set() if reread else set(known["location"].to_pylist())
    fresh = [str(path) for path in sorted(Path(config.folder).glob("*.parquet")) if str(path) not in seen]
    return pa.table({"location": fresh[:1]}) if fresh else None


@step(version="1", scope=Scope.HISTORY, tables=(TEXTS, MEMBERS, EXACT, ARRIVALS), discover=_discover)
def texts(files, config: FolderConfig) -> Output:  # type: ignore[no-untyped-def]
    """Land one file of documents as an increment."""
    spark = files.sparkSession
    paths = [row.location for row in files.collect()]
    rows = spark.read.parquet(*paths).repartition(8)
    return Output(
        {
            "texts": rows.select("dataset", "shard", "doc_id", "kind", "language", "content"),
            "members": rows.select("dataset", "shard", "doc_id", "kind", "place"),
            "exact_duplicates": rows.where("false").select("doc_id"),
            "arrivals": files.select("location"),
        }
    )


@dataclass
class DedupLake:
    """A lake in a folder, with the seconds that each step took."""

    root: Path
    lake: Lake

    @classmethod
    def at(cls, root: Path, cores: int = 2) -> DedupLake:
        """Open it; the session starts with the first step."""
        root.mkdir(parents=True, exist_ok=True)
        return cls(root, lake_at(root, f"local[{cores}]"))

    def land(self, name: str, rows: pa.Table) -> None:
        """Put documents where the next increment finds them."""
        folder = self.root / "landing"
        folder.mkdir(exist_ok=True)
        pq.write_table(rows, folder / f"{name}.parquet")

    def run(
        self, config: dict[str, dict[str, Any]] | None = None, steps: tuple[str, ...] = NEAR_STEPS
    ) -> dict[str, float]:
        """Bring every step up to date; seconds by step. All members survive."""
        spent: dict[str, float] = {}
        folder = FolderConfig(folder=str(self.root / "landing"))
        materialize(self.lake, Binding(texts, "bench", {}, folder, driving_table="bench.arrivals"))
        for name in steps:
            model = config_model(name).model_validate((config or {}).get(name, {}))
            made = find_step(name, model)
            bound = {parameter: f"bench.{parameter}" for parameter in made.required_inputs}
            if "texts" in bound:
                bound |= {"texts": ("bench.texts",)}  # type: ignore[dict-item]
            if "survivors" in bound:
                bound |= {"survivors": "bench.members"}
            started = time.monotonic()
            materialize(self.lake, Binding(made, "bench", bound, model, driving_table="bench.arrivals"))
            spent[name] = time.monotonic() - started
        return spent

    def count(self, table: str) -> int:
        """Rows of a table."""
        self.lake.ledger.refresh()
        return sum(row.row_count for row in self.lake.ledger.places(f"bench.{table}").values())

    def rows(self, table: str, *columns: str) -> pa.Table:
        """Some columns of a table."""
        return self.lake.catalogue.load_table(f"bench.{table}").scan(selected_fields=columns or ("*",)).to_arrow()
