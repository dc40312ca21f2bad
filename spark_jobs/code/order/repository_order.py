"""Order the surviving files of each repository by its dependencies; Arrow batches in, Arrow batches out.

Rows come sorted by (dataset, repository): survivors (with `shard`) and edges (with `needed_doc_id`) mixed. A file named
by an edge but not surviving is ordered like the others and then left out, so that dependencies through it still count:
with `a` needing `b` needing `c` and `b` removed, `c` still comes before `a`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import Int64Array
from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.code.imports.dependency import KINDS
from spark_jobs.code.order.dependency_order import Edges, order_files
from spark_jobs.code.order.policy import Policy

RANKED = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("doc_id", pa.string()),
        pa.field("repository", pa.string()),
        pa.field("path", pa.string()),
        pa.field("rank", pa.int64()),
    ]
)


@dataclass(frozen=True)
class OrderRules:
    """The ordering policy; `two_level` replaces the default in repositories of code mostly in given languages."""

    policy: Policy
    two_level_languages: tuple[str, ...]
    seed: int

    def policy_of(self, languages: Iterable[str | None]) -> Policy:
        """The policy for a repository with files of these languages, None for a file other than code."""
        counted = Counter(language for language in languages if language is not None)
        if self.policy != "dependencies_first" or not counted:
            return self.policy
        most_common = min(counted, key=lambda language: (-counted[language], language))
        return "two_level" if most_common in self.two_level_languages else self.policy


def ranked_batches(rows: Iterable[pa.RecordBatch], rules: OrderRules) -> Iterator[pa.RecordBatch]:
    """Rank the survivors of every repository.

    Args:
        rows: (dataset, repository, shard, doc_id, path, language, needed_doc_id, needed_path, kind) sorted by (dataset,
            repository); of a survivor the last three are null, of an edge `shard` and `language`.
        rules: the policy.

    Yields:
        One batch of `RANKED` per repository with survivors: ranks from 0 without gaps, by rank.
    """
    for group in grouped_rows(rows, ("dataset", "repository")):
        is_edge = pc.is_valid(group.column("needed_doc_id"))
        survivors = group.filter(pc.invert(is_edge))
        if survivors.num_rows:
            order = _order(survivors, group.filter(is_edge), rules)
            ranked = survivors.take(pa.array(order)).append_column("rank", pa.array(np.arange(len(order))))
            yield from ranked.select(RANKED.names).cast(RANKED).combine_chunks().to_batches()


def _order(survivors: pa.Table, edges: pa.Table, rules: OrderRules) -> Int64Array:
    """(S,) row numbers of the survivors, in the order of their ranks."""
    row_of = {doc_id: row for row, doc_id in enumerate(survivors.column("doc_id").to_pylist())}
    path_of = dict(zip(row_of, survivors.column("path").to_pylist(), strict=True))
    needs, needed = edges.column("doc_id").to_pylist(), edges.column("needed_doc_id").to_pylist()
    path_of.update(zip(needs, edges.column("path").to_pylist(), strict=True))
    path_of.update(zip(needed, edges.column("needed_path").to_pylist(), strict=True))
    ids = sorted(path_of, key=lambda doc_id: (path_of[doc_id].encode(errors="surrogatepass"), doc_id))
    number = {doc_id: index for index, doc_id in enumerate(ids)}
    kinds = {kind: index for index, kind in enumerate(KINDS)}
    arrays = Edges(
        needs=np.fromiter((number[doc_id] for doc_id in needs), dtype=np.int64, count=len(needs)),
        needed=np.fromiter((number[doc_id] for doc_id in needed), dtype=np.int64, count=len(needed)),
        kind=np.fromiter((kinds[kind] for kind in edges.column("kind").to_pylist()), dtype=np.int64, count=len(needs)),
    )
    policy = rules.policy_of(survivors.column("language").to_pylist())
    positions = order_files([path_of[doc_id] for doc_id in ids], arrays, policy, rules.seed)
    by_position = np.argsort(positions).tolist()
    return np.array([row_of[ids[index]] for index in by_position if ids[index] in row_of], dtype=np.int64)
