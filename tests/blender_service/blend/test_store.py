"""Configs are values: canonical bytes, named by their hash, written once."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig, Source, load_config
from blender_service.blend.store import BlendStore, LocalStore, ObjectStore, RemoteStore, check_name, open_store
from blender_service.exceptions import (
    BlendNameTakenError,
    BlendNotFoundError,
    CatalogueError,
    InvalidBlendError,
    StoredBlendError,
)
from headrace.tables.window_facts import WindowFacts
from tests.blender_service.s3_stand_in import S3StandIn

WINDOW = WindowFacts(
    window_tokens=16, tokenizer_sha256="ab" * 32, vocabulary_size=300, end_of_document_id=1, padding_id=0
)


def make_config(seed: int = 17, weights: tuple[int, ...] = (3, 1)) -> BlendConfig:
    """Make a config of sources a, b, ..."""
    sources = tuple(
        Source(
            name=chr(97 + i),
            table=f"main.packed_{chr(97 + i)}_16",
            table_uuid="00000000-0000-0000-0000-000000000001",
            snapshot_id="9007199254740993",
            rows=10,
            generation="first",
            weight=weight,
            max_epochs=1,
            on_exhausted="END",
        )
        for i, weight in enumerate(weights)
    )
    return BlendConfig(
        order_version=1, seed=str(seed), block_rows=2048, group_blocks=16, window=WINDOW, sources=sources
    )


@pytest.fixture(params=["local", "remote"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Both kinds of places for blends, on a local directory."""
    if request.param == "local":
        return LocalStore(tmp_path / "blends")
    return RemoteStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "blends")


def test_canonical_json_never_changes() -> None:
    """Keys sorted, no floats, 64-bit ids and the seed as text: this config has this id in every version."""
    text = make_config().canonical_json().decode()
    assert json.loads(text)["seed"] == "17"
    assert json.loads(text)["sources"][0]["snapshot_id"] == "9007199254740993"
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert make_config().blend_id == hashlib.sha256(text.encode()).hexdigest()
    assert make_config().blend_id == "e693ee9c616aa2cf594c724a802bafe89a8c0e2b3bec8a1580a5b409f97bc99c"


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(1, 1000), min_size=1, max_size=5))
def test_config_round_trips(seed: int, weights: list[int]) -> None:
    """Reading the canonical bytes gives the same value and id."""
    config = make_config(seed, tuple(weights))
    assert load_config(config.blend_id, config.canonical_json()) == config


def test_damaged_config_is_refused() -> None:
    """A flipped byte or a newer order version is never served."""
    config = make_config()
    with pytest.raises(StoredBlendError, match="SHA-256"):
        load_config(config.blend_id, config.canonical_json().replace(b'"17"', b'"18"'))
    newer = config.canonical_json().replace(b'"order_version":1', b'"order_version":2')
    with pytest.raises(StoredBlendError, match="order_version"):
        load_config(hashlib.sha256(newer).hexdigest(), newer)


def test_put_is_idempotent_and_found_by_id_prefix_and_name(tmp_path: Path, objects: ObjectStore) -> None:
    """The same config twice is one object; it answers to its id, the start of it, and its names."""
    store = BlendStore(objects)
    config = make_config()
    blend_id = store.put(config)
    assert store.put(config) == blend_id
    store.bind("nightly", blend_id)
    store.bind("nightly", blend_id)
    assert store.list_ids() == [blend_id]
    assert store.get(blend_id) == config
    assert store.names() == {blend_id: ["nightly"]}
    assert {store.resolve(r) for r in (blend_id, blend_id[:6], "nightly")} == {blend_id}
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".writing-")]


def test_names_are_bound_once(objects: ObjectStore) -> None:
    """A name that stands for a blend never stands for another one."""
    store = BlendStore(objects)
    store.bind("nightly", store.put(make_config(1)))
    with pytest.raises(BlendNameTakenError, match="nightly"):
        store.bind("nightly", store.put(make_config(2)))


