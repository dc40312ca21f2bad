"""Files of known pairs, and which documents their identifiers name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from tests.benchmarks.loading import load

_MODULE = load("known_pairs")
read_truth, resolve = _MODULE.read_truth, _MODULE.resolve

MEMBERS = {
    "0" * 31 + "a": "one.jsonl#t1",
    "0" * 31 + "b": "one.jsonl#t2",
    "0" * 31 + "c": "two.jsonl#t2",
    "0" * 31 + "d": "plain.txt",
    "0" * 31 + "e": "plain.txt",
    "0" * 31 + "f": "only.txt",
}


def _members(rows: dict[str, str]) -> pa.Table:
    return pa.table({"doc_id": pa.array(rows, pa.string()), "path": pa.array(rows.values(), pa.string())})


def test_lines_of_three_separators_and_blanks_are_read(tmp_path: Path) -> None:
    """White space, comma, tab; a tab leaves blanks and commas inside an identifier alone; empty lines say nothing."""
    file = tmp_path / "truth.csv"
    file.write_text("a b\n\nc,d\r\n  e   f  \na file, v2.txt\tb, c.txt\n")
    pairs = read_truth(file).to_pydict()
    assert pairs == {"first": ["a", "c", "e", "a file, v2.txt"], "second": ["b", "d", "f", "b, c.txt"]}


def test_parquet_gives_the_first_two_columns(tmp_path: Path) -> None:
    """Numbers as identifiers become text."""
    file = tmp_path / "truth.parquet"
    pq.write_table(pa.table({"left": [1, 2], "right": ["x", "y"], "why": ["", ""]}), file)
    assert read_truth(file).to_pydict() == {"first": ["1", "2"], "second": ["x", "y"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a b\na\n", "line 2: 'a' is not two identifiers"),
        (b"a b c\n", "line 1: 'a b c' is not two identifiers"),
        (b"a,\n", "line 1: 'a,' is not two identifiers"),
        (b"\n", "holds no pair"),
        (b"a \xff\n", "byte 2 is not UTF-8"),
    ],
)
def test_a_file_that_is_no_truth_is_refused_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    """The message names the line, or the byte."""
    file = tmp_path / "truth.txt"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_truth(file)


def test_a_broken_or_narrow_parquet_file_is_refused(tmp_path: Path) -> None:
    """Not there; not Parquet; one column; nulls."""
    file = tmp_path / "truth.parquet"
    with pytest.raises(InputError, match="no such file"):
        read_truth(file)
    file.write_text("a b\n")
    with pytest.raises(InputError, match="give a Parquet file"):
        read_truth(file)
    pq.write_table(pa.table({"left": ["a"]}), file)
    with pytest.raises(InputError, match="it has 1 column"):
        read_truth(file)
    pq.write_table(pa.table({"left": ["a", None], "right": ["b", "c"]}), file)
    with pytest.raises(InputError, match="1 identifiers are null"):
        read_truth(file)


def test_identifiers_are_doc_ids_paths_or_record_ids() -> None:
    """One meaning is enough; two documents of one name are ambiguous; the rest is unknown; both are listed."""
    asked = ["0" * 31 + "a", "one.jsonl#t2", "t1", "t2", "plain.txt", "only.txt", "nothing", "txt"]
    found = resolve(pa.array(asked), _members(MEMBERS))
    assert found.doc_ids.to_pylist() == [
        *("0" * 31 + "a", "0" * 31 + "b", "0" * 31 + "a", None, None, "0" * 31 + "f", None, None)
    ]
    assert found.ambiguous == ("plain.txt", "t2")
    assert found.unknown == ("nothing", "txt")


def test_an_empty_corpus_knows_nothing() -> None:
    """No member, no meaning."""
    found = resolve(pa.array(["a", "b"]), _members({}))
    assert found.doc_ids.to_pylist() == [None, None] and found.unknown == ("a", "b")


NAMES = st.sampled_from(["a", "b", "x", "f#a", "g#a", "f#b", "f#a#b", "a#b"])


@given(st.dictionaries(st.sampled_from(["a", "b", "d1", "d2", "d3", "d4"]), NAMES), st.sets(NAMES | st.just("a#b")))
def test_resolution_is_that_of_a_plain_search(members: dict[str, str], asked: set[str]) -> None:
    """The first meaning (doc_id, path, record id) that any member has decides; two members make it ambiguous."""
    identifiers = sorted(asked)
    found = resolve(pa.array(identifiers, pa.string()), _members(members))
    for identifier, doc_id in zip(identifiers, found.doc_ids.to_pylist(), strict=True):
        meanings = [
            [one for one in members if one == identifier],
            [one for one, path in members.items() if path == identifier],
            [one for one, path in members.items() if "#" in path and path.split("#", 1)[1] == identifier],
        ]
        first = next((meaning for meaning in meanings if meaning), [])
        assert doc_id == (first[0] if len(first) == 1 else None)
        assert (identifier in found.unknown) == (len(first) == 0)
        assert (identifier in found.ambiguous) == (len(first) > 1)
