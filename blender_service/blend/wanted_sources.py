"""The sources that a request asks for, with defaults and the parent's values filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, OnExhausted, SourceChange
from blender_service.blend.validation import Findings
from blender_service.order.segments import Progress


@dataclass(frozen=True)
class WantedSource:
    """A source of the blend that a request asks for, with its changes applied.

    Attributes:
        name: its identity.
        table: identifier.
        snapshot: reference, empty for the current one.
        live: whether it is followed.
        max_epochs: passes.
        on_exhausted: END or CONTINUE.
        weight: text, empty to keep `kept_weight`.
        kept_weight: whole weight of the parent, None for a source that the parent does not have now.
        field: prefix of the names of its fields, for messages.
    """

    name: str
    table: str
    snapshot: str
    live: bool
    max_epochs: int
    on_exhausted: OnExhausted
    weight: str
    kept_weight: int | None
    field: str


def wanted_of(spec: BlendSpec) -> list[WantedSource]:
    """Give the sources of a new blend, in the order of the request."""
    return [
        WantedSource(
            name=source.label,
            table=source.table,
            snapshot=source.snapshot,
            live=source.live,
            max_epochs=1 if source.max_epochs is None else source.max_epochs,
            on_exhausted=source.on_exhausted or "END",
            weight=source.weight or "1",
            kept_weight=None,
            field=f"sources[{index}]",
        )
        for index, source in enumerate(spec.sources)
    ]


def apply_changes(
    parent: BlendConfig,
    before: dict[str, Progress],
    changes: Sequence[SourceChange],
    where: str,
    findings: Findings,
) -> list[WantedSource]:
    """Apply changes to the sources of the parent.

    Args:
        parent: its config.
        before: how far each source was read that took part before the update.
        changes: at most one a source.
        where: prefix of the names of the fields, for messages.
        findings: where mistakes go.

    Returns:
        The sources of the child, ascending by name.
    """
    wanted: dict[str, WantedSource] = {}
    for source in parent.sources:
        wanted[source.name] = WantedSource(
            name=source.name,
            table=source.table,
            snapshot=source.snapshot_id or "",
            live=bool(source.live),
            max_epochs=source.max_epochs or 0,
            on_exhausted=source.on_exhausted or "END",
            weight="",
            kept_weight=source.weight,
            field=f"{where}sources.{source.name}",
        )
    for index, change in enumerate(changes):
        field = f"{where}changes[{index}]"
        known = wanted.pop(change.name, None)
        if change.remove:
            if known is None:
                have = ", ".join(source.name for source in parent.sources)
                findings.mistake(f"{field}.name", f"the blend has no source {change.name}; it has {have}")
            continue
        if known is None and not change.table and change.name not in before:
            findings.mistake(f"{field}.table", f"{change.name} is new; name its table")
            continue
        wanted[change.name] = _changed(known, change, before.get(change.name), field)
    if not wanted:
        findings.mistake(f"{where}changes", "no source is left; keep or add one")
    return [wanted[name] for name in sorted(wanted)]


def _changed(known: WantedSource | None, change: SourceChange, before: Progress | None, field: str) -> WantedSource:
    """Give a source with its changes; one that is new or comes back starts from the defaults."""
    pin = before.pin if before is not None else None
    was_live = known.live if known is not None else False
    live = was_live if change.live is None else change.live
    snapshot = known.snapshot if known is not None else ((pin.snapshot_id or "") if pin is not None else "")
    max_epochs = known.max_epochs if known is not None and not was_live else 1
    return WantedSource(
        name=change.name,
        table=change.table or (known.table if known is not None else pin.table if pin is not None else ""),
        snapshot="" if live else change.snapshot or snapshot,
        live=live,
        max_epochs=max_epochs if change.max_epochs is None else change.max_epochs,
        on_exhausted=change.on_exhausted or (known.on_exhausted if known is not None else "END"),
        weight=change.weight,
        kept_weight=known.kept_weight if known is not None else None,
        field=field,
    )
