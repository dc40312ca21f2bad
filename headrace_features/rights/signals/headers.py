"""What HTTP headers and elements of a page say of its training.

    X-Robots-Tag: noai, GPTBot: noimageai        <meta name="robots" content="noai">, <meta name="gptbot" ..>
    tdm-reservation: 1, tdm-policy: ..           <meta name="tdm-reservation" content="1">
    Link: <l.xml>; rel="license"; type=".."      <link rel="license" type="application/rsl+xml" href="l.xml">

`noindex` is about search, and no answer about training; like unknown words it is counted and never a no.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headrace_features.rights.signals import Reservation, Signal, shown
from headrace_features.rights.signals.robots import agent_token
from headrace_features.rights.signals.tdmrep import reservation

LIMIT_CHARACTERS: Final = 1 << 20
_RSL: Final = "application/rsl+xml"
_NAMED = re.compile(r"\s*([A-Za-z][\w.-]*)\s*:\s*(.*)", re.S)
_VALUED: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_SPEAKS = re.compile(r"noai|noimageai|tdm-reservation|rsl\+xml|robots", re.I)  # most pages have none: 20 times as fast
_MARKUP = re.compile(r"<!--|<([a-z][^\s/>]*)", re.I)
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)(?:"|\Z)|'([^']*)(?:'|\Z)|([^\s>]*)))?""")
_RAW: Final = frozenset({"script", "style", "title", "textarea"})  # their text is no markup


@dataclass(frozen=True)
class PageSignals:
    """What a page says of itself to an agent.

    Attributes:
        agent: to whom.
        reservations: what it says, each of scope `training`; empty where it says nothing.
        licences: addresses of RSL documents that it names.
        inline: RSL documents inside of it (`rsl.read_rsl`).
        other: words of its robots headers and elements that are no answer (`noindex`, unknown ones), with counts.
    """

    agent: str
    reservations: list[Reservation] = field(default_factory=list)
    licences: list[str] = field(default_factory=list)
    inline: list[bytes] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)

    def robots(self, signal: Signal, value: str, text: str, line: int = 0, named: str = "") -> None:
        """Take the words of a robots header or element; `AGENT:` before a word names whom it and the next ones mean."""
        for part in value.split(","):
            prefix = _NAMED.fullmatch(part)
            is_named = prefix is not None and prefix[1].lower() not in _VALUED
            named, word = (prefix[1], prefix[2]) if prefix and is_named else (named, part)
            word = word.strip().lower()
            if agent_token(named) not in ("", "*", "robots", agent_token(self.agent)) or not word:
                continue
            if word in ("noai", "noimageai"):
                group = ", ".join(filter(None, [named, "images" if word == "noimageai" else ""]))
                self.reservations.append(Reservation(signal, "training", False, line, group, shown(text)))
            else:
                self.other[shown(word)] += 1

    def tdm(self, signal: Signal, value: str, policy: str, line: int = 0) -> None:
        """Take a value of tdm-reservation."""
        allowed = reservation(value)
        if allowed is None:
            self.other[shown(f"tdm-reservation {value}")] += 1
            return
        text = shown(f"tdm-reservation: {value.strip()}{f', tdm-policy: {policy}' if policy else ''}")
        self.reservations.append(Reservation(signal, "training", allowed, line, "", text))


def read_headers(headers: Iterable[tuple[str, str]], agent: str) -> PageSignals:
    """What X-Robots-Tag, tdm-reservation and Link headers say to an agent; a name may come several times."""
    pairs = [(name.strip().lower(), value) for name, value in headers]
    policy = next((value.strip() for name, value in pairs if name == "tdm-policy"), "")
    signals = PageSignals(agent)
    for name, value in pairs:
        if name == "x-robots-tag":
            signals.robots("x-robots-tag", value, f"X-Robots-Tag: {value}")
        elif name == "tdm-reservation":
            signals.tdm("tdm-header", value, policy)
        elif name == "link":
            links = ((match[1], match[2].lower().replace('"', "").replace(" ", "")) for match in _LINK.finditer(value))
            signals.licences.extend(url for url, rest in links if f"type={_RSL}" in rest and "rel=license" in rest)
    return signals


def read_html(data: bytes, agent: str) -> PageSignals:
    """What meta, link and script elements of a page say to an agent; those of comments and of scripts are none."""
    codec = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    signals = PageSignals(agent)
    text = data.decode(codec, "replace")[:LIMIT_CHARACTERS]
    elements = list(_elements(text)) if _SPEAKS.search(text) else []
    named = [(attributes.get("name", "").strip().lower(), attributes) for _, attributes, _, _ in elements]
    policy = next((attributes.get("content", "").strip() for name, attributes in named if name == "tdm-policy"), "")
    for element, attributes, body, line in elements:
        name, content = attributes.get("name", "").strip(), attributes.get("content", "")
        kind = attributes.get("type", "").strip().lower()
        if element == "meta" and name and agent_token(name) in ("robots", agent_token(agent)):
            signals.robots("meta", content, f'<meta name="{name}" content="{content}">', line, name)
        elif element == "meta" and name.lower() == "tdm-reservation":
            signals.tdm("tdm-meta", content, policy, line)
        elif element == "link" and kind == _RSL and "license" in attributes.get("rel", "").lower().split():
            signals.licences.append(attributes.get("href", "").strip())
        elif element == "script" and kind == _RSL:
            signals.inline.append(body.strip().encode())
    return signals


def _elements(text: str) -> Iterator[tuple[str, dict[str, str], str, int]]:
    """Elements in order: name, attributes, text inside of a script, line. Every character is read once."""
    at, line, counted = 0, 1, 0
    while match := _MARKUP.search(text, at):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        if match[1] is None:
            end = text.find("-->", match.start() + 2)  # `<!-->` is a whole comment
            at = len(text) if end < 0 else end + 3
            continue
        name, at = match[1].lower(), match.end()
        attributes = dict[str, str]()
        while attribute := _ATTRIBUTE.match(text, at):
            at = attribute.end()
            attributes.setdefault(
                attribute[1].lower(), html.unescape(attribute[2] or attribute[3] or attribute[4] or "")
            )
        body = ""
        if name in _RAW:
            start = text.find(">", at) + 1
            closing = re.compile(f"</{name}", re.I).search(text, at)
            at = closing.start() if closing else len(text)
            body = text[start:at] if start else ""
        yield name, attributes, body, line
