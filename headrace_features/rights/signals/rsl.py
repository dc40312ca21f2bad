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

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from headrace_features.rights.signals import Reservation, shown
from headrace_features.rights.signals.robots import Pattern, path_of

LIMIT_BYTES: Final = 4 << 20
_NAMESPACES: Final = ("{https://rslstandard.org/rsl}", "{http://rslstandard.org/rsl}")
_TRAINING: Final = frozenset({"all", "ai-all", "ai-train", "train-ai"})  # the last is of drafts, and still published
_FREE: Final = frozenset({"", "free", "attribution"})


@dataclass(frozen=True)
class Content:
    """What a `content` says of its pages: the host where its address has one, its pattern, the answer."""

    host: str
    pattern: Pattern
    answer: Reservation


@dataclass(frozen=True)
class Rsl:
    """An RSL document as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
        contents: what it licenses.
    """

    fault: str = ""
    contents: tuple[Content, ...] = ()

    def page(self, url: str) -> Reservation:
        """Whether a page may be trained on (scope `training`)."""
        path, host = path_of(url), _host(url)
        matching = [part for part in self.contents if part.host in ("", host) and part.pattern.matches(path)]
        best = max(matching, key=lambda part: (part.pattern.length, part.answer.allowed is False), default=None)
        return Reservation("rsl", "training", None) if best is None else best.answer


class _Builder(ElementTree.TreeBuilder):
    """A tree without a DTD, so that no entity names a file or grows."""

    def doctype(self, *_: object) -> None:
        raise ValueError("it has a DTD")


def read_rsl(data: bytes) -> Rsl:
    """Read an RSL document; one with a DTD is refused."""
    if len(data) > LIMIT_BYTES:
        return Rsl(f"it has {len(data):,} bytes, and {LIMIT_BYTES:,} are read")
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_Builder()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an encoding that is none
        return Rsl(shown(f"no RSL: {error}"))
    spaces = [*_NAMESPACES, ""] if root.tag == "rsl" else _NAMESPACES
    contents = [_content(element, space) for space in spaces for element in root.iter(f"{space}content")]
    is_rsl = contents or root.tag in [f"{space}rsl" for space in spaces]
    return Rsl("" if is_rsl else "no RSL: its elements are others", tuple(contents))


def _content(element: ElementTree.Element, space: str) -> Content:
    """What is prohibited, else what may be had freely, else what may not."""
    url = element.get("url", "/").strip()
    answers = [
        _licence(licence, space, element.get("server") is not None) for licence in element.findall(f"{space}license")
    ]
    prohibited = [answer for answer in answers if answer[1].startswith("prohibits")]
    ordered = prohibited + [answer for answer in answers if answer[0]] + [answer for answer in answers if answer[1]]
    allowed, text = next(iter(ordered), (None, ""))
    answer = Reservation("rsl", "training", allowed, 0, url[:200], shown(text))
    return Content(_host(url), Pattern.of(path_of(url, keeps_special=True)), answer)


def _licence(licence: ElementTree.Element, space: str, has_server: bool) -> tuple[bool | None, str]:
    """Whether it lets somebody train who agreed to nothing, and why."""
    words: dict[tuple[str, str], set[str]] = {}
    for name in ("permits", "prohibits"):
        for term in licence.findall(f"{space}{name}"):
            kind = term.get("type", "usage").strip().lower()
            words.setdefault((name, kind), set()).update((term.text or "").lower().replace(",", " ").split())
    permits, prohibits = words.get(("permits", "usage")), words.get(("prohibits", "usage"), set())
    payments = {payment.get("type", "").strip().lower() for payment in licence.findall(f"{space}payment")}
    terms = [*sorted(payments - _FREE), *sorted({kind for _, kind in words} - {"usage"}), *["server"][:has_server]]
    if prohibits & _TRAINING:
        return False, f"prohibits {', '.join(sorted(prohibits))}"
    if permits is not None and not permits & _TRAINING:
        return False, f"permits no training, only {', '.join(sorted(permits)) or 'nothing'}"
    if terms:
        return False, f"on terms: {', '.join(terms)}"
    return (None, "") if permits is None else (True, f"permits {', '.join(sorted(permits))}")


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "") if "://" in url else ""
    except ValueError:
        return ""
