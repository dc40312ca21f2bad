"""Files of robots.txt as sites publish them, with the answers of RFC 9309 and the clause that gives each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A robots.txt with questions: agent, path, whether it may be taken, number of the line that decides."""

    name: str
    clause: str
    data: bytes
    questions: tuple[tuple[str, str, bool, int], ...]


FILES = (
    File(
        "BOM, CRLF, comments and spaces",
        "2.2, EOL and WS; 2.3.1.1 has UTF-8",
        b"\xef\xbb\xbfUser-agent: * # all\r\n  Disallow : /private/ # not this\r\nALLOW:/private/open\r\n",
        (("AnyBot", "/private/x", False, 2), ("AnyBot", "/private/open", True, 3), ("AnyBot", "/", True, 0)),
    ),
    File(
        "old Mac line ends",
        "2.2, EOL = [CR] LF / CR",
        b"User-agent: *\rDisallow: /a\r\rUser-agent: CCBot\rDisallow: /\r",
        (("AnyBot", "/a/b", False, 2), ("AnyBot", "/b", True, 0), ("CCBot", "/b", False, 5)),
    ),
    File(
        "empty lines inside groups",
        "2.2, an empty line ends no group",
        b"User-agent: GPTBot\n\nUser-agent: CCBot\n\nDisallow: /a\n\nDisallow: /b\n\nUser-agent: *\n\nDisallow:\n",
        (("GPTBot", "/a", False, 5), ("CCBot", "/b", False, 7), ("OtherBot", "/a", True, 0)),
    ),
    File(
        "several agents of one group",
        "2.2.1",
        b"User-agent: GPTBot\nUser-agent: ClaudeBot\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: *\nAllow: /\n",
        (("GPTBot", "/x", False, 4), ("claudebot", "/x", False, 4), ("Bingbot", "/x", True, 7)),
    ),
    File(
        "a group with Crawl-delay alone, then another",
        "2.2.4, other records must not interfere",
        b"User-agent: *\nCrawl-delay: 10\n\nUser-agent: GPTBot\nDisallow: /\n",
        (("AnyBot", "/x", False, 5), ("GPTBot", "/x", False, 5)),
    ),
    File(
        "a group with Content-Signal alone, then another",
        "2.2.4, other records must not interfere",
        b"User-agent: *\nContent-Signal: search=yes, ai-train=no\n\nUser-agent: CCBot\nDisallow: /\n",
        (("AnyBot", "/x", False, 5), ("CCBot", "/x", False, 5)),
    ),
    File(
        "a sitemap between agents",
        "2.2.4 names Sitemap",
        b"User-agent: A-Bot\nSitemap: https://example.org/s.xml\nUser-agent: B-Bot\nDisallow: /\n",
        (("A-Bot", "/x", False, 4), ("B-Bot", "/x", False, 4), ("C-Bot", "/x", True, 0)),
    ),
    File(
        "star and end",
        "2.2.3",
        b"User-agent: *\nDisallow: /*.pdf$\nDisallow: /*/edit\nDisallow: /a*b*c$\nAllow: /$\n",
        (
            ("AnyBot", "/x/y.pdf", False, 2),
            ("AnyBot", "/x.pdf?download=1", True, 0),
            ("AnyBot", "/page/edit/2", False, 3),
            ("AnyBot", "/a1b2c3c", False, 4),
            ("AnyBot", "/abcd", True, 0),
            ("AnyBot", "/", True, 5),
        ),
    ),
    File(
        "a dollar and a star of the path",
        "2.2.3, crawlers match special characters by % encoding",
        b"User-agent: *\nDisallow: /price-%24\nDisallow: /a$b\nDisallow: /file-%2A.html\n",
        (
            ("AnyBot", "/price-$5", False, 2),
            ("AnyBot", "/a$b/c", False, 3),
            ("AnyBot", "/a", True, 0),
            ("AnyBot", "/file-*.html", False, 4),
            ("AnyBot", "/file-x.html", True, 0),
        ),
    ),
    File(
        "percent-encoding",
        "2.2.2, unreserved characters are decoded, others keep %XX",
        b"User-agent: *\nDisallow: /%62%61%7A/\nDisallow: /a%3cd\nDisallow: /x%2Fy\nDisallow: /%7Ejoe\n",
        (
            ("AnyBot", "/baz/1", False, 2),
            ("AnyBot", "/a%3Cd", False, 3),
            ("AnyBot", "/x/y", True, 0),
            ("AnyBot", "/x%2fy", False, 4),
            ("AnyBot", "/~joe/", False, 5),
        ),
    ),
    File(
        "Unicode in paths",
        "2.2.2, octets outside of US-ASCII are percent-encoded",
        "User-agent: *\nDisallow: /foo/ツ\nDisallow: /caf%c3%a9\n".encode(),
        (
            ("AnyBot", "/foo/%E3%83%84/1", False, 2),
            ("AnyBot", "/foo/ツ", False, 2),
            ("AnyBot", "/café", False, 3),
            ("AnyBot", "/foo/", True, 0),
        ),
    ),
    File(
        "queries with addresses in them",
        "2.2.2, the table of encodings",
        b"User-agent: *\nDisallow: /go?to=https://evil.example\n",
        (("AnyBot", "/go?to=https%3A%2F%2Fevil.example/a", False, 2), ("AnyBot", "/go?to=http", True, 0)),
    ),
    File(
        "the longest match, and Allow of two as long",
        "2.2.2, most octets; equivalent: allow",
        b"User-agent: *\nDisallow: /shop/\nAllow: /shop/open/\nDisallow: /shop/open/cart\nAllow: /page\n"
        b"Disallow: /page\nDisallow: /last\nAllow: /last\n",
        (
            ("AnyBot", "/shop/x", False, 2),
            ("AnyBot", "/shop/open/x", True, 3),
            ("AnyBot", "/shop/open/cart/1", False, 4),
            ("AnyBot", "/page/1", True, 5),
            ("AnyBot", "/last", True, 8),
        ),
    ),
    File(
        "agents with versions",
        "2.2.1, the product token is compared, not its version",
        b"User-agent: GPTBot/1.0\nDisallow: /\n\nUser-agent: *\nDisallow:\n",
        (("GPTBot", "/x", False, 2), ("gptbot/1.2", "/x", False, 2), ("CCBot", "/x", True, 0)),
    ),
    File(
        "names are compared whole",
        "2.2.1, the group that matches the product token",
        b"User-agent: bot\nDisallow: /\n\nUser-agent: Googlebot\nDisallow: /g\n\nUser-agent: *\nDisallow: /all\n",
        (
            ("GPTBot", "/x", True, 0),
            ("GPTBot", "/all", False, 8),
            ("Googlebot-News", "/g", True, 0),
            ("Googlebot", "/all", True, 0),
            ("bot", "/x", False, 2),
        ),
    ),
    File(
        "repeated groups of an agent are one",
        "2.2.1, rules are combined",
        b"User-agent: CCBot\nDisallow: /a\n\nUser-agent: *\nDisallow: /x\n\nUser-agent: ccbot\nDisallow: /b\n"
        b"\nUser-agent: *\nDisallow: /more\n",
        (
            ("CCBot", "/a", False, 2),
            ("CCBot", "/b", False, 8),
            ("CCBot", "/x", True, 0),
            ("AnyBot", "/x", False, 5),
            ("AnyBot", "/more", False, 11),
        ),
    ),
    File(
        "empty rules",
        "2.2, empty-pattern; 2.2.2 matches nothing by it",
        b"User-agent: A-Bot\nAllow:\n\nUser-agent: B-Bot\nDisallow:\n\nUser-agent: *\nDisallow: /\n",
        (("A-Bot", "/x", True, 0), ("B-Bot", "/x", True, 0), ("C-Bot", "/x", False, 8)),
    ),
    File(
        "case of paths and of keys",
        "2.2.2, paths are case-sensitive; ABNF literals are not",
        b"USER-AGENT: *\ndisALLOW: /Private\n",
        (("AnyBot", "/Private", False, 2), ("AnyBot", "/private", True, 0)),
    ),
    File(
        "rules before any group, and the file itself",
        "2.2, a rule belongs to a group; 2.2.2, /robots.txt is allowed",
        b"Disallow: /early\nUser-agent: *\nDisallow: /\n",
        (("AnyBot", "/robots.txt", True, 0), ("AnyBot", "/early", False, 3)),
    ),
    File(
        "long lines, and a rule of the last whole line of 512 KiB",
        "2.5, at least 500 KiB",
        b"User-agent: *\nDisallow: /" + b"a" * 20_000 + b"\n" + b"#" * 100 + b"\n" * 479_900 + b"Disallow: /late\n",
        (("AnyBot", "/" + "a" * 20_001, False, 2), ("AnyBot", "/a", True, 0), ("AnyBot", "/late", False, 479_903)),
    ),
)
