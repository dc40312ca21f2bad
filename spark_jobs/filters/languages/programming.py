"""Tell the kind and programming language of a text by its content, for files whose name does not say.

See `spark_jobs.sources.reading.content_types`; names are those of `spark_jobs.sources.reading.languages`.
"""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.sources.reading.content_types import content_type


def score_programming(content: pa.Array) -> dict[str, pa.Array]:
    """What each text is written in. A call of the library for each text: some hundred texts a second.

    Returns:
        (D,) columns: `content_type` (as magika calls it), `content_kind` (code, prose, markup, data) and
        `programming_language` as `documents` has them, null where this project has no name for the type, and
        `content_type_confidence`. All are null in an empty text.

    Raises:
        SetupError: magika is not installed.
    """
    rows: list[tuple[str | None, str | None, str | None, float | None]] = []
    for text in content:
        utf8 = text.as_buffer().to_pybytes()
        found = content_type(utf8) if utf8 else None
        language = found.language if found else None
        rows.append(
            (
                found.label if found else None,
                language.kind if language else None,
                language.name if language else None,
                found.confidence if found else None,
            )
        )
    names = ("content_type", "content_kind", "programming_language")
    columns = {name: pa.array([row[k] for row in rows], pa.string()) for k, name in enumerate(names)}
    return columns | {"content_type_confidence": pa.array([row[3] for row in rows], pa.float64())}
