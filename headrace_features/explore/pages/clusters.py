"""The clusters of a corpus: size against loss, words, and the documents of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.cluster_facts import Cluster, clusters_of, documents_of_cluster
from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.offset_charts import COLOURS, scatter

_PAGE: Final = 50
_FAR: Final = float("inf")
_ORDERS: Final[dict[str, Callable[[Cluster], Any]]] = {
    "size": lambda one: -one.size,
    "loss": lambda one: -one.loss if one.loss is not None else _FAR,
    "slope": lambda one: -one.slope if one.slope is not None else _FAR,
    "cluster": lambda one: one.cluster,
}


def clusters(request: Request) -> Response:
    """All clusters, by `sort`; `coarse` chooses those of one coarse cluster."""
    query = dict(request.query_params)
    corpus, every, hidden = _clusters(request)
    sort = query.get("sort", "size")
    if sort not in _ORDERS:
        raise CommandError(f"sort={sort[:40]} is no order of clusters; give {', '.join(_ORDERS)}")
    chosen = [cluster for cluster in every if query.get("coarse") in (None, "", str(cluster.coarse))]
    chosen.sort(key=lambda cluster: (_ORDERS[sort](cluster), cluster.cluster))
    points = [
        (cluster.size, cluster.loss, cluster.loss_before, f"c{cluster.coarse % COLOURS}",
         f"/corpora/{corpus.name}/clusters/{cluster.cluster}",
         f"cluster {cluster.cluster}: {' '.join(cluster.words)}, {cluster.size:,} documents, loss {cluster.loss:.3f}")
        for cluster in chosen if cluster.loss is not None and cluster.loss_before is not None
    ]  # fmt: skip
    shown = {
        "corpus": corpus.name, "hidden": hidden,
        "clusters": [{**vars(cluster), "size": cluster.size} for cluster in chosen],
        "_map": scatter(points, "loss of clusters by their size") if points else None, "_colours": COLOURS,
        "_orders": list(_ORDERS),
    }  # fmt: skip
    return answer(request, "clusters.html", shown)


def cluster(request: Request) -> Response:
    """One cluster: its words, its losses, its documents from the nearest to its centroid on."""
    explorer, query, number = explorer_of(request), dict(request.query_params), request.path_params["cluster"]
    corpus, every, hidden = _clusters(request)
    chosen = next((chosen for chosen in every if chosen.cluster == number), None)
    if chosen is None:
        raise CommandError(f"corpus {corpus.name} has no cluster {number}; it has 0..{len(every) - 1}")
    after = None
    if query.get("after"):
        try:
            distance, doc_id = json.loads(query["after"])
            after = (float(distance), str(doc_id))
        except (ValueError, TypeError) as error:
            raise CommandError(f"after={query['after'][:80]} is no place in this list; leave it out") from error
    keys = documents_of_cluster(explorer.catalogue, corpus.name, number, _PAGE + 1, after)
    page = keys[:_PAGE]
    named = members_named(explorer.catalogue, corpus, [doc_id for _, doc_id in page]) if page else {}
    facts = ("dataset", "repository", "path")
    documents = [
        {"doc_id": doc_id, "distance": distance, **{name: named.get(doc_id, {}).get(name) for name in facts}}
        for distance, doc_id in page
    ]
    more = address(request.url.path, query, after=json.dumps(page[-1])) if len(keys) > _PAGE else None
    shown = {"corpus": corpus.name, "hidden": hidden, "cluster": {**vars(chosen), "size": chosen.size}}
    return answer(request, "cluster.html", {**shown, "documents": documents, "next": more})


def _clusters(request: Request) -> tuple[CorpusFacts, list[Cluster], str]:
    """The corpus of an address, its clusters, and why their words are not shown.

    Raises:
        CommandError: there is no such corpus, or it has no clusters.
    """
    explorer, principal = explorer_of(request), principal_of(request)
    corpus = explorer.corpus(principal, request.path_params["corpus"])
    explorer.reads(principal, corpus.name)
    if "centroids" not in corpus.tables:
        raise CommandError(f"corpus {corpus.name} has no clusters; declare `clusters: {{}}` and run it again")
    every = clusters_of(explorer.catalogue, corpus.name)
    hidden = next((why for dataset in corpus.datasets if (why := explorer.hides_text(dataset))), "")
    if hidden:  # words are of the texts
        every = [Cluster(**{**vars(cluster), "words": ()}) for cluster in every]
    return corpus, every, hidden


PATHS = {"/corpora/{corpus}/clusters": clusters, "/corpora/{corpus}/clusters/{cluster:int}": cluster}
