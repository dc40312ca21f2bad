"""What HTTP headers and meta elements of a page say of its training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace_features.rights.signals import Reservation


@dataclass(frozen=True)
class PageSignals:
    """What a page says of itself.

    Attributes:
        reservations: what it says, each of scope `training`; empty where it says nothing.
        licences: addresses of RSL documents that it names.
        other: words of its robots headers and elements that are no answer (`noindex`, unknown ones), with counts.
    """

    reservations: tuple[Reservation, ...]
    licences: tuple[str, ...]
    other: Mapping[str, int]


def read_headers(headers: Iterable[tuple[str, str]], agent: str) -> PageSignals:
    """What X-Robots-Tag, tdm-reservation and Link headers say to an agent; a name may come several times."""
    raise NotImplementedError


def read_html(data: bytes, agent: str) -> PageSignals:
    """What meta, link and script elements of a page say to an agent."""
    raise NotImplementedError
