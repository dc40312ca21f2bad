"""Fill in the middle: whether, where and in which form a row is written, a pure function of seed, document and epoch.

    a b c, the middle b       PSM    PRE a SUF c MID b
                              SPM    PRE SUF c MID a b      as Megatron's GPTFIMDataset, StarCoder, Code Llama write it
                                     SUF c PRE a MID b      with spm_order: suffix_prefix

Source: Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"; nodes of the grammar as
middles: Gong et al. 2025, "Structure-Aware Fill-in-the-Middle Pretraining for Code", arXiv 2506.00204.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

from headrace_features.objectives.config import FimConfig
from headrace_features.objectives.cuts import Draws, Places, character_places, line_places, node_places
from headrace_features.objectives.layout import Layout, Sentinel, Span
from headrace_features.objectives.sentinels import Sentinels
from spark_jobs.arrays import Int32Array

WHOLE, PSM, SPM = "whole", "psm", "spm"
NO_NODE: Final = "no node of the grammar"
Nodes = Int32Array | str
"""Nodes of a document (`node_places`), or why there are none."""


class FimChoice(NamedTuple):
    """What is drawn for a row.

    Attributes:
        is_cut: whether it is cut in three.
        is_spm: whether the suffix is in front then.
        draws: where it is cut.
    """

    is_cut: bool
    is_spm: bool
    draws: Draws


class RowLayout(NamedTuple):
    """A row, laid out.

    Attributes:
        layout: its pieces.
        form: whole, psm or spm.
        cut: character, line or syntax; none of a whole row.
        fell_back: why syntax did not cut it; None where it did, or was not asked to.
    """

    layout: Layout
    form: str
    cut: str
    fell_back: str | None = None


def choose(config: FimConfig, doc_id: str, epoch: int = 0, row: int = 0) -> FimChoice:
    """Draw for a row of a document, the same on every machine.

    Args:
        config: of the kind of document.
        doc_id: of the document.
        epoch: pass over the document, from 0.
        row: of a document that is longer than a window, from 0.
    """
    digest = hashlib.blake2b(
        f"{doc_id}\0{epoch}\0{row}".encode(), digest_size=40, key=config.seed.to_bytes(8, "little"), person=b"fim"
    ).digest()
    cut, spm, *draws = struct.unpack("<5Q", digest)
    return FimChoice(cut < _below(config.rate), spm < _below(config.spm), Draws(*draws))


def _below(share: float) -> int:
    """The number below which as large a share of 2^64 lies; exact, so that a share of 1 is all."""
    return int(share * 2.0**64)


def whole_row(span: Span) -> RowLayout:
    """A row as its text is."""
    return RowLayout((span,), WHOLE, "none")


def lay_out(
    text: str, span: Span, config: FimConfig, choice: FimChoice, sentinels: Sentinels, nodes: Nodes
) -> RowLayout:
    """Lay a row out over the characters of its document.

    Args:
        text: of the whole document.
        span: of the row.
        config: of the kind of document.
        choice: for this row.
        sentinels: of the tokenizer.
        nodes: of the document, where cut is syntax.
    """
    if not choice.is_cut or span.end - span.start < max(config.least, 1):
        return whole_row(span)
    places, fell_back = _places(text, span, config, choice.draws, nodes)
    prefix, middle, suffix = (
        Span(span.start, places.start),
        Span(places.start, places.end),
        Span(places.end, span.end),
    )
    before, fill, behind = (Sentinel(token) for token in sentinels)
    if not choice.is_spm:
        return RowLayout((before, prefix, behind, suffix, fill, middle), PSM, places.cut, fell_back)
    if config.spm_order == "prefix_suffix":
        return RowLayout((before, behind, suffix, fill, prefix, middle), SPM, places.cut, fell_back)
    return RowLayout((behind, suffix, before, prefix, fill, middle), SPM, places.cut, fell_back)


def _places(text: str, span: Span, config: FimConfig, draws: Draws, nodes: Nodes) -> tuple[Places, str | None]:
    """The middle of a row; and why its lines are cut where its nodes should be."""
    if config.cut == "character":
        return character_places(text, span, draws), None
    if config.cut == "line":
        return line_places(text, span, draws), None
    places = None if isinstance(nodes, str) else node_places(text, span, draws, nodes)
    if places is not None:
        return places, None
    return line_places(text, span, draws), nodes if isinstance(nodes, str) else NO_NODE
