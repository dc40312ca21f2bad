"""A selection: its settings, its steps, and the stage it adds to a corpus.

A declaration names a selection and its settings; `arrange` gives the steps for them, each bound to the tables that it
reads at its place. The last table of documents before it is `survivors` there, whatever it is called:

    select: [shape: {..}, passages: {cut: true}]      trimmed reads main.shaped as its `survivors`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.stages import SURVIVORS, SelectionStage


class Bound(NamedTuple):
    """A step with the table or tables of each input, and its settings."""

    step: Step
    inputs: Mapping[str, Source]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class SelectionPlace:
    """Where a selection stands in a corpus.

    Attributes:
        corpus: its namespace.
        datasets: of the corpus, in their order.
        survivors: identifier of the table of the documents left so far.
        made: names of the tables made before it by steps of the corpus.
        cut_texts: identifier of the texts cut by a selection before it; None without any.
        leaves_survivors: whether it is the last selection of duplicates at the head of the list.
    """

    corpus: str
    datasets: tuple[str, ...]
    survivors: str
    made: frozenset[str] = field(default_factory=frozenset)
    cut_texts: str | None = None
    leaves_survivors: bool = False

    def own(self, *tables: str) -> dict[str, Source]:
        """Tables of the corpus, as inputs of these names."""
        return {table: f"{self.corpus}.{table}" for table in tables}

    def each(self, table: str, datasets: Iterable[str] | None = None) -> tuple[str, ...]:
        """A table of all datasets of the corpus, or of some.

        Raises:
            ConfigError: a dataset is none of the corpus.
        """
        for dataset in (chosen := self.datasets if datasets is None else tuple(datasets)):
            if dataset not in self.datasets:
                near = did_you_mean(dataset, self.datasets)
                raise ConfigError(f"{dataset!r} is none of the datasets of corpus {self.corpus}{near}")
        return tuple(f"{dataset}.{table}" for dataset in chosen)

    def source(self, read: str) -> Source:
        """What a selection reads by a name.

        `survivors` are the documents that came so far. Of other names NAMESPACE.TABLE is that table, a name that steps
        of the corpus make before is its table, any other that table of all its datasets.
        """
        if read == SURVIVORS:
            return self.survivors
        if "." in read:
            return read
        return f"{self.corpus}.{read}" if read in self.made else self.each(read)

    def table(self, stage: SelectionStage) -> str:
        """Name of the table for the documents kept by a stage at this place."""
        return SURVIVORS if self.leaves_survivors else stage.table


@dataclass(frozen=True)
class Selection:
    """A selection, as its package declares it.

    Attributes:
        stage: what it leaves.
        config: model of the settings behind its name in a declaration.
        arrange: from checked settings and the place to its steps, in order; raises ConfigError for what cannot work.
        selects: whether under some settings documents may stay behind or texts be cut; else it measures alone.
        reads: its input tables, for display.
    """

    stage: SelectionStage
    config: type[BaseModel]
    arrange: Callable[[Any, SelectionPlace], Iterable[Bound]]
    selects: Callable[[Any], bool] = lambda config: True
    reads: tuple[str, ...] = ()
