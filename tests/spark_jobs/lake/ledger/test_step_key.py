"""Step keys: they change with whatever decides rows, and with nothing else."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field

from spark_jobs.lake.ledger.step_key import canonical_json, config_json, step_key


class Limits(BaseModel):
    """Nested part of a config."""

    words: int = 5


class Config(BaseModel):
    """A config of which one field is only about speed."""

    limits: Limits = Limits()
    path: str = "a"
    batch: int = Field(10, json_schema_extra={"affects_rows": False})


FACTS = {
    "step": "texts",
    "version": "1",
    "config": "{}",
    "inputs": {"documents:notes.documents": {"0": "v1:1:2:0000000000000003"}},
    "place": "0",
    "chained": "",
}


def test_a_key_is_a_fixed_function_of_its_facts() -> None:
    """Golden value: were it to change, every table of every lake would be computed again."""
    assert step_key(**FACTS) == "65a5b73670de2af7f96045961f6b57a92a921fa49915293e34f40484ae799b9c"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"step": "signals"},
        {"version": "2"},
        {"config": '{"words":6}'},
        {"inputs": {"documents:notes.documents": {"0": "v1:1:2:0000000000000004"}}},
        {"inputs": {"documents:notes.documents": {"1": "v1:1:2:0000000000000003"}}},
        {"inputs": {"documents:other.documents": {"0": "v1:1:2:0000000000000003"}}},
        {"place": "1"},
        {"chained": "before"},
    ],
)
def test_every_fact_changes_the_key(change: dict[str, object]) -> None:
    """Step, code version, config, inputs, place and the key before."""
    assert step_key(**{**FACTS, **change}) != step_key(**FACTS)  # type: ignore[arg-type]


def test_the_order_of_inputs_does_not_matter() -> None:
    """Two bindings that read the same are the same."""
    one = {"a": {"0": "x", "1": "y"}, "b": {"0": "z"}}
    other = {"b": {"0": "z"}, "a": {"1": "y", "0": "x"}}
    assert step_key(**{**FACTS, "inputs": one}) == step_key(**{**FACTS, "inputs": other})  # type: ignore[arg-type]


def test_speed_is_not_part_of_a_config() -> None:
    """Defaults count like values that are given; what affects no row is left out."""
    assert config_json(Config()) == '{"limits":{"words":5},"path":"a"}'
    assert config_json(Config(batch=99)) == config_json(Config(path="a"))
    assert config_json(Config(limits=Limits(words=6))) != config_json(Config())


class Asking(BaseModel):
    """Part of a part: a setting that affects no row, and one that does."""

    seconds: float = Field(5.0, json_schema_extra={"affects_rows": False})
    tries: int = 3


class Source(BaseModel):
    """A part of which one part affects no row as a whole."""

    asking: Asking = Asking()
    pace: Asking = Field(Asking(), json_schema_extra={"affects_rows": False})
    folder: str = Field("here", json_schema_extra={"affects_rows": True})


class Outer(BaseModel):
    """A config of parts."""

    source: Source = Source()
    batch: int = Field(10, json_schema_extra={"affects_rows": False})


def test_speed_is_not_part_of_the_parts_of_a_config() -> None:
    """What affects no row is left out at every depth, and nothing beside it is."""
    assert config_json(Outer()) == '{"source":{"asking":{"tries":3},"folder":"here"}}'
    slow = Source(asking=Asking(seconds=9.0), pace=Asking(tries=9))
    assert config_json(Outer(source=slow, batch=9)) == config_json(Outer())
    assert config_json(Outer(source=Source(asking=Asking(tries=4)))) != config_json(Outer())
    assert config_json(Outer(source=Source(folder="there"))) != config_json(Outer())


class Grown(Config):
    """A config that got a setting, which may be left unset."""

    more: Limits | None = Field(None, json_schema_extra={"affects_rows": "if set"})


def test_a_setting_that_is_not_set_changes_no_key() -> None:
    """So lakes of an earlier version stay as they are; once set it counts."""
    assert config_json(Grown()) == config_json(Config())
    assert config_json(Grown(more=Limits())) != config_json(Config())


def test_canonical_json_is_one_text_for_one_value() -> None:
    """Sorted keys, no white space, characters as they are."""
    assert canonical_json({"b": [1, None], "a": "ä"}) == '{"a":"ä","b":[1,null]}'
