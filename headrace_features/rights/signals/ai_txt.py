"""Spawning's ai.txt: the grammar of robots.txt with extensions, for the training of models and not for crawling.

User-Agent: *
Disallow: *.jpg
Allow: *.txt
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace_features.rights.signals import Reservation, utf_8
from headrace_features.rights.signals.robots import LINE_ENDS, Pattern, Robots, read_robots

# `*.js` is the extension js, where robots.txt has every path with `.js` in it, `/data.json` too.
_EXTENSION = re.compile(rb"(?im)^([ \t]*(?:dis)?allow[ \t]*:[ \t]*\*\.[a-z0-9]+)(?=[ \t]*(?:#|$))")


@dataclass(frozen=True)
class AiTxt:
    """An ai.txt as it was read."""

    robots: Robots

    def page(self, agent: str, url: str) -> Reservation:
        """Whether a page or file may be trained on (scope `training`)."""
        answer = self.robots.page(agent, url.partition("?")[0])
        readings = tuple(_of_training(reading) for reading in answer.stricter_of)
        return replace(_of_training(answer), stricter_of=readings)

    def rules(self, agent: str) -> Iterator[tuple[Pattern, Reservation]]:
        """Patterns that an agent may, or may not train on."""
        return ((pattern, _of_training(answer)) for pattern, answer in self.robots.rules(agent))


def read_ai_txt(data: bytes) -> AiTxt:
    """Read an ai.txt."""
    return AiTxt(read_robots(_EXTENSION.sub(rb"\1$", LINE_ENDS.sub(b"\n", utf_8(data)))))


def _of_training(answer: Reservation) -> Reservation:
    """The same of an ai.txt, which says nothing where no rule matches."""
    allowed = answer.allowed if answer.line else None
    return replace(answer, signal="ai.txt", scope="training", allowed=allowed, text=answer.text.replace("$", ""))
