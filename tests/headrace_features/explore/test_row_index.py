"""Lists by the index, compared with the planted rows sorted and counted in plain Python."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.exceptions import CommandError
from headrace.tables.settings import settings_at
from headrace_features.explore import index_files, row_index
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.row_index import RowIndex
from headrace_features.explore.row_query import RowQuery
from tests.headrace_features.explore.planted import ODD, Planted, drawn, plant
from tests.tiers import sampled

ROWS = drawn(230)
VERDICTS = {None: None, True: "kept", False: "rejected"}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Rows of one increment, then of another, with signals of odd names."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("lake")
        for name, value in settings_at(root).properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        lake = plant(tmp_path_factory.mktemp("index"))
        lake.add("notes", ROWS[:130], odd=True)
        lake.add("notes", ROWS[130:], increment=1)
    return lake


@pytest.fixture(scope="module")
def index(planted: Planted) -> RowIndex:
    """Their index."""
    return planted.index()


def plain(row: dict[str, Any], name: str) -> Any:
    """The value of a column of a planted row."""
    if name == "verdict":
        return VERDICTS[not row["failed"]] if "failed" in row else None
    if name == "increment":
        return int(ROWS.index(row) >= 130)
    return row[name] if name in row else row.get("scores", {}).get(name)


def distance(one: dict[str, Any]) -> float:
    """The share of the threshold that was missed."""
    value, threshold = one["value"], one["threshold"]
    return 0.0 if None in (value, threshold) else abs(value - threshold) / (abs(threshold) or 1)


def chosen(wanted: RowQuery) -> list[dict[str, Any]]:
    """The planted rows of a selection in its order, all of them."""
    rows = []
    for row in ROWS:
        failed = [one for one in row.get("failed", ()) if one["rule"] == wanted.rule]
        bounds = [(plain(row, name), ends) for name, ends in wanted.ranges.items()]
        if (
            all(str(plain(row, name)) == value for name, value in wanted.equal.items())
            and all(
                value is not None and (low is None or value >= low) and (high is None or value <= high)
                for value, (low, high) in bounds
            )
            and wanted.path.lower() in row["path"].lower()
            and (not wanted.rule or failed)
            and (wanted.ids is None or row["doc_id"] in wanted.ids)
        ):
            key = distance(failed[0]) if wanted.sort == "distance" else plain(row, wanted.sort) if wanted.sort else 0
            rows.append((key, row["doc_id"], row))
    some = sorted((one for one in rows if one[0] is not None), key=lambda one: one[:2], reverse=wanted.descending)
    none = sorted((one for one in rows if one[0] is None), key=lambda one: one[1], reverse=wanted.descending)
    return [row for _, _, row in some + none]


def paged(index: RowIndex, wanted: RowQuery, size: int) -> list[str]:
    """All rows of a list, a page at a time, each from the key at the end of the page before."""
    found: list[str] = []
    while True:
        rows = index.rows(wanted, size)
        found += [row["doc_id"] for row in rows]
        if len(rows) < size:
            return found
        wanted = replace(wanted, after=(rows[-1]["sort_key"] if wanted.sort else None, rows[-1]["doc_id"]))


SORTS = st.sampled_from(["", "path", "byte_count", "word_count", "mean_word_length", "distance", *ODD])
EQUAL = st.dictionaries(
    st.sampled_from(["kind", "language", "repository", "verdict", "increment"]),
    st.sampled_from(["prose", "code", "English", "日本語", "one", "kept", "rejected", "1", "nothing"]),
    max_size=2,
)
BOUNDS = st.tuples(*[st.sampled_from([None, -1.0, 0.0, 0.5, 2.0, 70.0])] * 2)
RANGES = st.dictionaries(st.sampled_from(["byte_count", "mean_word_length", "Größe (%)"]), BOUNDS, max_size=2)


@given(SORTS, EQUAL, RANGES, st.sampled_from(["", "", "too_short", "generated"]), st.booleans(), st.integers(1, 60))
def test_pages_by_key_are_the_sorted_list(
    index: RowIndex, sort: str, equal: Any, ranges: Any, rule: str, descending: bool, size: int
) -> None:
    """Every order and selection, with ties and nulls: each row once, nulls last, in the order of plain Python."""
    rule = rule or ("too_long" if sort == "distance" else "")
    wanted = RowQuery(equal=equal, ranges=ranges, rule=rule, sort=sort, descending=descending)
    expected = [row["doc_id"] for row in chosen(wanted)]
    assert paged(index, wanted, size) == expected
    assert index.count(wanted) == len(expected)


def test_a_filter_that_many_rows_meet_changes_no_row(index: RowIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the index of the filter or that of the order is walked, the list is the same."""
    wanted = RowQuery(
        equal={"kind": "code", "verdict": "kept"}, sort="mean_word_length", ranges={"byte_count": (1, None)}
    )
    for common in (1, 10**9):
        monkeypatch.setattr("headrace_features.explore.row_index._COMMON", common)
        assert paged(index, wanted, 7) == [row["doc_id"] for row in chosen(wanted)]


