"""Eval sets: what is read from files, what is refused, and the bytes that a registry keeps."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.eval_set import EvalSet, EvalText, decode, encode, item_id, read_eval_set

ROWS = [
    {"question": 'How many\neggs, "whole" ones?', "answer": "Ten."},
    {"question": "Und ＺＷÖLF?", "answer": "Zwölf"},
    {"question": "東京はどこ", "answer": "ten"},
]


def jsonl(rows: list[dict[str, object]]) -> bytes:
    """Rows as lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write rows to a file of the kind that its name says."""
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.name.endswith((".csv", ".tsv")):
        delimiter = "\t" if path.name.endswith(".tsv") else ","
        options = pyarrow.csv.WriteOptions(delimiter=delimiter)
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), path, options)
    elif path.name.endswith(".json"):
        path.write_text(json.dumps(rows))
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(jsonl(rows)))
    elif path.name.endswith(".bz2"):
        path.write_bytes(bz2.compress(jsonl(rows)))
    else:
        path.write_bytes(jsonl(rows))
    return path


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e.jsonl.bz2", "e.json", "e.csv", "e.tsv", "e.parquet"])
def test_every_kind_of_file_gives_the_same_content(tmp_path: Path, name: str) -> None:
    """The hash of an eval set is that of its items, not of the file or the order of its rows."""
    expected = read_eval_set("e", write(tmp_path / "first.jsonl", ROWS), ["question", "answer"])
    rows = list(ROWS)
    random.Random(1).shuffle(rows)
    read = read_eval_set("other", write(tmp_path / name, rows), ["answer", "question"])
    assert read.content_sha256 == expected.content_sha256
    assert read.items == expected.items
    assert len(read.items) == 5  # `Ten.` and `ten` are one item
    assert (read.row_count, read.empty_count, read.repeated_count) == (3, 0, 1)


def test_an_item_is_known_by_its_letters() -> None:
    """The id of a text does not depend on case, form, spacing, punctuation or line breaks."""
    assert item_id("Wie viele Eier? ½") == item_id("wie vie-\nle EIER 1/2") == item_id("ＷＩＥ VIELE eier: 1 2")
    assert item_id("Wie viele Eier 2 1") != item_id("Wie viele Eier 1 2")
    assert item_id(" ?!\0") == ""


def test_nested_values_are_lines_and_missing_ones_are_empty(tmp_path: Path) -> None:
    """Choices of a question are one text; a row without the column counts as empty."""
    rows = [{"q": "a", "choices": ["one", {"x": "two"}, 3]}, {"q": "b"}, {"q": "c", "choices": None}, {"q": "\ud800 d"}]
    read = read_eval_set("e", write(tmp_path / "e.jsonl", rows), ["q", "choices"])
    assert [item.text for item in read.items if item.column == "choices"] == ["one\ntwo\n3"]
    assert read.empty_count == 3
    assert str(read) == "e: 5 items of 4 rows; 3 empty texts and 0 repeated ones left out"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.jsonl", b"", "has no row"),
        ("e.csv", b"question,answer\n", "has no row"),
        ("e.jsonl", jsonl(ROWS), r"no column 'questoin'; did you mean 'question'\? \(there are question, answer\)"),
        ("e.jsonl", b'{"questoin": "?!"}', "all 1 texts of questoin in .* are without a letter or number"),
        ("e.jsonl", b'{"questoin": "x"}\n{', "line 2 is not JSON"),
        ("e.jsonl", b"[1]", "record 1 is a JSON int"),
        ("e.jsonl", b'{"questoin": "\xff"}', "cannot read .*utf-8"),
        ("e.jsonl.gz", gzip.compress(jsonl(ROWS), mtime=0)[:30], "cannot read"),
        ("e.parquet", b"PAR1", "cannot read"),
        ("e.xlsx", b"x", "cannot tell what .* is; end its name in .jsonl"),
        ("e", b"x", "cannot tell what"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    """The message says what is wrong with which file."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read_eval_set("e", path, ["questoin"])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "shape",
    [
        '{{"canary": "do not train", "examples": {rows}}}',
        '{{"data": {rows}, "version": "1", "tags": ["a", "b"], "authors": [{{"name": "ada"}}]}}',
        '{{\n"meta": {{"by": "ada"}}, "data": {{"train": [], "test": {rows}}}}}',
        '{{"rows": {rows}, "features": []}}',
    ],
)
def test_a_list_of_objects_under_one_key_is_the_rows(tmp_path: Path, shape: str) -> None:
    """As BIG-Bench-Hard, SQuAD-like files and exports have it; an object without such a list is a row itself."""
    items = [{"input": "which wheel turns", "target": "the first"}, {"input": "which race runs", "target": "none"}]
    (tmp_path / "task.json").write_text(shape.format(rows=json.dumps(items)))
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in items))
    (tmp_path / "one.json").write_text(json.dumps({**items[0], "choices": [{"text": "a"}]}, indent=1))
    names = "task.json", "lines.jsonl", "one.json"
    found, lines, one = (read_eval_set("bench", tmp_path / name, ["input", "target"]) for name in names)
    assert found == lines and (found.row_count, one.row_count) == (2, 1)
    (tmp_path / "two.json").write_text(json.dumps({"train": items, "test": items}))
    with pytest.raises(InputError, match="lists of objects under test, train"):
        read_eval_set("bench", tmp_path / "two.json", ["input"])


def test_a_missing_file_and_no_column_are_refused(tmp_path: Path) -> None:
    """Nothing is guessed."""
    with pytest.raises(InputError, match="cannot read"):
        read_eval_set("e", tmp_path / "none.jsonl", ["q"])
    with pytest.raises(InputError, match="no column named"):
        read_eval_set("e", write(tmp_path / "e.jsonl", ROWS), [])


def test_items_survive_their_bytes() -> None:
    """`decode` gives what `encode` was given, in one order; the bytes are the same in every version."""
    items = [EvalText("b", 'z"', "x\u2028\n"), EvalText("a", "z", "é\0"), EvalText("a", "z", "é\0")]
    assert decode(encode(items)) == (items[1], items[0])
    assert encode(items[:2]) == encode(items[1::-1])
    assert encode([EvalText("1", "q", "é")]) == b'{"format": "headrace-eval-set-1"}\n["q", "1", "\xc3\xa9"]\n'
    golden = "cb7eed2f0532a517"
    assert EvalSet("e", (EvalText("1", "q", "é"),)).content_sha256.startswith(golden)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"format": "headrace-eval-set-1"}\n["q"]\n', b"[]"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    """A registry's bytes that are not whole raise one line."""
    with pytest.raises(InputError, match="eval set: the registered bytes are damaged"):
        decode(data)


def test_another_format_is_refused() -> None:
    """Bytes of a later version are told apart from damaged ones."""
    with pytest.raises(InputError, match="format 'headrace-eval-set-2', this version reads 'headrace-eval-set-1'"):
        decode(b'{"format": "headrace-eval-set-2"}\n{}\n')
