"""The opt-out register: leaves are dense, roots are RFC 9162's, and threads lose and double nothing."""

from __future__ import annotations

import hashlib
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from headrace.tables.rights_root import current_root
from headrace_features.rights import command
from headrace_features.rights.register import register
from headrace_features.rights.register.merkle import leaf_hash, root_of
from headrace_features.rights.register.register import OptOut
from headrace_features.rights.register.subjects import canonical, opt_outs_of
from spark_jobs.exceptions import InputError
from tests.blender_service.packed_tables import open_lake


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_lake(tmp_path)


def by_definition(leaves: list[bytes]) -> bytes:
    """The root by the recursive definition of RFC 9162, 2.1.1, over entries."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + by_definition(leaves[:split]) + by_definition(leaves[split:])).digest()


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_the_root_is_that_of_the_definition(entries: list[bytes]) -> None:
    """For any number of entries."""
    assert root_of([leaf_hash(entry) for entry in entries]) == by_definition(entries)


def test_what_is_read_twice_is_entered_once_and_decisions_change_its_state(catalogue: Catalog) -> None:
    """And an entry that was withdrawn can be entered anew."""
    asked = [OptOut("list", "domain", (f"site{number}.example",)) for number in range(5)]
    assert len(register.add_entries(catalogue, asked)) == 5 and not register.add_entries(catalogue, asked)
    first = asked[0].entry
    register.decide(catalogue, [first], "refused", "not theirs")
    register.note_excision(catalogue, {asked[1].entry: {"documents": ["a"]}})
    states = {entry.entry: entry.state for entry in register.entries(catalogue)}
    assert states[first] == "refused" and states[asked[1].entry] == "applied" and states[asked[2].entry] == "waiting"
    register.decide(catalogue, [first], "withdrawn", "a mistake")
    assert [entry.entry for entry in register.add_entries(catalogue, asked)] == [first]


def test_threads_append_dense_leaves_and_the_root_is_over_all_rows(catalogue: Catalog) -> None:
    """Each row's hash is over its own columns as they are read back, times included."""
    register.register_salt(catalogue)

    def enter(name: int) -> None:
        for number in range(3):
            register.add_entries(
                catalogue, [OptOut(f"asker {name}", "path", (f"é/{number}",), since=datetime.now(UTC))]
            )

    threads = [threading.Thread(target=enter, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = register.read_log(catalogue)
    assert [row["leaf"] for row in rows] == list(range(12))
    assert all(leaf_hash(register.leaf_bytes(row)).hex() == row["leaf_hash"] for row in rows)
    root = by_definition([register.leaf_bytes(row) for row in rows]).hex()
    assert current_root(catalogue) == f"12:{root}" and register.roots(catalogue)[-1]["root"] == root


def test_an_author_is_known_under_every_alias_and_written_nowhere(catalogue: Catalog) -> None:
    """Hashes are salted by lake, and do not depend on case, width or spaces."""
    [opt_out] = opt_outs_of(catalogue, "author", ["Ann  Miller", "ANN@example.org"], "ann miller")
    salt = register.register_salt(catalogue)
    assert register.author_hash(salt, "ａnn MILLER ") in opt_out.values and len(opt_out.values) == 2
    register.add_entries(catalogue, [opt_out])
    assert not any("miller" in str(row).lower() for row in register.read_log(catalogue))


def test_the_command_takes_every_kind() -> None:
    """It names them itself, so that --help need not load the register."""
    assert command._KINDS == register.KINDS


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("domain", "Example.ORG.", "example.org"),
        ("domain", "*.bücher.example", "xn--bcher-kva.example"),
        ("domain", "STRAẞE.example", "xn--strae-oqa.example"),
        ("domain", "ߒߞߏ.example", "xn--qsbf0b.example"),
        ("domain", "βόλος.com", "xn--nxasmm1c.com"),
        ("domain", "Faß.de", "xn--fa-hia.de"),
        ("domain", "نامه\u200cای.com", "xn--mgba3gch31f060k.com"),
        ("domain", "mein_büro.example", "xn--mein_bro-c6a.example"),
        ("url_prefix", "https://b%C3%BCcher.example/%C3%BC", "https://xn--bcher-kva.example/%C3%BC"),
        ("url_prefix", "HTTPS://u:p@Example.org:443", "https://example.org/"),
        ("url_prefix", "http://example.org:8080/A?b=1#c", "http://example.org:8080/A?b=1"),
        ("sha256", "SHA256:" + "AB" * 32, "ab" * 32),
    ],
)
def test_a_value_has_one_form(kind: register.Kind, value: str, stored: str) -> None:
    """However somebody writes it."""
    assert canonical(kind, value) == stored


@pytest.mark.parametrize(
    ("kind", "value"), [("domain", "a/b"), ("url_prefix", "ftp://a/b"), ("sha256", "12"), ("path", " ")]
)
def test_what_is_none_of_its_kind_is_refused(kind: register.Kind, value: str) -> None:
    """With the form that it needs."""
    with pytest.raises(InputError, match=r"give|name"):
        canonical(kind, value)
