"""Really Simple Licensing 1.0: licences of pages as XML, in a file of its own, in a feed, or inside of a page.

    <rsl xmlns="https://rslstandard.org/rsl">
      <content url="/news/*">
        <license><permits type="usage">search</permits></license>
        <license><permits type="usage">ai-train</permits><payment type="crawl"/></license>
      </content>
    </rsl>

The `content` of the longest pattern is that of a page (RFC 9309's patterns). Its licences are offers of which a reader
takes one; what one prohibits is prohibited, so that two that differ have the stricter answer. A permit that is to be
paid for, is for some users or places, or comes from a licence server is none before somebody has agreed to it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from xml.parsers import expat

from headrace_features.rights.signals import Reservation, shown
from headrace_features.rights.signals.robots import Pattern, path_of

LIMIT_BYTES: Final = 4 << 20
_NAMESPACES: Final = ("https://rslstandard.org/rsl", "http://rslstandard.org/rsl")
_TRAINING: Final = frozenset({"all", "ai-all", "ai-train", "train-ai"})  # the last is of drafts, and still published
_FREE: Final = frozenset({"", "free", "attribution"})
_TERMS: Final = frozenset({"permits", "prohibits"})


@dataclass
class _Licence:
    """Words of a licence by element and its type, such as `permits usage`."""

    line: int
    words: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    payments: set[str] = field(default_factory=set)

    def answer(self, has_server: bool) -> tuple[bool | None, str]:
        """Whether it lets somebody train who agreed to nothing, and why."""
        usage = {element: self.words.get((element, "usage")) for element in _TERMS}
        if usage["prohibits"] and usage["prohibits"] & _TRAINING:
            return False, f"prohibits {', '.join(sorted(usage['prohibits']))}"
        if usage["permits"] is not None and not usage["permits"] & _TRAINING:
            return False, f"permits no training, only {', '.join(sorted(usage['permits'])) or 'nothing'}"
        terms = sorted(self.payments - _FREE) + sorted({kind for _, kind in self.words} - {"usage"})
        if terms or has_server:
            return False, f"on terms: {', '.join([*terms, *(['licence server'] if has_server else [])])}"
        return (None, "") if usage["permits"] is None else (True, f"permits {', '.join(sorted(usage['permits']))}")


@dataclass
class _Content:
    url: str
    pattern: Pattern
    has_server: bool
    licences: list[_Licence] = field(default_factory=list)

    def matches(self, host: str, path: bytes) -> bool:
        return _host(self.url) in ("", host) and self.pattern.matches(path)


@dataclass(frozen=True)
class Rsl:
    """An RSL document as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
        contents: what it licenses.
    """

    fault: str = ""
    contents: tuple[_Content, ...] = ()

    def page(self, url: str) -> Reservation:
        """Whether a page may be trained on (scope `training`)."""
        path, host = path_of(url), _host(url)
        matching = [content for content in self.contents if content.matches(host, path)]
        longest = max((content.pattern.length for content in matching), default=0)
        answers = [
            Reservation("rsl", "training", allowed, licence.line, content.url[:200], shown(text))
            for content in matching
            if content.pattern.length == longest
            for licence in content.licences
            for allowed, text in [licence.answer(content.has_server)]
        ]
        prohibiting = [answer for answer in answers if answer.text.startswith("prohibits")]
        permitting = [answer for answer in answers if answer.allowed]
        others = [answer for answer in answers if answer.allowed is False]
        return next(iter(prohibiting + permitting + others), Reservation("rsl", "training", None))


class _Reader:
    """Callbacks of a parser that refuses DTDs, so no entity can name a file or grow."""

    def __init__(self) -> None:
        self.contents: list[_Content] = []
        self.namespaces: tuple[str, ...] = ()
        self.is_rsl = False
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.terms: tuple[str, str] | None = None
        self.text: list[str] = []

    def doctype(self, *_: object) -> None:
        raise ValueError("it has a DTD")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, element = name.rpartition(" ")
        if not self.namespaces:  # of the root: without any it is RSL by its name
            self.namespaces = (*_NAMESPACES, "") if element == "rsl" else _NAMESPACES
        if namespace not in self.namespaces:
            return
        self.is_rsl = True
        kind = attributes.get("type", "").strip().lower()
        if element == "content":
            url = attributes.get("url", "/").strip()
            pattern = Pattern.of(path_of(url, keeps_special=True))
            self.contents.append(_Content(url, pattern, "server" in attributes))
        elif element == "license" and self.contents:
            self.contents[-1].licences.append(_Licence(self.parser.CurrentLineNumber))
        elif element in _TERMS:
            self.terms, self.text = (element, kind or "usage"), []
        elif element == "payment" and self.contents and self.contents[-1].licences:
            self.contents[-1].licences[-1].payments.add(kind)

    def characters(self, text: str) -> None:
        if self.terms:
            self.text.append(text)

    def end(self, name: str) -> None:
        if self.terms and name.rpartition(" ")[2] == self.terms[0]:
            if self.contents and self.contents[-1].licences:
                words = "".join(self.text).lower().replace(",", " ").split()
                self.contents[-1].licences[-1].words[self.terms].update(words)
            self.terms = None


def read_rsl(data: bytes) -> Rsl:
    """Read an RSL document; one with a DTD is refused."""
    if len(data) > LIMIT_BYTES:
        return Rsl(f"it has {len(data):,} bytes, and {LIMIT_BYTES:,} are read")
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # LookupError: an encoding that is none
        return Rsl(shown(f"no RSL: {error}"))
    if not reader.is_rsl:
        return Rsl("no RSL: its elements are others")
    return Rsl("", tuple(reader.contents))


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "") if "://" in url else ""
    except ValueError:
        return ""
