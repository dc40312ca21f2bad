"""Decontamination of corpora: benchmarks are searched for before anything is packed, and packed tables say which.

    select: [..]                        nothing is packed that the newest of every eval set was not searched for in
    select: [.., decontaminate: off]    written down, so that somebody decided it; the packed tables say `off`

Without an eval set in the registry a corpus has no such step, so its tables are as if there were no registry.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagster_project.assets.selections import OFF
from dagster_project.table_asset import Upkeep
from headrace.tables.catalogue import load_table
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import load_settings
from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.decontaminated import EVALS_PROPERTY, PresentEvals, present_evals
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.excisions import EXCISIONS
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import catalogue_errors, open_catalogue

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_log = logging.getLogger(__name__)


def searched_evals(settings: str | Mapping[str, Any]) -> PresentEvals:
    """The eval sets to search a corpus for; none where its settings of the search are `off`."""
    return PresentEvals() if settings == OFF else _evals_of_the_lake()


def _evals_of_the_lake() -> PresentEvals:
    """The eval sets in the registry now; none where there is no lake, or it does not answer.

    Declarations must load without a lake. What this misses is noticed before anything is packed.
    """
    try:
        settings = load_settings()
        if settings.database is not None and not settings.database.exists():
            return PresentEvals()
        with catalogue_errors():
            return present_evals(open_catalogue(settings, look_at_store=False))
    except (CatalogueError, OSError) as error:
        _log.warning("the registry was not read, so no benchmark is searched for yet: %s", error)
        return PresentEvals()


def upkeep_of_packed(corpus: str, identifier: str, evals: PresentEvals, *, off: bool, around: Upkeep) -> Upkeep:
    """The work around packing, with the search for benchmarks demanded before it and stated after it.

    Args:
        corpus: its name.
        identifier: the packed table.
        evals: what its documents are searched for.
        off: whether the corpus does without.
        around: the other work.
    """
    stated = OFF if off else evals.digest

    def before(lake: Lake) -> None:
        if not off:
            _require_search(lake, corpus, evals)
        if around.before is not None:
            around.before(lake)

    def published(lake: Lake) -> None:
        _state(lake.catalogue, identifier, stated)

    def pending(catalogue: Catalog) -> bool:
        return _is_pending(catalogue, identifier, stated) or (around.pending is not None and around.pending(catalogue))

    return replace(around, before=before, pending=pending, published=published)


def _require_search(lake: Lake, corpus: str, evals: PresentEvals) -> None:
    """Refuse to pack documents before a search for the present benchmarks.

    Raises:
        InputError: says what is missing and how to make it.
    """
    present = present_evals(lake.catalogue)
    if present.digest != evals.digest:
        raise InputError(
            f"corpus {corpus}: the registry now holds {', '.join(present.labels) or 'no eval set'}, this run was "
            f"planned with {', '.join(evals.labels) or 'none'}; run it again (in the UI: reload the definitions first)"
        )
    if not evals.labels:
        return
    searched = lake.ledger.increments(f"{corpus}.decontaminated")
    for number, tokens in lake.ledger.increments(f"{corpus}.tokens").items():
        row = searched.get(number)
        if row is None or tuple(json.loads(row.config)["evals"]) != evals.labels or not _is_made_of(tokens, row):
            raise InputError(
                f"corpus {corpus}: {', '.join(evals.labels)} have not been searched for in increment {number}; "
                f"headrace run {corpus}"
            )


def _is_made_of(row: Materialization, source: Materialization) -> bool:
    """Whether a row of the ledger was computed from the rows of another one.

    A row recovered after a crash names no inputs, and is taken to be.
    """
    if source.table not in row.inputs:
        return not row.inputs.keys() - {EXCISIONS}
    return bool(row.inputs[source.table]["versions"].get(source.place) == str(source.data_version))


def _is_pending(catalogue: Catalog, identifier: str, stated: str) -> bool:
    """Whether a run would change what a packed table's properties state about benchmarks."""
    table = load_table(catalogue, identifier)
    return table is not None and table.properties.get(EVALS_PROPERTY, "") != stated


def _state(catalogue: Catalog, identifier: str, stated: str) -> None:
    """Write the benchmarks of the search into a packed table."""
    table = load_table(catalogue, identifier)
    if table is None or table.properties.get(EVALS_PROPERTY, "") == stated:
        return
    with table.transaction() as change:
        change.set_properties({EVALS_PROPERTY: stated})
