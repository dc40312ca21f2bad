"""Refreeze: compute a corpus anew, so that its frozen tables are made from all increments there are.

    forget    in one commit of the ledger, the increments of the corpus's tables are marked to be computed anew
    run       `<corpus>.increments` takes all increments of the datasets in again, as increment 0. Every other table
              follows, frozen ones included, and the first increment that is written removes the later ones

Until the run has written a table, readers see its rows as they were. A run that is killed goes on where it stopped, as
any other does. Packed snapshots that blends or tags pin stay, and are served as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.tables.catalogue import tables_in
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors


def refreeze(lake: Lake, corpus: str) -> tuple[str, ...]:
    """Mark a corpus's tables so that the next run computes them anew from all increments of its datasets.

    Returns:
        The tables that the next run computes anew in any case; others follow if their inputs come out differently.

    Raises:
        InputError: the corpus was never computed, so nothing is frozen.
        LeaseError: a run is writing one of its tables.
    """
    tables = tables_in(lake.catalogue, corpus)
    with catalogue_errors(), table_leases(lake.catalogue, tables, lake.wait_seconds):
        lake.ledger.refresh()
        chosen = refrozen_tables(lake.ledger, corpus, tables)
        lake.ledger.forget(chosen)
    return chosen


def refrozen_tables(ledger: Ledger, corpus: str, tables: Sequence[str]) -> tuple[str, ...]:
    """Tables of a corpus that a refreeze marks to be computed anew.

    In a corpus of one increment these are the frozen tables and `increments`; others are computed where a key changes.

    Raises:
        InputError: the corpus was never computed.
    """
    scopes = {}
    for identifier in tables:
        table = ledger.table(identifier)
        scopes[identifier] = Scope(table.properties.get(SCOPE_PROPERTY, "whole")) if table is not None else Scope.WHOLE
    intake = f"{corpus}.increments"
    if scopes.get(intake) is not Scope.INTAKE:
        raise InputError(f"{intake} has not been materialized, so nothing is frozen; run `headrace run {corpus}`")
    grown = len(ledger.increments(intake)) != 1
    always = (Scope.FROZEN, Scope.INTAKE)
    return tuple(name for name, scope in scopes.items() if scope in always or (grown and scope is not Scope.WHOLE))
