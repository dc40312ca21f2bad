"""The stages of a corpus: what its selections left behind, as the lake tells it.

    survivors -> shaped -> trimmed -> decontaminated -> tokens

They follow from what tables were computed from, so that a table of an earlier declaration counts no more. Whoever
counts or explains documents walks these values. A selection of another package states itself in the properties of its
tables, so that a lake can be read where that package is not installed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import load_table

SURVIVORS: Final = "survivors"
"""Table of what deduplication leaves, which the first stage reads."""
STATED: Final = "headrace.selection"
"""Property of a selection's tables: its `SelectionStage` as JSON."""
LEFT_OUT: Final = frozenset({"left_out", "removed", "contaminated", "missing"})
"""Outcomes of a finding after which a document does not go on."""
_READERS: Final = ("tokens", "ordered")  # what comes after the last stage, the surer first


@dataclass(frozen=True)
class SelectionStage:
    """What a selection leaves in a corpus.

    Attributes:
        name: of the selection.
        table: of the kept documents.
        reasons: table of the reasons against all others, or of the cuts in texts.
        words: what documents of `table` are: "of them ..".
        finding: `module:function` that says what became of a document, from a catalogue, a corpus, its row and the
            stage; empty for what the columns `failed` and `edits` of `reasons` say.
        cuts: whether `reasons` has texts in place of the incoming ones.
        repeats: whether each row of `reasons` names its kept original, in `witness_doc_id`.
    """

    name: str
    table: str
    reasons: str
    words: str
    finding: str = ""
    cuts: bool = False
    repeats: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """What its tables state."""
        return {STATED: json.dumps(dataclasses.asdict(self), sort_keys=True)}


def stages_between(
    corpus: str,
    tables: Collection[str],
    inputs_of: Callable[[str], Collection[str]],
    stated: Callable[[str], SelectionStage | None],
) -> tuple[SelectionStage, ...]:
    """The stages behind the newest rows of a corpus, in order.

    Args:
        corpus: its namespace.
        tables: names of its tables.
        inputs_of: from one of these names to identifiers of the tables that its newest rows were computed from.
        stated: the stage that has a table for its own or for its reasons, by the table's name.
    """
    reader = next((table for table in _READERS if table in tables), None)
    walked = _StageWalk(corpus, inputs_of, stated)
    return walked.before(reader) if reader is not None else ()


@dataclass(frozen=True)
class _StageWalk:
    corpus: str
    inputs_of: Callable[[str], Collection[str]]
    stated: Callable[[str], SelectionStage | None]
    walked: dict[str, tuple[SelectionStage, ...]] = dataclasses.field(default_factory=dict)

    def before(self, reader: str) -> tuple[SelectionStage, ...]:
        """The stages before a table; the longest way, since a selection may read what earlier ones left as well."""
        if reader not in self.walked:
            self.walked[reader] = ()  # a table that was computed from itself ends the walk
            ways = ((*self.before(stage.table), stage) for stage in self._read(reader))
            self.walked[reader] = max(ways, key=len, default=())
        return self.walked[reader]

    def _read(self, reader: str) -> Iterator[SelectionStage]:
        """The stages with documents among a table's inputs."""
        own = f"{self.corpus}."
        for name in sorted(table.removeprefix(own) for table in self.inputs_of(reader) if table.startswith(own)):
            if name == SURVIVORS:
                yield from self._leaving_survivors()
            elif (stage := self.stated(name)) is not None and stage.table == name:
                yield stage

    def _leaving_survivors(self) -> Iterator[SelectionStage]:
        """The selection of duplicates behind `survivors`, where there is one."""
        own = f"{self.corpus}."
        for table in sorted(self.inputs_of(SURVIVORS)):
            stage = self.stated(table.removeprefix(own)) if table.startswith(own) else None
            if stage is not None and stage.repeats and stage.reasons == table.removeprefix(own):
                yield dataclasses.replace(stage, table=SURVIVORS)


def stated_stage(
    catalogue: Catalog, corpus: str, headrace: Mapping[str, SelectionStage], table: str
) -> SelectionStage | None:
    """The stage of a table of a corpus: one of headrace's by its name, else what its properties state.

    Args:
        catalogue: of the lake.
        corpus: its namespace.
        headrace: headrace's stages by the names of their tables.
        table: its name.
    """
    if table in headrace:
        return headrace[table]
    there = load_table(catalogue, f"{corpus}.{table}")
    text = there.properties.get(STATED) if there is not None else None
    return SelectionStage(**json.loads(text)) if text is not None else None
