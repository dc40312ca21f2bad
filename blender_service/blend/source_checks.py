"""Check the sources of a blend, found in the lake: with each other, with the parent, with what was read before."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from blender_service.blend.lake_sources import LakeSource, WantedSource
from blender_service.blend.requests import Stage
from blender_service.blend.validation import Findings
from blender_service.order.epochs import covered_rows
from blender_service.order.segments import Pin, SourceProgress
from blender_service.tables.left_off import NOTHING
from blender_service.tables.packed_table import EVALS, served_snapshot
from headrace.tables.cells import nearest, parse_choice
from headrace.tables.window_facts import GENERATION_PROPERTY, PROPERTY_OF_FACT, WindowFacts, mask_rules, properties_at


def check_windows(
    wanted: Sequence[WantedSource], there: dict[str, LakeSource], window: WindowFacts | None, findings: Findings
) -> None:
    """Check that the sources agree on what a row is, with each other and with the parent."""
    present = [source for source in wanted if source.name in there]
    for source in present:
        mine = there[source.name].window
        other = window or there[present[0].name].window
        by = "the blend" if window else present[0].table
        for fact, name in PROPERTY_OF_FACT.items():
            if getattr(mine, fact) != getattr(other, fact):
                findings.mistake(
                    f"sources.{source.name}.table",
                    f"{name} is {getattr(mine, fact)}, {by} has {getattr(other, fact)}; blend tables packed alike",
                )


def check_turns(
    wanted: Sequence[WantedSource], there: dict[str, LakeSource], turn_rows: int, findings: Findings
) -> None:
    """Check that each source has rows for a turn; else it would never be read, and nothing said so."""
    for source in wanted:
        rows = there[source.name].pin.rows if source.name in there else None
        if rows is not None and 0 < (source.max_epochs or 0) * rows < turn_rows:
            findings.mistake(
                f"{source.field}.table",
                f"{source.written} has {rows * source.max_epochs} rows in all its epochs, a turn takes {turn_rows}; "
                "raise max_epochs, or leave it out",
            )


def check_evals(wanted: Sequence[WantedSource], there: dict[str, LakeSource], evals: str, findings: Findings) -> None:
    """Check that what the sources hold was searched for the demanded benchmarks."""
    if evals and not re.fullmatch(r"[0-9a-f]{64}", evals):
        findings.mistake("evals", f"is {evals!r}; give the 64 hex digits that `headrace evals show` prints")
        return
    for source in wanted if evals else ():
        if source.name not in there:
            continue
        table, pin = there[source.name].table, there[source.name].pin
        says = table.properties.get(EVALS, "")
        if says != evals:
            named = {"": "no benchmark", "off": "none, its corpus says decontaminate: off"}.get(says, says)
            problem = f"{pin.table} was searched for {named}, demanded is {evals}; run its corpus, or leave it out"
        elif pin.generation != table.properties.get(GENERATION_PROPERTY):
            problem = (
                f"snapshot {pin.snapshot_id} of {pin.table} is of an earlier packing than was searched; pin the newest"
            )
        else:
            continue
        findings.mistake(f"sources.{source.name}.table", problem)


def check_continues(
    wanted: Sequence[WantedSource], there: dict[str, LakeSource], before: dict[str, SourceProgress], findings: Findings
) -> None:
    """Check that every read source is still the same table and packing, and has not shrunk."""
    for source in wanted:
        if source.name not in there or source.name not in before:
            continue
        pin, then = there[source.name].pin, before[source.name].pin
        covered = covered_rows(before[source.name].read_runs, before[source.name].rows)
        way_out = f"remove {source.name} and add the table under a new name, where it starts at row 0"
        if pin.cells != then.cells:
            findings.conflict(
                f"{source.field}.table",
                f"{source.written} is another choice of cells, the blend has read "
                f"{then.table}[{then.cells or 'all'}]; {way_out}",
            )
        elif pin.table_uuid != then.table_uuid:
            findings.conflict(
                f"{source.field}.table",
                f"{pin.table} has UUID {pin.table_uuid}, the blend has read {then.table_uuid}: it was dropped and made "
                f"again, or is another table; {way_out}",
            )
        elif pin.generation != then.generation:
            findings.conflict(
                f"{source.field}.snapshot",
                f"{pin.table} is generation {pin.generation}, the blend has read {then.generation}: it was packed "
                f"again, so an ordinal means another row; {way_out}, with allow_repeat: documents may come again",
            )
        elif pin.rows is not None and pin.rows < covered and pin.unread is None:
            findings.conflict(
                f"{source.field}.snapshot",
                f"{pin.table} has {pin.rows} rows at snapshot {pin.snapshot_id}, the epoch that the blend is in covers "
                f"{covered}; pin a snapshot with at least as many, or {way_out}, with allow_repeat",
            )


def check_repeats(
    wanted: Sequence[WantedSource], there: dict[str, LakeSource], before: dict[str, SourceProgress], findings: Findings
) -> None:
    """Check that no row of a table comes under two names, now or earlier in the chain."""
    names = {source.name for source in wanted}
    left = [(name, progress.pin) for name, progress in before.items() if name not in names]
    earlier: list[tuple[str, LakeSource]] = []
    for source in wanted:
        if source.name not in there:
            continue
        mine = there[source.name]
        sharing = [name for name, other in earlier if name != source.name and mine.shares_rows(other)]
        sharing += [name for name, pin in left if pin.table_uuid == mine.pin.table_uuid and _meets(pin, mine.cells)]
        earlier.append((source.name, mine))
        other = next(iter(sharing), None)
        if other is not None:
            findings.mistake(
                f"sources.{source.name}.table",
                f"{source.written} is also {other}, its rows would come twice; raise its weight or max_epochs instead, "
                "or set allow_repeat",
            )


def _meets(pin: Pin, cells: Collection[str]) -> bool:
    """Whether a source that was read has rows of some cells; of all cells if there are none."""
    if pin.cells is None or not cells:
        return True
    choice = parse_choice(pin.cells)
    return any(map(choice.takes, cells))


def check_left_off(stage: Stage, there: dict[str, LakeSource], where: str, findings: Findings) -> None:
    """Refuse to leave off what no table has a rule for."""
    if not stage.leave_off:
        return
    served = {name: served_snapshot(source.table, name, source.pin, None) for name, source in there.items()}
    stated = [properties_at(there[name].table, snapshot) for name, snapshot in served.items()]
    names = sorted({rule for properties in stated for rule in mask_rules(properties)})
    for name in stage.leave_off:
        if name not in (*names, NOTHING):
            have = f"rules are {', '.join(names)}" if names else "no table has masks by rule"
            findings.mistake(f"{where}leave_off", f"no table has a rule {name}{nearest(name, names)}; {have}")
