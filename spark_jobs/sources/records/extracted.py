"""What an extractor gives, and how one is called in the child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_jobs.plugins import attribute

_SHOWN_FACT = 1000  # characters; longer titles are not titles


class Extracted(NamedTuple):
    """The text of a document, and the title, date and other facts stated in its file."""

    text: str
    metadata: dict[str, str]
    columns: dict[str, str | None] | None = None
    """Kind, language and media type, where the content says another than the name of the file."""


def call_extractor(function: str, *arguments: Any) -> Any:
    """Call an extractor, by module and name; its module, and the packages of foreign formats with it, is imported here.

    An extracted text goes to the other process as UTF-8: up to four bytes a character are not held in both at once.
    """
    extracted = attribute(function)(*arguments)
    return (
        (extracted.text.encode("utf-8", "surrogatepass"), *extracted[1:])
        if isinstance(extracted, Extracted)
        else extracted
    )


def cleaned_facts(facts: Mapping[str, object]) -> dict[str, str]:
    """Each fact in one line of at most 1,000 characters, without empty ones."""
    lines = {
        name: " ".join(str(value).encode(errors="replace").decode().split()) for name, value in facts.items() if value
    }
    return {name: line[:_SHOWN_FACT] for name, line in lines.items() if line}
