"""A web archive in small: some ninety answers of web servers, less than half of them worth training on."""

from __future__ import annotations

import gzip
import html
import uuid
from collections.abc import Iterator
from pathlib import Path

from dagster_project.cli.begin.recipes.sample_texts import Article, read_articles

_MENU = "Home|News|Shop|Newsletter|About us|Contact|Help|Log in"
_FOOTER = "We use cookies. Accept all|Privacy|Terms of use|Imprint|Follow us"
_LOREM = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore. "
)
_OFFERS = ("cheap flights", "casino bonus", "replica watches", "payday loans", "diet pills", "free ringtones")


def write_crawl(folder: Path) -> None:
    """Write `crawl/sample.warc.gz`: one gzip member for each answer."""
    (folder / "crawl").mkdir(parents=True)
    with (folder / "crawl" / "sample.warc.gz").open("wb") as archive:
        for address, status, kind, body in _answers():
            head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            archive.write(gzip.compress(_record(address, head + body), mtime=0))


def _record(address: str, answer: bytes) -> bytes:
    """A record of a WARC file (ISO 28500) for one HTTP answer."""
    lines = (
        "WARC/1.0",
        "WARC-Type: response",
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, address)}>",
        "WARC-Date: 2026-10-01T12:00:00Z",
        f"WARC-Target-URI: {address}",
        "Content-Type: application/http; msgtype=response",
        f"Content-Length: {len(answer)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + answer + b"\r\n\r\n"


def _answers() -> Iterator[tuple[str, str, str, bytes]]:
    """Address, status, content type and body of each answer."""
    for name, page in _pages():
        yield f"https://{name}", "200 OK", "text/html; charset=utf-8", page.encode()
    for at in range(3):
        yield (
            f"https://almanac.example/gone/{at}",
            "404 Not Found",
            "text/html",
            _page(Article("Not found", [])).encode(),
        )
    for at in range(2):
        yield f"https://almanac.example/logo{at}.png", "200 OK", "image/png", b"\x89PNG\r\n\x1a\n"


def _pages() -> Iterator[tuple[str, str]]:
    """Host and path of each page, and its HTML."""
    articles = read_articles("english.txt")
    for at, article in enumerate(articles):
        yield f"{('almanac', 'workshop', 'schoolbook')[at % 3]}.example/{at}", _page(article)
    for at, article in enumerate(articles[:4]):
        yield f"almanac.example/{at}?utm_source=letter", _page(article)  # the same page under another address
    for at, (title, paragraphs) in enumerate(articles[10:18]):
        again = [*paragraphs[:-1], f"{paragraphs[-1]} First printed in the almanac of last year."]
        yield f"mirror.example/{at}", _page(Article(f"{title}: read again", again))
    for at, (title, paragraphs) in enumerate(read_articles("others.txt")):
        yield f"{title[:2]}.example/{at}", _page(Article(title[3:], paragraphs), title[:2])
    yield from _rubbish(articles)


def _rubbish(articles: list[Article]) -> Iterator[tuple[str, str]]:
    """Pages without worth, as the web has many: advertising, teasers, placeholders."""
    for at, offer in enumerate(_OFFERS):
        words = [f"Best {offer} online, {offer} today, order {offer} now. Get {offer} here."] * 9
        yield f"offers{at}.example/", _page(Article(offer.title(), [*words, f"Compare {offer} with no fees at all."]))
    for at in range(4):
        teasers = [f"{text[0][:90]}..." for _, text in articles[at * 9 : at * 9 + 9]]
        yield f"portal.example/page/{at}", _page(Article("All our stories", teasers))
    for at in range(4):
        yield (
            f"soon{at}.example/",
            _page(Article("Under construction", ["This page will be here soon. Come back later."])),
        )
    for at in range(2):
        yield f"theme{at}.example/", _page(Article("Sample page", [_LOREM * 2, *articles[at].paragraphs]))
    for at in range(3):
        code = f"The answer is short. function turn{at}(wheel) {{ return wheel.speed * {at}; }} will do."
        first, last = articles[30 + at].paragraphs
        yield f"answers.example/{at}", _page(Article("How do I turn a wheel?", [first, code, last]))


def _page(article: Article, language: str = "en") -> str:
    """An article as HTML, with menu, links and notices around it, as real sites have."""
    menu = "".join(f'<li><a href="/{at}">{word}</a></li>' for at, word in enumerate(_MENU.split("|")))
    footer = " ".join(f'<a href="/f{at}">{word}</a>' for at, word in enumerate(_FOOTER.split("|")))
    title = html.escape(article.title)
    text = "".join(f"<p>{html.escape(paragraph)}</p>\n" for paragraph in article.paragraphs)
    return (
        f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body><nav><ul>{menu}</ul></nav>\n<main><article><h1>{title}</h1>\n{text}</article></main>\n"
        f"<footer><p>{footer}</p></footer></body></html>\n"
    )
