"""robots.txt by the letter of RFC 9309."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_features.rights.signals import Reservation


@dataclass(frozen=True)
class Robots:
    """A robots.txt as it was read.

    Attributes:
        licences: addresses of its `License` lines (RSL), in order.
        is_cut: whether it was longer than is read.
    """

    licences: tuple[str, ...] = ()
    is_cut: bool = False

    def page(self, agent: str, url: str) -> Reservation:
        """Whether an agent may take a page (scope `all`), an address or a path with its query."""
        raise NotImplementedError

    def content_signal(self, agent: str, use: str = "ai-train") -> Reservation:
        """What `Content-Signal` says of a use (`search`, `ai-input`, `ai-train`) to an agent (scope `training`)."""
        raise NotImplementedError


def read_robots(data: bytes) -> Robots:
    """Read a robots.txt."""
    raise NotImplementedError
