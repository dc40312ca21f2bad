"""The scorer `tags`: what people tagged, frozen when a run begins, so that its rows stay a function of its inputs.

    scorers: {tags: {}}
    policy: {extends: [headrace], rules: [{rule: broken, signal: tags.name, is: broken_ocr}]}

The step key has the digest of all tags of the dataset. A tag that comes later is that of the next run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, model_validator

from spark_jobs.exceptions import InputError
from spark_jobs.filters.scorer import Scorer
from spark_jobs.lake.declare.step import ConfigModel, Scope
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TABLE: Final = Table(
    name="tags",
    comment="One row per text: the tags that people gave it in the explorer, as they stood when the run began.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("name", "list<string!>", "its tags in the order of the alphabet; null without any"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
)
_DDL: Final = "shard int, doc_id string, kind string, name array<string>"


class TagsConfig(ConfigModel):
    """Which tags the run sees: those that stand when the definitions are loaded."""

    dataset: str = Field("", description="name of the dataset, which its declaration fills in")
    digest: str = Field("", description="of the tags that stand then, filled in; empty for none")
    until: str = Field(
        "", json_schema_extra={"affects_rows": False}, description="time of the newest act among them, filled in"
    )

    @model_validator(mode="before")
    @classmethod
    def _frozen(cls, values: Any) -> Any:
        """Look the tags up where the config does not have them yet."""
        if not isinstance(values, dict) or not values.get("dataset") or "digest" in values:
            return values
        from headrace_features.explore.tags import acts_of, digest_of, standing

        acts = acts_of(_lake(), values["dataset"])
        until = "" if acts.empty else acts["at"].iloc[-1].isoformat()
        return {**values, "digest": digest_of(standing(acts)), "until": until}


def _lake() -> Any:
    from headrace.tables.settings import load_settings
    from spark_jobs.lake.session.catalogue import open_to_read

    return open_to_read(load_settings())


def _rows(texts: DataFrame, config: TagsConfig) -> DataFrame:
    """Tags of every text, as the config froze them."""
    frozen = frozen_tags(config)
    return texts.select("shard", "doc_id", "kind").mapInArrow(functools.partial(tagged_batches, tags=frozen), _DDL)


def frozen_tags(config: TagsConfig) -> pa.Table:
    """Documents and the list of their tags (doc_id, name), as they stood at the time of a config.

    Raises:
        InputError: they do not stand so in the lake.
    """
    import pyarrow as pa

    from headrace_features.explore.tags import acts_of, digest_of, standing

    tagged: pd.DataFrame | None = None
    if config.digest:
        tagged = standing(acts_of(_lake(), config.dataset, _time(config.until)))
    if tagged is None:
        return pa.table({"doc_id": pa.array([], pa.string()), "name": pa.array([], pa.list_(pa.string()))})
    if digest_of(tagged) != config.digest:
        raise InputError(f"{config.dataset}.tags: the tags changed while this run was planned; run it again")
    names = tagged.groupby("doc_id", sort=True)["tag"].agg(list)
    return pa.table({"doc_id": pa.array(names.index, pa.string()), "name": pa.array(names, pa.list_(pa.string()))})


def _time(until: str) -> datetime | None:
    return datetime.fromisoformat(until) if until else None


def tagged_batches(batches: Iterable[pa.RecordBatch], tags: pa.Table) -> Iterator[pa.RecordBatch]:
    """Put the tags of documents beside them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, names = (tags[column].combine_chunks() for column in ("doc_id", "name"))
    for batch in batches:
        place = pc.index_in(batch.column("doc_id"), value_set=keys.cast(batch.column("doc_id").type))
        kept = [batch.column(column) for column in ("shard", "doc_id", "kind")]
        yield pa.RecordBatch.from_arrays([*kept, names.take(place)], names=["shard", "doc_id", "kind", "name"])


tags: Final = Scorer("tags", "1", Scope.INCREMENT, (TABLE,), TagsConfig, _rows, any_engine=True)
