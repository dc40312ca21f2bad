"""Noise and minimum group size of counts that leave the lake."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.filters.personal_data.noisy_counts import noisy_counts

COUNTS = pa.table({"kind": [f"k{k}" for k in range(2000)] + ["rare"], "count": [1000] * 2000 + [3]})


def test_noise_has_the_width_that_epsilon_says_and_small_groups_are_left_out() -> None:
    """The mean absolute noise of a discrete Laplace of scale 2 is 1.96; bounds that chance passes once in 10^9 runs."""
    pytest.importorskip("opendp")
    noisy = noisy_counts(COUNTS, epsilon=0.5, min_group=100)
    assert "rare" not in noisy.column("kind").to_pylist()
    assert noisy.num_rows == 2000
    errors = [abs(count - 1000) for count in noisy.column("count").to_pylist()]
    assert 1.6 < sum(errors) / len(errors) < 2.4
    assert noisy.schema.metadata[b"epsilon"] == b"0.5"


def test_bad_input_is_one_line() -> None:
    """No counts, no privacy."""
    pytest.importorskip("opendp")
    with pytest.raises(InputError, match="one named count"):
        noisy_counts(pa.table({"n": [1]}), 1.0, 10)
    with pytest.raises(ConfigError, match="above 0"):
        noisy_counts(COUNTS, 0.0, 10)
