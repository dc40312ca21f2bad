"""Conversations are read in the same datasets as texts."""

from tests.spark_jobs.sources.conftest import data, files_config, landing

__all__ = ["data", "files_config", "landing"]
