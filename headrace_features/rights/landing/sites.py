"""What a site says to our agent: its files as they were answered, and what its answers and pages say of themselves.

    robots.txt 200   Disallow for our agent's group      refused, opted_out: the line and group that decided
               404   silent: there is none               nothing is refused
               503   unreachable: it could not be asked  everything is, site_unreachable (RFC 9309, 2.3.1.4)

Reservations of training are kept to as those of everything: what lands here is there to be trained on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from headrace_features.rights.landing.answers import State, answer_row
from headrace_features.rights.signals import Reservation, strictest
from headrace_features.rights.signals.ai_txt import AiTxt, read_ai_txt
from headrace_features.rights.signals.headers import read_headers, read_html
from headrace_features.rights.signals.robots import Robots, read_robots
from headrace_features.rights.signals.rsl import read_rsl
from headrace_features.rights.signals.tdmrep import read_tdmrep
from spark_jobs.sources.refusals import Reason, Refusal

_ROBOTS: Final = "/robots.txt"
_READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    _ROBOTS: read_robots,
    "/.well-known/tdmrep.json": read_tdmrep,
    "/ai.txt": read_ai_txt,
}
_MARKUP = re.compile(rb"\s*<(?:!doctype|html|head|meta)\b", re.I)
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_WORDS: Final = (b"noai", b"noimageai", b"tdm-reservation", b"rsl+xml")
_MOST_LICENCES = 3  # documents of RSL, anywhere in the web, which a robots.txt may have us ask for
_NOT_NOW = (408, 421, 425, 429)  # of 4xx, those that say nothing of the file: it may be there the next time


class HostSite:
    """A scheme, host and port; answers to its files come one by one, and a later one takes the place of an earlier."""

    def __init__(self, agent: str, note: Callable[[dict[str, Any]], None]) -> None:
        """Know nothing yet.

        Args:
            agent: the name by which the site may address us.
            note: is given each answer with a meaning.
        """
        self._agent, self._note = agent, note
        self._files = dict[str, tuple[Any, str]]()  # by address: as it was read, and when that was
        self._unreachable = dict[str, str]()

    def files(self, origin: str) -> list[str]:
        """Addresses of its files, and of the licences (RSL) that its robots.txt names, once that was read."""
        robots, _ = self._files.get(origin + _ROBOTS, (None, ""))
        named = () if robots is None else robots.licences[:_MOST_LICENCES]
        licences = [urljoin(f"{origin}/", licence) for licence in named]
        return [*(origin + path for path in _READERS), *licences]

    def hear(self, url: str, status: int | None, body: bytes, at: str | None = None) -> bool:
        """Take an answer about one of its files; false where it could not be asked for.

        Args:
            url: of the file.
            status: of the answer; None where there was none.
            body: likewise.
            at: when it came, if not now.
        """
        parts, when = urlsplit(url), f" of {at}" if at else ""
        origin, read = f"{parts.scheme}://{parts.netloc}", _READERS.get(parts.path, read_rsl)
        if status is not None and 300 <= status < 400:
            return True  # an archive has what it leads to as a record of its own
        self._files.pop(url, None)
        self._unreachable.pop(url, None)
        state: State = "silent"
        verdict = "there is none"
        if status is None or status >= 500 or status in _NOT_NOW:
            answer = f"status {status}" if status else "no answer"
            state, verdict = "unreachable", f"{url}{when} could not be asked for: {answer}"
            self._unreachable[url] = verdict
        elif status < 300:
            self._files[url] = read(body), when
            decided = strictest(self._reservations(url, f"{origin}/"))
            state, verdict = "said", f"nothing to {self._agent}" if decided is None else decided.evidence
        what = "rsl" if read is read_rsl else parts.path.rpartition("/")[2]
        self._note(answer_row(what, url, state, verdict, status, body if state == "said" else None))
        return state != "unreachable"

    def refusal(self, url: str) -> Refusal | None:
        """The refusal of an address, by the answers so far."""
        for fault in self._unreachable.values():
            return Refusal(Reason.SITE_UNREACHABLE, f"{fault}; it is asked again by the next run")
        for file, (_, when) in self._files.items():
            if refusal := _refusal(strictest(self._reservations(file, url)), when):
                return refusal
        return None

    def page_refusal(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Refusal | None:
        """The refusal of a page by the headers of its answer, and by its own words."""
        reservations = [*read_headers(headers, self._agent).reservations]
        media_type = next((value.lower() for name, value in headers if name.lower() == "content-type"), "")
        if ("html" in media_type or (not media_type and _MARKUP.match(body))) and _may_speak(body):
            page = read_html(body, self._agent)
            reservations += [*page.reservations, *(read_rsl(licence).page(url) for licence in page.inline)]
        if (decided := strictest(reservations)) is not None:
            self._note(answer_row("page", url, "said", decided.evidence))
        return _refusal(decided, "")

    def _reservations(self, file: str, url: str) -> Iterator[Reservation]:
        """What a file says of a page."""
        read, _ = self._files[file]
        if isinstance(read, Robots | AiTxt):
            yield read.page(self._agent, url)
        else:
            yield read.page(url)
        if isinstance(read, Robots):
            yield read.content_signal(self._agent)


def _may_speak(body: bytes) -> bool:
    """Whether a page can say anything to an agent; nearly none does, and this looks at 3 GB of pages a second."""
    lowered = body.lower()
    return body.startswith(_UTF_16) or any(word in lowered for word in _WORDS)


def _refusal(decided: Reservation | None, when: str) -> Refusal | None:
    """The refusal by what decided, with its other reading where a file can be read in two ways."""
    if decided is None or decided.allowed is not False:
        return None
    others = [other.evidence for other in decided.stricter_of if other.allowed]
    read_otherwise = f"; read otherwise it allows: {others[0]}" if others else ""
    return Refusal(Reason.OPTED_OUT, f"{decided.evidence}{when}{read_otherwise}")
