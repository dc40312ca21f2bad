"""Find the dependencies between the files of each repository; Arrow batches in, Arrow batches out.

Rows come sorted by (shard, repository, byte_count): all files of a repository one after the other, small ones first.
One repository at a time is in memory. Its texts have a budget of bytes; the largest files exceed it first, and their
texts are dropped. Such a file is listed with the reason, and others may still depend on it by its path.

A record of a Parquet or JSONL file may be a file of a repository, with its path as id: resolvers see
`part-0.jsonl#src/a.go` as src/a.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.code.imports.c_includes import c_includes
from spark_jobs.code.imports.cpp_modules import cpp_modules
from spark_jobs.code.imports.cython_imports import LANGUAGE as CYTHON
from spark_jobs.code.imports.cython_imports import cython_imports
from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, Resolver
from spark_jobs.code.imports.go_imports import go_imports
from spark_jobs.code.imports.java_names import java_names, kotlin_names
from spark_jobs.code.imports.javascript_imports import javascript_imports
from spark_jobs.code.imports.proto_imports import LANGUAGE as PROTO
from spark_jobs.code.imports.proto_imports import proto_imports
from spark_jobs.code.imports.python_imports import python_imports
from spark_jobs.code.imports.rust_uses import rust_uses
from spark_jobs.code.imports.scala_givens import scala_givens
from spark_jobs.code.syntax.definitions import GRAMMARS
from spark_jobs.code.syntax.symbols import symbol_edges
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, shared_child

RESOLVERS: tuple[Resolver, ...] = (
    python_imports,
    javascript_imports,
    c_includes,
    cpp_modules,
    cython_imports,
    go_imports,
    java_names,
    kotlin_names,
    proto_imports,
    rust_uses,
    scala_givens,
)
"""Their order does not matter: the edges of a repository are the union of all that they yield."""


REPOSITORY_FULL = "repository_full"
_RECORDS = r"^.*?\.(?:jsonl|ndjson|parquet|pq)(?:\.gz|\.zstd?)?#"
"""The part of a record's path that comes before its id."""
_LIMITS = SyntaxLimits()
_UNORDERED = pa.list_(pa.struct([pa.field("language", pa.string()), pa.field("file_count", pa.int64())]))
_UNREAD = pa.list_(pa.struct([pa.field("path", pa.string()), pa.field("reason", pa.string())]))
FOUND = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("repository", pa.string()),
        pa.field("doc_id", pa.string()),
        pa.field("path", pa.string()),
        pa.field("needed_doc_id", pa.string()),
        pa.field("needed_path", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("evidence", pa.string()),
        pa.field("method", pa.string()),
        pa.field("file_count", pa.int64()),
        pa.field("read_count", pa.int64()),
        pa.field("import_count", pa.int64()),
        pa.field("symbol_count", pa.int64()),
        pa.field("unread", _UNREAD),
        pa.field("language", pa.string()),
        pa.field("unordered", _UNORDERED),
    ]
)
"""Rows of both tables: an edge has a `doc_id`, a repository has a `method`."""


def found_batches(
    files: Iterable[pa.RecordBatch],
    max_repository_bytes: int,
    resolvers: Sequence[Resolver] = RESOLVERS,
    limits: SyntaxLimits = _LIMITS,
) -> Iterator[pa.RecordBatch]:
    """Find the dependencies of every repository.

    Args:
        files: rows (shard, repository, doc_id, path, kind, language, byte_count, content, unread) sorted by (shard,
            repository, byte_count); `content` is null where a text is not read, and `unread` then holds the reason if
            the text would have been of use.
        max_repository_bytes: most bytes read of one repository's texts.
        resolvers: functions to find imports.
        limits: of parsing a file for its symbols.

    Yields:
        One batch of `FOUND` per repository: its edges by path, kind and path, then its own row.
    """
    for rows in grouped_rows(files, ("shard", "repository"), lambda: _Budget(max_repository_bytes).spend):
        yield _repository_batch(rows, limits, resolvers)


