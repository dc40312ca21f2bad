"""How far the asking of a dataset came, over all of its runs and workers, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import Catalog

from headrace_features.synthetic.attempts import AnswerStore, datasets_with_answers
from headrace_features.synthetic.generated_config import Budget

_RATE_SECONDS: Final = 60


@dataclass(frozen=True)
class AskingProgress:
    """Answers, requests and tokens of a dataset.

    Attributes:
        accepted: answers that are documents.
        refused: answers that are none, by reason.
        waiting: requests in the queue, those in flight included.
        workers: processes with requests now.
        a_minute: answers in the last minute.
        tokens_in: tokens of prompts, as the endpoint reported them.
        tokens_out: of answers, likewise.
        unknown: answers without a reported usage.
    """

    accepted: int
    refused: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    workers: int = 0
    a_minute: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    unknown: int = 0

    def line(self, source: Mapping[str, Any] | None = None) -> str:
        """The progress in one line for people, with the price of the tokens where the declared source has prices."""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.refused.items()))
        parts = [f"{self.accepted:,} answers accepted", *([f"refused: {reasons}"] if reasons else [])]
        if self.waiting:
            parts.append(f"{self.waiting:,} requests wait, {self.workers} workers, {self.a_minute:,} answers a minute")
        budget = Budget.model_validate((source or {}).get("budget", {}))
        price = budget.price(self.tokens_in, self.tokens_out)
        money = f", {price:,.2f} by the prices" if price is not None else ""
        parts.append(f"{self.tokens_in:,} + {self.tokens_out:,} tokens{money}")
        parts += [f"the usage of {self.unknown:,} answers is not known"] if self.unknown else []
        return "; ".join(parts)

    def facts(self, budget: Budget) -> dict[str, Any]:
        """The progress as values for an asset's page, with the price of the tokens where the budget has prices."""
        price = budget.price(self.tokens_in, self.tokens_out)
        return {
            "answers_accepted": self.accepted,
            "answers_refused": sum(self.refused.values()),
            **({"answers_refused_by_reason": dict(sorted(self.refused.items()))} if self.refused else {}),
            "tokens_of_prompts": self.tokens_in,
            "tokens_of_answers": self.tokens_out,
            **({"answers_of_unknown_usage": self.unknown} if self.unknown else {}),
            **({"price": round(price, 4)} if price is not None else {}),
        }


def progress(catalogue: Catalog) -> dict[str, AskingProgress]:
    """The progress of every model-asking dataset of a lake, by its name."""
    return {name: progress_of(AnswerStore(catalogue, name)) for name in datasets_with_answers(catalogue)}


def progress_of(store: AnswerStore) -> AskingProgress:
    """The progress of one dataset."""
    outcomes, (tokens_in, tokens_out, unknown) = store.outcomes(), store.spent()
    accepted, (waiting, workers) = outcomes.pop("", 0), store.waiting()
    a_minute = store.answers_since(_RATE_SECONDS) if waiting else 0
    return AskingProgress(accepted, outcomes, waiting, workers, a_minute, tokens_in, tokens_out, unknown)
