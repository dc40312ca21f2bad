"""The documents of a corpus in Python are those that were tokenized, with the texts that their tokens spell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer

from dagster_project.exceptions import CommandError
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import make

pytestmark = pytest.mark.nightly  # `main_path/test_one_run.py` asks the same of its lake


def spelled(catalogue: Catalog, corpus: str) -> dict[tuple[str, str], str]:
    """Texts by dataset and doc_id, from the ids of a corpus's tokens."""
    tokenizers = read_columns(catalogue, f"{corpus}.tokenizer", ("file",))
    tokens = read_columns(catalogue, f"{corpus}.tokens", ("dataset", "doc_id", "input_ids"))
    assert tokenizers is not None and tokens is not None
    decode = Tokenizer.from_str(tokenizers["file"][0].as_py()).decode
    return {
        (row["dataset"], row["doc_id"]): decode(row["input_ids"], skip_special_tokens=False)
        for row in tokens.to_pylist()
    }


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Of a lake with two datasets, one of two shards, in a corpus of two increments."""
    root: Path = make(tmp_path_factory.mktemp("planted")).root
    return open_catalogue(settings_at(root))


def test_documents_are_those_that_were_tokenized(catalogue: Catalog) -> None:
    """Each once, under its dataset, with the text of its tokens; as a stream, a frame, or the first of them."""
    documents = OpenedLake(catalogue).documents("small")
    rows = documents.to_arrow().to_pylist()
    expected = spelled(catalogue, "small")
    assert {(row["dataset"], row["doc_id"]): row["content"] for row in rows} == expected
    assert len(rows) == len(documents) == len(expected) > 12
    assert {dataset for dataset, _ in expected} == {"notes", "manual"}
    assert documents.head(3).to_arrow().to_pylist() == rows[:3] and len(documents.head(5).head(2)) == 2
    assert documents.to_pandas()["doc_id"].tolist() == [row["doc_id"] for row in rows]
    assert documents.to_polars()["content"].to_list() == documents.to_hf()["content"]
    assert "documents of small in" in repr(documents) and "notes, manual" in repr(documents)


def test_documents_that_were_taken_out_are_not_there(catalogue: Catalog) -> None:
    """As in any table that is computed since."""
    documents = OpenedLake(catalogue).documents("small")
    gone = documents.to_arrow()["doc_id"][0].as_py()
    record_excisions(catalogue, None, [gone], "a-test")
    left = documents.to_arrow()["doc_id"].to_pylist()
    assert gone not in left and len(left) == len(spelled(catalogue, "small")) - 1


def test_a_corpus_that_is_not_there_is_told(catalogue: Catalog) -> None:
    """With the nearest name."""
    with pytest.raises(CommandError, match="corpus smal is not in the lake; did you mean 'small'"):
        OpenedLake(catalogue).documents("smal")
