"""The explorer's pages of clusters: size against loss, words, and the documents of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus, namespaces_with
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace_features.models.clusters.facts import Cluster, clusters_of, documents_of_cluster

_PAGE: Final = 50
_FAR: Final = float("inf")
_ORDERS: Final[dict[str, Callable[[Cluster], Any]]] = {
    "size": lambda one: -one.size,
    "loss": lambda one: -one.loss if one.loss is not None else _FAR,
    "slope": lambda one: -one.slope if one.slope is not None else _FAR,
    "cluster": lambda one: one.cluster,
}


def corpora(request: PageRequest) -> PageAnswer:
    """The corpora with clusters, as far as visible to the reader."""
    names = namespaces_with(request.catalogue, "centroids")
    return PageAnswer("corpora.html", {"corpora": [name for name in names if request.may_read(name)]})


def clusters(request: PageRequest) -> PageAnswer:
    """All clusters, by `sort`; `coarse` chooses those of one coarse cluster."""
    query = request.query
    corpus, every, hidden = _clusters(request)
    sort = query.get("sort", "size")
    if sort not in _ORDERS:
        raise CommandError(f"sort={sort[:40]} is no order of clusters; give {', '.join(_ORDERS)}")
    chosen = [cluster for cluster in every if query.get("coarse") in (None, "", str(cluster.coarse))]
    chosen.sort(key=lambda cluster: (_ORDERS[sort](cluster), cluster.cluster))
    points = [
        (cluster.size, cluster.loss, cluster.loss_before, cluster.coarse, f"/clusters/{corpus.name}/{cluster.cluster}",
         f"cluster {cluster.cluster}: {' '.join(cluster.words)}, {cluster.size:,} documents, loss {cluster.loss:.3f}")
        for cluster in chosen if cluster.loss is not None and cluster.loss_before is not None
    ]  # fmt: skip
    shown = {
        "corpus": corpus.name, "hidden": hidden,
        "clusters": [{**vars(cluster), "size": cluster.size} for cluster in chosen],
        "_points": points, "_orders": list(_ORDERS),
    }  # fmt: skip
    return PageAnswer("clusters.html", shown)


def cluster(request: PageRequest) -> PageAnswer:
    """One cluster: its words, its losses, its documents from the nearest to its centroid on."""
    query, number = request.query, int(request.parts["cluster"])
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
    keys = documents_of_cluster(request.catalogue, corpus.name, number, _PAGE + 1, after)
    page = keys[:_PAGE]
    named = members_named(request.catalogue, corpus, [doc_id for _, doc_id in page]) if page else {}
    facts = ("dataset", "repository", "path")
    documents = [
        {"doc_id": doc_id, "distance": distance, **{name: named.get(doc_id, {}).get(name) for name in facts}}
        for distance, doc_id in page
    ]
    onward = urlencode({**query, "after": json.dumps(page[-1])}) if len(keys) > _PAGE else ""
    more = f"/clusters/{corpus.name}/{number}?{onward}" if onward else None
    shown = {"corpus": corpus.name, "hidden": hidden, "cluster": {**vars(chosen), "size": chosen.size}}
    return PageAnswer("cluster.html", {**shown, "documents": documents, "next": more})


def _clusters(request: PageRequest) -> tuple[CorpusFacts, list[Cluster], str]:
    """The corpus of an address, its clusters, and why their words are not shown.

    Raises:
        CommandError: there is no such corpus, or it has no clusters.
    """
    name = request.parts["corpus"]
    request.require(name)
    corpus = find_corpus(request.catalogue, name)
    if "centroids" not in corpus.tables:
        raise CommandError(f"corpus {corpus.name} has no clusters; declare `clusters: {{}}` and run it again")
    every = clusters_of(request.catalogue, corpus.name)
    hidden = next((why for dataset in corpus.datasets if (why := request.hides_text(dataset))), "")
    if hidden:  # words are of the texts
        every = [Cluster(**{**vars(cluster), "words": ()}) for cluster in every]
    return corpus, every, hidden


PAGES: Final = Pages(
    {"/clusters": corpora, "/clusters/{corpus}": clusters, "/clusters/{corpus}/{cluster:int}": cluster},
    Path(__file__).parent / "templates",
)
