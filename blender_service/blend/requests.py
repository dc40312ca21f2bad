"""Requests to create or update a blend, as plain values, so that a client needs no lake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DEFAULT_BLOCK_ROWS = 2048
DEFAULT_GROUP_BLOCKS = 16
TEXT_BLOCK_ROWS = 512  # of a text blend: a first row waits until the blocks of a group are tokenized
TEXT_GROUP_BLOCKS = 4
MANY_CELLS = 16  # sources; a group of each is in use, and that of more is a row group: 480 hold what one table does
CELL_BLOCK_ROWS = 64
CELL_GROUP_BLOCKS = 1  # rows of a cell are shuffled at rest

OnExhausted = Literal["END", "CONTINUE"]


@dataclass(frozen=True)
class SourceSpec:
    """A packed table and its part in a blend.

    Attributes:
        table: identifier in the catalogue, namespace.table; `table[quality>=15]` for some of its cells.
        weight: rows read in proportion to it; a decimal (0.3) or a fraction (1/3), as text.
        name: identity inside the blend; the table's identifier, with its cells, if empty.
        snapshot: id, tag or branch to pin; the current one if empty.
        max_epochs: passes over the table, 1 if None; 0 goes round without end.
        on_exhausted: END the blend at the first slot this source cannot fill, or CONTINUE without it; END if None.
        live: follow the table as it grows, in the order of its ordinals; it never runs out.
    """

    table: str
    weight: str = "1"
    name: str = ""
    snapshot: str = ""
    max_epochs: int | None = None
    on_exhausted: OnExhausted | None = None
    live: bool = False


@dataclass(frozen=True)
class SourceChange:
    """A change of one source by an update; empty or None fields stay as they are.

    A name that the blend does not have now is added, or continues after its last row if the blend once had it; both
    start from the defaults of `SourceSpec`.

    Attributes:
        name: of the source.
        remove: leave it out from now on.
        table: identifier, as of `SourceSpec`; needed for a new source, else only where the table was renamed.
        weight: text as in `SourceSpec`. Weights mean something only together: give those of all sources, or none.
        snapshot: id, tag or branch to pin; `main` is the newest.
        max_epochs: passes over the table.
        on_exhausted: END or CONTINUE.
        live: True follows the table from now on, False pins it.
    """

    name: str
    remove: bool = False
    table: str = ""
    weight: str = ""
    snapshot: str = ""
    max_epochs: int | None = None
    on_exhausted: OnExhausted | None = None
    live: bool | None = None


@dataclass(frozen=True)
class Stage:
    """Changes of sources from an offset on.

    Attributes:
        from_offset: first row decided by them.
        changes: at most one a source.
        align: round from_offset up to the next end of a cycle, where the mix so far is exact.
        window_tokens: length of rows of texts from there on; 0 keeps it.
        leave_off: rules of masks whose tokens are left off packed rows from there on, such as header; ("none",) for
            nothing; empty keeps it.
    """

    from_offset: int
    changes: tuple[SourceChange, ...] = ()
    align: bool = False
    window_tokens: int = 0
    leave_off: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextSpec:
    """How the rows of a text blend are made: its sources are tables of text, tokenized when they are read.

    Attributes:
        tokenizer: table `<corpus>.tokenizer`.
        window_tokens: length of a row.
        group_documents: documents, neighbours in their table, that are packed together; 1: each begins a row of its
            own. What is longer than a row goes on in further rows.
        whole: never cut a document: one longer than a row is left out, and counted.
        text: column of the text.
        doc_id: column of the document's id.
        trainable: column of the spans that a loss is taken on, list<struct<start, end>> of characters; reads ask for
            the column `trainable`. None: whole documents.
        template: column of the hash of the chat template, the same for all documents. None: they are no chats.
        messages: column of conversations, lists of messages or their JSON, in place of text; None: `messages`, where
            `conversations` is given.
        tools: column of definitions of tools. None: the conversations have none.
        conversations: how messages are rendered and masked, as `conversations` of a corpus or its JSON; None: plain
            text.
        objectives: what becomes of documents anew in each epoch, as `objectives` of a kind of a corpus or its JSON:
            {"fim": {..}}; None: they are as they are.
    """

    tokenizer: str
    window_tokens: int = 2048
    group_documents: int = 1
    whole: bool = False
    text: str = "content"
    doc_id: str = "doc_id"
    trainable: str | None = None
    template: str | None = None
    messages: str | None = None
    tools: str | None = None
    conversations: Mapping[str, Any] | str | None = None
    objectives: Mapping[str, Any] | str | None = None

    def __post_init__(self) -> None:
        """Keep the JSON of conversations and objectives, which has a hash and goes over the wire."""
        for name in ("conversations", "objectives"):
            if isinstance(value := getattr(self, name), Mapping):
                object.__setattr__(self, name, json.dumps(value, ensure_ascii=False, default=str))


@dataclass(frozen=True)
class BlendSpec:
    """A blend to create.

    Attributes:
        sources: at least one.
        seed: of every permutation, 0 <= seed < 2**64.
        name: bound once to the blend, a reference to it as its id is; none if empty.
        block_rows: consecutive rows read together.
        group_blocks: blocks with rows shuffled together.
        schedule: updates made at once, ascending by offset; the blend is then the last of the chain.
        allow_repeat: whether one table may come under two names, so that its rows repeat.
        evals: digest of the benchmarks all sources must have been searched for, 64 hex digits; no demand if empty.
        texts: how rows are made of tables of text; None for packed tables.
        turn_rows: consecutive rows of one source, such as those of a step that shall have one length class.
    """

    sources: tuple[SourceSpec, ...]
    seed: int = 0
    name: str = ""
    block_rows: int = DEFAULT_BLOCK_ROWS
    group_blocks: int = DEFAULT_GROUP_BLOCKS
    schedule: tuple[Stage, ...] = ()
    allow_repeat: bool = False
    evals: str = ""
    texts: TextSpec | None = None
    turn_rows: int = 1


@dataclass(frozen=True)
class UpdateSpec:
    """An update of a blend: the child holds the parent's rows before the first stage.

    Attributes:
        parent: id, start of an id, or name.
        stages: at least one, ascending by offset.
        name: bound once to the new blend; none if empty.
        allow_repeat: whether one table may come under two names, so that its rows repeat.
        evals: as of `BlendSpec`, from now on; that of the parent if empty.
    """

    parent: str
    stages: tuple[Stage, ...]
    name: str = ""
    allow_repeat: bool = False
    evals: str = ""
