"""The documents of a blend's packed tables with their reads, and their clusters, read from the lake.

Clusters are those of each corpus: documents linked by pairs at the applied threshold, exact duplicates, and those of
selections that name a kept original.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.inspect.documents.blend_documents import blend_parts
from dagster_project.inspect.documents.document_keys import Keys, keys_of
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, facts_of
from headrace_features.composition.repeats import Repeats, count_repeats
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger

if TYPE_CHECKING:
    from blender_service.server.blender import Blender


def blend_repeats(catalogue: Catalog, blender: Blender, blend_id: str, offset: int | None) -> Repeats:
    """Count how often the documents of a blend's tables are read before an offset.

    Args:
        catalogue: of the lake.
        blender: of the blend.
        blend_id: full id.
        offset: None for the end.

    Raises: as `blend_parts`.
    """
    tables = blend_parts(blender, blend_id, offset)
    corpora = sorted({pin.table.partition(".")[0] for pin in blender.head(blend_id).pins().values()})
    return count_repeats(tables, [link for corpus in corpora for link in cluster_links(catalogue, corpus)])


def cluster_links(catalogue: Catalog, name: str) -> Iterator[tuple[Keys, Keys]]:
    """Pairs of documents of one cluster, as a corpus has them: by exact duplicates, near ones, and by selections."""
    if not catalogue.table_exists(f"{name}.members"):
        return
    corpus = facts_of(Ledger.fresh(catalogue), name)
    tables = {"exact_duplicates": "witness_doc_id", **{stage.reasons: "witness_doc_id" for stage in corpus.repeating}}
    for table, other in tables.items():
        rows = read_columns(catalogue, corpus.own(table), ("doc_id", other))
        if rows is not None:
            yield keys_of(rows["doc_id"]), keys_of(rows[other])
    rows = _components(catalogue, corpus)
    if rows is not None:
        # Of several rows of a document the older ones name former components, whose documents are together still.
        yield keys_of(rows["doc_id"]), keys_of(rows["component"])


def _components(catalogue: Catalog, corpus: CorpusFacts) -> pa.Table | None:
    """The components at the threshold that is applied to the kind of each document."""
    if corpus.applied is None:
        return None
    at = In("threshold", corpus.applied.distinct)
    rows = read_columns(catalogue, corpus.own("components"), ("threshold", "doc_id", "component"), at)
    if rows is None or corpus.applied.is_one:
        return rows
    members = read_columns(catalogue, corpus.own("members"), ("doc_id", "kind"))
    if members is None:
        return None
    joined = rows.join(members, "doc_id", join_type="inner")
    applied = pa.array([corpus.applied.of(kind) for kind in joined["kind"].to_pylist()], pa.float64())
    return joined.filter(pc.equal(joined["threshold"], applied))