class _Budget:
    """Bytes of a repository still allowed to be read."""

    def __init__(self, byte_count: int) -> None:
        self._left = byte_count

    def spend(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Charge the texts of some files to the budget; drop those beyond it, with the reason in `unread`."""
        wanted = pc.is_valid(rows.column("content"))
        sizes = pc.if_else(wanted, rows.column("byte_count"), 0)
        used = np.cumsum(sizes.to_numpy(zero_copy_only=False))
        refused = pc.and_(wanted, pa.array(used > self._left))
        self._left -= int(used[-1]) if used.size else 0
        if not pc.any(refused).as_py():
            return rows
        content = pc.if_else(refused, pa.scalar(None, rows.column("content").type), rows.column("content"))
        unread = pc.if_else(refused, REPOSITORY_FULL, rows.column("unread"))
        names = rows.schema.names
        rows = rows.set_column(names.index("content"), "content", content)
        return rows.set_column(names.index("unread"), "unread", unread)


def _repository_batch(rows: pa.Table, limits: SyntaxLimits, resolvers: Sequence[Resolver]) -> pa.RecordBatch:
    """Batch of `FOUND` with the edges of one repository, then its own row."""
    rows = _one_per_path(rows)
    repository = RepositoryTexts(
        paths=tuple(_paths(rows)),
        texts=tuple(text or "" for text in rows.column("content").to_pylist()),
        languages=tuple(rows.column("language").to_pylist()),
    )
    imports = merged(edge for resolver in resolvers for edge in resolver(repository))
    linked = {(edge.needs, edge.needed) for edge in imports}
    symbols = symbol_edges(repository, linked, shared_child(limits).definitions)
    edges = merged([*imports, *symbols.dependencies])
    needs = pa.array([edge.needs for edge in edges], pa.int64())
    needed = pa.array([edge.needed for edge in edges], pa.int64())
    symbol_count = sum(edge.kind == "symbol" for edge in edges)
    paths = rows.column("path").to_pylist()
    reasons = dict(enumerate(rows.column("unread").to_pylist())) | symbols.failures
    unread = [{"path": paths[at], "reason": why} for at, why in sorted(reasons.items()) if why is not None]
    method_columns = {
        "method": method_of(len(edges) - symbol_count, symbol_count),
        "file_count": rows.num_rows,
        "read_count": rows.num_rows - rows.column("content").null_count - len(symbols.failures),
        "import_count": len(edges) - symbol_count,
        "symbol_count": symbol_count,
        "unread": unread,
        **_languages(rows),
    }
    columns = {
        "doc_id": rows.column("doc_id").take(needs),
        "path": rows.column("path").take(needs),
        "needed_doc_id": rows.column("doc_id").take(needed),
        "needed_path": rows.column("path").take(needed),
        "kind": [edge.kind for edge in edges],
        "evidence": [edge.evidence for edge in edges],
    }
    return _batch(rows.slice(0, 1), columns, len(edges), method_columns)


def _languages(rows: pa.Table) -> dict[str, Any]:
    """The columns `language` and `unordered` of a repository's row."""
    kinds, languages = rows.column("kind").to_pylist(), rows.column("language").to_pylist()
    counts = Counter(language for kind, language in zip(kinds, languages, strict=True) if kind == "code" and language)
    unordered = [
        {"language": language, "file_count": count}
        for language, count in sorted(counts.items())
        if language not in GRAMMARS and language not in (CYTHON, PROTO)
    ]
    return {
        "language": min(counts, key=lambda language: (-counts[language], language), default=None),
        "unordered": unordered,
    }


def _batch(first: pa.Table, columns: dict[str, Any], count: int, method_columns: dict[str, Any]) -> pa.RecordBatch:
    """Batch of `FOUND` of `count` edges in `columns`, then the repository's row `method_columns`."""
    arrays = []
    for field in FOUND:
        if field.name in ("shard", "repository"):
            value = first.column(field.name)[0].as_py()
            arrays.append(pa.repeat(pa.scalar(value, field.type), count + 1))
            continue
        values = columns.get(field.name)
        above = pa.nulls(count, field.type) if values is None else pa.array(_plain(values), field.type)
        arrays.append(pa.concat_arrays([above, pa.array([method_columns.get(field.name)], field.type)]))
    return pa.RecordBatch.from_arrays(arrays, schema=FOUND)


def _plain(values: Any) -> Any:
    return values.combine_chunks().cast(pa.string()) if isinstance(values, pa.ChunkedArray) else values


def _paths(rows: pa.Table) -> list[str]:
    """Paths inside the repository: `part-0.jsonl#src/a.go` -> `src/a.go`."""
    paths: list[str] = pc.replace_substring_regex(rows.column("path"), _RECORDS, "").to_pylist()
    return paths


def _one_per_path(rows: pa.Table) -> pa.Table:
    """Files sorted by the UTF-8 of their paths; of several documents with one path that with the least id."""
    paths, ids = _paths(rows), rows.column("doc_id").to_pylist()
    order = sorted(range(len(paths)), key=lambda row: (paths[row].encode(errors="surrogatepass"), ids[row]))
    first = [
        row for before, row in zip([None, *order], order, strict=False) if before is None or paths[before] != paths[row]
    ]
    return rows.take(pa.array(first, pa.int64()))


def merged(edges: Iterable[Dependency]) -> list[Dependency]:
    """Edges by (needs, needed, kind), each once, with its first evidence; no symbol between files linked by imports."""
    merged_edges: dict[tuple[int, int, str], Dependency] = {}
    for edge in edges:
        merged_edges.setdefault((edge.needs, edge.needed, edge.kind), edge)
    linked = {frozenset((needs, needed)) for needs, needed, kind in merged_edges if kind != "symbol"}
    return [
        edge
        for (needs, needed, kind), edge in sorted(merged_edges.items())
        if kind != "symbol" or frozenset((needs, needed)) not in linked
    ]


def method_of(import_count: int, symbol_count: int) -> str:
    """The column `method`: whether a repository's order rests on imports, symbols, both, or paths alone."""
    if import_count and symbol_count:
        return "imports_and_symbols"
    return "imports" if import_count else "symbols" if symbol_count else "path"
