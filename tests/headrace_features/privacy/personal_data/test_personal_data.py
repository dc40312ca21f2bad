"""The scorer of personal data, as a dataset declares it."""

from __future__ import annotations

from headrace_features.privacy.personal_data.personal_data import PersonalDataConfig, personal_data
from spark_jobs.filters.scorer import check_scorer

TEXT = "Mail ada@lovelace.org, order 4111111111111111"


def test_the_scorer_gives_what_it_declares() -> None:
    """Whatever the text; a lower bound shows what is less sure."""
    found = check_scorer(personal_data, more=[TEXT]).to_pylist()[-1]
    assert [(span["kind"], TEXT[span["start"] : span["end"]]) for span in found["spans"]] == [("mail", TEXT[5:21])]
    assert (found["mail_count"], found["card_count"]) == (1, 0)
    unsure = check_scorer(personal_data, PersonalDataConfig(min_confidence=0.1), [TEXT]).to_pylist()[-1]
    assert unsure["card_count"] == 1
