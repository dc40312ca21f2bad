"""Reads of documents and clusters: counted from the order, and by reading every row."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.exceptions import BlenderError, OffsetOutOfRangeError
from blender_service.order.segments import Pin
from blender_service.server.blender import Blender
from dagster_project.cli.train.blend import blend
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_documents import TableParts
from dagster_project.inspect.documents.document_keys import keys_of, number_keys
from headrace.tables.cells import cell_text, parse_choice
from headrace_features.composition.repeats import count_repeats
from headrace_features.composition.repeats_tables import blend_repeats
from spark_jobs.dedup.graph.components import COMPONENTS
from spark_jobs.dedup.graph.threshold_pairs import DEFAULT_THRESHOLDS
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import PackedFixture, Row, create_packed, open_lake, random_rows, to_arrow
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages
from tests.tiers import tries


def id_of(number: int) -> str:
    """The doc_id of a numbered document."""
    return f"{number:032x}"


def cut_rows(chance: random.Random, count: int, first: int) -> list[Row]:
    """Rows whose documents, numbered from `first`, are cut: most lie in one window, some in up to five."""
    return [
        Row(
            row.input_ids,
            tuple((id_of(first + chance.randrange(2 * count)), *segment[1:]) for segment in row.segments),
        )
        for row in random_rows(count, chance.randrange(8))
    ]


def grow(table: PackedFixture, rows: list[Row]) -> None:
    """Append rows as an increment; of a table with cells the first half is of one cell, the others are of another."""
    first, increment = len(table.rows), (table.increments or [-1])[-1] + 1
    table.rows += rows
    table.increments += [increment] * len(rows)
    if "cell" in table.table.schema().column_names:
        table.cells += [cell_text({"part": int(at >= len(rows) // 2)}) for at in range(len(rows))]
    table.table.append(to_arrow(rows, first, increment, table.table.schema(), table.cells[first:]))


def ordinals_of(table: PackedFixture, pin: Pin) -> list[int]:
    """The ordinals of a source's rows."""
    ordinals = list(range(len(table.rows)))
    if pin.cells is not None:
        ordinals = [at for at in ordinals if parse_choice(pin.cells).takes(table.cells[at])]
    return ordinals if pin.rows is None else ordinals[: pin.rows]


def counted_by_reading(
    blender: Blender, blend_id: str, offset: int, tables: dict[str, PackedFixture]
) -> dict[str, tuple[int, int]]:
    """(whole, in part) of each document, by reading all rows before an offset."""
    pins = blender.head(blend_id).pins()
    windows: Counter[tuple[str, int]] = Counter()
    for batch in blender.open(blend_id).read(0, offset, wait_seconds=1) if offset else ():
        for at in range(batch.rows):
            windows[pins[batch.source_names[batch.sources[at]]].table, int(batch.ordinals[at])] += 1
    rows: dict[str, set[int]] = defaultdict(set)
    for pin in pins.values():
        rows[pin.table].update(ordinals_of(tables[pin.table], pin))
    parts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for table, ordinals in rows.items():
        for ordinal in ordinals:
            for doc_id, *_ in tables[table].rows[ordinal].segments:
                parts[doc_id][table].append(windows[table, ordinal])
    return {
        doc_id: (sum(map(min, by_table.values())), sum(map(max, by_table.values())))
        for doc_id, by_table in parts.items()
    }


