"""Updates of rows from an offset on: longer ones in a text blend, without the tokens of some rules in a packed one.

    offsets 0 .. 400,000   rows of 2,048 tokens      from 400,000 on   rows of 8,192

Every source ends its epoch with the documents of which nothing was read in it, packed anew to the new length; later
epochs go over all. Rows before the offset are the parent's, and are read as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from blender_service.blend.config import BlendConfig, WindowSpan
from blender_service.blend.lake_sources import LakeSources, WantedSource
from blender_service.blend.requests import Stage
from blender_service.blend.text_sources import MOST_WINDOW_TOKENS, TextSources
from blender_service.blend.validation import Findings
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Segment, SourceProgress
from blender_service.tables.left_off import NOTHING
from headrace.tables.window_facts import WindowFacts


class Lengthened(NamedTuple):
    """What an update is made of.

    Attributes:
        lake: where its sources are found, with rows of its length.
        wanted: the sources; what is unread of each is kept with the blends.
        window: facts of its rows.
        spans: lengths of all rows, None where there is one.
    """

    lake: LakeSources
    wanted: list[WantedSource]
    window: WindowFacts
    spans: tuple[WindowSpan, ...] | None


def lengthen(
    lake: LakeSources,
    parent: BlendConfig,
    kept: Sequence[Segment],
    before: Mapping[str, SourceProgress],
    wanted: Sequence[WantedSource],
    stage: Stage,
    where: str,
    findings: Findings,
) -> Lengthened:
    """Give the sources of an update rows of its length, and note what of each was read.

    Args:
        lake: with rows of the parent's length.
        parent: its config.
        kept: segments of the rows that stay the parent's.
        before: how far each source was read in them.
        wanted: sources of the update.
        stage: the update, with its aligned offset.
        where: prefix of the names of the fields, for messages.
        findings: where mistakes go.
    """
    if not isinstance(lake, TextSources):
        if stage.window_tokens:
            findings.mistake(
                f"{where}window_tokens", "is of tables of text; packed rows have one length: create a blend of others"
            )
        return Lengthened(lake, [*wanted], parent.window, _spans_left_off(parent, stage))
    if stage.leave_off:
        findings.mistake(f"{where}leave_off", "is of packed tables with masks by rule")
    if stage.window_tokens and (lake.rule.conversations or lake.rule.objectives):
        findings.mistake(
            f"{where}window_tokens", "is of plain text; conversations and objectives are made for a length"
        )
    elif stage.window_tokens and not 2 <= stage.window_tokens <= MOST_WINDOW_TOKENS:
        findings.mistake(f"{where}window_tokens", f"is {stage.window_tokens}; give 2 to {MOST_WINDOW_TOKENS}")
    findings.raise_any()
    offset = stage.from_offset
    spans = tuple(span for span in parent.spans if int(span.from_offset) < offset) or parent.spans[:1]
    then, since = spans[-1].window_tokens, int(spans[-1].from_offset)
    tokens = stage.window_tokens or then
    if tokens != then:
        spans = (*spans[: None if offset else -1], WindowSpan(from_offset=str(offset), window_tokens=tokens))
    of_length = [segment for segment in kept if segment.start >= since]  # ordinals of others mean other rows
    order = BlendOrder(int(parent.seed), of_length, parent.block_rows, parent.group_blocks)
    last = {part.name: segment.start for segment in kept for part in segment.parts}
    noted = {source.name: source.unread for source in parent.sources}
    sources, change = [], f"{tokens} from {offset}"
    for source in wanted:
        progress = before.get(source.name)
        if progress is not None and last[source.name] < since and noted.get(source.name) is None:
            findings.conflict(
                f"{source.field}.table",
                f"{source.name} was left out before rows became {then} tokens long; add its table under a new name, "
                "with allow_repeat: documents may come again",
            )
        elif progress is not None:
            is_unread_since = last[source.name] < since  # it had run out, or was behind others
            unread = noted[source.name] if is_unread_since else progress.pin.unread
            if tokens != then:
                of_then = None if is_unread_since else lake.of_length(then).unread(source, progress, order, findings)
                unread = lake.keep(of_then, unread, change)
            source = replace(source, kept_unread=unread)  # noqa: PLW2901
        sources.append(source)
    findings.raise_any()
    window = parent.window.model_copy(update={"window_tokens": tokens})
    return Lengthened(lake.of_length(tokens), sources, window, spans if len(spans) > 1 else None)


def _spans_left_off(parent: BlendConfig, stage: Stage) -> tuple[WindowSpan, ...] | None:
    """The spans of an update of packed rows by the rules whose tokens they lack; None where no row lacks any."""
    offset = stage.from_offset
    spans = tuple(span for span in parent.spans if int(span.from_offset) < offset) or parent.spans[:1]
    names = tuple(sorted({*stage.leave_off} - {NOTHING})) or None
    if stage.leave_off and names != spans[-1].leave_off:
        tokens = parent.window.window_tokens
        spans = (
            *spans[: None if offset else -1],
            WindowSpan(from_offset=str(offset), window_tokens=tokens, leave_off=names),
        )
    return spans if len(spans) > 1 or spans[-1].leave_off else None
