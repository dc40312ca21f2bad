"""Validate what a request says by itself, without the lake or a parent: names, bounds, weights.

Mistakes are collected in `Findings`, so that one answer names every mistake with its field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from blender_service.blend.config import MAX_SOURCES, NAME_PATTERN
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage
from blender_service.blend.store import check_name
from blender_service.exceptions import FieldViolation, InvalidBlendError, UpdateRefusedError
from blender_service.order.interleave import MAX_CYCLE_ROWS, parse_weight, quantize, reduce_weights
from blender_service.order.segments import OFFSET_LIMIT
from headrace.tables.cells import split_table
from headrace.tables.exceptions import CellsError

LONGEST_NAME: Final = 128  # of a source: NAME_PATTERN


def check_blend(spec: BlendSpec, findings: Findings) -> None:
    """Check a request to create a blend, its schedule included."""
    if not 1 <= len(spec.sources) <= MAX_SOURCES:
        findings.mistake("sources", f"{len(spec.sources)} given; name 1 to {MAX_SOURCES}")
    bounds = {"seed": (0, 2**64 - 1), "block_rows": (1, 1 << 20), "group_blocks": (1, 1 << 10)}
    bounds["turn_rows"] = (1, MAX_CYCLE_ROWS // max(1, len(spec.sources)))
    for field, (low, high) in bounds.items():
        if not low <= getattr(spec, field) <= high:
            findings.mistake(field, f"is {getattr(spec, field)}; give {low} to {high}")
    check_blend_name(spec.name, findings)
    labels = [name_of(source) for source in spec.sources]
    for index, source in enumerate(spec.sources):
        where = f"sources[{index}]"
        _check_source_name(labels[index], labels[:index], where, findings)
        _check_settings(source, bool(source.live), where, findings)
        if source.live and source.snapshot:
            findings.mistake(f"{where}.snapshot", f"is {source.snapshot!r}; a live source has none, leave it empty")
    check_stages(spec.schedule, schedule_fields(len(spec.schedule)), findings)


def name_of(source: SourceSpec) -> str:
    """Give the name of a source inside the blend: the one asked for, else the table's identifier and its cells."""
    if source.name:
        return source.name
    try:
        table, choice = split_table(source.table)
    except CellsError:  # told where the source is looked up
        return source.table.partition("[")[0]
    if choice is None:
        return table
    name = f"{table}.{choice.slug}"
    return name if len(name) <= LONGEST_NAME else f"{table}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def check_blend_name(name: str, findings: Findings) -> None:
    """Check the name of a blend, where one is given."""
    if name:
        try:
            check_name(name)
        except InvalidBlendError as error:
            findings.mistake("name", str(error))


def check_stages(stages: Sequence[Stage], fields: Sequence[str], findings: Findings) -> None:
    """Check consecutive updates, each by itself and their order.

    Args:
        stages: (n,) ascending by offset.
        fields: (n,) prefix of the names of each stage's fields.
        findings: where mistakes go.
    """
    for index, (stage, where) in enumerate(zip(stages, fields, strict=True)):
        if not 0 <= stage.from_offset < OFFSET_LIMIT:
            findings.mistake(f"{where}from_offset", f"is {stage.from_offset}; give 0 to 2**62 - 1")
        if index and stage.from_offset <= stages[index - 1].from_offset:
            before = stages[index - 1].from_offset
            findings.mistake(
                f"{where}from_offset", f"is {stage.from_offset}, not above {before} of the stage before it"
            )
        names = [change.name for change in stage.changes]
        for number, change in enumerate(stage.changes):
            _check_change(change, names[:number], f"{where}changes[{number}]", findings)


def schedule_fields(count: int) -> list[str]:
    """Give the prefix of the field names of each stage of a schedule."""
    return [f"schedule[{index}]." for index in range(count)]


