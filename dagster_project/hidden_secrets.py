"""Errors of a run as Dagster keeps them: without the secrets in messages of libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from spark_jobs.credentials import is_tainted, without_secrets


@contextmanager
def secrets_hidden() -> Iterator[None]:
    """Let an error with a secret, or with one behind it, leave the block as its message alone.

    Dagster keeps messages and traces of an error and of all errors behind it in the history of runs.
    """
    try:
        yield
    except Exception as error:  # whatever ends a step is told; one without secrets goes on as it is
        if not is_tainted(error):
            raise
        shown = without_secrets(str(error)) or type(error).__name__
        if isinstance(error, dg.Failure):
            shown = without_secrets(error.description or shown)
            raise dg.Failure(shown, metadata=error.metadata, allow_retries=error.allow_retries) from None
        raise dg.Failure(f"{type(error).__name__}: {shown}", allow_retries=False) from None
