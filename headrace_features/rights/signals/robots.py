"""robots.txt by the letter of RFC 9309, with the line and the group that decided.

A group ends at the first `User-agent` after a rule (2.2: `group = startgroupline *(startgroupline / emptyline) *(rule /
emptyline)`), and other records must not interfere (2.2.4). So the letter has one group here, closed to all:

    User-agent: *
    Crawl-delay: 10

    User-agent: GPTBot
    Disallow: /

Most parsers say that `*` is a group without rules, and most sites mean that. Both readings are made, the stricter is
the answer, and it names both. No parser of PyPI names line and group, so this is no library (decision 16).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headrace_features.rights.signals import Reservation, shown, utf_8

LIMIT_BYTES: Final = 512 * 1024  # RFC 9309, 2.5: a parser reads at least 500 KiB
_GLOBAL: Final = frozenset({"sitemap", "license", "host"})  # of the whole file, not of a group
LINE_ENDS = re.compile(rb"\r\n|\n|\r")
_TOKEN = re.compile(r"[a-z0-9_-]+")  # the RFC has no digits; AI2Bot and img2dataset are names all the same
_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*")
_ESCAPED = re.compile(rb"%[0-9A-Fa-f]{2}|[^\x21-\x7e]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SIGNAL = re.compile(r"([a-z-]+)\s*=\s*(yes|no)\b")


@dataclass(frozen=True)
class _Record:
    line: int
    key: str
    value: bytes
    text: str


@dataclass(frozen=True)
class Pattern:
    """A path pattern of RFC 9309, 2.2.3: a prefix with `*` for anything, and `$` for the end."""

    parts: tuple[bytes, ...]
    has_end: bool
    length: int

    @classmethod
    def of(cls, value: bytes) -> Pattern:
        """The pattern of a written path."""
        has_end = value.endswith(b"$")
        octets = _octets(value.removesuffix(b"$").replace(b"$", b"%24"))
        return cls(tuple(octets.split(b"*")), has_end, len(octets) + has_end)

    def matches(self, path: bytes) -> bool:
        """Whether a path in the form of `path_of` is one of these; each part is taken as early as it comes."""
        first, *others = self.parts
        if not path.startswith(first):
            return False
        end = len(first)
        last = others.pop() if others and self.has_end else None
        for part in others:
            start = path.find(part, end)
            if start < 0:
                return False
            end = start + len(part)
        if last is not None:
            return path.endswith(last) and len(path) - len(last) >= end
        return not self.has_end or end == len(path)


@dataclass(eq=False)
class Group:
    """Rules and signals of some agents."""

    names: list[str] = field(default_factory=list)
    rules: list[tuple[Pattern, bool, _Record]] = field(default_factory=list)
    signals: list[_Record] = field(default_factory=list)


@dataclass(frozen=True)
class Robots:
    """A robots.txt as it was read.

    Attributes:
        licences: addresses of its `License` lines (RSL), in order.
        is_cut: whether it was longer than is read.
        letter: groups by the agents that they name, by the letter of the RFC.
        common: the same where any record ends the list of agents.
    """

    licences: tuple[str, ...]
    is_cut: bool
    letter: Mapping[str, list[Group]]
    common: Mapping[str, list[Group]]

    def page(self, agent: str, url: str) -> Reservation:
        """Whether an agent may take a page (scope `all`), an address or a path with its query."""
        path = path_of(url)
        letter, common = (_page(_of(groups, agent), path) for groups in (self.letter, self.common))
        return _stricter(letter, common)

    def rules(self, agent: str) -> Iterator[tuple[Pattern, Reservation]]:
        """Patterns that an agent may, or may not take, by either reading; of all, where it may not train on pages."""
        groups = [group for reading in (self.letter, self.common) for group in _of(reading, agent)]
        rules = {record.line: (rule, group) for group in groups for rule in group.rules for record in [rule[2]]}
        for (pattern, is_allowed, record), group in rules.values():
            yield pattern, Reservation("robots.txt", "all", is_allowed, record.line, _names([group]), record.text)
        if (signal := self.content_signal(agent)).allowed is False:
            yield Pattern.of(b"/"), signal

    def content_signal(self, agent: str, use: str = "ai-train") -> Reservation:
        """What `Content-Signal` says of a use (`search`, `ai-input`, `ai-train`) to an agent (scope `training`)."""
        letter, common = (_signal(_of(groups, agent), use) for groups in (self.letter, self.common))
        return _stricter(letter, common)


def read_robots(data: bytes) -> Robots:
    """Read a robots.txt; of one above 512 KiB the lines that are whole there."""
    is_cut = len(data) > LIMIT_BYTES
    lines = LINE_ENDS.split(utf_8(data[:LIMIT_BYTES]))
    records = list(_records(lines[:-1] if is_cut else lines))
    licences = tuple(record.value.decode("utf-8", "replace") for record in records if record.key == "license")
    return Robots(licences, is_cut, _groups(records, True), _groups(records, False))


def _records(lines: list[bytes]) -> Iterator[_Record]:
    for number, line in enumerate(lines, 1):
        key, colon, value = line.partition(b"#")[0].partition(b":")
        if colon:
            text = shown(line.decode("utf-8", "replace"))
            yield _Record(number, key.strip(b" \t").lower().decode("latin-1"), value.strip(b" \t"), text)


def _groups(records: list[_Record], by_the_letter: bool) -> Mapping[str, list[Group]]:
    """Groups by agent; signals before the first group are of all who are not named."""
    by_agent: defaultdict[str, list[Group]] = defaultdict(list)
    first = group = Group()
    by_agent["*"].append(first)
    is_open = False
    for record in records:
        if record.key == "user-agent":
            if not is_open:
                group, is_open = Group(), True
            token = agent_token(record.value.decode("utf-8", "replace"))
            if token:
                group.names.append(shown(record.value.decode("utf-8", "replace")))
                if group not in by_agent[token][-1:]:
                    by_agent[token].append(group)
            continue
        if record.key in ("allow", "disallow"):
            is_rule = not record.value or record.value[:1] in (b"/", b"*")  # `*.pdf` is common, and no rule of the RFC
            is_open = is_open and not is_rule and by_the_letter
            if is_rule and record.value and group is not first:
                group.rules.append((Pattern.of(record.value), record.key == "allow", record))
        elif record.key not in _GLOBAL:
            is_open = is_open and by_the_letter
            if record.key == "content-signal":
                group.signals.append(record)
    return by_agent


def agent_token(agent: str) -> str:
    """The compared form of an agent: `GPTBot/1.0` is `gptbot`; `*` for all; empty for what names nobody."""
    agent = agent.strip()
    if agent.partition(" ")[0] == "*":
        return "*"
    token = _TOKEN.match(agent.lower())
    return token[0] if token else ""


def path_of(url: str, keeps_special: bool = False) -> bytes:
    """Path and query of an address as they are compared; of one that is a pattern, its `*` and `$` stay special."""
    origin = _ORIGIN.match(url)
    path = url[origin.end() if origin else 0 :].partition("#")[0]
    octets = (path if path.startswith("/") else f"/{path}").encode("utf-8", "surrogatepass")
    return octets if keeps_special else _octets(octets.replace(b"*", b"%2A").replace(b"$", b"%24"))


def _octets(text: bytes) -> bytes:
    """The compared form of a path (RFC 9309, 2.2.2): %xx of unreserved characters are those, the rest is %XX.

    In a query `:` and `/` are the same with and without their %xx, as the RFC's table has it.
    """
    path, mark, query = _ESCAPED.sub(_escape, text).partition(b"?")
    return path + mark + query.replace(b"%2F", b"/").replace(b"%3A", b":")


def _escape(match: re.Match[bytes]) -> bytes:
    octet = int(match[0][1:], 16) if len(match[0]) == 3 else match[0][0]
    return bytes([octet]) if octet in _UNRESERVED else b"%%%02X" % octet


def _of(groups: Mapping[str, list[Group]], agent: str) -> list[Group]:
    """The groups that name an agent, else those of all."""
    return groups.get(agent_token(agent)) or groups["*"]


def _page(groups: list[Group], path: bytes) -> Reservation:
    """By the longest rule, and by `Allow` of two as long; /robots.txt is always allowed."""
    matching = [
        (pattern.length, is_allowed, record, group)
        for group in groups
        for pattern, is_allowed, record in group.rules
        if path != b"/robots.txt" and pattern.matches(path)
    ]
    if not matching:
        return Reservation("robots.txt", "all", True, group=_names(groups), text="no rule of the group matches")
    _, is_allowed, record, group = max(matching, key=lambda rule: rule[:2])
    return Reservation("robots.txt", "all", is_allowed, record.line, _names([group]), record.text)


def _signal(groups: list[Group], use: str) -> Reservation:
    """By the first that says no, else the first that says yes."""
    signals = [
        Reservation("content-signal", "training", answer == "yes", record.line, _names([group]), record.text)
        for group in groups
        for record in group.signals
        for named, answer in _SIGNAL.findall(record.value.decode("utf-8", "replace").lower())
        if named == use
    ]
    return min(signals, key=lambda reservation: bool(reservation.allowed), default=_SILENT)


_SILENT = Reservation("content-signal", "training", None)


def _stricter(letter: Reservation, common: Reservation) -> Reservation:
    if letter.allowed == common.allowed:
        return letter
    stricter = letter if letter.allowed is False or common.allowed else common
    return replace(stricter, stricter_of=(letter, common))


def _names(groups: list[Group]) -> str:
    return shown(", ".join(name for group in groups for name in group.names[:8]))