def settle_weights(
    names: Sequence[str], texts: Sequence[str], fields: Sequence[str], findings: Findings, turn_rows: int = 1
) -> tuple[int, ...]:
    """Reduce weights to a cycle; the mistake of too long a cycle names the nearest fitting weights.

    Args:
        names: (n,) of the sources.
        texts: (n,) decimals or fractions.
        fields: (n,) name of each in a message.
        findings: where mistakes go.
        turn_rows: consecutive rows of one source; the cycle has as many turns as the weights sum to.

    Returns:
        (n,) whole weights, empty if something is wrong.
    """
    weights: list[Fraction] = []
    for text, field in zip(texts, fields, strict=True):
        try:
            weights.append(parse_weight(text))
        except ValueError as error:
            findings.mistake(field, str(error))
    if len(weights) != len(texts) or not 1 <= len(weights) <= MAX_SOURCES:
        return ()
    whole = reduce_weights(weights)
    most = MAX_CYCLE_ROWS // turn_rows
    if sum(whole) > most >= len(weights):
        nearest = ", ".join(f"{name}={weight}" for name, weight in zip(names, quantize(weights, most), strict=True))
        findings.mistake(
            "sources.weight",
            f"in whole numbers they sum to {sum(whole)}, at most {most} is possible; nearest: {nearest}",
        )
    return whole


def _check_source_name(name: str, earlier: Sequence[str], where: str, findings: Findings) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        findings.mistake(f"{where}.name", f"{name!r}: use a letter, then letters, digits, '_', '.', '-'")
    if name in earlier:
        findings.mistake(f"{where}.name", f"{name} is given twice; name each source once")


def _check_settings(source: SourceSpec | SourceChange, live: bool, where: str, findings: Findings) -> None:
    """Check max_epochs and on_exhausted, impossible for a live source."""
    if source.max_epochs is not None and not 0 <= source.max_epochs < 1 << 31:
        findings.mistake(f"{where}.max_epochs", f"is {source.max_epochs}; give 0 (no end) or more")
    if source.on_exhausted not in (None, "END", "CONTINUE"):
        findings.mistake(f"{where}.on_exhausted", f"is {source.on_exhausted!r}; give END or CONTINUE")
    for field in ("max_epochs", "on_exhausted") if live else ():
        if getattr(source, field) is not None:
            findings.mistake(
                f"{where}.{field}", f"is {getattr(source, field)}; a live source never runs out, leave it out or pin it"
            )


def _check_change(change: SourceChange, earlier: Sequence[str], where: str, findings: Findings) -> None:
    _check_source_name(change.name, earlier, where, findings)
    _check_settings(change, bool(change.live), where, findings)
    others = (change.table, change.weight, change.snapshot, change.max_epochs, change.on_exhausted, change.live)
    if change.remove and any(value not in (None, "") for value in others):
        findings.mistake(f"{where}.remove", f"{change.name} cannot be removed and changed at once; do one of both")
    if change.live and change.snapshot:
        findings.mistake(f"{where}.snapshot", f"is {change.snapshot!r}; a live source has none, leave it empty")


class Findings:
    """Mistakes (the request is wrong in itself) and conflicts (its tables, or the rows read so far, rule it out)."""

    def __init__(self) -> None:
        self.mistakes: list[FieldViolation] = []
        self.conflicts: list[FieldViolation] = []

    def mistake(self, field: str, problem: str) -> None:
        """Note that a field's value is wrong."""
        self.mistakes.append(FieldViolation(field, problem))

    def conflict(self, field: str, problem: str) -> None:
        """Note that a field asks for an update repeating or skipping rows."""
        self.conflicts.append(FieldViolation(field, problem))

    @property
    def any(self) -> bool:
        """Whether a mistake or conflict was noted."""
        return bool(self.mistakes or self.conflicts)

    def raise_any(self) -> None:
        """Raise one error with all mistakes and conflicts, if there are any.

        Raises:
            UpdateRefusedError: there are conflicts only.
            InvalidBlendError: there are mistakes.
        """
        if self.mistakes:
            raise InvalidBlendError.from_violations((*self.mistakes, *self.conflicts))
        if self.conflicts:
            raise UpdateRefusedError.from_violations(self.conflicts)
