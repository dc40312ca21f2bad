"""Objectives of a text blend: its documents are cut anew in each epoch, when their rows are read.

Where rows stand must not depend on what is drawn, so a document is measured once, with room for its sentinels and for a
few tokens more that its pieces may have together. What does not fit is drawn again, and stays as it is in the end (of
1,406 rows of Python's sources none was too long at its first draw, and 99.6% of the room was filled). A document longer
than a row is divided into units that fit.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.tables.text_encoder import BATCH_CHARACTERS, DividedDocuments, EncodedDocuments, Units
from dagster_project.exceptions import DefinitionError
from headrace_features.objectives.config import FimConfig, KindObjectives
from headrace_features.objectives.cuts import letter_start
from headrace_features.objectives.fim import NO_NODE, WHOLE, choose, lay_out
from headrace_features.objectives.layout import EncodedLayout, LaidOut, Layout, LayoutEncoder, Span, whole
from headrace_features.objectives.sentinels import Sentinels, find_sentinels
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.pieces import with_letters

if TYPE_CHECKING:
    from headrace.tables.window_facts import WindowFacts

_VERSION: Final = 1
_MEND: Final = 'give {"fim": {"rate": 0.5}}'
_SENTINELS: Final = 3
_SPARE: Final = 8  # tokens that pieces may have more than their text
_TRIES: Final = 4
_LEAST_WINDOW: Final = 64  # of which a character with its room is a part


class _Unit(NamedTuple):
    """A unit to be encoded: its document by number, its number there, its characters, and the most tokens."""

    document: int
    number: int
    span: Span
    room: int
    is_last: bool


class BlendObjectives:
    """Defines what documents become, and opens what has been defined."""

    def define(self, settings: str, tokenizer: str, window: WindowFacts, whole: bool) -> bytes:
        """Check settings, and give all that decides what documents become.

        Args:
            settings: JSON of `KindObjectives`.
            tokenizer: text of its file.
            window: facts of a row.
            whole: whether a document that is longer than a row is left out; else it is divided.

        Raises:
            InvalidBlendError: a setting cannot be used, or the tokenizer lacks a sentinel.
        """
        from dagster_project.run_config import parse_settings

        try:
            config = parse_settings(KindObjectives, settings, _MEND)
        except DefinitionError as error:
            raise InvalidBlendError(str(error)) from error
        if config.fim is None or config != KindObjectives(fim=config.fim):
            raise InvalidBlendError("a text blend has fim alone of the objectives; pack a corpus for the others")
        if config.fim.cut == "syntax":
            raise InvalidBlendError(
                "fim: cut: syntax needs the language of each document, which a table of text has not; take line, or "
                "pack a corpus"
            )
        if window.window_tokens < _LEAST_WINDOW:
            raise InvalidBlendError(f"fim needs rows of at least {_LEAST_WINDOW} tokens")
        try:
            sentinels = find_sentinels(tokenizer, config.fim, "fim")
        except InputError as error:
            raise InvalidBlendError(str(error)) from error
        if {*sentinels} & {window.end_of_document_id, window.padding_id}:
            raise InvalidBlendError("fim: a sentinel is the token that ends a document or pads a row; name another")
        fields = {"version": _VERSION, "end_id": window.end_of_document_id, "window_tokens": window.window_tokens}
        kept = {"sentinels": list(sentinels), "whole": whole, "fim": config.fim.model_dump(mode="json")}
        return json.dumps(fields | kept, sort_keys=True).encode()

    def open(self, definition: bytes, tokenizer: str) -> OpenedObjectives:
        """Open the encoder of a definition.

        Raises:
            PackedTableError: it is of another version.
        """
        fields = json.loads(definition)
        if fields["version"] != _VERSION:
            raise PackedTableError(
                f"objectives were defined by version {fields['version']} of their rule, this is {_VERSION}; serve the "
                "blend with the headrace that created it, or create it again"
            )
        return OpenedObjectives(fields, tokenizer)


class OpenedObjectives:
    """Encodes documents as they are in an epoch; safe for many threads."""

    def __init__(self, definition: Mapping[str, Any], tokenizer: str) -> None:
        """Prepare the tokenizer, in which names of sentinels are letters."""
        self._fim = FimConfig.model_validate(definition["fim"])
        self._sentinels = Sentinels(*definition["sentinels"])
        self._whole, self._window = bool(definition["whole"]), int(definition["window_tokens"])
        self._end = int(definition["end_id"])
        file = with_letters(tokenizer, self._sentinels)
        certificate = Certificate.refused(hashlib.sha256(file.encode()).hexdigest(), "a blend keeps no certificate")
        self._new_encoder = functools.partial(LayoutEncoder, file, certificate, BATCH_CHARACTERS)
        self._idle = [self._new_encoder()]

    @contextmanager
    def _encoder(self) -> Iterator[LayoutEncoder]:
        """An encoder for this thread; there are as many as threads encode at once."""
        try:
            encoder = self._idle.pop()
        except IndexError:
            encoder = self._new_encoder()
        try:
            yield encoder
        finally:
            self._idle.append(encoder)

    def divide(self, texts: Sequence[str]) -> DividedDocuments:
        """Divide documents into units that fit into a row whatever becomes of them."""
        with self._encoder() as encoder:
            return self._divide(texts, encoder)

    def _divide(self, texts: Sequence[str], encoder: LayoutEncoder) -> DividedDocuments:
        counts, ends, room = list[int](), list[int](), list[int]()
        ids: list[Int32Array] = [np.zeros(0, np.int32)]
        plain = encoder.encode([LaidOut(text, whole(text), "") for text in texts])
        for text, row in zip(texts, plain, strict=True):
            of_text, parts = row.ids, [(len(text), row.ids)]
            spare = _SENTINELS + _SPARE if len(text) >= self._fim.least else 0
            if len(of_text) + 1 + spare > self._window and not self._whole:
                parts = _divided(text, row, self._window - 1 - spare, encoder)
            elif len(of_text) + 1 + spare > self._window or not text:
                spare = 0  # it is a row as it is, or is left out
            counts.append(len(parts))
            ends += [end for end, _ in parts]
            room += [len(of_part) + 1 + spare for _, of_part in parts]
            for number, (_, of_part) in enumerate(parts, start=1):
                ids.append(np.append(of_part, [self._end] * (number == len(parts))).astype(np.int32))
        starts = np.cumsum([0, *map(len, ids[1:])], dtype=np.int64)
        units = Units(np.array(counts, np.int64), np.array(ends, np.int64), np.array(room, np.int32))
        return DividedDocuments(units, EncodedDocuments(np.concatenate(ids), starts, unit_counts=units.counts))

    def encode(self, texts: Sequence[str], names: Sequence[str], units: Units, epoch: int) -> EncodedDocuments:
        """Encode the units of documents, by text and id, as they are in an epoch."""
        listed = _listed(units)
        done: dict[int, tuple[Int32Array, bool]] = {}
        for attempt in range(_TRIES + 1):
            left = [(at, unit) for at, unit in enumerate(listed) if at not in done]
            rows = [
                LaidOut(texts[unit.document], self._layout(texts, names, unit, epoch, attempt), "") for _, unit in left
            ]
            with self._encoder() as encoder:
                encoded_rows = encoder.encode(rows)
            for (at, unit), row in zip(left, encoded_rows, strict=True):
                is_cut = len(row.layout) > 1
                ids = np.append(row.ids, [self._end] * (is_cut or unit.is_last)).astype(np.int32)
                if len(ids) <= unit.room or attempt == _TRIES:
                    done[at] = ids, is_cut
        encoded = [done[at] for at in range(len(listed))]
        joined = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in encoded)])
        starts = np.cumsum([0, *(len(ids) for ids, _ in encoded)], dtype=np.int64)
        changed = np.array([is_changed for _, is_changed in encoded], np.bool_)
        return EncodedDocuments(joined, starts, unit_counts=units.counts, changed=changed)

    def _layout(self, texts: Sequence[str], names: Sequence[str], unit: _Unit, epoch: int, attempt: int) -> Layout:
        """The layout of a unit in an epoch: drawn again at each attempt but the last, which leaves it as it is."""
        choice = choose(self._fim, names[unit.document], epoch, unit.number)
        if not choice.is_cut or attempt == _TRIES:
            return (unit.span,)
        if attempt:
            again = f"{names[unit.document]}\0{attempt}"
            choice = choice._replace(draws=choose(self._fim, again, epoch, unit.number).draws)
        laid = lay_out(texts[unit.document], unit.span, self._fim, choice, self._sentinels, NO_NODE)
        return (unit.span,) if laid.form == WHOLE else laid.layout


def _divided(text: str, plain: EncodedLayout, most: int, encoder: LayoutEncoder) -> list[tuple[int, Int32Array]]:
    """Divide a text between letters, into parts of at most so many tokens: where each ends, and its ids."""
    starts, _ = encoder.characters(text, plain)
    parts, begin = list[tuple[int, Int32Array]](), 0
    while begin < len(text):
        first, tokens = int(np.searchsorted(starts, begin)), most
        while True:
            is_rest = first + tokens >= len(starts)
            last = len(text) if is_rest else int(starts[first + tokens])
            end = last if is_rest else letter_start(text, last, begin)
            end = max(end if end > begin else last, begin + 1)  # inside of a letter that is longer than a row
            (part,) = encoder.encode([LaidOut(text, (Span(begin, end),), "")])
            if len(part.ids) <= most or tokens == 1:
                break
            tokens = max(1, tokens - (len(part.ids) - most))
        parts.append((end, part.ids))
        begin = end
    return parts


def _listed(units: Units) -> list[_Unit]:
    """The units of documents, one after the other."""
    listed, at = list[_Unit](), 0
    for document, count in enumerate(units.counts.tolist()):
        begin = 0
        for number in range(count):
            end = int(units.ends[at])
            listed.append(_Unit(document, number, Span(begin, end), int(units.room[at]), number + 1 == count))
            begin, at = end, at + 1
    return listed


OBJECTIVES: Final = BlendObjectives()
