"""What features know of documents made from other documents: answers of models, outside of a lake's tables.

The entry point NAME of the group `derivations` is a `Derivation`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.exceptions import ConfigError
from spark_jobs.features import brought, missing
from spark_jobs.plugins import load

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class Gauge(NamedTuple):
    """A metric of how making documents goes on.

    Attributes:
        name: of the metric.
        text: what it counts.
        label: what the keys of its values are; empty where it has one value for a dataset.
        value: from what `Derivation.progress` says of a dataset to the value, or to values by key.
    """

    name: str
    text: str
    label: str
    value: Callable[[Any], Any]


class Derivation(NamedTuple):
    """A way in which documents of a lake are made from others.

    Attributes:
        datasets: names of datasets, and of judges (DATASET.JUDGE), for which something was made.
        descendants: documents made from some documents, or from what was made from them.
        roots: the root of each of some documents made from another one, by its doc_id.
        forget: deletes what was said about documents for good, within seconds of waiting; gives lines on what went.
        reopen: has the next run ask again what was refused for some reasons; gives how many requests, by reason.
        progress: how far making came, by dataset: dataclasses with a method `line(source)` for people.
        gauges: metrics of it.
    """

    datasets: Callable[[Catalog], Collection[str]]
    descendants: Callable[[Catalog, Collection[str]], Set[str]]
    roots: Callable[[Catalog, Collection[str]], Mapping[str, str]]
    forget: Callable[[Catalog, Set[str], float], Iterator[str]]
    reopen: Callable[[str, Collection[str], Catalog, float], Mapping[str, int]]
    progress: Callable[[Catalog], Mapping[str, Any]]
    gauges: tuple[Gauge, ...] = ()


def derivations() -> list[Derivation]:
    """Those of the installed features."""
    return [load("derivations", name, Derivation) for name in brought("derivations")]


def derivation_of(name: str, catalogue: Catalog) -> Derivation | None:
    """The one behind something made for a dataset or judge.

    Raises:
        ConfigError: there is none, and features that would know are not there.
    """
    derivation = next((each for each in derivations() if name in each.datasets(catalogue)), None)
    if derivation is None and (absent := missing("derivations")):
        raise ConfigError(f"{name}: what is known of it is of the feature {min(absent.values())}, which is not there")
    return derivation


def descendants(catalogue: Catalog, doc_ids: Collection[str]) -> set[str]:
    """Documents of the lake made from some documents, or from what was made from them."""
    return {doc_id for each in derivations() for doc_id in each.descendants(catalogue, doc_ids)}


def roots(catalogue: Catalog, doc_ids: Collection[str]) -> dict[str, str]:
    """The root of each of these documents made from another one, by its doc_id."""
    return {doc_id: root for each in derivations() for doc_id, root in each.roots(catalogue, doc_ids).items()}


def forget_derived(catalogue: Catalog, doc_ids: Set[str], wait_seconds: float) -> Iterator[str]:
    """Delete what was said about documents for good; gives lines on what went."""
    for each in derivations():
        yield from each.forget(catalogue, doc_ids, wait_seconds)
    yield from staying("keeps of them")


def staying(what: str) -> Iterator[str]:
    """A line for each missing feature, on what it keeps or wrote: nobody else can delete it."""
    for feature in sorted(set(missing("derivations").values())):
        yield f"what the feature {feature} {what} stays, for it is not installed here; delete it where it is"
