"""All resolvers, one per family of languages; `dependencies` runs them one after the other on every repository."""

from __future__ import annotations

from spark_jobs.code.imports.c_includes import c_includes
from spark_jobs.code.imports.dependency import Resolver
from spark_jobs.code.imports.go_imports import go_imports
from spark_jobs.code.imports.java_names import java_names
from spark_jobs.code.imports.javascript_imports import javascript_imports
from spark_jobs.code.imports.kotlin_names import kotlin_names
from spark_jobs.code.imports.python_imports import python_imports
from spark_jobs.code.imports.rust_uses import rust_uses

RESOLVERS: tuple[Resolver, ...] = (
    python_imports,
    javascript_imports,
    c_includes,
    go_imports,
    java_names,
    kotlin_names,
    rust_uses,
)
"""In no particular order: the edges of a repository are the union of what they yield."""
