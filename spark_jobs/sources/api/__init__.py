"""Sources behind an HTTP API that gives its records page by page, and connectors written in Python."""

from spark_jobs.sources.api.paging import Page

__all__ = ["Page"]
