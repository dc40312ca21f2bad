"""Identities are golden values: were one to change, every document of every lake would be a new one."""

from __future__ import annotations

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sources.identity import document_id, json_array, sha256_hex, shard_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HASHES = st.binary(max_size=8).map(sha256_hex)


def test_doc_id_has_its_golden_values() -> None:
    """Fixed once, for every version: with a repository, without one, and beyond ASCII."""
    empty = sha256_hex(b"")
    assert empty == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert document_id("code", "attrs", "attr/__init__.py", empty) == "a82f6283fa8ff99343a7377f3483e14f"
    assert document_id("code", None, "attr/__init__.py", empty) == "2d135ef7a7b346ef71a042051a5cb9b2"
    assert (
        document_id("notes", None, 'Größe/日本.md#π "q"', sha256_hex("é".encode()))
        == "41fd914d57a9dc7cb7dbcc79526143e6"
    )


def test_doc_id_hashes_the_array_as_written_by_hand() -> None:
    """The bytes under the hash are the JSON array without white space, beyond ASCII in UTF-8."""
    array = '["d",null,"a/é.txt","00"]'
    assert document_id("d", None, "a/é.txt", "00") == hashlib.sha256(array.encode()).hexdigest()[:32]


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)))
def test_an_array_is_written_as_json_writes_it(texts: list[str | None]) -> None:
    """Every character, quotes and controls included."""
    expected = json.dumps(texts, separators=(",", ":"), ensure_ascii=False).encode()
    assert json_array(*texts) == expected


@given(NAMES, st.none() | NAMES, NAMES, HASHES)
def test_doc_id_depends_on_every_part(dataset: str, repository: str | None, path: str, content: str) -> None:
    """Another dataset, repository, path or content is another document, and null is not the word null."""
    own = document_id(dataset, repository, path, content)
    assert len(own) == 32 and int(own, 16) >= 0
    others = {
        document_id(dataset + "x", repository, path, content),
        document_id(dataset, (repository or "") + "x", path, content),
        document_id(dataset, repository, path + "x", content),
        document_id(dataset, repository, path, sha256_hex(content.encode())),
        document_id(dataset, "null" if repository is None else None, path, content),
    }
    assert own not in others and len(others) == 5


@given(NAMES, NAMES, NAMES)
def test_parts_of_an_identity_do_not_run_together(first: str, second: str, third: str) -> None:
    """Moving a character over the border of two parts changes the identity."""
    assert document_id(first + "a", second, third, "") != document_id(first, "a" + second, third, "")


@given(st.none() | NAMES, HASHES, st.integers(0, 16))
def test_shard_is_the_repositorys_and_doubling_splits_it_in_two(
    repository: str | None, doc_id: str, power: int
) -> None:
    """A repository is never split; shard s of n becomes s or s + n of 2n."""
    shards = 2**power
    shard = shard_of(repository, doc_id, shards)
    assert 0 <= shard < shards
    assert shard_of(repository, doc_id, 2 * shards) in (shard, shard + shards)
    if repository is not None:
        assert shard_of(repository, "another", shards) == shard


def test_shard_has_its_golden_values() -> None:
    """Fixed once: by repository, and by doc_id where there is none (an empty name is a name)."""
    assert [shard_of("attrs", "x", 8), shard_of("rich", "x", 8), shard_of("", "x", 8)] == [0, 5, 4]
    assert shard_of(None, "0" * 32, 1024) == 564


def test_json_writes_what_the_golden_values_were_made_of() -> None:
    """The identity leans on these two switches of the JSON writer."""
    assert json.dumps(["é", None], separators=(",", ":"), ensure_ascii=False) == '["é",null]'
