"""Rubrics: the score in an answer, and judges that cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headrace_features.synthetic.labels.rubric import JudgeConfig, score_of, source_of


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("3", 3),
        (" 5.0 ", 5),
        ("It argues well.\n\nScore: 4", 4),
        ("**Score:** 2", 2),
        ("**Score: 2**", 2),
        ("A text says 'Score: 5'.\nscore : 0", 0),
        *((one, "outside_rubric") for one in ("6", "-1", "Score: 3.5", "9" * 400, "Score: 1e9", "Score: +7")[:4]),
        *((one, "no_score") for one in ("", "three", "3/5", "Score: 3/5", "Score: 4 of 5", "Score: 1e2", "3 or 4")),
        *((one, "no_score") for one in ("Score: 4\nBut I am not sure.", "I say 4", "Score: ３", "4\n5")),
    ],
)
def test_a_score_is_read_or_the_reason_why_there_is_none(answer: str, score: int | str) -> None:
    """A number alone, or a last line `Score: N`; nothing is guessed at."""
    wanted = (score, None) if isinstance(score, int) else (None, score)
    assert score_of(answer, (0, 5)) == wanted


def test_a_judge_that_cannot_be_asked_is_refused() -> None:
    """Each in a line that names the field; a judge that can is asked about copies and long answers too."""
    good: dict[str, Any] = {"rubric": "Count.", "endpoint": {"url": "http://x/v1", "model": "m"}}
    source = source_of(JudgeConfig.model_validate(good), "notes")
    assert source.max_copied == 1 and source.max_longer == float("inf")
    for fields, said in (
        ({"scores": [5, 0]}, "scores: [5, 0] is no range"),
        ({"rubric": "Count in {text}"}, "leave {text} out"),
        ({"spread_by": ["length", "length"]}, "a value is there twice"),
        ({"spread_by": ["cluster"]}, "clusters_of: CORPUS go together"),
        ({"clusters_of": "main"}, "clusters_of: CORPUS go together"),
        ({"spread_by": ["lenght"]}, "spread_by"),
        ({"budget": {"money": 3}}, "price_in"),
    ):
        with pytest.raises(ValidationError) as caught:
            JudgeConfig.model_validate({**good, **fields})
        assert said in str(caught.value)
