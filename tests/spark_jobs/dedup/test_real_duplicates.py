"""Near-duplicates in real texts: a published set with planted pairs, and one manual in four versions."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_jobs.dedup.near_corpus import Document, found_pairs, near_steps, removed_at, true_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWEST = Fraction(7, 10)


def articles(folder: Path, count: int) -> dict[str, Document]:
    """Articles of the published set by their name."""
    with gzip.open(folder / f"articles_{count}.train.gz", "rt") as lines:
        split = (line.split(maxsplit=1) for line in lines)
        return {name: Document(0, "prose", text) for name, text in split}


@pytest.mark.nightly
def test_every_planted_pair_of_the_published_articles_is_found(spark: SparkSession, real_data: Path) -> None:
    """Chris McCormick's 2,500 articles: the 20 planted pairs are among the pairs, and one of each goes."""
    folder = real_data / "near_duplicates"
    named = articles(folder, 2500)
    planted = [line.split() for line in (folder / "articles_2500.truth").read_text().splitlines()]
    expected = {frozenset((named[one].doc_id, named[other].doc_id)) for one, other in planted}
    assert len(expected) == 20
    tables = near_steps(spark, list(named.values()))
    assert expected <= set(found_pairs(tables))
    gone = removed_at(tables, 0.7)
    assert all(pair & gone for pair in expected)
    assert expected == set(found_pairs(tables)), "what is no planted pair is not alike"


@pytest.mark.nightly
def test_pages_of_four_versions_of_a_manual_are_compared_as_by_brute_force(
    spark: SparkSession, real_data: Path
) -> None:
    """Jest's manual: the same pairs with the same fractions as all pairs compared, most of them of one page."""
    folder = real_data / "jest_docs"
    files = sorted(folder.glob("*/**/*.md"))
    named = {Document(0, "prose", file.read_text()): file for file in files}
    documents = list({one.doc_id: one for one in named}.values())
    expected = true_pairs(documents, LOWEST)
    assert len(expected) > 30
    found = found_pairs(near_steps(spark, documents))
    assert found == expected
    page = {one.doc_id: file.relative_to(folder).parts[1:] for one, file in named.items()}
    same = sum(len({page[doc_id] for doc_id in pair}) == 1 for pair in found)
    assert same > 0.9 * len(found)