def updated_at_random(blender: Blender, blend_id: str, tables: dict[str, PackedFixture], chance: random.Random) -> str:
    """An update of a blend: other weights, growth, live, pinned, a source less or one more, of a table read already."""
    sources = blender.config(blend_id).sources
    named = {source.name: source for source in sources}
    changes = {name: SourceChange(name, weight=str(chance.randint(1, 4))) for name in named}
    name = chance.choice(sorted(named))
    kind = chance.choice(["weights", "grow", "live", "pinned", "remove", "twice"])
    if kind == "grow":
        grow(tables[named[name].table], cut_rows(chance, chance.randint(1, 12), 1000 * chance.randint(0, 2)))
    if kind in ("grow", "pinned"):
        changes[name] = SourceChange(name, weight="2", snapshot="main", live=False, max_epochs=chance.choice([0, 2]))
    elif kind == "live":
        changes[name] = SourceChange(name, weight="1", live=True)
    elif kind == "remove" and len(named) > 1:
        changes[name] = SourceChange(name, remove=True)
    elif kind == "twice" and "again" not in named:
        changes["again"] = SourceChange("again", table=chance.choice(sorted(tables)), weight="1", max_epochs=2)
    start = int(blender.config(blend_id).from_offset or 0) + chance.randint(1, 25)
    return blender.update(UpdateSpec(blend_id, (Stage(start, tuple(changes.values())),), allow_repeat=True)).blend_id


@pytest.mark.parametrize("seed", range(tries(50, 8)))
def test_repeats_equal_a_count_by_reading(tmp_path: Path, seed: int) -> None:
    """Of blends with updates, of tables that grow and that several sources read: each document, at several offsets."""
    chance = random.Random(seed)
    catalogue = open_lake(tmp_path / "warehouse")
    names = ("main.packed_a_16", "main.packed_b_16")
    tables = {name: create_packed(catalogue, name, cells=name == names[seed % 3 % 2]) for name in names}
    for number, table in enumerate(tables.values()):
        grow(table, cut_rows(chance, chance.randint(3, 25), 1000 * number))
    blender = Blender(catalogue)
    written = {names[0]: "a", names[1]: "b"}
    if seed % 3 < 2:
        written = {f"{names[seed % 3]}[part=0]": "a", names[1 - seed % 3]: "b", f"{names[seed % 3]}[part!=0]": "c"}
    sources = [
        SourceSpec(table, str(chance.randint(1, 4)), name, max_epochs=chance.choice([0, 1, 3]), on_exhausted="CONTINUE")
        for table, name in written.items()
    ]
    blend_id = blender.create(BlendSpec(tuple(sources), seed=seed, block_rows=4, group_blocks=2)).blend_id
    for _ in range(4):
        try:
            blend_id = updated_at_random(blender, blend_id, tables, chance)
        except BlenderError:  # such as a source that has nothing left
            continue
    if chance.random() < 0.5:
        tables["main.packed_a_16"].excise(
            next(at for at, row in enumerate(tables["main.packed_a_16"].rows) if len(row.segments) > 1)
        )
    end = blender.head(blend_id).end
    live = any(pin.rows is None for pin in blender.head(blend_id).pins().values())
    for offset in sorted({chance.randint(0, 60 if end is None else min(end, 200)) for _ in range(3)}):
        counted = blend_repeats(catalogue, blender, blend_id, offset)
        if live and not _is_there(blender, blend_id, offset, tables):
            continue
        wanted = counted_by_reading(blender, blend_id, offset, tables)
        assert int(counted.is_packed.sum()) == len(wanted)
        for doc_id, reads in wanted.items():
            there = counted.of(doc_id)
            assert there is not None and (there.whole, there.in_part) == reads, (seed, offset, doc_id)


def _is_there(blender: Blender, blend_id: str, offset: int, tables: dict[str, PackedFixture]) -> bool:
    """Whether all rows before an offset are there: a live source may wait for some."""
    order, pins = blender.order(blend_id), blender.head(blend_id).pins()
    found = order.resolve(np.arange(offset))
    rows = [len(ordinals_of(tables[pins[name].table], pins[name])) for name in order.names]
    return all(row < rows[source] for source, row in zip(found.source, found.ordinal, strict=True))


