"""Parents: all texts that are kept, in the order of their ranks, by one read of each table and little memory."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from headrace_features.synthetic import buckets, fetch
from headrace_features.synthetic.attempts import AnswerStore
from headrace_features.synthetic.buckets import KEY, KEY_TYPE, in_buckets
from headrace_features.synthetic.executed import fetch as executed_fetch
from headrace_features.synthetic.executed_config import ExecutedSource
from headrace_features.synthetic.generated_config import GeneratedSource, Parents
from headrace_features.synthetic.parents import parent_texts
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.exceptions import InputError
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled, tries

INCREMENTS, ROWS = 3, 70


def text_of(doc_id: str) -> str:
    """A text that zstd makes little of."""
    return f"{doc_id} {random.Random(doc_id).randbytes(300).hex()}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Two datasets of code in three increments and two shards, and a corpus of both."""
    catalogue = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    for dataset in ("first", "second"):
        for increment in range(INCREMENTS):
            ids = [
                hashlib.sha256(f"{dataset} {increment} {number}".encode()).hexdigest()[:32] for number in range(ROWS)
            ]
            rows: list[dict[str, Any]] = [{"doc_id": one, "shard": int(one[0], 16) % 2} for one in ids]
            places = [
                {"path": f"src/{number // 2}.py", "repository": f"shop-{number % 7}" if number % 5 else None,
                 "language": "Python" if number % 3 else "text", "metadata": []}
                for number in range(ROWS)
            ]  # fmt: skip
            put(catalogue, dataset, DOCUMENTS, increment, [{**one, **at} for one, at in zip(rows, places, strict=True)])
            put(catalogue, dataset, TEXTS, increment, [{**one, "content": text_of(one["doc_id"])} for one in rows])
            put(catalogue, dataset, VERDICTS, increment, [{**one, "kept": one["doc_id"][1] < "c"} for one in rows])
            kept = [{**one, "dataset": dataset} for one in rows if one["doc_id"][2] < "8"]
            put(catalogue, "both", SURVIVORS, increment, kept)
    record_excisions(catalogue, None, [ids[0]], "run")
    return catalogue


def expected(catalogue: Catalog, parents: Parents, seed: int) -> list[tuple[str, str, str]]:
    """What `parent_texts` has to give, by all rows in memory."""
    rows = catalogue.load_table(parents.table).scan().to_arrow().to_pylist()
    excised = set(catalogue.load_table("system.excisions").scan().to_arrow()["doc_id"].to_pylist())
    pairs = [
        (row.get("dataset", parents.dataset), row["doc_id"])
        for row in rows
        if row.get("kept", True) and row["doc_id"] not in excised
    ]
    pairs.sort(key=lambda pair: hashlib.sha256(f"{seed} {pair[1]}".encode()).digest())
    return [(dataset, doc_id, text_of(doc_id)) for dataset, doc_id in pairs]


@sampled()
@pytest.mark.parametrize("bucket_bytes", [1 << 10, 1 << 14, 32 << 20])
@pytest.mark.parametrize("named", [{"dataset": "first"}, {"corpus": "both"}])
def test_parents_come_by_rank_whatever_fits_into_memory(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, named: dict[str, str], bucket_bytes: int
) -> None:
    """All that go on and were not excised, each once with its text; a part of the ranks is a part of that order."""
    monkeypatch.setattr(buckets, "BUCKET_BYTES", bucket_bytes)
    parents = Parents.model_validate(named)
    for seed in (0, 7):
        rows = expected(lake, parents, seed)
        assert [tuple(one) for one in parent_texts(lake, parents, seed)] == rows
        halves = [*parent_texts(lake, parents, seed, 0.0, 0.3), *parent_texts(lake, parents, seed, 0.3, 1.0)]
        assert [tuple(one) for one in halves] == rows


class Reads:
    """Counts the values of each column that are decoded from data files of a table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch all Parquet files that are opened from now on."""
        self.rows: Counter[str] = Counter()
        before = pq.ParquetFile.iter_batches

        def counted(file: pq.ParquetFile, *arguments: Any, **named: Any) -> Iterator[pa.RecordBatch]:
            for batch in before(file, *arguments, **named):
                self.rows.update(dict.fromkeys(batch.schema.names, batch.num_rows))
                yield batch

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)


def generated(**fields: Any) -> GeneratedSource:
    """A source with one template about the corpus."""
    endpoint = {"url": "http://localhost/v1", "model": "m"}
    templates = [{"name": "plain", "user": "Say it again:\n\n{text}"}]
    given_fields = {"parents": {"corpus": "both"}, "templates": templates, "endpoint": endpoint, **fields}
    return GeneratedSource.model_validate(given_fields)


