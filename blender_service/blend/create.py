"""Create and update blends: check every source, pin its snapshot with a tag, store the config.

A request becomes drafts first, one for every blend of the chain it asks for, and all mistakes are reported at once.
Drafts can be shown (`headrace blend create --dry-run`) or stored. The tags come first, so a stored config never names a
snapshot that maintenance may drop; a crash in between leaves an unused, harmless tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyiceberg.catalog import Catalog

from blender_service.blend.config import MAX_SOURCES, BlendConfig, Source
from blender_service.blend.lake_sources import (
    LakeSource,
    LakeSources,
    WantedSource,
    apply_changes,
    free_snapshot,
    pin_snapshot,
    wanted_of,
)
from blender_service.blend.longer_rows import lengthen
from blender_service.blend.requests import (
    CELL_BLOCK_ROWS,
    CELL_GROUP_BLOCKS,
    DEFAULT_BLOCK_ROWS,
    DEFAULT_GROUP_BLOCKS,
    MANY_CELLS,
    TEXT_BLOCK_ROWS,
    TEXT_GROUP_BLOCKS,
    BlendSpec,
    Stage,
    UpdateSpec,
)
from blender_service.blend.source_checks import (
    check_continues,
    check_evals,
    check_left_off,
    check_repeats,
    check_turns,
    check_windows,
)
from blender_service.blend.store import BlendStore, ObjectStore, open_store
from blender_service.blend.text_sources import TextSources, open_text_sources
from blender_service.blend.validation import (
    Findings,
    check_blend,
    check_blend_name,
    check_stages,
    schedule_fields,
    settle_weights,
)
from blender_service.catalogue import lake_errors
from blender_service.exceptions import BlendInUseError, ExhaustedSourceError
from blender_service.order.resolved_blend import Head
from blender_service.order.segments import consumed, cut_segments
from blender_service.tables.cell_runs import RUNS
from blender_service.tables.unread_documents import UNREAD
from headrace.tables.identity import require_own


class Draft(NamedTuple):
    """A blend, checked and not stored.

    Attributes:
        config: of the blend.
        head: its segments and the chain of updates.
        sources: its sources in the lake, in the order of the config.
    """

    config: BlendConfig
    head: Head
    sources: tuple[LakeSource, ...]


def draft_blend(catalogue: Catalog, spec: BlendSpec, objects: ObjectStore | None = None) -> list[Draft]:
    """Check a new blend and its schedule; give every blend of the chain, the last one last.

    Token counts of a text blend's documents are cached in `objects`; in the lake's own store if None.

    Raises:
        InvalidBlendError: with every mistake of the request.
        UpdateRefusedError: a stage of the schedule would repeat or skip rows.
    """
    findings = Findings()
    check_blend(spec, findings)
    texts: TextSources | None = None
    if spec.texts is not None:
        texts = open_text_sources(catalogue, spec.texts, objects or open_store(catalogue).objects, findings)
    lake = texts or LakeSources(catalogue)
    block_rows, group_blocks = spec.block_rows, spec.group_blocks
    wanted = wanted_of(spec, findings)
    if (block_rows, group_blocks) == (DEFAULT_BLOCK_ROWS, DEFAULT_GROUP_BLOCKS):
        if texts:
            block_rows, group_blocks = TEXT_BLOCK_ROWS, TEXT_GROUP_BLOCKS
        elif len(wanted) > MANY_CELLS and all(source.cells for source in wanted):
            block_rows, group_blocks = CELL_BLOCK_ROWS, CELL_GROUP_BLOCKS
    present = _find_all(lake, wanted, findings)
    check_windows(wanted, present, None, findings)
    check_turns(wanted, present, spec.turn_rows, findings)
    check_evals(wanted, present, spec.evals, findings)
    if not spec.allow_repeat:
        check_repeats(wanted, present, {}, findings)
    weights = _settle_weights(wanted, findings, spec.turn_rows)
    findings.raise_any()
    config = BlendConfig(
        order_version=1,
        seed=str(spec.seed),
        block_rows=block_rows,
        group_blocks=group_blocks,
        turn_rows=spec.turn_rows if spec.turn_rows > 1 else None,
        window=present[wanted[0].name].window,
        sources=_sources(wanted, present, weights),
        texts=texts.rule if texts else None,
        evals=spec.evals or None,
    )
    first = Draft(config, config.resolve(), tuple(present[source.name] for source in config.sources))
    return _draft_stages(lake, first, spec.schedule, schedule_fields(len(spec.schedule)), spec.allow_repeat, findings)


def draft_update(catalogue: Catalog, store: BlendStore, spec: UpdateSpec) -> list[Draft]:
    """Check an update (it keeps its parent's rows up to an offset); give the blend of every stage, the last one last.

    Raises:
        BlendNotFoundError: there is no such parent.
        InvalidBlendError: with every mistake of the request.
        UpdateRefusedError: the update would repeat or skip rows; the message says the ways out.
    """
    findings = Findings()
    if not spec.stages:
        findings.mistake("changes", "no update is given; say from_offset and what changes there")
    check_blend_name(spec.name, findings)
    parent = store.get(store.resolve(spec.parent))
    fields = ["", *schedule_fields(len(spec.stages) - 1)]
    check_stages(spec.stages, fields[: len(spec.stages)], findings)
    first = Draft(parent.model_copy(update={"evals": spec.evals or parent.evals}), store.head(parent), ())
    lake = LakeSources(catalogue)
    if parent.texts is not None:
        lake = TextSources(catalogue, parent.window, parent.texts, store.objects)
    drafts = _draft_stages(lake, first, spec.stages, fields, spec.allow_repeat, findings)
    findings.raise_any()
    return drafts[1:]


def store_drafts(store: BlendStore, drafts: Sequence[Draft], name: str = "") -> BlendConfig:
    """Pin the snapshots of drafts, store their configs, bind a name to the last one, and give that.

    Snapshots freed by a concurrent `delete_blend` are pinned again once the configs are stored.

    Raises:
        BlendNameTakenError: the name is bound to another blend.
        SourceChangedError: a snapshot expired in the meantime.
    """
    sources = [source for draft in drafts for source in draft.sources if source.pin.snapshot_id is not None]
    pinned = list({source.pin[:3]: source for source in sources}.values())  # cells of one snapshot are one tag
    for source in pinned:
        pin_snapshot(source.table, int(source.pin.snapshot_id or 0))
    put_runs(store, sources)
    for draft in drafts:
        store.put(draft.config, draft.head)
    for source in pinned:
        pin_snapshot(source.table.refresh(), int(source.pin.snapshot_id or 0))
    put_runs(store, sources)
    if name:
        store.bind(name, drafts[-1].config.blend_id)
    return drafts[-1].config


def put_runs(store: BlendStore, sources: Iterable[LakeSource]) -> None:
    """Keep the runs of sources of cells."""
    for source in sources:
        if source.rows is not None:
            store.objects.put_if_absent(f"{RUNS}/{source.pin.runs}", source.rows.to_bytes())


def delete_blend(catalogue: Catalog, store: BlendStore, blend_id: str) -> list[str]:
    """Delete a blend with its names, and free the snapshots pinned by no other blend.

    Returns:
        The removed tags, each with its table.

    Raises:
        BlendNotFoundError: there is no such blend.
        BlendInUseError: another blend goes on from it.
        CatalogueError: another catalogue wrote the lake since this one did.
    """
    pins = store.head(store.get(blend_id)).pins().values()
    with lake_errors():
        require_own(catalogue)
    children = [other[:12] for other in store.list_ids() if other != blend_id and store.get(other).parent == blend_id]
    if children:
        raise BlendInUseError(
            f"blend {blend_id[:12]}: {', '.join(children)} go on from it; delete those first, or keep it"
        )
    store.delete(blend_id)
    # Listed after the deletion: a blend that is being created meanwhile pins its snapshots again (`store_drafts`).
    others = [pin for other in store.list_ids() for pin in store.head(store.get(other)).pins().values()]
    used, runs_used = {pin[:3] for pin in others}, {pin.runs for pin in others}
    for runs in {pin.runs for pin in pins} - runs_used - {None}:
        store.objects.delete(f"{RUNS}/{runs}")
    for unread in {pin.unread for pin in pins} - {pin.unread for pin in others} - {None}:
        store.objects.delete(f"{UNREAD}/{unread}")
    freed = {pin[:3]: pin for pin in pins if pin.snapshot_id is not None and pin[:3] not in used}
    return [tag for pin in freed.values() for tag in free_snapshot(catalogue, pin)]


def _draft_stages(
    lake: LakeSources,
    first: Draft,
    stages: Sequence[Stage],
    fields: Sequence[str],
    allow_repeat: bool,
    findings: Findings,
) -> list[Draft]:
    """Draft one update after the other; the first stage with a mistake raises."""
    drafts = [first]
    for index, (stage, where) in enumerate(zip(stages, fields, strict=False)):
        draft = _draft_stage(lake, drafts[-1], stage, where, allow_repeat, findings)
        if index and int(draft.config.from_offset or 0) <= int(drafts[-1].config.from_offset or 0):
            before = drafts[-1].config.from_offset
            findings.mistake(
                f"{where}from_offset", f"is {stage.from_offset}, the stage before it was aligned to {before}; give more"
            )
            findings.raise_any()
        drafts.append(draft)
    return drafts


def _draft_stage(
    lake: LakeSources, parent: Draft, stage: Stage, where: str, allow_repeat: bool, findings: Findings
) -> Draft:
    """Check one update against its parent and the lake."""
    end = parent.head.end
    if end is not None and stage.from_offset > end:
        findings.mistake(f"{where}from_offset", f"is {stage.from_offset}, its parent ends at {end}; give 0 to {end}")
    from_offset = min(max(0, stage.from_offset), end if end is not None else stage.from_offset)
    if stage.align:
        from_offset = aligned(parent.head, from_offset)
    turn_rows = parent.config.turn_rows or 1
    if over := from_offset % turn_rows:
        low = from_offset - over
        findings.mistake(
            f"{where}from_offset",
            f"is {from_offset}, inside a turn of {turn_rows} rows; give {low} or {low + turn_rows}, or align it",
        )
        findings.raise_any()
    kept = cut_segments(parent.head.segments, from_offset)
    taking_part = consumed(kept)
    before = {name: progress for name, progress in taking_part.items() if progress.rows}
    wanted = apply_changes(parent.config, before, stage.changes, where, findings)
    stage = replace(stage, from_offset=from_offset)
    lake, wanted, window, spans = lengthen(lake, parent.config, kept, before, wanted, stage, where, findings)
    there = _find_all(lake, wanted, findings)
    check_windows(wanted, there, window, findings)
    check_turns(wanted, there, turn_rows, findings)
    check_continues(wanted, there, before, findings)
    check_evals(wanted, there, parent.config.evals or "", findings)
    check_left_off(stage, there, where, findings)
    if not allow_repeat:
        check_repeats(wanted, there, before, findings)
    if len(taking_part.keys() | {source.name for source in wanted}) > MAX_SOURCES:
        findings.mistake(f"{where}changes", f"more than {MAX_SOURCES} names in the whole chain; create a new blend")
    weights = _settle_weights(wanted, findings, turn_rows)
    findings.raise_any()
    config = parent.config.model_copy(
        update={
            "sources": _sources(wanted, there, weights),
            "window": window,
            "windows": spans,
            "parent": parent.head.blend_id,
            "from_offset": str(from_offset),
        }
    )
    try:
        head = config.resolve(parent.head)
    except ExhaustedSourceError as error:
        findings.conflict(f"{where}from_offset", str(error))
        findings.raise_any()
        raise  # not reached: there is a conflict to raise
    return Draft(config, head, tuple(there[source.name] for source in config.sources))


def aligned(head: Head, offset: int) -> int:
    """Round an offset up to the next end of a cycle, or to where the cycle is cut off for another one.

    Segments of one origin are one run of cycles: an update that changes no weight lets the cycle go on in its phase.
    """
    segment = next((segment for segment in reversed(head.segments) if segment.start <= offset), None)
    if segment is None:
        return offset
    up = segment.origin - (segment.origin - offset) // segment.cycle_rows * segment.cycle_rows
    end = next(later.end for later in reversed(head.segments) if later.origin == segment.origin)
    return up if end is None else min(up, end)


def _find_all(lake: LakeSources, wanted: Sequence[WantedSource], findings: Findings) -> dict[str, LakeSource]:
    """Look up every source in the lake; those with a mistake are left out."""
    sources: dict[str, LakeSource] = {}
    for source in wanted:
        in_lake = lake.find(source, findings)
        if in_lake is not None:
            sources[source.name] = in_lake
    return sources


def _settle_weights(wanted: Sequence[WantedSource], findings: Findings, turn_rows: int) -> tuple[int, ...]:
    """Give whole weights: those of the parent, or new ones, required for all."""
    if all(not source.weight and source.kept_weight is not None for source in wanted):
        texts = [str(source.kept_weight) for source in wanted]
    else:
        missing = [source for source in wanted if not source.weight]
        for source in missing:
            now = ", ".join(f"{s.name}={s.kept_weight}" for s in wanted if s.kept_weight is not None)
            findings.mistake(
                f"{source.field}.weight",
                f"{source.name} has no weight and others have; weights mean something only together, so give all of "
                f"them (now {now or 'none'})",
            )
        if missing:
            return ()
        texts = [source.weight for source in wanted]
    fields = [f"{source.field}.weight" for source in wanted]
    return settle_weights([source.name for source in wanted], texts, fields, findings, turn_rows)


def _sources(
    wanted: Sequence[WantedSource], there: dict[str, LakeSource], weights: Sequence[int]
) -> tuple[Source, ...]:
    """Give the sources of the config, in canonical order."""
    sources = [
        Source(
            name=source.name,
            weight=weight,
            live=True if source.live else None,
            max_epochs=None if source.live else source.max_epochs,
            on_exhausted=None if source.live else source.on_exhausted,
            dropped=there[source.name].dropped,
            template=there[source.name].template,
            **there[source.name].pin._asdict(),
        )
        for source, weight in zip(wanted, weights, strict=True)
    ]
    return tuple(sorted(sources, key=lambda source: source.name))