def test_filters_of_path_and_ids(index: RowIndex) -> None:
    """A part of a path in any case of ASCII letters, others as they are; named documents alone."""
    for wanted in (
        RowQuery(path="SRC/1"),
        RowQuery(path="Ä/"),
        RowQuery(ids=(ROWS[3]["doc_id"], "0" * 32)),
        RowQuery(ids=()),
    ):
        assert paged(index, wanted, 7) == [row["doc_id"] for row in chosen(wanted)]


def test_a_sample_is_the_same_for_its_seed(index: RowIndex) -> None:
    """Rows from the point on that the seed gives, round the end; every row is in some sample, filtered ones too."""
    ids = sorted(row["doc_id"] for row in chosen(RowQuery(equal={"kind": "prose"})))
    seen = set()
    for number in range(40):
        wanted = RowQuery(equal={"kind": "prose"}, seed=f"s{number}")
        point = hashlib.sha256(wanted.seed.encode()).hexdigest()[:32]
        expected = [*(one for one in ids if one > point), *(one for one in ids if one <= point)][:50]
        found = [row["doc_id"] for row in index.rows(wanted)]
        assert found == expected == [row["doc_id"] for row in index.rows(wanted)]
        seen |= set(found)
    assert seen == set(ids)


@given(EQUAL, RANGES, st.sampled_from(["", "", "too_long", "nothing"]), st.sampled_from(["", "src", "Ä/1"]))
def test_facets_and_histograms_count_as_plain_python_does(
    index: RowIndex, equal: Any, ranges: Any, rule: str, path: str
) -> None:
    """Of any selection: each value with its documents; each bin with the documents between its edges."""
    ranges = {name: ends for name, ends in ranges.items() if ends != (None, None)}
    wanted = RowQuery(equal=equal, ranges=ranges, rule=rule, path=path)
    rows, counts = chosen(wanted), index.counts(wanted)
    assert counts.total == len(rows) == index.count(wanted)
    for name in ("kind", "language", "repository", "verdict", "increment", "licence"):
        counted, others = counts.facet(name)
        assert dict(counted) == Counter(str(v) for row in rows if (v := plain(row, name)) is not None)
        assert others == 0 and [n for _, n in counted] == sorted((n for _, n in counted), reverse=True)
    failed = Counter(one["rule"] for row in rows for one in row.get("failed", ()))
    every = {name: count for name, count in failed.items() if count and rule in ("", name)}
    assert dict(counts.facet("rule")[0]) == every
    for name in ("byte_count", "word_count", "mean_word_length", *ODD):
        edges, documents, rejected = counts.histogram(name, 8)
        values = [(v, plain(row, "verdict")) for row in rows if (v := plain(row, name)) is not None]
        assert sum(documents) == len(values) and edges == sorted(edges)
        assert sum(rejected) == sum(verdict == "rejected" for _, verdict in values)
        inner = [(low, high, count) for low, high, count in zip(edges[:-1], edges[1:], documents, strict=True)][1:-1]
        for low, high, count in inner:
            within = sum(low < value < high for value, _ in values)
            assert within <= count <= within + sum(value in (low, high) for value, _ in values)


