"""Sum the table `thresholds` of a corpus over all its increments.

Counts and bytes are summed. Components cannot be: an increment has every component of its pairs, including
those of earlier increments. They are counted from `components` by the newest row of each document: a component exists
if its naming document still belongs to it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import read_columns, read_rows

_ADDED = (
    "member_count",
    "exact_removed_count",
    "near_removed_count",
    "repository_removed_count",
    "kept_count",
    "kept_byte_count",
    "removed_byte_count",
)
_LOOKED_AT = 200  # components of a threshold, of which some may be of kinds with another


def kept_at_thresholds(catalogue: Catalog, corpus: CorpusFacts) -> list[dict[str, Any]]:
    """One row per threshold, ascending; none where the corpus has no such table.

    Args:
        catalogue: of the lake.
        corpus: the corpus.

    Returns:
        The sums, `component_count` and `largest_component` as of now, and whether documents are `applied` to it: of
        which kinds (`applied_to`).
    """
    table = corpus.own("thresholds")
    rows = read_columns(catalogue, table, ("threshold", *_ADDED))
    if rows is None:
        return []
    columns = ("increment", "threshold", "doc_id", "component", "document_count")
    linked = read_columns(catalogue, corpus.own("components"), columns)
    sizes = {} if linked is None else component_sizes(linked)
    summed = rows.group_by("threshold").aggregate([(name, "sum") for name in _ADDED]).sort_by("threshold")
    return [
        {
            "threshold": row["threshold"],
            **{name: int(row[f"{name}_sum"]) for name in _ADDED},
            "component_count": len(sizes.get(row["threshold"], {})),
            "largest_component": max(sizes.get(row["threshold"], {}).values(), default=0),
            "applied": bool(applied := _applied_to(corpus, row["threshold"])),
            "applied_to": applied,
        }
        for row in summed.to_pylist()
    ]


def _applied_to(corpus: CorpusFacts, threshold: float) -> list[str]:
    """The kinds of documents with a threshold of removal."""
    applied = corpus.applied.values if corpus.applied is not None else {}
    return [kind for kind, value in applied.items() if value == threshold]


def largest_groups(catalogue: Catalog, corpus: CorpusFacts, count: int) -> list[dict[str, Any]]:
    """The largest components at the applied threshold of their kind: component, document_count, path, kind."""
    if corpus.applied is None:
        return []
    columns = ("increment", "threshold", "doc_id", "component", "document_count")
    linked = read_columns(catalogue, corpus.own("components"), columns, In("threshold", corpus.applied.distinct))
    found = []
    for threshold, sizes in ({} if linked is None else component_sizes(linked)).items():
        largest = sorted(sizes.items(), key=lambda one: (-one[1], one[0]))[:_LOOKED_AT]
        named = In("doc_id", [name for name, _ in largest])
        about = {
            row["doc_id"]: row for row in read_rows(catalogue, corpus.own("members"), ("doc_id", "kind", "path"), named)
        }
        found += [
            {"component": name, "document_count": size, **{key: about[name][key] for key in ("kind", "path")}}
            for name, size in largest
            if name in about and corpus.applied.of(about[name]["kind"]) == threshold
        ]
    return sorted(found, key=lambda one: (-one["document_count"], one["component"]))[:count]


def component_sizes(components: pa.Table) -> dict[float, dict[str, int]]:
    """Documents of every component by threshold and name, from all rows of `components`."""
    names = components.filter(pc.equal(components["doc_id"], components["component"]))["doc_id"]
    named = components.filter(pc.is_in(components["doc_id"], pc.unique(names)))
    newest = named.group_by(["threshold", "doc_id"]).aggregate([("increment", "max")])
    newest = newest.rename_columns({"increment_max": "increment"})
    rows = named.join(newest, ["threshold", "doc_id", "increment"], join_type="left semi")
    rows = rows.filter(pc.equal(rows["doc_id"], rows["component"]))
    found: dict[float, dict[str, int]] = {}
    for threshold, name, count in zip(
        *(rows[one].to_pylist() for one in ("threshold", "doc_id", "document_count")), strict=True
    ):
        found.setdefault(threshold, {})[name] = count
    return found
