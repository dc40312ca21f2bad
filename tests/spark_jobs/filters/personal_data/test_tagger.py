"""The model: what it learns, that it is the same every time, and bad input."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.filters.personal_data.registered_tagger import read_list
from spark_jobs.filters.personal_data.tagger import Lists, load, train

NAMES = ["Ada Byron", "Grace Hopper", "Zoë Šimić", "Linus T. Berg", "Ὀρφεύς", "Mary"]
PLACES = ["Porto", "New York", "Łódź", "Oslo", "Den Haag"]


def table(names: list[str], places: list[str]) -> pa.Table:
    """Labelled texts of two templates, and one without a label."""
    rows = [{"content": "The compiler was slow today.", "spans": []}]
    for name in names:
        for place in places:
            content = f"My name is {name} and I live in {place}."
            starts = [len(content[: content.index(value)].encode()) for value in (name, place)]
            spans = [(starts[0], name, "name"), (starts[1], place, "place")]
            rows.append(
                {
                    "content": content,
                    "spans": [{"start": s, "end": s + len(v.encode()), "kind": k} for s, v, k in spans],
                }
            )
    return pa.Table.from_pylist(rows[::-1])


def test_a_trained_tagger_finds_names_it_has_not_seen() -> None:
    """Of the same template; spans are bytes."""
    tagger = load(train(table(NAMES, PLACES), seed=1))
    content = "My name is Björn Čapek and I live in San José."
    spans = tagger.tag(pa.array(["", content, "The compiler was slow today.", "x" * 70_000]))
    found = [(s.kind, content.encode()[s.start : s.end].decode()) for s in spans[1]]
    assert found == [("name", "Björn Čapek"), ("place", "San José")]
    assert [len(of_text) for of_text in spans] == [0, 2, 0, 0]
    assert all(0 < s.confidence <= 1 for s in spans[1])


def test_lists_tell_what_a_text_does_not() -> None:
    """Where name and place stand in the same words, only the list of cities tells them; a model keeps its lists."""
    people, cities = (
        ["Ada", "Grace", "Mary", "Linus", "Dora", "Kurt"],
        ["Porto", "Oslo", "New York", "Łódź", "St. Gallen"],
    )
    rows = []
    for kind, values in (("name", people), ("place", cities)):
        for value in values:
            span = {"start": 5, "end": 5 + len(value.encode()), "kind": kind}
            rows += [{"content": f"It's {value} again.", "spans": [span]}] * 3
    others = ["Ghent", "San José", "St. Moritz", "Bruno"]
    model = train(
        pa.Table.from_pylist(rows), seed=1, lists={"city": [*cities, *others[:3]], "first": [*people, "Bruno"]}
    )
    contents = [f"It's {value} again." for value in others]
    spans = load(model).tag(pa.array([*contents, "it's ghent again."]))
    found = [
        [(s.kind, text.encode()[s.start : s.end].decode()) for s in of]
        for text, of in zip(contents, spans[:-1], strict=True)
    ]
    assert found == [[("place", one)] for one in others[:3]] + [[("name", "Bruno")]]
    assert Lists.of({"a": ["Oslo"], "b": ["Den oslo", "- 7"]}).bits.tolist() in ([4, 9], [9, 4])
    with pytest.raises(InputError, match="32 lists; 31 are read"):
        Lists.of({str(n): ["x"] for n in range(32)})


def test_a_list_is_a_name_and_a_file(tmp_path: Path) -> None:
    """What is no such thing is one line with the mend."""
    (tmp_path / "a.txt").write_text(" Oslo\n\nNew York\n")
    (tmp_path / "b.txt").write_text("\n")
    assert read_list(f"city={tmp_path}/a.txt") == ("city", ["Oslo", "New York"])
    for bad, message in (
        ("cities.txt", "write NAME=FILE"),
        (f"a={tmp_path}/b.txt", "no line"),
        ("a=/none", "cannot be"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            read_list(bad)
        assert "\n" not in str(raised.value)


def test_a_model_is_the_same_for_the_same_table_and_seed() -> None:
    """Byte by byte."""
    assert train(table(NAMES, PLACES), seed=1, epochs=2) == train(table(NAMES, PLACES), seed=1, epochs=2)


def test_spans_of_a_long_text_are_where_they_are() -> None:
    """Texts are tagged in pieces of a million bytes."""
    tagger = load(train(table(NAMES, PLACES), seed=1))
    content = "The compiler was slow today.\n" * 38_000 + "My name is Ada Byron and I live in Oslo."
    (spans,) = tagger.tag(pa.array([content]))
    assert [content.encode()[s.start : s.end].decode() for s in spans][-2:] == ["Ada Byron", "Oslo"]


def test_bad_input_is_one_line_with_the_mend() -> None:
    """A missing column, no label at all, bytes that are no model."""
    with pytest.raises(InputError, match="no column 'spans'"):
        train(pa.table({"content": ["a"]}), seed=1)
    with pytest.raises(InputError, match="label some"):
        train(pa.table({"content": ["a"], "spans": [[]]}), seed=1)
    for damaged in (b"", b"no model", train(table(NAMES, PLACES), seed=1, epochs=1)[:-100]):
        with pytest.raises(InputError, match="no model"):
            load(damaged)