numbers = st.integers(0, 12)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.lists(numbers, max_size=15)), max_size=3
    ),
    st.lists(st.tuples(numbers, numbers), max_size=10),
)
def test_clusters_are_read_as_often_as_their_documents(
    tables: list[tuple[list[int], list[int]]], links: list[tuple[int, int]]
) -> None:
    """Together, in part; removed documents count as members, and clusters without a packed one are in no histogram."""
    parts, by_document = [], defaultdict(list)
    for number, (reads, documents) in enumerate(tables):
        window = [at % len(reads) for at in range(len(documents))]
        parts.append(
            TableParts(
                np.array(reads),
                np.array(window, np.int64),
                keys_of(pa.array(map(id_of, documents), pa.string())),
                np.ones(len(documents), np.int64),
            )
        )
        for at, document in zip(window, documents, strict=True):
            by_document[document, number].append(reads[at])
    ends = [keys_of(pa.array([id_of(link[side]) for link in links], pa.string())) for side in (0, 1)]
    counted = count_repeats(parts, [(ends[0], ends[1])])
    groups: dict[int, set[int]] = {number: {number} for number in range(13)}
    for one, other in links:
        together = groups[one] | groups[other]
        groups |= dict.fromkeys(together, together)
    whole, in_part = Counter[int](), Counter[int]()
    for (document, _), reads in by_document.items():
        whole[document] += min(reads)
        in_part[document] += max(reads)
    packed = {document for document, _ in by_document}
    for number in range(13):
        reads_of = counted.of(id_of(number))
        if number not in packed and groups[number] == {number} and not any(number in link for link in links):
            assert reads_of is None
            continue
        assert reads_of is not None
        together_reads = sum(in_part[each] for each in groups[number])
        assert reads_of == (whole[number], in_part[number], together_reads, len(groups[number]), number in packed)
    lines = counted.histogram()
    exact = Counter(whole[number] for number in packed)
    assert {
        line["reads"]: line["documents_whole"] for line in lines if line["reads"] < 17 and line["documents_whole"]
    } == {reads: count for reads, count in exact.items() if reads < 17}
    assert sum(line["documents_in_part"] for line in lines) == len(packed)
    assert sum(line["clusters"] for line in lines) == len({min(groups[number]) for number in packed})


def test_ids_of_any_form_have_their_keys() -> None:
    """Those that are no doc_id are hashed as doc_ids are, in a slice of an array too; a null is an id like others."""
    ids = pa.array(["x", id_of(7), "0" * 31 + "A", id_of(8), "é" * 16], pa.string())
    keys = keys_of(ids)
    assert len({tuple(key) for key in keys.tolist()}) == 5
    assert keys_of(ids[1:4]).tolist() == keys[1:4].tolist()
    assert keys_of(pa.chunked_array([ids[:2], ids[2:]])).tolist() == keys.tolist()
    assert keys_of(ids[1:2]).tolist() == keys_of(pa.array([id_of(6), id_of(7)]))[1:].tolist()
    assert keys_of(ids[:0]).shape == (0, 2)
    alike = keys_of(pa.array([id_of(number << shift) for shift in (0, 64) for number in range(1, 20_000)]))
    numbers, first = number_keys(alike)  # in no time, though they differ in few bits
    assert numbers.tolist() == list(range(len(alike))) and first.tolist() == numbers.tolist()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Catalog, PackedFixture]:
    """A corpus of five documents: 1 and 3 are packed, 2 is near 1 and 3 (two pairs), 4 repeats 1, 5 means nothing."""
    monkeypatch.chdir(tmp_path)
    catalogue = open_lake(tmp_path / "warehouse")
    table = create_packed(catalogue, "main.packed_notes_16")
    first, second, *_ = random_rows(2, 1)
    segment = (0, 4, 0)
    grow(
        table,
        [
            Row(first.input_ids, ((id_of(1), *segment),)),
            Row(second.input_ids, ((id_of(1), *segment), (id_of(3), 0, 4, 4))),
        ],
    )
    thresholds = {"thresholds": list(DEFAULT_THRESHOLDS)}
    put(
        catalogue,
        "main",
        MEMBERS,
        0,
        [{"doc_id": id_of(n), "kind": "prose"} for n in range(1, 6)],
        config='{"datasets": ["notes"]}',
    )
    put(catalogue, "main", PAIRS, 0, [], config=json.dumps(thresholds))
    put(catalogue, "main", REMOVALS, 0, [])
    put(catalogue, "main", SURVIVORS, 0, [], config='{"threshold": 0.8}', inputs={"main.removals": 1})
    put(catalogue, "main", EXACT_DUPLICATES, 0, [{"doc_id": id_of(4), "witness_doc_id": id_of(1), "matched": "bytes"}])
    linked = [{"threshold": 0.8, "doc_id": id_of(n), "component": id_of(1), "document_count": 3} for n in (1, 2, 3)]
    other = [{"threshold": 0.7, "doc_id": id_of(n), "component": id_of(3), "document_count": 2} for n in (3, 5)]
    put(catalogue, "main", COMPONENTS, 0, [*linked, *other])
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": id_of(n), "path": f"{n}.md"} for n in range(1, 6)])
    return catalogue, table


