r"""The text of one document as people read it in a terminal: what became of it, then its lines, those edited marked.

    notes/one.md  notes, prose, en, 4,210 bytes, increment 3
    rejected: failed too_short (12, the bound is 50)
    edits: redacted 2, line_ends 80

      # Mills
    ~ Ask <<MAIL_1>> about the race of the upper mill.

Line ends that were made `\n` are counted above and mark no line, since they are on every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.document_lookup import FoundDocument, read_text
from dagster_project.inspect.documents.document_story import Story
from spark_jobs.lake.files.lookups import read_rows

_ENDS = {"rejected", "removed", "left_out", "contaminated", "excised", "gone"}
_ON_EVERY_LINE = "line_ends"


@dataclass(frozen=True)
class ShownText:
    """What became of a document, and its text.

    Attributes:
        document: that it is of.
        fate: `kept`, or a sentence for each table against it.
        edits: replaced spans of the source, by rule.
        text: after normalization and redaction; None where it may not be shown, or there is none yet.
        marked: numbers of its lines with an edit, from 0.
    """

    document: FoundDocument
    fate: tuple[str, ...]
    edits: Mapping[str, int]
    text: str | None
    marked: frozenset[int]

    def head(self) -> list[str]:
        """The lines above the text."""
        doc = self.document
        kind = f"{doc.kind}, {doc.language}" if doc.language else doc.kind
        shelf = f"{doc.repository}: " if doc.repository else ""
        lines = [f"{shelf}{doc.path}  {doc.dataset}, {kind}, {doc.byte_count:,} bytes, increment {doc.increment}"]
        lines += [doc.doc_id, *self.fate]
        if self.edits:
            lines.append("edits: " + ", ".join(f"{rule} {count:,}" for rule, count in self.edits.items()))
        return lines

    def facts(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {"document": self.document.facts(), "fate": self.fate, "edits": dict(self.edits), "text": self.text}


def shown_text(catalogue: Catalog, story: Story, with_text: bool) -> ShownText:
    """The text of a document with all its facts, or the facts without it."""
    document = story.document
    fate = tuple(f"{item.outcome}: {item.sentence} ({item.table})" for item in story.findings if item.outcome in _ENDS)
    text = read_text(catalogue, document) if with_text else None
    rows = read_rows(catalogue, f"{document.dataset}.texts", ("edits",), document.row)
    edits = rows[0]["edits"] if rows else []
    counts = dict(Counter(edit["rule"] for edit in edits).most_common())
    marked = edited_lines(text, edits) if text is not None else frozenset[int]()
    return ShownText(document, fate or ("kept",), counts, text, marked)


def edited_lines(text: str, edits: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    r"""Numbers of the lines with replaced spans in a text.

    Of "a\nMAIL\nb" with an edit of the bytes 2 to 9 (`x@y.org`) to 4 bytes, line 1 is marked.

    Args:
        text: after the edits.
        edits: by start: rule, start and end in the source, replacement_length, all in bytes.
    """
    ends = np.flatnonzero(np.frombuffer(text.encode(), np.uint8) == ord("\n"))
    marked: set[int] = set()
    for edit, start in placed_edits(edits):
        first, last = np.searchsorted(ends, (start, start + max(edit["replacement_length"] - 1, 0))).tolist()
        marked.update(range(first, last + 1))
    return frozenset(marked)


def placed_edits(edits: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Edits with the byte of the text at which each begins, but for line ends, which are on every line.

    An edit says where it was in the source; in the text it stands that far behind, plus what edits before it added.
    """
    moved = 0
    for edit in edits:
        start = edit["start"] + moved
        moved += edit["replacement_length"] - (edit["end"] - edit["start"])
        if edit["rule"] != _ON_EVERY_LINE:
            yield edit, start
