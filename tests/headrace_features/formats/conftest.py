"""Formats are tried in the same datasets as those of core, and with one child for a module."""

from tests.spark_jobs.sources.conftest import data, empty_arrivals, files_config, landing
from tests.spark_jobs.sources.formats.conftest import no_child_is_left

__all__ = ["data", "empty_arrivals", "files_config", "landing", "no_child_is_left"]
