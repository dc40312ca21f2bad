"""What the core asks about answers: which datasets have some, whose descendants they are, deletion, progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyiceberg.catalog import Catalog

from headrace_features.synthetic.attempts import datasets_with_answers
from headrace_features.synthetic.families import descendants, roots
from headrace_features.synthetic.fetch import reopen_requests
from headrace_features.synthetic.labels.answers import forget_labels, reopen_labels
from headrace_features.synthetic.progress import progress
from spark_jobs.sources.landing.derivations import Derivation, Gauge


def _reopen(name: str, reasons: Collection[str], catalogue: Catalog, wait_seconds: float) -> Mapping[str, int]:
    """Of a judge its labels, of a dataset its requests."""
    dataset, _, judge = name.partition(".")
    if judge:
        return reopen_labels(dataset, judge, reasons, catalogue, wait_seconds)
    return reopen_requests(dataset, reasons, catalogue, wait_seconds)


ANSWERS = Derivation(
    *(datasets_with_answers, descendants, roots, forget_labels, _reopen, progress),
    (
        Gauge("answers_accepted", "answers of a model that are documents", "", lambda asked: asked.accepted),
        Gauge("answers_refused", "answers of a model that are none", "reason", lambda asked: asked.refused),
        Gauge("requests_waiting", "requests that wait or are in flight", "", lambda asked: asked.waiting),
        Gauge("workers", "processes that have requests", "", lambda asked: asked.workers),
        Gauge("prompt_tokens", "tokens of prompts in all runs", "", lambda asked: asked.tokens_in),
        Gauge("answer_tokens", "tokens of answers in all runs", "", lambda asked: asked.tokens_out),
    ),
)
