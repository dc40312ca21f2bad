"""The text of pages in hand."""

from __future__ import annotations

import pytest

import headrace
from headrace_features.formats.web.html import extract_page
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal

SENTENCE = "Ein längerer Satz über Mühlen, der als Text der Seite gilt."
PAGE = (
    f"<html lang=de><head><meta charset=latin1><title>Mühle</title></head><body><nav><a href=/>Start</a></nav>"
    f"<article><h1>Die Mühle</h1><p>{SENTENCE}</p></article></body></html>"
)


def test_the_text_of_a_page_is_that_of_the_reader() -> None:
    """Of text and of bytes in the encoding that they declare; with its title and language."""
    for data in (PAGE, PAGE.encode(), PAGE.encode("latin1")):
        page = headrace.extract(data)
        assert SENTENCE in page.text and (page.title, page.language) == ("Mühle", "de")
        assert str(page) == page.text
    read = extract_page(PAGE.encode("latin1"), "both")
    assert isinstance(read, Extracted)
    assert (page.text, page.metadata) == (read.text, read.metadata)
    assert headrace.extract("<p>Words of a page that says nothing of itself, and they are many.").title is None


def test_a_page_without_text_is_refused_in_a_line() -> None:
    """A page by an error, one of many by its refusal, beside which the others are read."""
    for data, message in (
        ("words", "corrupt_file: not HTML"),
        (b"", "empty: the page is empty"),
        ("\ud800<p>", "lone"),
    ):
        with pytest.raises(InputError, match=message) as error:
            headrace.extract(data)
        assert "\n" not in str(error.value)
    refused, read = headrace.extract(["", PAGE])
    assert refused == Refusal(Reason.EMPTY, "the page is empty") and not isinstance(read, Refusal)
    assert headrace.extract([]) == []
    with pytest.raises(InputError, match="a int is no page"):
        headrace.extract(7)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="no extractor 'trafilatur'; did you mean"):
        headrace.extract(PAGE, extractor="trafilatur")  # type: ignore[call-overload]
