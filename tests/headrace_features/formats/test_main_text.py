"""The main text of a page: nothing of an article is lost wherever it stands, and little else is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resiliparse")
pytest.importorskip("trafilatura")

from headrace_features.formats.web import main_text
from headrace_features.formats.web.html import extract_page
from headrace_features.formats.web.page_blocks import page_blocks
from spark_jobs.sources.records.extracted import Extracted
from tests.headrace_features.formats.gold_pages import gold_pages, mean_token_f1
from tests.tiers import tries

PARAGRAPH = (
    "The mill beside the river grinds rye on weekdays, and the miller keeps the ledger by hand. When the water is low "
    "he closes the sluice, cleans the stones and writes letters to his sister."
)
ITEMS = ("Open the upper gate by hand.", "Wait until the basin is full.", "Close the lower gate again.")
BLOCKS = {
    "ul": "<ul>{}</ul>".format("".join(f"<li>{item}</li>" for item in ITEMS)),
    "ul of p": "<ul>{}</ul>".format("".join(f"<li><p>{item}</p></li>" for item in ITEMS)),
    "ul with a link": "<ul>{}</ul>".format("".join(f"<li>{item} <a href=/x>more</a></li>" for item in ITEMS)),
    "ol": "<ol>{}</ol>".format("".join(f"<li>{item}</li>" for item in ITEMS)),
    "dl": "<dl>{}</dl>".format("".join(f"<dt>Step</dt><dd>{item}</dd>" for item in ITEMS)),
    "table": "<table>{}</table>".format("".join(f"<tr><td>{item}</td><td>x</td></tr>" for item in ITEMS)),
    "pre": "<pre>{}</pre>".format("\n".join(ITEMS)),
    "blockquote": "<blockquote>{}</blockquote>".format("".join(f"<p>{item}</p>" for item in ITEMS)),
    "div": "".join(f"<div>{item}</div>" for item in ITEMS),
    "section": f"<section>{' '.join(ITEMS)}</section>",
    "details": f"<details><summary>More</summary>{' '.join(ITEMS)}</details>",
    "code": f"<code>{'<br>'.join(ITEMS)}</code>",
    "address": f"<address>{' '.join(ITEMS)}</address>",
    "said twice": f"<p>{PARAGRAPH}</p><p>{' '.join(ITEMS)}</p>",
}
WRAPPERS = (
    "",
    "article",
    "main",
    "section",
    "div",
    "div div",
    "div div div",
    "div div div div",
    "main div",
    "div main",
)
MENU = "<div><a href=/>Home page</a> <a href=/a>News of the town</a> <a href=/b>Sports and games of the week</a></div>"
LIST_MENU = "<ul><li><a href=/>Our home page here</a><li><a href=/a>News of the town</a></ul>"


def text_of(body: str, extractor: str = "both") -> str:
    """The text of a page, on one line."""
    found = extract_page(f"<html><head><meta charset=utf-8></head><body>{body}</body></html>".encode(), extractor)
    assert isinstance(found, Extracted)
    return " ".join(found.text.split())


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_an_article_is_kept_at_every_depth(block: str) -> None:
    """Between two paragraphs, with and without menus around; and where there are none, at both ends of the page too."""
    for wrapper in WRAPPERS[: tries(len(WRAPPERS), 4)]:
        tags = wrapper.split()
        before, after = "".join(f"<{tag}>" for tag in tags), "".join(f"</{tag}>" for tag in reversed(tags))
        first, last = f"<p>{PARAGRAPH}</p>", f"<p>{PARAGRAPH} It is so every year.</p>"
        middle = before + first + BLOCKS[block] + last + after
        ends = [before + BLOCKS[block] + first + last + after, before + first + last + BLOCKS[block] + after]
        for body in (middle, MENU + middle + MENU, LIST_MENU + middle + LIST_MENU, *ends):
            text = text_of(body)
            assert all(item in text for item in ITEMS), (wrapper, body)
            assert text.count(PARAGRAPH) == body.count(PARAGRAPH)
            assert "News of the town" not in text or not body.startswith(LIST_MENU)


def test_an_unsure_network_asks_trafilatura() -> None:
    """What trafilatura takes tips blocks whose odds are near even, and no others."""
    blocks = page_blocks("<body>" + "".join(f"<p>{PARAGRAPH} {number}</p>" for number in range(4)) + "</body>")
    shares = main_text.shared_fractions(blocks, f"{PARAGRAPH} 1\n{PARAGRAPH} 2 and more")
    assert list(shares.round(1)) == [1.0] * 4 and main_text.shared_fractions(blocks, "Something else of it").sum() == 0
    words = np.array([30, 30, 5, 30], np.float32)
    assert main_text._expected_f1(np.array([9.0, 9, 9, -9]), words) > 0.99
    assert main_text._expected_f1(np.array([0.1, 0.1, 9, 0.1]), words) < main_text._SURE_F1
    kept = main_text._without_gaps(
        np.array([True, False, True, False]), np.array([1.0, -2, 1, -2]), words[[0, 2, 0, 2]]
    )
    assert list(kept) == [True, True, True, False]


def test_texts_are_joined_as_they_stood() -> None:
    """Cells of a row by tabs, paragraphs by blank lines; a cell whose row lost its head begins a line."""
    blocks = page_blocks("<body><p>a</p><p>b</p><div>c</div><table><tr><td>d<td>e<tr><td>f<td>g</table></body>")
    assert main_text.text_of(blocks, np.ones(7, np.bool_)) == "a\n\nb\n\nc\n\nd\te\nf\tg"
    kept = np.array([block.text != "f" for block in blocks])
    assert main_text.text_of(blocks, kept).endswith("d\te\ng")


@pytest.mark.nightly
def test_the_text_of_both_is_nearer_to_gold_texts_than_that_of_one(real_data: Path) -> None:
    """Mean token F1 over the gold pages; docs/start/performance.md has more pages."""
    pages = list(gold_pages(real_data / "html_articles"))
    scores = {}
    for extractor in ("both", "resiliparse", "trafilatura"):
        found = [extract_page(page.html, extractor) for page in pages]
        scores[extractor] = mean_token_f1([one.text if isinstance(one, Extracted) else "" for one in found], pages)
    assert len(pages) == 65 and scores["both"] > 0.97
    assert scores["both"] > max(scores["resiliparse"], scores["trafilatura"])


@pytest.mark.parametrize("extractor", ["resiliparse", "trafilatura", "both"])
def test_what_browsers_without_frames_would_show_is_the_page_or_nothing(extractor: str) -> None:
    """It is the text of a page of frames, and markup of no other page."""
    inner = f"<p>{PARAGRAPH}</p><p>{ITEMS[0]} &amp; <a href=/m>the menu</a></p>"
    for name in ("noframes", "NOFRAMES", "noembed"):
        for left in (f"<{name}>{inner}</{name}>", f"<{name}>{inner}"):
            assert text_of(f"<p>{PARAGRAPH}</p><p>{ITEMS[1]}</p>{left}", extractor) == f"{PARAGRAPH} {ITEMS[1]}"
    text = f"{PARAGRAPH} {ITEMS[0]} & the menu"
    for frames in (
        f"<frameset cols='1,2'><frame src=a><noframes><body>{inner}</body></noframes></frameset>",
        f"<frameset cols='1,2'><frame src=a></frameset><noframes>{inner}</noframes>",
        f"<frameset><noframes>{inner}",
        f"<noframes>{inner}</noframes><frameset><frame src=a></frameset>",
        f"<body><frameset><frame src=a><noframes>{inner}</noframes></frameset></body>",
    ):
        page = extract_page(f"<html lang=en><head><title>T</title></head>{frames}</html>".encode(), extractor)
        assert isinstance(page, Extracted) and " ".join(page.text.split()) == text
        assert page.metadata["title"] == "T"
    empty = extract_page(b"<frameset><frame src=a><noframes> </noframes></frameset>", extractor)
    assert not isinstance(empty, Extracted)
