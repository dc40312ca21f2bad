"""Tell what a file is by its bytes, where its name does not say.

The model is that of magika (Fratantonio et al. 2024, "Magika: AI-Powered Content-Type Detection"), shipped in its
package; it looks at the first and last kilobyte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_jobs.exceptions import SetupError
from spark_jobs.sources.languages import Language, language_named, language_of
from spark_jobs.threads import made_once

_TEXT_BYTES = 1 << 16  # of the beginning of a text


class ContentType(NamedTuple):
    """What some bytes are.

    Attributes:
        label: magika's name for it.
        confidence: how sure the model is, 0 to 1.
        extensions: of such files.
        version: of magika.
        text_kind: for texts of any language, code or prose; None for what is no text.
    """

    label: str
    confidence: float
    extensions: tuple[str, ...]
    version: str
    text_kind: str | None

    @property
    def language(self) -> Language | None:
        """Kind and language as `documents` has them; None where this project has no name for the type."""
        languages = (language_named(self.label), *(language_of(f"file.{extension}") for extension in self.extensions))
        return next((each for each in languages if each), None)


def text_language(data: bytes) -> Language | None:
    """What a text is taken for, by its beginning; None for what is no text.

    Raises:
        SetupError: magika is not installed.
    """
    detected = content_type(data[:_TEXT_BYTES])
    if detected.text_kind is None:
        return None
    return detected.language or Language(detected.text_kind, None, "text/plain")


def content_type(data: bytes) -> ContentType:
    """What some bytes are; a call of the model, some hundred of them a second.

    Raises:
        SetupError: magika is not installed.
    """
    model, version = _magika()
    identified = model.identify_bytes(data)
    output = identified.output
    kind = ("code" if output.group == "code" else "prose") if output.is_text else None
    return ContentType(str(output.label), identified.score, tuple(output.extensions), version, kind)


@made_once
def _magika() -> tuple[Any, str]:
    """Magika with its model, loaded once per process, and its version."""
    try:
        import magika
    except ImportError as error:
        message = "types of files by content: magika is not installed; pip install 'headrace[ingest]'"
        raise SetupError(message) from error
    return magika.Magika(), str(magika.__version__)