def run(*arguments: str) -> str:
    """Run `headrace blend` and give what it printed."""
    result = CliRunner().invoke(blend, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_knows_removed_duplicates(lake: tuple[Catalog, PackedFixture]) -> None:
    """Of a document that was removed: in no window, and how often what stands for it was read."""
    _, table = lake
    run("create", "mix", "--source", f"{table.identifier},max_epochs=3")
    for number, wanted in {1: (3, 3, True), 2: (0, 0, False), 3: (3, 3, True), 4: (0, 0, False)}.items():
        said = json.loads(run("repeats", "mix", "--document", f"{number}.md", "--json"))
        assert (said["whole"], said["in_part"], said["is_packed"]) == wanted
        assert (said["of_cluster"], said["cluster_documents"], said["offset"]) == (6, 4, 6)
    assert "read 0 times whole, 0 in part (it is in no window)" in run("repeats", "mix", "--document", "2.md")
    half = json.loads(run("repeats", "mix", "--at", "1", "--document", "1.md", "--json"))
    assert (half["whole"], half["in_part"]) == (0, 1)
    (line,) = json.loads(run("repeats", "mix", "--json"))["histogram"][:1]
    assert line == {"reads": 3, "most_reads": 3, "documents_whole": 2, "documents_in_part": 2, "clusters": 0}
    assert "documents, whole" in run("repeats", "mix")
    with pytest.raises(CommandError, match="in no table of blend"):
        CliRunner().invoke(blend, ["repeats", "mix", "--document", "5.md"], catch_exceptions=False)


def test_what_cannot_be_counted_is_refused(lake: tuple[Catalog, PackedFixture]) -> None:
    """No end and no row, and a row beyond the end."""
    _, table = lake
    run("create", "ends", "--source", table.identifier)
    run("create", "endless", "--source", f"{table.identifier},max_epochs=0")
    with pytest.raises(CommandError, match="has no end; say up to which row"):
        CliRunner().invoke(blend, ["repeats", "endless"], catch_exceptions=False)
    with pytest.raises(OffsetOutOfRangeError, match="3 is beyond its end 2"):
        CliRunner().invoke(blend, ["repeats", "ends", "--at", "3"], catch_exceptions=False)


def test_the_page_of_a_blend_has_the_histogram(
    lake: tuple[Catalog, PackedFixture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a piece that comes late; /repeats lists the blends with a name."""
    catalogue, table = lake
    run("create", "mix", "--source", f"{table.identifier},max_epochs=3")
    client = pages(catalogue, tmp_path)
    blend_id = Blender(catalogue).resolve("mix")
    assert f'data-late="/repeats/{blend_id}?at=6"' in client.get("/blends/mix").text
    answered: Any = asked(client, f"/repeats/{blend_id}?at=4")
    assert sum(line["documents_in_part"] for line in answered["histogram"]) == 2
    assert asked(client, "/repeats")["blends"] == {blend_id: ["mix"]}
    assert "is no whole number" in client.get(f"/repeats/{blend_id}?at=x").text
    monkeypatch.setattr("headrace_features.composition.pages._MOST_WINDOWS", 1)
    assert f"headrace blend repeats {blend_id[:12]}" in client.get(f"/repeats/{blend_id}?at=3").text