def test_a_run_reads_each_text_once(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of parents; before, every thousand of them cost a read of the whole table."""
    monkeypatch.setattr(fetch, "_LEAST_PARENTS", 8)
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1 << 12)
    reads = Reads(monkeypatch)
    source = generated()
    asked = list(fetch._requests(lake, source, AnswerStore(lake, "twin"), None))
    assert len(asked) == len(expected(lake, source.parents, 0)) > 150
    assert reads.rows["content"] == 2 * INCREMENTS * ROWS
    assert reads.rows["doc_id"] <= 2 * reads.rows["content"]


def test_a_run_that_wants_few_answers_holds_few_texts(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are gone through in parts that grow, so that what lies on disk does, and few reads reach the last one."""
    monkeypatch.setattr(fetch, "_LEAST_PARENTS", 4)
    reads = Reads(monkeypatch)
    source = generated()
    rows = expected(lake, source.parents, 0)
    wanted = fetch._requests(lake, source, AnswerStore(lake, "twin"), 1)
    assert [next(wanted).parent.doc_id for _ in range(2)] == [doc_id for _, doc_id, _ in rows[:2]]
    assert reads.rows["content"] == 2 * INCREMENTS * ROWS
    assert [one.parent.doc_id for one in wanted] == [doc_id for _, doc_id, _ in rows[2:]]
    assert reads.rows["content"] <= 3 * 2 * INCREMENTS * ROWS


@settings(max_examples=tries(200))
@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_parts_of_the_ranks_are_all_of_them(needed: int, count: int) -> None:
    """They grow, the last ends at 1, and there are few."""
    shares = fetch._shares(needed, count)
    assert shares[0] == 0 and shares[-1] == 1 and shares == sorted(set(shares)) and len(shares) < 8
    assert len(shares) == 2 or needed < count / 8


def test_executed_code_is_read_once_with_its_repository(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kept document of the language once, beside all files of its repository, the last increment's at a path."""
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1 << 12)
    reads = Reads(monkeypatch)
    source = ExecutedSource.model_validate({"kind": "executed", "parents": {"corpus": "both"}})
    bundles = [bundle for some in executed_fetch.rounds(lake, source) for bundle in some]
    assert reads.rows["content"] == reads.rows["path"] == 2 * INCREMENTS * ROWS
    where = {
        (dataset, row["doc_id"]): row
        for dataset in ("first", "second")
        for row in lake.load_table(f"{dataset}.documents").scan().to_arrow().to_pylist()
    }
    wanted = {
        (dataset, doc_id)
        for dataset, doc_id, _ in expected(lake, source.parents, 0)
        if where[dataset, doc_id]["language"] == "Python"
    }
    done = [(one.dataset, one.doc_id) for bundle in bundles for one in bundle.documents]
    assert len(done) == len(wanted) > 60 and set(done) == wanted
    for bundle in bundles:
        own = bundle.documents[0]
        name, value = ("repository", bundle.repository) if bundle.repository else ("doc_id", own.doc_id)
        inside = [row for (dataset, _), row in where.items() if dataset == own.dataset and row[name] == value]
        newest = {
            row["path"]: text_of(row["doc_id"])
            for row in sorted(inside, key=lambda row: (row["increment"], row["doc_id"]))
        }
        assert bundle.files == newest | {one.path: one.text for one in bundle.documents}


def test_without_verdicts_there_is_nobody_to_ask_about(tmp_path: Path) -> None:
    """The message says what to run."""
    with pytest.raises(InputError, match="run `headrace run notes` first"):
        next(parent_texts(open_catalogue(settings_at(tmp_path)), Parents(dataset="notes"), 0))


@settings(max_examples=tries(30), deadline=None)
@given(st.lists(st.integers(0, 2**128 - 1), max_size=60), st.integers(1, 500 << 20))
def test_buckets_in_their_order_are_all_rows_by_key(keys: list[int], byte_count: int) -> None:
    """Rows of one key too, however many buckets there are."""
    rows = [number.to_bytes(16, "big") for number in keys]
    with in_buckets(byte_count) as whole:
        for at in range(0, len(rows), 7):
            whole.add("rows", iter([pa.record_batch([pa.array(rows[at : at + 7], KEY_TYPE)], [KEY])]))
        tables = [whole.read("rows", number) for number in range(whole.count)]
    assert [key for one in tables if one is not None for key in one[KEY].to_pylist()] == sorted(rows)