def test_names_of_a_blend_take_one_listing(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names there are, whoever bound them."""
    store = BlendStore(objects)
    ids = [store.put(make_config(seed)) for seed in range(3)]
    for number in range(30):
        store.bind(f"run-{number}", ids[number % 2])
    assert store.names_of(ids[0]) == sorted(f"run-{number}" for number in range(0, 30, 2))
    assert store.names_of(ids[2]) == []
    calls: list[str] = []
    for name in ("read", "list", "put_if_absent"):
        call = getattr(type(objects), name)
        monkeypatch.setattr(
            type(objects),
            name,
            lambda self, at, *more, call=call, name=name: calls.append(name) or call(self, at, *more),
        )
    again = BlendStore(objects)
    assert again.names_of(ids[1]) == sorted(f"run-{number}" for number in range(1, 30, 2))
    assert calls == ["list"]


def test_a_blend_that_is_deleted_is_gone_with_its_names(objects: ObjectStore) -> None:
    """Neither id nor names lead to it, another blend keeps its own, and a name that is free may be bound again."""
    store = BlendStore(objects)
    one, other = (store.put(make_config(seed)) for seed in (1, 2))
    for name, blend_id in (("nightly", one), ("weekly", one), ("daily", other)):
        store.bind(name, blend_id)
    store.delete(one)
    assert (store.list_ids(), store.names()) == ([other], {other: ["daily"]})
    assert not store.has(one) and store.has(other)
    for reference in ("nightly", one[:8]):
        with pytest.raises(BlendNotFoundError):
            store.resolve(reference)
    store.bind("nightly", other)
    assert store.resolve("nightly") == other


def test_unknown_references_are_refused(objects: ObjectStore) -> None:
    """Too short a prefix, an unknown name, an unknown id, a path: not found."""
    store = BlendStore(objects)
    blend_id = store.put(make_config())
    for reference in (blend_id[:5], "nightly", "../x", "", "zz"):
        with pytest.raises(BlendNotFoundError):
            store.resolve(reference)
    with pytest.raises(BlendNotFoundError):
        store.get("0" * 64)


@pytest.mark.parametrize("name", ["Upper", "abcdef", "../up", "a/b", "", "1st", "x" * 200, "line\n"])
def test_names_that_are_paths_or_ids_are_refused(name: str, tmp_path: Path) -> None:
    """A name is a plain lower-case word that cannot be read as the start of an id."""
    with pytest.raises(InvalidBlendError):
        check_name(name)


def winners(stores: Sequence[ObjectStore], path: str) -> list[int]:
    """Write one object through every store at once; give the numbers of those that succeeded."""
    won: list[int] = []
    barrier = threading.Barrier(len(stores))

    def put(number: int) -> None:
        barrier.wait()
        if stores[number].put_if_absent(path, str(number).encode() * 1000):
            won.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_one_of_many_writers_wins(tmp_path: Path) -> None:
    """Sixteen threads that bind one name: exactly one succeeds, and the file is whole."""
    store = LocalStore(tmp_path)
    (won,) = winners([store] * 16, "names/x")
    assert store.read("names/x") == str(won).encode() * 1000


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Catalog]:
    """A catalogue whose warehouse is in a stand-in for S3."""
    with S3StandIn() as store:
        yield store.catalogue(tmp_path)


@pytest.mark.nightly
def test_a_name_in_s3_is_bound_once(s3: Catalog) -> None:
    """Two writers that bind one name in the same moment, forty times: one of them succeeds, and its blend is found."""
    stores = [open_store(s3) for _ in range(2)]
    for turn in range(40):
        path = f"names/nightly-{turn}"
        (won,) = winners([store.objects for store in stores], path)
        assert stores[0].objects.read(path) == str(won).encode() * 1000
    ids = [store.put(make_config(seed)) for seed, store in enumerate(stores)]
    stores[0].bind("weekly", ids[0])
    stores[1].bind("weekly", ids[0])
    with pytest.raises(BlendNameTakenError, match="weekly"):
        stores[1].bind("weekly", ids[1])
    assert stores[1].resolve("weekly") == ids[0]


def test_without_boto3_a_blend_in_s3_is_not_written(s3: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra; what is there can be read all the same."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    store = open_store(s3)
    with pytest.raises(CatalogueError, match=r"headrace\[s3\]"):
        store.put(make_config())
    assert store.list_ids() == []
