r"""Headers: a text in front of each document, made of columns, on which no loss is taken.

    header: "{url} ({licence})\n"         https://mill.org/a.html (MIT)
                                         the document ..

A name is a column of `documents`, else what its `metadata` has under it. A document for which one is missing gets no
header, nor does one whose header takes more than a quarter of a window; column `no_header` says why.

Source: Gao et al. 2025, "Metadata Conditioning Accelerates Language Model Pre-training", arXiv 2501.01956.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace_features.objectives.config import names_in
from headrace_features.objectives.layout import Header, LaidOut, LayoutEncoder
from spark_jobs.spark_sql import DataFrame, F

FACTS: Final = "header_facts"
_SHARE: Final = 4  # a header has at most one in so many tokens of a window


class Headed(NamedTuple):
    """What stands in front of a document, or why nothing does; neither where nothing is declared."""

    header: Header | None = None
    why_none: str | None = None


NO_HEADER: Final = Headed()


def with_header_facts(rows: DataFrame, documents: DataFrame, keys: Sequence[str], names: Iterable[str]) -> DataFrame:
    """Rows with the map `header_facts`, of each name in headers what the document has for it."""
    there = {
        name: F.col(name).cast("string") if name in documents.columns else F.col("metadata")[name] for name in names
    }
    pairs = [part for name, value in there.items() for part in (F.lit(name), value)]
    facts = documents.select(*keys, F.create_map(*pairs).alias(FACTS))
    return rows.join(facts, [*keys], "left")


def headed(
    documents: Sequence[tuple[str, str, Mapping[str, Any]]], encoder: LayoutEncoder, max_tokens: int
) -> list[Headed]:
    """The headers of documents.

    Args:
        documents: doc_id, template and facts of each; an empty template for none.
        encoder: counts their tokens.
        max_tokens: of a window.
    """
    made = [_filled(template, facts) for _, template, facts in documents]
    written = [(at, one.header) for at, one in enumerate(made) if one.header is not None]
    rows = encoder.encode([LaidOut("", (header,), documents[at][0]) for at, header in written])
    for (at, _), row in zip(written, rows, strict=True):
        if len(row.ids) * _SHARE > max_tokens:
            made[at] = Headed(None, "longer than a quarter of a window")
    return made


def _filled(template: str, facts: Mapping[str, Any]) -> Headed:
    if not template:
        return NO_HEADER
    missing = [name for name in names_in(template) if not facts.get(name)]
    return Headed(None, f"no {missing[0]}") if missing else Headed(Header(template.format(**facts)))
