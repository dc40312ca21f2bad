"""Whose increments a table has: those of a dataset, or those of a corpus, which takes increments of its datasets in.

    notes.signals                         increments of the dataset `notes`, numbered by notes.arrivals
    first.survivors                       increments of the corpus `first`, numbered by first.increments
    a step over both, whatever the order  follows the corpus; of notes.signals it reads what the corpus took in

Numbers of two datasets, or of two corpora, have nothing to do with one another, so a step that would join them
increment by increment is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.lake.declare.step import Scope, Step
from spark_jobs.lake.plan.binding import Source, tables_of


class DeclaredStep(Protocol):
    """A step as it was declared: where its tables live, what it reads, and what it follows where that was said."""

    @property
    def step(self) -> Step: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def inputs(self) -> Mapping[str, Source]: ...  # noqa: D102
    @property
    def driving_table(self) -> str | None: ...  # noqa: D102
    @property
    def tables(self) -> tuple[str, ...]: ...  # noqa: D102


Declarations = Callable[[str], DeclaredStep | None]
"""The step that makes a table; None for a table that no step makes."""

_Known = dict[str, str | None]  # by table, the table whose increments it has


@dataclass(frozen=True)
class Following:
    """What a step follows.

    Attributes:
        driving_table: table whose increments it follows; None where there is none to follow.
        translated: as `Binding` has it.
    """

    driving_table: str | None
    translated: Mapping[str, str] | None


def following(declared: DeclaredStep, declarations: Declarations) -> Following:
    """What a step follows; it does not depend on the order of its inputs.

    Raises:
        StepDeclarationError: its inputs have increments that do not belong together, or none though its scope needs
            some; or it reads its own table.
    """
    return _following(declared, declarations, {})


def _following(declared: DeclaredStep, declarations: Declarations, numbered: _Known) -> Following:
    inputs, scope = tables_of(*declared.inputs.values()), declared.step.scope
    if declared.driving_table is None and (declared.step.discover is not None or scope in (Scope.WHOLE, Scope.INTAKE)):
        return Following(None, {})
    if declared.driving_table is None and not {*declared.tables}.isdisjoint(inputs):
        raise StepDeclarationError(
            f"{declared.tables[0]}: reads itself; a parameter named {declared.step.table.name} without an entry in "
            "inputs is what its earlier increments hold"
        )
    numbers = {table: by for table in inputs if (by := _numbered_by(table, declarations, numbered)) is not None}
    if declared.driving_table is not None:
        by = _numbered_by(declared.driving_table, declarations, numbered)
        return Following(declared.driving_table, _translated(numbers, by, declarations, numbered))
    if not numbers:
        if scope is Scope.FROZEN:
            return Following(None, {})
        raise StepDeclarationError(
            f"{declared.tables[0]}: scope {scope.value} follows the increments of an input, and of "
            f"{', '.join(inputs) or 'no input'} none has any; leave scope out, and the table is computed whole"
        )
    for by in sorted({*numbers.values()}):
        translated = _translated(numbers, by, declarations, numbered)
        if all(of == by or table in translated for table, of in numbers.items()):
            return Following(by, translated)
    apart = {of: table for table, of in reversed(numbers.items())}
    raise StepDeclarationError(
        f"{declared.tables[0]}: increments of {' and of '.join(sorted(apart.values()))} do not belong together; "
        "read tables of one dataset, or of one corpus (at least its increments) and its datasets, or leave scope out, "
        "and all rows are read"
    )


def _numbered_by(table: str, declarations: Declarations, numbered: _Known) -> str | None:
    """The table whose increments are those of a table; None for a table that others read whole."""
    if table not in numbered:  # tables that read one another have many paths between them, and each is asked for once
        numbered[table] = _first_numbered_by(table, declarations, numbered)
    return numbered[table]


def _first_numbered_by(table: str, declarations: Declarations, numbered: _Known) -> str | None:
    declared = declarations(table)
    if declared is None or declared.step.scope in (Scope.WHOLE, Scope.FROZEN):
        return None
    if not declared.step.tables[declared.tables.index(table)].has_increments:
        return None
    if declared.step.scope is Scope.INTAKE:
        return declared.tables[0]
    driving = declared.driving_table or _following(declared, declarations, numbered).driving_table
    return driving if driving is None or driving in declared.tables else _numbered_by(driving, declarations, numbered)


def _translated(
    numbers: Mapping[str, str], by: str | None, declarations: Declarations, numbered: _Known
) -> dict[str, str]:
    """Those of some tables whose increments the intake `by` numbers anew, with the dataset that it lists them under."""
    intake = declarations(by) if by is not None else None
    if intake is None or intake.step.scope is not Scope.INTAKE:
        return {}
    arrivals = tables_of(*intake.inputs.values())
    datasets = {_numbered_by(table, declarations, numbered): table.split(".")[0] for table in arrivals}
    return {table: datasets[of] for table, of in numbers.items() if of != by and of in datasets}
