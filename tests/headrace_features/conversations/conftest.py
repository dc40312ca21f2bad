"""Conversations are read in the same datasets as texts, and blended in the same lakes."""

from tests.blender_service.conftest import lake, serve
from tests.spark_jobs.sources.conftest import data, files_config, landing

__all__ = ["data", "files_config", "lake", "landing", "serve"]
