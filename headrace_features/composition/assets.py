"""The part `cells` of a corpus: the steps that give its documents cells and add up what cells hold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link
from headrace_features.composition.cells import DUPLICATES, bounds_step, cells_step
from headrace_features.composition.config import CellsConfig, require_values
from headrace_features.composition.statistics import statistics_step
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import SelectionPlace


def cells_part(place: SelectionPlace, frozen_by: str, declared: Mapping[str, Any], threshold: Any) -> Iterator[Link]:
    """The steps of `cells:`.

    Args:
        place: behind all selections of the corpus.
        frozen_by: table of the documents that bounds of quantiles are made of.
        declared: as written.
        threshold: at which near-duplicates are removed.

    Raises:
        DefinitionError: a dimension is not possible.
    """
    where = f"corpus {place.corpus}: cells"
    config = bind_config(CellsConfig, where, declared)
    if config.duplicates is not None:
        config = bind_config(CellsConfig, where, {**declared, "threshold": threshold})
    of_corpus = place.own("members", "tokens")
    bounds: dict[str, Source] = {}
    if (binned := config.binned) is not None:
        read = _tables(binned, place, where)
        bounds = place.own("cell_bounds")
        yield _checked(bounds_step(read), binned), {"survivors": frozen_by, **read}, _settings(binned), "cells"
    read = _tables(config, place, where)
    if config.duplicates is not None:
        read |= place.own(*(name for name in DUPLICATES if name in place.made))
    made = _checked(cells_step(read), config)
    yield made, {"survivors": place.survivors, **bounds, **read}, _settings(config), "cells"
    read = {} if binned is None else _tables(binned, place, where)
    made = statistics_step(read)
    yield made, {**place.own("cells"), **of_corpus, **read}, _settings(config), "cells"


def _tables(config: CellsConfig, place: SelectionPlace, where: str) -> dict[str, Source]:
    """The tables with values, by name."""
    read = dict[str, Source]()
    for name, of in config.places.items():
        datasets = config.by[name].datasets
        try:
            source = place.source(of.table) if datasets is None else place.each(of.table, datasets)
        except ConfigError as error:
            raise DefinitionError(f"{where}: {name}: {error}") from error
        if read.setdefault(of.table, source) != source:
            raise DefinitionError(
                f"{where}: {name}: another dimension reads {of.table} of other datasets; name the same"
            )
    return read


def _checked(made: Step, config: CellsConfig) -> Step:
    return dataclasses.replace(made, refuse_types=functools.partial(require_values, config))


def _settings(config: CellsConfig) -> dict[str, Any]:
    return config.model_dump(exclude_defaults=True)
