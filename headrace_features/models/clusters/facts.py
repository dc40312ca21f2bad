"""The clusters of a corpus: their words, their sizes, what a model learned of them, their documents."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from spark_jobs.lake.files.lookups import EVERYTHING, read_rows


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Attributes:
        cluster: its number.
        coarse: number of its coarse cluster.
        words: that weigh most in its typical documents.
        typical: doc_id of the documents of the sample nearest to its centroid.
        sample_count: documents of the sample in it.
        document_count: survivors of the first increment in it, None without losses.
        loss_before: of the model, nats a byte; None where it was not measured.
        loss: after a training on other documents of it.
        slope: what a step of that training added.
    """

    cluster: int
    coarse: int
    words: tuple[str, ...]
    typical: tuple[str, ...]
    sample_count: int
    document_count: int | None = None
    loss_before: float | None = None
    loss: float | None = None
    slope: float | None = None

    @property
    def size(self) -> int:
        """The documents of it that were counted."""
        return self.sample_count if self.document_count is None else self.document_count


def clusters_of(catalogue: Catalog, corpus: str) -> list[Cluster]:
    """The clusters of a corpus by number, coarse ones left out; none where it has none."""
    measured = ("document_count", "loss_before", "loss", "slope")
    losses = read_rows(catalogue, f"{corpus}.cluster_losses", ("cluster", *measured), EVERYTHING)
    of_cluster = {row["cluster"]: {name: row[name] for name in measured} for row in losses}
    columns = ("cluster", "coarse", "label", "typical", "document_count")
    rows = read_rows(catalogue, f"{corpus}.centroids", columns, EVERYTHING)
    found = [
        Cluster(
            row["cluster"],
            row["coarse"],
            tuple(row["label"]),
            tuple(row["typical"]),
            row["document_count"],
            **of_cluster.get(row["cluster"], {}),
        )
        for row in rows
        if row["cluster"] is not None
    ]
    return sorted(found, key=lambda one: one.cluster)


def documents_of_cluster(
    catalogue: Catalog, corpus: str, cluster: int, count: int, after: tuple[float, str] | None = None
) -> list[tuple[float, str]]:
    """Documents of a cluster with their distance from its centroid, the nearest first.

    Args:
        catalogue: of the lake.
        corpus: its name.
        cluster: number of the cluster.
        count: most of them.
        after: (distance, doc_id) of the last one before these; None for the first.
    """
    rows = read_rows(catalogue, f"{corpus}.clusters", ("distance", "doc_id"), EqualTo("cluster", cluster))
    keys = sorted((row["distance"], row["doc_id"]) for row in rows)
    return [key for key in keys if after is None or key > after][:count]
