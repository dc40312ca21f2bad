"""How full windows are, as a number and as a picture."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.packing.utilisation import draw_fill, utilisation


def test_utilisation_counts_tokens_with_specials_over_all_places() -> None:
    """(8 + 4) tokens in two windows of 8 are 75%; no windows are full by definition."""
    assert utilisation(pa.chunked_array([[8], [4]]), 8) == 0.75
    assert utilisation(pa.array([], pa.int32()), 8) == 1.0


def test_the_picture_is_a_small_png() -> None:
    """A PNG below 30 KB, also of no windows."""
    for counts in ([2048] * 500 + [17, 2000], []):
        png = draw_fill(pa.table({"token_count": pa.array(counts, pa.int32())}), 2048)
        assert png.startswith(b"\x89PNG")
        assert len(png) < 30_000
