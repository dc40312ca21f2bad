"""What sites say about the use of their pages, read from bytes that somebody fetched: no module here does I/O.

    robots   robots.txt (RFC 9309) and the Content-Signal and License lines in it
    rsl      Really Simple Licensing 1.0
    tdmrep   /.well-known/tdmrep.json
    ai_txt   Spawning's ai.txt
    headers  X-Robots-Tag, tdm-reservation and Link headers; the same as meta elements of a page

Of TDMRep's three places an element of the page overrides a header, and that the file of the site; where nobody wants
to rank them, `strictest` takes the no of any.

Readers take any bytes and never raise. The fetching side calls one only with the body of a success (2xx). By RFC 9309,
2.3.1, an answer 4xx is a silent site (all is allowed), 5xx or no answer an unreachable one (nothing is).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from headrace_features.rights.register.register import Scope

Signal = Literal[
    "robots.txt", "content-signal", "rsl", "tdmrep.json", "tdm-header", "tdm-meta", "ai.txt", "x-robots-tag", "meta"
]

_SHOWN: Final = 300

__all__ = ["Reservation", "Scope", "Signal", "shown", "strictest", "utf_8"]


@dataclass(frozen=True)
class Reservation:
    """What a signal says about a use of a page.

    Attributes:
        signal: where it is said.
        scope: `all`, the page is (not) to be taken; `training`, it is (not) to be trained on.
        allowed: whether the use is; None where the signal does not speak of this page or use.
        line: number of the line that decided, from 1; 0 where there is none.
        group: of whom or what the line speaks: agents of a group of robots.txt, a location, a pattern.
        text: the line, header or element that decided, as it is written; at most 300 characters.
        stricter_of: the readings that differ, where a file can be read in two ways; this one is the stricter.
    """

    signal: Signal
    scope: Scope
    allowed: bool | None
    line: int = 0
    group: str = ""
    text: str = ""
    stricter_of: tuple[Reservation, ...] = ()

    @property
    def evidence(self) -> str:
        """A reference for the register: `robots.txt line 12 (GPTBot, CCBot): Disallow: /`."""
        where = f" line {self.line}" if self.line else ""
        group = f" ({self.group})" if self.group else ""
        return f"{self.signal}{where}{group}: {self.text}"


def strictest(reservations: Iterable[Reservation]) -> Reservation | None:
    """The first that forbids, else the first that allows, else None: none of them speaks of it."""
    spoken = [reservation for reservation in reservations if reservation.allowed is not None]
    return min(spoken, key=lambda reservation: bool(reservation.allowed), default=None)


def utf_8(data: bytes) -> bytes:
    """A file as UTF-8 without its mark: some editors save all that they save in UTF-16, and the mark says so."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace").encode("utf-8", "surrogatepass")
    return data.removeprefix(b"\xef\xbb\xbf")


def shown(text: str) -> str:
    """A line for people and tables: without control characters, at most 300 characters."""
    return "".join(character if character.isprintable() else " " for character in text[:_SHOWN]).strip()
