"""How long PyArrow tries to reach an object store; PyIceberg finds the function by its name in the settings."""

from __future__ import annotations

from pyarrow.fs import AwsDefaultS3RetryStrategy, S3RetryStrategy

# AWS's default strategy waits 25 ms before the second attempt and twice as long before each further one: 102 s in all.
_ATTEMPTS = 12


def patient_retries() -> S3RetryStrategy:
    """AWS's default strategy with more attempts than PyArrow's three, which are over in a tenth of a second."""
    return AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS)
