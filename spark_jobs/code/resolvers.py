"""All resolvers, one per family of languages; `dependencies` runs them one after the other on every repository."""

from __future__ import annotations

from spark_jobs.code.c_includes import c_includes
from spark_jobs.code.dependency import Resolver
from spark_jobs.code.javascript_imports import javascript_imports
from spark_jobs.code.python_imports import python_imports

RESOLVERS: tuple[Resolver, ...] = (python_imports, javascript_imports, c_includes)
"""In no particular order: the edges of a repository are the union of what they yield."""
