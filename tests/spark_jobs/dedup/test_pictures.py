"""Pictures of deduplication."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.dedup.pictures import (
    component_sizes,
    draw_component_sizes,
    draw_kept,
    draw_pair_similarities,
    draw_witness_similarities,
)

COMPONENTS = pa.schema(
    [
        ("increment", pa.int32()),
        ("threshold", pa.float64()),
        ("doc_id", pa.string()),
        ("component", pa.string()),
        ("document_count", pa.int32()),
    ]
)


def is_small_png(picture: bytes) -> bool:
    """A PNG below 40 KB."""
    return picture.startswith(b"\x89PNG") and len(picture) < 40_000


def test_sizes_are_those_after_the_last_increment() -> None:
    """First c joins b, then both join a: one component of 3, not of 2 or 2 and 3; at 0.9 it stays at 2."""
    rows = [
        (0, 0.7, "b", "b", 2),
        (0, 0.7, "c", "b", 2),
        (0, 0.9, "b", "b", 2),
        (0, 0.9, "c", "b", 2),
        (1, 0.7, "a", "a", 3),
        (1, 0.7, "b", "a", 3),
        (1, 0.7, "c", "a", 3),
    ]
    table = pa.Table.from_pylist([dict(zip(COMPONENTS.names, row, strict=True)) for row in rows], COMPONENTS)
    assert {threshold: sizes.tolist() for threshold, sizes in component_sizes(table).items()} == {0.7: [3], 0.9: [2]}
    assert is_small_png(draw_component_sizes(table))


def test_pictures_are_small_pngs_also_of_nothing() -> None:
    """Tables of an empty corpus have a picture too."""
    similarity = pa.table({"threshold": [0.7, 0.7, 0.9], "similarity": [0.7, 0.95, 1.0]})
    names = ["threshold", "member_count", "kept_count", "kept_byte_count", "removed_byte_count"]
    names += ["similar_count", "found_count"]
    kept = pa.table([[0.7, 0.9, 0.7], [10, 10, 5], [4, 6, 5], [400, 600, 10], [100, 0, 0], [8, 0, 1], [7, 0, 1]], names)
    assert is_small_png(draw_witness_similarities(similarity))
    assert is_small_png(draw_pair_similarities(similarity))
    assert is_small_png(draw_pair_similarities(similarity.slice(0, 0)))
    assert is_small_png(draw_kept(kept))
    assert is_small_png(draw_component_sizes(COMPONENTS.empty_table()))
    assert is_small_png(draw_witness_similarities(similarity.slice(0, 0)))
    assert is_small_png(draw_kept(kept.slice(0, 0)))
