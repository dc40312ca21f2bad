"""Tell the kind and programming language of a text by its content, for files whose name does not say.

The model is that of magika (Fratantonio et al. 2024, "Magika: AI-Powered Content-Type Detection"), which its package
ships and which looks at the first and last kilobyte of a text; names are those of `spark_jobs.sources.languages`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from spark_jobs.exceptions import SetupError
from spark_jobs.sources.languages import language_of


def score_programming(content: pa.Array) -> dict[str, pa.Array]:
    """What each text is written in. A call of the library for each text: some hundred texts a second.

    Returns:
        (D,) columns: `content_type` (as magika calls it), `content_kind` (code, prose, markup, data) and
        `programming_language` as `documents` has them, null where this project has no name for the type, and
        `content_type_confidence`. All are null in an empty text.

    Raises:
        SetupError: magika is not installed.
    """
    identify = _identifier()
    rows: list[tuple[str | None, str | None, str | None, float | None]] = []
    for text in content:
        utf8 = text.as_buffer().to_pybytes()
        found = identify(utf8) if utf8 else None
        known = [language_of(f"file.{extension}") for extension in found.output.extensions] if found else []
        language = next((each for each in known if each), None)
        rows.append(
            (
                str(found.output.label) if found else None,
                language.kind if language else None,
                language.name if language else None,
                found.score if found else None,
            )
        )
    names = ("content_type", "content_kind", "programming_language")
    columns = {name: pa.array([row[k] for row in rows], pa.string()) for k, name in enumerate(names)}
    return columns | {"content_type_confidence": pa.array([row[3] for row in rows], pa.float64())}


@cache
def _identifier() -> Any:
    """Magika with its model, loaded once per process."""
    try:
        from magika import Magika
    except ImportError as error:
        message = "programming languages by content: magika is not installed; pip install 'headrace[filters]'"
        raise SetupError(message) from error
    return Magika().identify_bytes
