"""Order files in hand by their dependencies, as the steps `dependencies` and `ordered` order a repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_jobs.code.dependencies import DependenciesConfig
from spark_jobs.code.order.policy import Policy
from spark_jobs.code.ordered import OrderedConfig
from spark_jobs.exceptions import InputError
from spark_jobs.sources.languages import MANIFEST, language_of


def order(files: Mapping[str, str], *, policy: Policy | None = None, seed: int = 0) -> list[str]:
    """Order the files of a repository: each after those that it needs, wherever that is possible.

    Args:
        files: text by path, `/` between the parts.
        policy: `dependencies_first`, `two_level`, `depth_first`, `path` or `random`; by default the first, the second
            for the languages in which packages cannot need each other in a circle.
        seed: of the policy `random`.

    Returns:
        The paths, the file that is read first before all others.

    Raises:
        InputError: files are no texts by path.
    """
    from spark_jobs.code.order.repository_order import OrderRules, ranked_batches
    from spark_jobs.code.repository_edges import found_batches

    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise InputError(f"order: a {type(files).__name__} is no mapping from paths to texts; give {{path: text}}")
    if not files:
        return []
    reading, ordering = DependenciesConfig(), OrderedConfig()
    rows = sorted((_row(path, text, reading) for path, text in files.items()), key=lambda row: row["byte_count"])
    batch = pa.RecordBatch.from_pylist(rows, _FILES)
    found = next(found_batches([batch], reading.max_repository_bytes, limits=reading.syntax))
    edges = [{**row, "dataset": "in hand"} for row in found.to_pylist() if row["method"] is None]
    survivors = [{name: row[name] for name in ("shard", "doc_id", "repository", "path", "language")} for row in rows]
    listed = pa.RecordBatch.from_pylist([*({**row, "dataset": "in hand"} for row in survivors), *edges], _RANKED)
    rules = OrderRules(policy or ordering.policy, ordering.two_level_languages, seed)
    return [path for ranked in ranked_batches([listed], rules) for path in ranked.column("path").to_pylist()]


_FACTS = ("dataset", "repository", "shard", "doc_id", "path", "language", "needed_doc_id", "needed_path", "kind")
_RANKED = pa.schema([(name, pa.int32() if name == "shard" else pa.string()) for name in _FACTS])
_FILES = pa.schema(
    [
        ("shard", pa.int32()),
        ("repository", pa.string()),
        ("doc_id", pa.string()),
        ("path", pa.string()),
        ("kind", pa.string()),
        ("language", pa.string()),
        ("byte_count", pa.int64()),
        ("content", pa.string()),
        ("unread", pa.string()),
    ]
)


def _row(path: str, text: str, config: DependenciesConfig) -> dict[str, Any]:
    """A row of what dependencies are found in."""
    language = language_of(path)
    kind, name = (language.kind, language.name) if language is not None else ("prose", None)
    size = len(text.encode(errors="surrogatepass"))
    is_read = kind == "code" or re.search(MANIFEST, path) is not None
    is_large = size > config.max_file_bytes
    return {
        "shard": 0,
        "repository": "in hand",
        "doc_id": path,
        "path": path,
        "kind": kind,
        "language": name,
        "byte_count": size,
        "content": text if is_read and not is_large else None,
        "unread": "too_large" if is_read and is_large else None,
    }
