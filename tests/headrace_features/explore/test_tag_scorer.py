"""The scorer `tags`: rows are a function of the tags that its config froze."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import load_settings
from headrace_features.explore.tag_scorer import TagsConfig, frozen_tags, tagged_batches, tags
from headrace_features.explore.tagging import Tags
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.filters.judge import failed_of
from spark_jobs.filters.policy import Policy, check_signals
from spark_jobs.lake.ledger.acts import note_acts
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("a", "b", "broken_ocr")
RULE = {"rule": "broken", "signal": "tags.name", "is": "broken_ocr"}


@pytest.fixture
def catalogue(lake_env: Any) -> Catalog:
    """An empty lake, that of the environment."""
    return open_catalogue(load_settings())


def rows_of(config: TagsConfig, ids: list[str]) -> dict[str, list[str] | None]:
    """The tags of documents by a config."""
    batch = pa.RecordBatch.from_pylist([{"shard": 0, "doc_id": one, "kind": "prose"} for one in ids])
    (tagged,) = tagged_batches([batch], frozen_tags(config))
    return dict(zip(ids, tagged.column("name").to_pylist(), strict=True))


@sampled()
@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_the_time_of_the_config(catalogue: Catalog, seed: int) -> None:
    """Of acts of chance, by a dictionary beside; a later act changes the next config, not this one."""
    draw, ids = random.Random(seed), [f"{number:032x}" for number in range(12)]
    given, beside, kept = Tags(catalogue, "notes"), dict[str, set[str]](), []
    Tags(catalogue, "others").note("tag", "a", ids, "bob")
    assert config_json(TagsConfig(dataset="notes")) == config_json(TagsConfig(dataset="notes", digest=""))
    for _ in range(8):
        act, tag, some = draw.choice(["tag", "tag", "untag"]), draw.choice(NAMES), draw.sample(ids, 5)
        given.note(act, tag, some, "ann")
        for one in some:
            (beside.setdefault(one, set()).add if act == "tag" else beside.setdefault(one, set()).discard)(tag)
        kept.append((TagsConfig(dataset="notes"), {one: sorted(beside.get(one, ())) or None for one in ids}))
    for config, wanted in kept:
        assert rows_of(config, ids) == wanted
    states = {str(wanted) for _, wanted in kept}
    assert len({config_json(config) for config, _ in kept}) == len(states), "equal tags are one step key"


def test_a_tag_that_was_written_into_the_past_is_told(catalogue: Catalog) -> None:
    """As by a clock that is behind: the rows would not be those of the step key."""
    Tags(catalogue, "notes").note("tag", "a", ["0" * 32], "ann")
    config = TagsConfig(dataset="notes")
    from datetime import datetime

    late = datetime.fromisoformat(config.until)
    note_acts(catalogue, "tag", "notes", {"doc_id": ["1" * 32], "tag": ["a"]}, who="bob", now=late)
    with pytest.raises(InputError, match="run it again"):
        frozen_tags(config)


def test_the_step_has_a_row_for_each_text(catalogue: Catalog, spark: SparkSession) -> None:
    """As every scorer has, which previews of policies ask for; with the columns of its table, on either engine."""
    ids = [f"{number:032x}" for number in range(9)]
    Tags(catalogue, "notes").note("tag", "a", ids[:3], "ann")
    texts = spark.createDataFrame(
        [(0, one, "prose", "text") for one in ids], "shard int, doc_id string, kind string, content string"
    )
    rows = tags(texts, TagsConfig(dataset="notes")).toArrow()
    assert rows.column_names == [column.name for column in tags.table.columns]
    assert dict(zip(rows["doc_id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == {
        one: ["a"] if one in ids[:3] else None for one in ids
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("large", [False, True])
def test_a_rule_is_met_where_one_of_several_tags_is_it(seed: int, large: bool) -> None:
    """Of lists of chance, with nulls and none, in slices too."""
    draw = random.Random(seed)
    lists = [draw.choice([None, [], draw.sample(NAMES, draw.randrange(1, 4))]) for _ in range(50)]
    kind = pa.large_list(pa.string()) if large else pa.list_(pa.string())
    rows = pa.record_batch({"kind": pa.array(["prose"] * 50), "tags.name": pa.array(lists, kind)}).slice(
        draw.randrange(9)
    )
    present = {"rule": "tagged", "signal": "tags.name", "is": "present"}
    policy = Policy.model_validate({"name": "p", "version": "1", "rules": [RULE, present]})
    failed = [{one["rule"] for one in each} for each in failed_of(rows, policy.rules).to_pylist()]
    wanted = [
        {*(["broken"] if one and "broken_ocr" in one else []), *(["tagged"] if one is not None else [])}
        for one in rows.column("tags.name").to_pylist()
    ]
    assert failed == wanted


@pytest.mark.parametrize("condition", [{"below": 1.0}, {"above": 1.0}, {"is": True}, {"is": 2.0}, {"not_in": ["a"]}])
def test_other_conditions_on_a_list_are_refused(condition: dict[str, Any]) -> None:
    """When definitions load, with what to write."""
    policy = Policy.model_validate({"name": "p", "version": "1", "rules": [{**RULE, "is": None} | condition]})
    with pytest.raises(ConfigError, match="write is with a text"):
        check_signals(policy, {"tags": {"name": "list<string!>"}})
