"""What a run is going to change of what is there, from the ledger alone: told before any work starts.

That increments are added needs no word. What does: a frozen table that stays as it is under other settings, one that
is computed again because what it was made of changes, and a numbered table that may be packed anew. Rows may still come
out the same, then nothing of it happens; no row is looked at here.
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
    """What is to be known before a run.

    Attributes:
        frozen: frozen tables whose declaration differs from them, each with a sentence; they stay as they are.
        thawed: frozen tables that were computed from rows which are computed again.
        renumbered: numbered tables of which rows that are there are computed again.
    """

    frozen: tuple[tuple[str, str], ...]
    thawed: tuple[str, ...]
    renumbered: tuple[str, ...]


def foresee(ledger: Ledger, bindings: Iterable[Binding]) -> Foreseen:
    """Look ahead over steps, inputs before those that read them."""
    again: dict[str, set[str]] = {}
    frozen, thawed, renumbered = [], [], []
    for binding in bindings:
        if _is_refused(ledger, binding):
            continue
        places = _computed_again(ledger, binding, again)
        again.update(dict.fromkeys(binding.tables, places))
        if binding.step.scope is Scope.FROZEN:
            settings = other_settings(ledger, binding)
            if places:
                thawed.append(binding.tables[0])
            elif settings:
                frozen.append((binding.tables[0], settings))
        elif binding.step.numbered and places:
            renumbered.append(binding.tables[0])
    return Foreseen(tuple(frozen), tuple(thawed), tuple(renumbered))


def other_columns(ledger: Ledger, bindings: Iterable[Binding]) -> tuple[str, ...]:
    """Tables that their steps cannot write because they have other columns, as those of an earlier version of headrace.

    Those of a source get the columns that they lack, so they are not told of.
    """
    return tuple(
        identifier
        for binding in bindings
        if binding.step.discover is None
        for declared, identifier in zip(binding.step.tables, binding.tables, strict=True)
        if (table := ledger.table(identifier)) is not None and schema_difference(table, declared)
    )


def _is_refused(ledger: Ledger, binding: Binding) -> bool:
    """Whether a table cannot be told of because somebody else wrote it; the run says so when it comes to it."""
    try:
        for table in binding.tables:
            ledger.places(table)
    except SparkJobsError:
        return True
    return False


def _computed_again(ledger: Ledger, binding: Binding, again: dict[str, set[str]]) -> set[str]:
    """Places of a step that are there and are computed again: their keys are new, or they have read such places."""
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
    except SparkJobsError:  # an input is not there yet: the run says so, or makes it
        return set()
    if binding.step.numbered and found:
        found |= {place for place in known if int(place) > min(map(int, found))}
    return found
