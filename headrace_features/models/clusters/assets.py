"""Make the steps to assign the survivors of a corpus to clusters, and measure those by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dagster_project.exceptions import DefinitionError
from dagster_project.table_asset import Link
from headrace_features.models.clusters.centroids import centroids
from headrace_features.models.clusters.cluster_losses import cluster_losses
from headrace_features.models.clusters.clusters import clusters
from headrace_features.models.clusters.proxy_model import proxy_model
from spark_jobs.lake.plan.binding import Source


def clustered(
    name: str,
    declared: Mapping[str, Any] | None,
    losses: Mapping[str, Any] | None,
    own: Callable[[str], str],
    texts: tuple[str, ...],
) -> Iterator[Link]:
    """The steps of `clusters:` and `cluster_losses:`.

    Args:
        name: the corpus.
        declared: config of the centroids.
        losses: config of the losses, with `proxy` for a model of the corpus's own; None where they are not measured.
        own: identifier of a table of the corpus.
        texts: of its datasets.

    Raises:
        DefinitionError: losses are declared without clusters, or by two models.
    """
    if declared is None:
        raise DefinitionError(f"corpus {name}: cluster_losses without clusters; declare clusters: {{}} too")
    read: dict[str, Source] = {"survivors": own("survivors"), "texts": texts}
    yield centroids, read, declared, "clusters"
    yield clusters, {**read, **{table: own(table) for table in ("centroids", "centroid_weights")}}, {}, "clusters"
    if losses is None:
        return
    config = dict(losses)
    trained = config.pop("proxy", None) or {}
    if not isinstance(trained, Mapping):
        raise DefinitionError(f"corpus {name}: cluster_losses: proxy is {trained!r}; write {{width: 64, ..}}")
    measured: dict[str, Source] = {"clusters": own("clusters"), "texts": texts}
    if config.get("model") is None:
        measured["proxy_model"] = own("proxy_model")
        yield proxy_model, read, trained, "clusters"
    elif trained:
        raise DefinitionError(f"corpus {name}: cluster_losses has both model and proxy; give one of them")
    yield cluster_losses, measured, config, "clusters"
