"""A window of a packed table token by token: what each stands for, which document's it is, and where it stands."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import documents_of, tokenizer_file
from dagster_project.inspect.lake.found_table import require_table
from headrace.tables.window_facts import properties_at
from spark_jobs.packing.ordinals import ordinal_runs, packed_facts, read_window
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE, rule_names
from spark_jobs.tokens.token_bytes import Spelling

_spelling = functools.lru_cache(maxsize=4)(Spelling)


@dataclass(frozen=True)
class WindowSegment:
    """A document's part of a window.

    Attributes:
        doc_id: of the document.
        document_start: number of its first token among the document's own.
        token_count: tokens, special ones included.
        window_start: position of its first token.
    """

    doc_id: str
    document_start: int
    token_count: int
    window_start: int


@dataclass(frozen=True)
class TokenWindow:
    """A window.

    Attributes:
        table: the packed table.
        dataset: whose documents it holds.
        snapshot_id: the state of the table.
        ordinal: row.
        window_count: rows of the table.
        window_tokens: positions of a window.
        segments: from left to right; what follows them is padding.
        input_ids: of all positions.
        texts: of all tokens, see `Spelling.text`; None where the tokenizer is not in the lake any more.
        specials: positions of special tokens, padding left out.
        trainable: whether a loss is taken on each position; None where the table has no masks.
        rules: by which rule there is none; None where the table names no rules.
    """

    table: str
    dataset: str
    snapshot_id: int
    ordinal: int
    window_count: int
    window_tokens: int
    segments: tuple[WindowSegment, ...]
    input_ids: Sequence[int]
    texts: Sequence[str] | None
    specials: Sequence[int]
    trainable: Sequence[bool] | None
    rules: Sequence[str] | None

    @property
    def token_count(self) -> int:
        """Tokens before the padding."""
        return sum(segment.token_count for segment in self.segments)


def token_window(catalogue: Catalog, identifier: str, ordinal: int, snapshot_id: int | None = None) -> TokenWindow:
    """Read a window; of its file only the row group that holds it is decoded.

    Args:
        catalogue: of the lake.
        identifier: the packed table.
        ordinal: row.
        snapshot_id: state of the table, None for the newest.

    Raises:
        CommandError: there is no such table, snapshot or row.
        ConfigError: the table is not packed.
    """
    table = require_table(catalogue, identifier)
    facts = packed_facts(identifier, table)
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise CommandError(f"{identifier} has no snapshot {snapshot_id or 'yet'}; leave `at` out for the newest")
    runs = ordinal_runs(identifier, table, snapshot.snapshot_id)
    count = runs[-1].end if runs else 0
    if not 0 <= ordinal < count:
        raise CommandError(f"{identifier} has no window {ordinal}; it has 0..{count - 1}")
    run = runs[bisect_right(runs, ordinal, key=lambda part: part.start) - 1]
    masks = [name for name in table.schema().column_names if name in (TRAINABLE, MASK_RULE)]
    names = rule_names(properties_at(table, snapshot))
    row = read_window(table, run, ordinal, ["input_ids", "segments", *masks])
    file = tokenizer_file(catalogue, identifier, properties_at(table, snapshot)["headrace.tokenizer-sha256"])
    spelling = _spelling(file) if file is not None else None
    ids: list[int] = row["input_ids"]
    segments = tuple(WindowSegment(**segment) for segment in row["segments"])
    end = sum(segment.token_count for segment in segments)
    return TokenWindow(
        identifier, facts.dataset, snapshot.snapshot_id, ordinal, count, facts.window_tokens, segments, ids,
        None if spelling is None else [*map(spelling.text, ids)],
        [at for at, token in enumerate(ids[:end]) if spelling is not None and token in spelling.specials],
        row.get(TRAINABLE), [names[number] for number in row[MASK_RULE]] if MASK_RULE in row else None,
    )  # fmt: skip


def segment_facts(catalogue: Catalog, window: TokenWindow) -> list[dict[str, Any]]:
    """The segments with path, repository, licence and language of their documents; None for what the lake lacks."""
    facts = documents_of(catalogue, window.table, sorted({part.doc_id for part in window.segments}))
    names = ("path", "repository", "licence", "language")
    return [
        {**vars(part), **{name: facts.get(part.doc_id, {}).get(name) for name in names}} for part in window.segments
    ]
