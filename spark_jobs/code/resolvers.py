"""All resolvers, one per family of languages; `dependencies` runs them one after the other on every repository."""

from __future__ import annotations

from spark_jobs.code.dependency import Resolver

RESOLVERS: tuple[Resolver, ...] = ()
"""In no particular order: the edges of a repository are the union of what they yield."""
