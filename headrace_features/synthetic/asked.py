"""What asking came to, and whether the endpoint, or what is declared of it, is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from headrace_features.synthetic.attempts import FAILED, REJECTED, Landed
from headrace_features.synthetic.faults import commonest, why

_FIRST: Final = 50  # requests that end for one reason, without an accepted answer, or fail in a row: then the run stops
_MOST_ENDS: Final = 10_000  # that are remembered: those in flight at a stop are some of them


@dataclass
class Asked:
    """What asking came to. Failed and rejected requests ended for one reason: no answer came.

    Attributes:
        accepted: answers that are documents.
        refused: answers and requests that are none, by reason.
        attempts: sent requests.
        stopped: why it ended before all was asked; empty where it did not.
        hopeless: whether it would end so again, because the endpoint or what is declared of it is wrong.
        said: what the endpoint said of requests without an answer, and how often.
        in_a_row: failed requests since the last answered one.
    """

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    stopped: str = ""
    hopeless: bool = False
    said: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0
    _ended: list[Landed] = field(default_factory=list)  # while no answer is accepted

    def end(self, ends: Collection[Landed]) -> None:
        """Count what became of a request."""
        self.refused.update(outcome.reason for outcome in ends if outcome.reason)
        self.accepted += sum(not outcome.reason for outcome in ends)
        self.in_a_row = self.in_a_row + 1 if all(outcome.reason == FAILED for outcome in ends) else 0
        if self.accepted:
            self._ended.clear()
        elif len(self._ended) < _MOST_ENDS:
            self._ended += ends

    @property
    def in_vain(self) -> list[str]:
        """Keys of all requests so far, where they are enough to show that no other one would do better; else none."""
        if len({FAILED if reason == REJECTED else reason for reason in self.refused}) != 1:
            return []
        keys = list(dict.fromkeys(outcome.request.first_key for outcome in self._ended))
        return keys if len(keys) >= _FIRST else []

    def why_to_stop(self) -> str:
        """Why no other request would do better, in a line with the mend; empty where one may."""
        if keys := self.in_vain:
            reason = self.refused.most_common(1)[0][0]
            words = commonest(Counter(outcome.detail for outcome in self._ended if outcome.reason == reason))
            return f"the first {len(keys)} requests ended as {why(reason, words)}"
        if self.in_a_row < _FIRST:
            return ""
        return f"{self.in_a_row} requests in a row {why(FAILED, commonest(self.said))}"

    def words(self) -> str:
        """What the endpoint said most often, for the end of a message."""
        return f": {words}" if (words := commonest(self.said)) else ""
