"""RSL, TDMRep, ai.txt, headers and elements: each answers as its specification says, and any bytes have an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.rights.register.lists import detect
from headrace_features.rights.signals import Reservation, strictest
from headrace_features.rights.signals.ai_txt import read_ai_txt
from headrace_features.rights.signals.headers import read_headers, read_html
from headrace_features.rights.signals.robots import read_robots
from headrace_features.rights.signals.rsl import read_rsl
from headrace_features.rights.signals.tdmrep import read_tdmrep

RSL = '<rsl xmlns="https://rslstandard.org/rsl">\n{}\n</rsl>'
CONTENT = '<content url="{}"{}>{}</content>'


def licence(*terms: str) -> str:
    """An element `license` of terms such as `permits usage search`."""
    elements = []
    for term in terms:
        element, kind, words = term.split(" ", 2)
        elements.append(f'<{element} type="{kind}">{words}</{element}>')
    return f"<license>{''.join(elements)}</license>"


@pytest.mark.parametrize(
    ("licences", "allowed"),
    [
        (licence("permits usage ai-train, search"), True),
        (licence("permits usage all"), True),
        (licence("permits usage ai-all", "payment attribution -"), True),
        (licence("permits usage search"), False),
        (licence("permits usage search,ai-index,ai-input"), False),
        (licence("prohibits usage ai-train"), False),
        (licence("prohibits usage ai-all"), False),
        (licence("prohibits usage train-ai"), False),
        (licence("permits usage all", "prohibits usage ai-train"), False),
        (licence("permits usage ai-train", "payment crawl -"), False),
        (licence("permits usage ai-train", "permits user education"), False),
        (licence("permits usage ai-train", "prohibits geo US"), False),
        (licence("payment purchase -"), False),
        (licence("permits usage search") + licence("permits usage ai-train"), True),
        (licence("permits usage ai-train") + licence("prohibits usage ai-train"), False),
        (licence("prohibits usage search"), None),
        (licence(), None),
        ("", None),
    ],
)
@pytest.mark.parametrize("form", ["file", "feed", "no namespace", "utf-16"])
def test_a_licence_says_whether_a_stranger_may_train(licences: str, allowed: bool | None, form: str) -> None:
    """Who agreed to nothing and paid nothing; as a file of its own, in a feed, and by a sloppy writer."""
    body = RSL.format(CONTENT.format("/", "", licences))
    if form == "feed":
        for element in ("content", "license", "permits", "prohibits", "payment"):
            body = body.replace(f"<{element}", f"<r:{element}").replace(f"</{element}", f"</r:{element}")
        body = body.replace('<rsl xmlns="https', '<rss xmlns:r="https').replace("</rsl>", "</rss>")
    if form == "no namespace":
        body = body.replace(' xmlns="https://rslstandard.org/rsl"', "")
    read = read_rsl(body.encode("utf-16" if form == "utf-16" else "utf-8"))
    answer = read.page("https://example.org/a/b")
    assert not read.fault and answer.allowed is allowed and answer.scope == "training"


def test_the_content_of_the_longest_pattern_decides() -> None:
    """By host and path, with patterns of RFC 9309; a server's licence has to be got first."""
    no, yes = licence("prohibits usage ai-train"), licence("permits usage ai-train")
    contents = [("/", "", no), ("/open/", "", yes), ("https://Other.example/open/x", "", no), ("/*.pdf$", "", yes)]
    contents.append(("/served/", ' server="https://l.example"', yes))
    document = read_rsl(RSL.format("".join(CONTENT.format(*content) for content in contents)).encode())
    answers = {
        "https://example.org/a": False, "/open/x": True, "https://example.org/open/x": True,
        "https://other.example/open/x": False, "/a.pdf": True, "/a.pdf?x": False, "/served/1": False,
    }  # fmt: skip
    assert {url: document.page(url).allowed for url in answers} == answers


