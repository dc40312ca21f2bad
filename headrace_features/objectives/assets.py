"""The part `objectives` of a corpus: the step that lays out and encodes its documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dagster_project.assets.parts import MaskedTokens
from headrace_features.objectives.tokens import objective_tokens
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.tokens.tokens import TOKENS


def objectives_part(
    corpus: str,
    given: Mapping[str, Any],
    inputs: Mapping[str, Source],
    each: Callable[[str], tuple[str, ...]],
    window_tokens: int,
) -> MaskedTokens:
    """The step for the tokens of a corpus with objectives.

    Args:
        corpus: its name.
        given: settings by kind of document, as declared.
        inputs: of the step `tokens`.
        each: names a table of each of its datasets.
        window_tokens: of the shortest window; longer documents that may be cut become several rows.
    """
    return MaskedTokens(
        renamed(objective_tokens, TOKENS.name), inputs, {"max_tokens": window_tokens, "kinds": dict(given)}
    )
