"""The text of pages in hand, as the reader `html` gives it to a dataset.

It runs in the reader's child, with its limits of time and memory: a page of a stranger harms no more than itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, overload

from spark_jobs.exceptions import ConfigError, InputError, SetupError, did_you_mean
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.reading import built_in
from spark_jobs.sources.refusals import Reason, Refusal

Extractor = Literal["both", "resiliparse", "trafilatura"]
_EXTRACTORS: Final = ("both", "resiliparse", "trafilatura")


@dataclass(frozen=True)
class PageText:
    """The text of a page, and what the page states about itself.

    Attributes:
        text: of the page's article.
        title: of the page; None where it has none.
        language: that the page states; None where it states none.
        metadata: all that the table `documents` keeps of it, title and language among them.
    """

    text: str
    title: str | None = None
    language: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text


@overload
def extract(data: str | bytes, *, extractor: Extractor = "both") -> PageText: ...
@overload
def extract(data: list[Any] | tuple[Any, ...], *, extractor: Extractor = "both") -> list[PageText | Refusal]: ...
def extract(
    data: str | bytes | list[Any] | tuple[Any, ...], *, extractor: Extractor = "both"
) -> PageText | list[PageText | Refusal]:
    """Extract the main text of a page of HTML.

    Args:
        data: the page, as text or as bytes, with the encoding told as by the reader; or a list of pages.
        extractor: who says which blocks of a page are its text: both, resiliparse or trafilatura.

    Returns:
        The text with title and language. Of a list a list, with the refusal of each page without text in its place.

    Raises:
        InputError: the page is refused; the message has the reason, as of `arrivals`.
        ConfigError: there is no such extractor.
        SetupError: a package of the reader is not installed.
    """
    if extractor not in _EXTRACTORS:
        raise ConfigError(f"extract: there is no extractor {extractor!r}{did_you_mean(extractor, _EXTRACTORS)}")
    source = FileReading(extractor=extractor)
    if package := built_in.missing_package("html", source):
        mend = f"pip install 'headrace[{built_in.READERS['html'].extra}]'"
        raise SetupError(f"extract: {package} is not installed; {mend}")
    if isinstance(data, str | bytes):
        page = _page(data, source)
        if isinstance(page, Refusal):
            raise InputError(f"extract: {page.reason}: {page.detail}")
        return page
    if not isinstance(data, list | tuple):
        raise InputError(f"extract: a {type(data).__name__} is no page; give text or bytes, or a list of them")
    return [_page(page, source) for page in data]


def _page(page: Any, source: FileReading) -> PageText | Refusal:
    """The text of a page, or why it has none."""
    if not isinstance(page, str | bytes):
        raise InputError(f"extract: a {type(page).__name__} is no page; give text or bytes")
    try:
        data, charset = (page.encode(), "utf-8") if isinstance(page, str) else (page, None)
    except UnicodeEncodeError as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of the page")
    extracted = built_in.extract("html", data, charset, source=source)
    if isinstance(extracted, Refusal):
        return extracted
    facts = extracted.metadata
    return PageText(extracted.text, facts.get("title"), facts.get("language"), facts)