def test_counts_are_there_before_rows(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facets and ranges of a dataset whose rows are still being read; what needs rows says so, and is there later."""
    go = threading.Event()
    build = row_index.build_rows
    monkeypatch.setattr(row_index, "build_rows", lambda *given: (go.wait(60), build(*given)))
    planted.add("slow", ROWS)
    at = DatasetAt(planted.catalogue, "slow", DatasetVersion.newest(planted.catalogue, "slow"))
    index = RowIndex(at, planted.folder)
    try:
        assert index.wait_for_counts(60) and not index.wait(0)
        narrow = RowQuery(equal={"kind": "code"}, rule="too_long", ranges={"byte_count": (5, None)})
        assert not narrow.needs_rows(index.narrow)
        assert index.counts(narrow).total == len(chosen(narrow)) > 0
        path = RowQuery(path="src")
        assert path.needs_rows(index.narrow)
        with pytest.raises(CommandError, match="still being read"):
            index.counts(path)
    finally:
        go.set()
    assert index.wait(60) and index.counts(path).total == len(chosen(path))


def test_a_facet_of_many_values_has_the_first_twenty(planted: Planted) -> None:
    """And the sum of all others, however many these are."""
    rows = [{"doc_id": f"{n:032x}", "path": str(n), "repository": str(n), "language": str(n % 50)} for n in range(1100)]
    planted.add("wide", rows)
    counts = planted.index("wide", with_text=False).counts(RowQuery())
    for name, share, values in (("language", 22, 50), ("repository", 1, 1100)):
        counted, others = counts.facet(name)
        assert [n for _, n in counted] == [share] * 20 and others == share * (values - 20)


def test_quantiles_are_those_of_the_sorted_values(index: RowIndex) -> None:
    """The value at a share of the sorted column, nulls left out; None of a column without any."""
    values = sorted(row["byte_count"] for row in ROWS)
    assert index.quantile("byte_count", 0.9) == values[int(0.9 * len(values))]
    assert index.quantile("byte_count", 1.0) == values[-1]
    assert index.quantile("line_count", 0.5) == 0  # the filler of a required column


def test_an_unknown_column_names_the_nearest(index: RowIndex) -> None:
    """Whatever stands in an address never becomes SQL."""
    with pytest.raises(CommandError, match="has no column word_cont; did you mean 'word_count'"):
        index.rows(RowQuery(sort="word_cont"))
    for name in ("1; DROP TABLE rows", 'n" FROM rows --', "rowid", "doc_id"):
        with pytest.raises(CommandError, match="has no column"):
            index.rows(RowQuery(sort=name))
        with pytest.raises(CommandError, match="has no column"):
            index.counts(RowQuery()).histogram(name)
        with pytest.raises(CommandError, match="has no column"):
            index.counts(RowQuery()).facet(name)
    with pytest.raises(CommandError, match="needs a rule"):
        index.rows(RowQuery(sort="distance"))


def test_infinite_and_negative_values_have_bins(planted: Planted) -> None:
    """Of infinity, of values below a bound near zero, and of no value at all."""
    scores = [float("inf"), float("-inf"), float("nan"), None, -5.0, *[0.0] * 300, *map(float, range(1, 999, 10))]
    planted.add("far", [{"doc_id": f"{n:032x}", "scores": {"mean_word_length": v}} for n, v in enumerate(scores)])
    index = planted.index("far")
    edges, counts, _ = index.counts(RowQuery()).histogram("mean_word_length")
    assert sum(counts) == len(scores) - 2 and all(abs(edge) < 2000 for edge in edges)
    assert index.counts(RowQuery()).histogram("token_estimate")[1] == [0] * 40
    assert [row["sort_key"] for row in index.rows(RowQuery(sort="mean_word_length", descending=True), 2)] == [
        float("inf"),
        981.0 + 10,
    ]


@pytest.mark.nightly
def test_an_address_of_an_earlier_state_shows_its_rows(planted: Planted) -> None:
    """Rows, columns and increments of its snapshots; one that was never, or is no more, is refused."""
    planted.add("grown", ROWS[:20], odd=False)
    before = DatasetVersion.newest(planted.catalogue, "grown")
    planted.add("grown", ROWS[20:60], increment=1, odd=True)
    assert planted.index("grown").count(RowQuery()) == 60
    earlier = planted.index("grown", before)
    assert {row["doc_id"] for row in earlier.rows(RowQuery())} == {row["doc_id"] for row in ROWS[:20]}
    assert not set(ODD) & set(earlier.numeric) and set(ODD) <= set(planted.index("grown").numeric)
    assert DatasetVersion.parse(str(before)) == before
    for address in ("", "1", "1-2-3", "1-2-3-4-5", "a-b-c-ü", "0-0-0--1"):
        with pytest.raises(CommandError, match="no version of a dataset"):
            DatasetVersion.parse(address)
    with pytest.raises(CommandError, match="not in the lake any more"):
        DatasetAt(planted.catalogue, "grown", before._replace(texts=12345))


@pytest.mark.nightly
def test_cut_parts_are_of_the_state_that_is_shown(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Increments that went since, and parts of a table that is read in many, are of the snapshot."""
    monkeypatch.setattr(index_files.DatasetAt, "parts", _small_parts)
    planted.add("cut", ROWS[:50])
    planted.add("cut", ROWS[50:90], increment=1)
    before = DatasetVersion.newest(planted.catalogue, "cut")
    planted.catalogue.load_table("cut.documents").delete("increment = 0")
    assert planted.index("cut").count(RowQuery()) == 40
    assert planted.index("cut", before).count(RowQuery()) == 90
    assert planted.index("cut", before).count(RowQuery(equal={"verdict": "kept"})) == sum(
        plain(row, "verdict") == "kept" for row in ROWS[:90]
    )


def _small_parts(self: DatasetAt) -> Any:
    from spark_jobs.lake.files.lookups import parts

    return parts(self._catalogue, f"{self.name}.documents", 15, snapshot_id=self.version.documents or None)


IDS = st.builds("{}{}".format, *[st.sampled_from(["0" * 16, "f" * 16, "00000000deadbeef", "8" * 16])] * 2)


@given(st.lists(IDS, max_size=8), st.lists(IDS, max_size=8, unique=True), st.integers(0, 3))
def test_places_of_ids_are_those_of_arrow(ids: list[str], others: list[str], cut: int) -> None:
    """With ids of one half, of slices, in several chunks, none at all."""
    chunks = [pa.array(["1" * 32, *part], pa.string())[1:] for part in (ids[:cut], ids[cut:])]
    some, there = pa.chunked_array(chunks, pa.string()), pa.chunked_array([others], pa.large_string())
    assert index_files.places_of(some, there).to_pylist() == [others.index(i) if i in others else None for i in ids]
    halves = index_files.halves_of(some).T.tolist()
    assert [f"{first:016x}{second:016x}" for first, second in halves] == ids


@pytest.mark.nightly
def test_threads_that_build_one_index_end_with_one(planted: Planted) -> None:
    """Each finds a whole file, whoever was first, and nothing is left beside it."""
    planted.add("raced", ROWS[:100])
    found: list[RowIndex] = []
    threads = [threading.Thread(target=lambda: found.append(planted.index("raced"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.failure for one in found] == [""] * 4
    assert [one.count(RowQuery()) for one in found] == [100] * 4
    assert len([*planted.folder.glob("raced.*")]) == 3


@pytest.mark.nightly
def test_few_indexes_are_built_at_once(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many datasets a first search begins; each is whole in the end."""
    building, most, build = 0, 0, row_index.build_rows

    def counted(*given: Any) -> None:
        nonlocal building, most
        building += 1
        most = max(most, building)
        threading.Event().wait(0.05)
        build(*given)
        building -= 1

    monkeypatch.setattr(row_index, "build_rows", counted)
    names = [f"many{number}" for number in range(6)]
    for name in names:
        planted.add(name, ROWS[:20])
    versions = {name: DatasetVersion.newest(planted.catalogue, name) for name in names}
    made = [RowIndex(DatasetAt(planted.catalogue, name, versions[name]), planted.folder) for name in names]
    assert all(index.wait(60) and index.wait_for_texts(60) for index in made) and 1 <= most <= 2


@pytest.mark.nightly
def test_a_build_that_was_killed_is_begun_anew(planted: Planted) -> None:
    """What it left is not opened, and removed; a failure is told, and tried again."""
    planted.add("killed", ROWS[:30])
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    version = DatasetVersion.newest(planted.catalogue, "killed")
    left = planted.folder / f"killed.{version}.rows.4.{int(dead.stdout)}.1.tmp"
    left.write_bytes(b"SQLite format 3\0 and then no more")
    assert planted.index("killed").count(RowQuery()) == 30
    assert not left.exists()


@pytest.mark.nightly
def test_a_build_that_failed_says_why_and_is_tried_again(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a full disk; no half of a file stays."""
    planted.add("full", ROWS[:30])
    planted.shown.add("full")
    explorer = planted.explorer()
    with monkeypatch.context() as patch:
        patch.setattr("headrace_features.explore.row_index.build_rows", _full)
        with pytest.raises(CommandError, match="rows cannot be listed: OSError: No space left"):
            explorer.index("full").wait(60)
    assert not [*planted.folder.glob("full.*.rows.*")]
    assert explorer.index("full").wait(60)


def _full(*arguments: Any) -> None:
    raise OSError("No space left on device")


@pytest.mark.nightly
def test_files_of_earlier_states_go(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is gigabytes; those that were not opened for longest are deleted."""
    monkeypatch.setattr("headrace_features.explore.row_index._KEPT_FILES", 3)
    for number in range(2):
        planted.add("many", ROWS[number * 10 : number * 10 + 10], increment=number)
        planted.index("many")
    for _ in range(100):
        if len([*planted.folder.glob("many.*")]) <= 3:
            break
        threading.Event().wait(0.05)
    assert len([*planted.folder.glob("many.*")]) == 3


@pytest.mark.nightly
def test_the_earlier_state_that_is_offered_is_another(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """While rows are read, their narrow columns are there: no state but one whose rows are at hand is offered."""
    planted.add("waiting", ROWS[:10])
    before = planted.index("waiting").version
    planted.add("waiting", ROWS[10:20], increment=1)
    go_on = threading.Event()
    build = row_index.build_rows
    monkeypatch.setattr(row_index, "build_rows", lambda *given: go_on.wait(60) and build(*given))
    at = DatasetAt(planted.catalogue, "waiting", DatasetVersion.newest(planted.catalogue, "waiting"))
    building = RowIndex(at, planted.folder)
    assert building.wait_for_counts(60) and building.earlier == before
    go_on.set()
    assert building.wait(60)


@sampled(2)
@pytest.mark.parametrize("damage", ["cut", "zeros", "junk", "empty", "deleted"])
@pytest.mark.parametrize("kind", ["columns", "rows", "texts", "words"])
def test_a_damaged_file_is_built_anew(planted: Planted, kind: str, damage: str) -> None:
    """As after a power cut, or somebody's rm: a page says so at most once, then all is as before."""
    name = f"{kind}_{damage}"
    planted.add(name, ROWS[:30])
    planted.shown.add(name)
    assert planted.index(name).words.wait(60)
    pages = [
        f"/datasets/{name}/facets.json",
        f"/datasets/{name}/documents.json?sort=path",
        f"/find.json?q=text&dataset={name}",
    ]

    def shown(answer: Any) -> dict[str, Any]:
        parts = ("rows", "facets", "histograms", "selected", "documents", "count")
        return {part: answer.json()[part] for part in parts if part in answer.json()}

    client = planted.client()
    before = [shown(client.get(page)) for page in pages]
    assert all(before)
    for file in planted.folder.glob(f"{name}.*.{kind}.*"):
        whole = file.read_bytes()
        file.unlink()
        if damage != "deleted":
            file.write_bytes(
                {"cut": whole[: len(whole) // 3], "zeros": bytes(len(whole)), "junk": b"x" * 99, "empty": b""}[damage]
            )
    client = planted.client()
    for page, wanted in zip(pages, before, strict=True):
        answers = [client.get(page)]
        while shown(answers[-1]) != wanted and len(answers) < 50:
            threading.Event().wait(0.1)
            answers.append(client.get(page))
        assert shown(answers[-1]) == wanted and all(answer.status_code < 500 for answer in answers), answers[-1].text


@sampled()
@pytest.mark.parametrize("lacking", [("scores",), ("failed",), ("content",), ("scores", "failed", "content")])
def test_a_dataset_without_some_tables_is_listed(planted: Planted, lacking: tuple[str, ...]) -> None:
    """Without signals, verdicts or texts: the rows, with nothing in their place."""
    name = "without_" + "_".join(lacking)
    planted.add(name, [{k: v for k, v in row.items() if k not in lacking} for row in ROWS[:40]])
    index = planted.index(name)
    assert index.count(RowQuery()) == 40 and len(index.rows(RowQuery())) == 40
    assert bool(index.scores) == ("scores" not in lacking)
    assert bool(index.texts.previews(index.rows(RowQuery()))) == ("content" not in lacking)
    assert bool(index.counts(RowQuery()).facet("verdict")[0]) == ("failed" not in lacking)


def test_an_empty_dataset_is_an_empty_list(planted: Planted) -> None:
    """Tables without a row, and a table without a snapshot."""
    planted.add("void", [])
    index = planted.index("void")
    assert index.rows(RowQuery()) == [] and index.count(RowQuery(equal={"kind": "code"})) == 0
    assert index.counts(RowQuery()).facet("kind") == ([], 0) and index.progress in (0.0, 1.0)
    assert index.quantile("byte_count", 0.5) is None


def test_previews_and_places_are_of_their_rows(index: RowIndex) -> None:
    """The first words of each row; whole texts by file and row."""
    rows = index.rows(RowQuery(), 300)
    texts = {row["doc_id"]: row["content"] for row in ROWS}
    previews = index.texts.previews(rows)
    assert [previews[row["n"]] for row in rows] == [texts[row["doc_id"]] for row in rows]
    marks = ", ".join("?" * len(rows))
    places = index._ask(f"SELECT n, file, row FROM texts WHERE n IN ({marks})", [r["n"] for r in rows], index._texts)
    found = index.texts.read([(one["n"], one["file"], one["row"]) for one in places])
    assert found == {row["n"]: texts[row["doc_id"]] for row in rows}


def test_files_that_are_written_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    """What a killed process left goes, what a living one writes stays; neither file is there before it is whole."""
    left = tmp_path / "notes.a.rows.999999999.1.tmp"
    left.touch()
    first, second = tmp_path / "notes.a.rows", tmp_path / "main.b.removed.sqlite"
    with index_files.written(first) as (made, _):
        made.execute("CREATE TABLE one (n)")
        with index_files.written(second) as (other, _):
            other.execute("CREATE TABLE two (n)")
            assert not first.exists() and not second.exists() and not left.exists()
        assert second.exists()
    assert first.exists() and {one.name for one in tmp_path.iterdir()} == {first.name, second.name}
