"""Features are tried in the same projects and lakes as core."""

from tests.dagster_project.conftest import declare, defs, kept_waiting, lake_env, waiting

__all__ = ["declare", "defs", "kept_waiting", "lake_env", "waiting"]
