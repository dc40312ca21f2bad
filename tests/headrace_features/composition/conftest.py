"""Projects are declared in the same way as in the tests of commands."""

from tests.dagster_project.conftest import declare, lake_env

__all__ = ["declare", "lake_env"]
