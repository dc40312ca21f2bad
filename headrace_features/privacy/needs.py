"""The feature that some of this one is made with."""

from __future__ import annotations

from spark_jobs.exceptions import ConfigError
from spark_jobs.features import features


def require_models(what: str) -> None:
    """Refuse what is made with the feature `models`, where that is not there.

    Raises:
        ConfigError: it is not; the message begins with `what`.
    """
    if not features()["models"].is_there:
        raise ConfigError(f"{what} needs the feature models, which is not installed here; install headrace whole")
