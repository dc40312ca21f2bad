"""Which existing rows a run may change, worked out from the ledger before any work starts.

A run mostly adds increments, which surprises nobody. Reported here are the other cases: a frozen table that is kept
though its declaration has changed, a frozen table that is computed again because its inputs change, and a numbered
table that may be packed anew. No row is read, so a table that is reported may still come out as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.plan import other_settings, tasks
from spark_jobs.lake.session.catalogue import schema_difference


@dataclass(frozen=True)
class Foreseen:
    """Tables whose rows a run may change, or keep though somebody may expect a change.

    Attributes:
        kept_frozen: frozen tables that differ from their declaration and stay as they are, each with a sentence.
        recomputed_frozen: frozen tables that were computed from rows which are computed again.
        renumbered: numbered tables of which existing rows are computed again.
    """

    kept_frozen: tuple[tuple[str, str], ...]
    recomputed_frozen: tuple[str, ...]
    renumbered: tuple[str, ...]


def foresee(ledger: Ledger, bindings: Iterable[Binding]) -> Foreseen:
    """Work out what a run of some steps changes.

    Args:
        ledger: as it is before the run.
        bindings: the steps, each after those whose tables it reads.
    """
    again: dict[str, set[str]] = {}
    kept_frozen, recomputed_frozen, renumbered = [], [], []
    for binding in bindings:
        if _is_refused(ledger, binding):
            continue
        places = _computed_again(ledger, binding, again)
        again.update(dict.fromkeys(binding.tables, places))
        if binding.step.scope is Scope.FROZEN:
            settings = other_settings(ledger, binding)
            if places:
                recomputed_frozen.append(binding.tables[0])
            elif settings:
                kept_frozen.append((binding.tables[0], settings))
        elif binding.step.numbered and places:
            renumbered.append(binding.tables[0])
    return Foreseen(tuple(kept_frozen), tuple(recomputed_frozen), tuple(renumbered))


def other_columns(ledger: Ledger, bindings: Iterable[Binding]) -> tuple[str, ...]:
    """Tables that their steps cannot write because an earlier version of headrace made them with other columns.

    Tables of a source are left out, since they get the columns that they lack.
    """
    return tuple(
        identifier
        for binding in bindings
        if binding.step.discover is None
        for declared, identifier in zip(binding.step.tables, binding.tables, strict=True)
        if (table := ledger.table(identifier)) is not None and schema_difference(table, declared)
    )


def _is_refused(ledger: Ledger, binding: Binding) -> bool:
    """Whether the ledger cannot say what a table holds, since another program wrote it; the run itself will say so."""
    try:
        for table in binding.tables:
            ledger.places(table)
    except SparkJobsError:
        return True
    return False


def _computed_again(ledger: Ledger, binding: Binding, again: dict[str, set[str]]) -> set[str]:
    """Existing places of a step that are computed again: their step key is new, or they read a place that is."""
    if binding.step.discover is not None or binding.step.scope is Scope.INTAKE:
        return set()  # these only add
    try:
        known = ledger.places(binding.tables[0])
        found = {
            place
            for place, row in known.items()
            if any(not again.get(table, set()).isdisjoint(facts["versions"]) for table, facts in row.inputs.items())
        }
        for task in tasks(ledger, binding):
            if task.place.key in known:
                found.add(task.place.key)
    except SparkJobsError:  # an input does not exist yet: the run makes it, or says so
        return set()
    if binding.step.numbered and found:
        found |= {place for place in known if int(place) > min(map(int, found))}
    return found