@pytest.mark.parametrize(
    "body", ["<!DOCTYPE rsl>" + RSL.format(""), "<html/>", "", "<rsl>", '<?xml version="1.0" encoding="none"?><rsl/>']
)
def test_what_is_no_rsl_has_a_fault_and_says_nothing(body: str) -> None:
    """A DTD too, which could name files."""
    document = read_rsl(body.encode())
    assert document.fault and document.page("/").allowed is None


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (1, False),
        (0, True),
        ("1", False),
        (" 0 ", True),
        (2, None),
        (None, None),
        (True, None),
        ("yes", None),
        (1.0, None),
    ],
)
def test_a_reservation_is_one_or_nought(value: object, allowed: bool | None) -> None:
    """In the file, as a header and as an element; what is neither is unset by the protocol, not a no."""
    rules = [{"location": "/blog/*", "tdm-reservation": value, "tdm-policy": "https://e.org/p"}]
    for mark in ("", "\ufeff"):
        assert read_tdmrep((mark + json.dumps(rules)).encode()).page("https://e.org/blog/a").allowed is allowed
    if isinstance(value, int | str) and not isinstance(value, bool):
        head = read_headers([("TDM-Reservation", str(value)), ("tdm-policy", "https://e.org/p")], "x")
        meta = read_html(f'<META content="{value}" name=tdm-reservation>'.encode(), "x")
        for signals in (head, meta):
            assert [one.allowed for one in signals.reservations] == ([] if allowed is None else [allowed])
            assert bool(signals.other) == (allowed is None)
        assert all("https://e.org/p" in one.text for one in head.reservations)


def test_the_first_location_that_matches_decides() -> None:
    """Rules without a location are none, and those after a bad one count."""
    rules = [
        "x", {"tdm-reservation": 1}, {"location": "/a/open", "tdm-reservation": 0},
        {"location": "/a", "tdm-reservation": 1}, {"location": "/*.pdf$", "tdm-reservation": 1},
    ]  # fmt: skip
    document = read_tdmrep(json.dumps(rules).encode())
    answers = {"/a/open/1": True, "/a/b": False, "/x.pdf": False, "/x": None}
    assert {path: document.page(f"https://e.org{path}").allowed for path in answers} == answers
    assert document.page("/a/b").group == "/a"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"[1]", b"\xff\xfe", b"[" * 100_000, b'[{"location": 1}]'])
def test_what_is_no_tdmrep_has_a_fault_and_says_nothing(body: bytes) -> None:
    """A page of an error too."""
    document = read_tdmrep(body)
    assert document.fault and document.page("/").allowed is None


AI_TXT = ["User-Agent: *", "Disallow: *.jpg", "Disallow: *.js # code", "Allow: *.txt", "Disallow: /", "Disallow: *"]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_an_ai_txt_speaks_of_extensions(ends: str) -> None:
    """Of whole ones: `*.js` is not `.json`; the line that decided is named as it is written."""
    document = read_ai_txt(ends.join(AI_TXT[:4]).encode())
    answers = {
        "/a.jpg": (False, 2),
        "/a.jpg?w=1": (False, 2),
        "/x.json": (None, 0),
        "/x.js": (False, 3),
        "/t.txt": (True, 4),
    }
    seen = {path: document.page("AnyBot", f"https://e.org{path}") for path in answers}
    assert {path: (answer.allowed, answer.line) for path, answer in seen.items()} == answers
    assert seen["/a.jpg"].text == AI_TXT[1] and seen["/a.jpg"].scope == "training"
    closed = read_ai_txt(ends.join(AI_TXT).encode())
    assert closed.page("AnyBot", "/about").allowed is False and closed.page("AnyBot", "/t.txt").allowed is True
    assert read_ai_txt(b"# Markdown\n\nAbout: this site\n").page("AnyBot", "/").allowed is None


