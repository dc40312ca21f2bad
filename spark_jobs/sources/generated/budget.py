"""A budget in tokens and money: reserved before a request is sent, settled by what it turned out to use."""

from __future__ import annotations

from typing import Final

from spark_jobs.sources.config.generated_config import Budget
from spark_jobs.sources.generated.answers import Answer
from spark_jobs.sources.generated.requests import Request

_FIRST_GUESS: Final = 0.5  # tokens of a prompt for each of its bytes, until an answer says


class Spending:
    """The tokens spent and reserved. A reservation is the most that a request can cost, by the answers so far."""

    def __init__(self, budget: Budget, tokens_in: int, tokens_out: int) -> None:
        """Begin with what earlier runs spent."""
        self._budget = budget
        self._tokens_in, self._tokens_out = float(tokens_in), float(tokens_out)
        self._tokens_a_byte, self._seen = _FIRST_GUESS, False
        self._held: dict[str, tuple[float, float]] = {}
        self._held_in = self._held_out = 0.0

    def reserve(self, request: Request) -> bool:
        """Whether a request fits; then its cost is reserved until it is settled."""
        wanted = (_prompt_bytes(request) * self._tokens_a_byte, float(request.body["max_tokens"]))
        tokens_in = self._tokens_in + self._held_in + wanted[0]
        tokens_out = self._tokens_out + self._held_out + wanted[1]
        if self._budget.tokens is not None and tokens_in + tokens_out > self._budget.tokens:
            return False
        price = self._budget.price(tokens_in, tokens_out)
        if self._budget.money is not None and price is not None and price > self._budget.money:
            return False
        self._held[request.key] = wanted
        self._held_in, self._held_out = self._held_in + wanted[0], self._held_out + wanted[1]
        return True

    def settle(self, request: Request, answer: Answer | None) -> None:
        """Count what an attempt used; where the endpoint does not say, what was reserved. None: nothing came back."""
        held_in, held_out = self._held.pop(request.key)
        self._held_in, self._held_out = self._held_in - held_in, self._held_out - held_out
        if answer is None:
            return
        if answer.tokens_in is not None:
            ratio = answer.tokens_in / max(_prompt_bytes(request), 1)
            self._tokens_a_byte = max(ratio, self._tokens_a_byte if self._seen else 0.0)
            self._seen = True
        self._tokens_in += held_in if answer.tokens_in is None else answer.tokens_in
        self._tokens_out += held_out if answer.tokens_out is None else answer.tokens_out


def _prompt_bytes(request: Request) -> int:
    """Size of what is sent, as UTF-8."""
    return sum(len(message["content"].encode(errors="replace")) for message in request.body["messages"])
