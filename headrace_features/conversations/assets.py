"""The part `conversations` of a corpus: the step that renders and encodes its documents, with masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dagster_project.assets.parts import MaskedTokens
from headrace_features.conversations.tokens import conversation_tokens
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.tokens.tokens import TOKENS


def conversation_part(
    corpus: str,
    given: Mapping[str, Any],
    inputs: Mapping[str, Source],
    each: Callable[[str], tuple[str, ...]],
    window_tokens: int,
) -> MaskedTokens:
    """The step for the tokens of a corpus of conversations.

    Args:
        corpus: its name.
        given: as declared.
        inputs: of the step `tokens`.
        each: names a table of each of its datasets.
        window_tokens: of the shortest window; longer conversations become several rows.
    """
    read = {name: source for name, source in inputs.items() if name != "tokenizer_certificate"}
    step = renamed(conversation_tokens, TOKENS.name)
    return MaskedTokens(step, {**read, "documents": each("documents")}, {"max_tokens": window_tokens, **given})
