"""Creates a blend: checks every source, pins its snapshot with a tag, stores the config.

The tag comes first, so a stored config never names a snapshot that maintenance may drop. A crash in between leaves a
tag that nothing needs, which is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from blender_service.config import MAX_SOURCES, NAME_PATTERN, BlendConfig, Source, WindowFacts
from blender_service.cycle import MAX_CYCLE_ROWS, parse_weight, quantize, reduce_weights
from blender_service.exceptions import FieldViolation, InvalidBlendError, PackedTableError, SourceChangedError
from blender_service.packed_table import (
    PROPERTY_OF_FACT,
    generation_at,
    index_snapshot,
    load_table,
    read_window_facts,
    successor_of,
)
from blender_service.specification import BlendSpec, SourceSpec
from blender_service.store import BlendStore

TAG_ATTEMPTS: Final = 10


class _Candidate(NamedTuple):
    """A source that was found in the lake."""

    spec: SourceSpec
    table: Table
    snapshot: Snapshot
    window: WindowFacts
    rows: int


def create_blend(catalogue: Catalog, store: BlendStore, spec: BlendSpec) -> BlendConfig:
    """Create a blend, or find the one that is already the same.

    Args:
        catalogue: of the lake.
        store: where the config goes.
        spec: what is wanted.

    Raises:
        InvalidBlendError: with every mistake of the request.
        BlendNameTakenError: the name stands for another blend.
    """
    violations = _check_blend(spec, store)
    candidates: list[_Candidate] = []
    for index, source in enumerate(spec.sources):
        found = _find_source(catalogue, source, f"sources[{index}]", violations)
        if found is not None:
            candidates.append(found)
    _check_together(candidates, violations)
    weights = _check_weights(spec.sources, violations)
    if violations:
        raise InvalidBlendError.from_violations(violations)
    config = _build_config(spec, candidates, weights)
    for candidate in candidates:
        pin_snapshot(candidate.table, candidate.snapshot.snapshot_id)
    blend_id = store.put(config)
    if spec.name:
        store.bind(spec.name, blend_id)
    return config


def _check_blend(spec: BlendSpec, store: BlendStore) -> list[FieldViolation]:
    """Find the mistakes that need no lake."""
    violations: list[FieldViolation] = []
    if not 1 <= len(spec.sources) <= MAX_SOURCES:
        violations.append(FieldViolation("sources", f"{len(spec.sources)} given; name 1 to {MAX_SOURCES}"))
    for field, low, high in (("seed", 0, 2**64 - 1), ("block_rows", 1, 1 << 20), ("group_blocks", 1, 1 << 10)):
        if not low <= getattr(spec, field) <= high:
            violations.append(FieldViolation(field, f"is {getattr(spec, field)}; give {low} to {high}"))
    if spec.name:
        try:
            store.check_name(spec.name)
        except InvalidBlendError as error:
            violations.append(FieldViolation("name", str(error)))
    labels = [source.label for source in spec.sources]
    for index, source in enumerate(spec.sources):
        where = f"sources[{index}]"
        if not re.match(NAME_PATTERN, source.label):
            violations.append(
                FieldViolation(f"{where}.name", f"{source.label!r}: use a letter, then letters, digits, '_', '.', '-'")
            )
        if source.label in labels[:index]:
            violations.append(FieldViolation(f"{where}.name", f"{source.label} is given twice; name each source once"))
        if not 0 <= source.max_epochs < 1 << 31:
            violations.append(FieldViolation(f"{where}.max_epochs", f"is {source.max_epochs}; give 0 (no end) or more"))
        if source.live:
            violations.append(
                FieldViolation(f"{where}.live", "live sources are not served by this version; pin a snapshot instead")
            )
        if source.on_exhausted not in ("END", "CONTINUE"):
            violations.append(
                FieldViolation(f"{where}.on_exhausted", f"is {source.on_exhausted!r}; give END or CONTINUE")
            )
    return violations


def _check_weights(sources: Sequence[SourceSpec], violations: list[FieldViolation]) -> tuple[int, ...]:
    """Reduce the weights to a cycle; where it is too long, say the nearest that fit."""
    weights: list[Fraction] = []
    for index, source in enumerate(sources):
        try:
            weights.append(parse_weight(source.weight))
        except ValueError as error:
            violations.append(FieldViolation(f"sources[{index}].weight", str(error)))
    if len(weights) != len(sources) or not 1 <= len(weights) <= MAX_SOURCES:
        return ()
    whole = reduce_weights(weights)
    if sum(whole) > MAX_CYCLE_ROWS:
        nearest = ", ".join(
            f"{source.label}={weight}" for source, weight in zip(sources, quantize(weights), strict=True)
        )
        violations.append(
            FieldViolation(
                "sources.weight",
                f"in whole numbers they sum to {sum(whole)}, at most {MAX_CYCLE_ROWS} is possible; nearest: {nearest}",
            )
        )
    return whole


def _find_source(
    catalogue: Catalog, spec: SourceSpec, where: str, violations: list[FieldViolation]
) -> _Candidate | None:
    """Find a source's table and snapshot and check that it is packed."""
    if not re.fullmatch(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+", spec.table):
        violations.append(FieldViolation(f"{where}.table", f"{spec.table!r} is not namespace.table"))
        return None
    table = load_table(catalogue, spec.table)
    if table is None:
        violations.append(FieldViolation(f"{where}.table", f"{spec.table} does not exist; see `headrace table list`"))
        return None
    snapshot = _snapshot_of(table, spec.snapshot)
    if snapshot is None:
        wanted = f"snapshot, tag or branch {spec.snapshot!r}" if spec.snapshot else "snapshot yet: materialize it first"
        violations.append(FieldViolation(f"{where}.snapshot", f"{spec.table} has no {wanted}"))
        return None
    try:
        window = read_window_facts(table, spec.table)
        runs = index_snapshot(table, spec.table, snapshot)
    except PackedTableError as error:
        violations.append(FieldViolation(f"{where}.table", str(error)))
        return None
    if not runs:
        violations.append(FieldViolation(f"{where}.table", f"{spec.table} has no rows; leave it out of the blend"))
        return None
    return _Candidate(spec, table, snapshot, window, runs[-1].end)


def _snapshot_of(table: Table, reference: str) -> Snapshot | None:
    """Find a snapshot by id, tag or branch; the current one for an empty reference.

    One that documents were excised from is given as its successor, even after it expired.
    """
    if not reference:
        return table.current_snapshot()
    if reference.isdecimal() and (by_id := table.snapshot_by_id(successor_of(table, int(reference)))) is not None:
        return by_id
    return table.snapshot_by_name(reference)


def _check_together(candidates: Sequence[_Candidate], violations: list[FieldViolation]) -> None:
    """Check that the sources agree on what a row is, and that none comes twice."""
    for index, candidate in enumerate(candidates):
        for fact, name in PROPERTY_OF_FACT.items():
            own, first = getattr(candidate.window, fact), getattr(candidates[0].window, fact)
            if own != first:
                violations.append(
                    FieldViolation(
                        f"sources.{candidate.spec.label}.table",
                        f"{name} is {own}, {candidates[0].spec.table} has {first}; blend tables packed alike",
                    )
                )
        same = [other for other in candidates[:index] if _uuid(other.table) == _uuid(candidate.table)]
        if same:
            violations.append(
                FieldViolation(
                    f"sources.{candidate.spec.label}.table",
                    f"{candidate.spec.table} is also {same[0].spec.label}, its rows would come twice; raise its weight "
                    "or max_epochs instead",
                )
            )


def _build_config(spec: BlendSpec, candidates: Sequence[_Candidate], weights: Sequence[int]) -> BlendConfig:
    """Put what was found into its canonical form."""
    sources = [
        Source(
            name=candidate.spec.label,
            table=candidate.spec.table,
            table_uuid=_uuid(candidate.table),
            snapshot_id=str(candidate.snapshot.snapshot_id),
            rows=candidate.rows,
            generation=generation_at(candidate.table, candidate.snapshot),
            weight=weight,
            max_epochs=candidate.spec.max_epochs,
            on_exhausted=candidate.spec.on_exhausted,
        )
        for candidate, weight in zip(candidates, weights, strict=True)
    ]
    return BlendConfig(
        order_version=1,
        seed=str(spec.seed),
        block_rows=spec.block_rows,
        group_blocks=spec.group_blocks,
        window=candidates[0].window,
        sources=tuple(sorted(sources, key=lambda source: source.name)),
    )


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def pin_snapshot(table: Table, snapshot_id: int) -> str:
    """Tag a snapshot so that maintenance keeps it; a snapshot has one such tag however many blends pin it.

    Returns:
        The name of the tag.

    Raises:
        SourceChangedError: the snapshot expired in the meantime, or other writers never let this one through.
    """
    tag = f"blend_{snapshot_id}"
    for _ in range(TAG_ATTEMPTS):
        reference = table.refs().get(tag)
        if reference is not None and reference.snapshot_id == snapshot_id:
            return tag
        if table.snapshot_by_id(snapshot_id) is None:
            raise SourceChangedError(f"table {table.name()}: snapshot {snapshot_id} expired just now; create again")
        try:
            table.manage_snapshots().create_tag(snapshot_id, tag).commit()
        except CommitFailedException:
            table.refresh()
    raise SourceChangedError(f"table {table.name()}: {TAG_ATTEMPTS} attempts to tag it met other writers; create again")