@pytest.mark.parametrize(
    ("value", "allowed", "other"),
    [
        ("noai", False, []),
        ("noindex, NoAI , noimageai", False, ["noindex"]),
        ("noimageai", False, []),
        ("GPTBot: noai", False, []),
        ("gptbot: nofollow, noai", False, ["nofollow"]),
        ("CCBot: noai", None, []),
        ("CCBot: noai, GPTBot: noindex", None, ["noindex"]),
        ("noindex, nofollow, none", None, ["noindex", "nofollow", "none"]),
        ("notranslate, max-snippet: 20", None, ["notranslate", "max-snippet: 20"]),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noai", False, ["unavailable_after: 25 jun 2030 15:00:00 pst"]),
        ("ai=no, train", None, ["ai=no", "train"]),
        ("", None, []),
    ],
)
def test_words_of_robots_headers_and_elements(value: str, allowed: bool | None, other: list[str]) -> None:
    """`noai` to all or to this agent is a no; `noindex` and unknown words are counted and are none."""
    signals = read_headers([("Content-Type", "text/html"), ("X-ROBOTS-tag", value)], "GPTBot/1.1")
    assert _answer(signals.reservations) is allowed and list(signals.other) == other
    page = read_html(f"<head>\n<meta NAME='Robots' content='{value}'></head>".encode(), "GPTBot")
    assert _answer(page.reservations) is allowed and list(page.other) == other
    assert all(one.line == 2 and one.signal == "meta" for one in page.reservations)


def _answer(reservations: list[Reservation]) -> bool | None:
    decisive = strictest(reservations)
    return None if decisive is None else decisive.allowed


def test_elements_count_where_they_are_elements() -> None:
    """Not in comments, scripts and texts of other elements; an agent's own is for that agent."""
    page = b"""<!-- <meta name=robots content=noai> --><script>'<meta name="robots" content="noai">'</script>
    <title><meta name=robots content=noai></title><textarea><meta name=robots content=noai></textarea><!--> <meta
    name="GPTBot" content="noai"><p title="<meta name=robots content='noimageai'>">"""
    named = read_html(page, "GPTBot").reservations
    assert [one.group for one in named] == ["GPTBot"] and named[0].line == 2
    assert not read_html(page, "CCBot").reservations


def test_licences_are_named_by_link_headers_elements_and_scripts() -> None:
    """Those of RSL; a link to a licence for people is none."""
    header = '<https://e.org/l.xml>; rel="license"; type="application/rsl+xml", </cc>; rel=license'
    assert read_headers([("Link", header)], "x").licences == ["https://e.org/l.xml"]
    body = RSL.format(CONTENT.format("", "", licence("prohibits usage all")))
    page = f"""<link rel="license" href="/cc"><link rel="a license" type="application/rsl+xml" href="/l.xml?a&amp;b">
    <script type="application/rsl+xml">{body}</script>"""
    signals = read_html(page.encode(), "x")
    assert signals.licences == ["/l.xml?a&b"]
    assert [read_rsl(document).page("https://e.org/a").allowed for document in signals.inline] == [False]


PIECES = st.sampled_from(
    [
        "<meta ",
        "name=robots ",
        'content="noai',
        '">',
        "<!--",
        "-->",
        "<script",
        "</script>",
        "<",
        ">",
        "'",
        "=",
        "é",
        "\n",
    ]
)


@given(st.binary(max_size=300) | st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode()), st.text())
def test_any_bytes_have_an_answer(data: bytes, text: str) -> None:
    """Never an error, for any agent and address."""
    for answer in (read_rsl(data).page(text), read_tdmrep(data).page(text), read_ai_txt(data).page(text, text)):
        assert answer.allowed in (True, False, None)
    assert read_html(data, text).reservations is not None
    value = data.decode("latin-1")
    assert read_headers([("x-robots-tag", value), ("link", value), ("tdm-reservation", value)], text).other is not None


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_file_says_the_same_in_any_encoding_that_it_marks(codec: str) -> None:
    """Editors save in UTF-16; what could not be read would be taken for a site that says nothing."""
    mark = b"\xfe\xff" if codec == "utf-16-be" else b""
    rules, url = "User-agent: *\nDisallow: /é/\n", "https://a.example/%C3%A9/1"
    tdm = json.dumps([{"location": "/é/", "tdm-reservation": 1}], ensure_ascii=False)
    assert read_robots(mark + rules.encode(codec)).page("x", url).allowed is False
    assert read_ai_txt(mark + rules.encode(codec)).page("x", url).allowed is False
    assert read_tdmrep(mark + tdm.encode(codec)).page(url).allowed is False
    assert (detect("file", mark + rules.encode(codec)), detect("file", mark + tdm.encode(codec))) == (
        "robots",
        "tdmrep",
    )
