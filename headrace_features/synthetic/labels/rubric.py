"""A judge: whom to ask about which sample, by which rubric; and the score in an answer."""

from __future__ import annotations

import math
import re
from typing import Final, Literal

from pydantic import Field, model_validator

from headrace_features.synthetic.generated_config import (
    BEGIN_TEXT,
    END_TEXT,
    Asking,
    Budget,
    GeneratedSource,
    ModelEndpoint,
    Parents,
    PromptTemplate,
)
from spark_jobs.lake.declare.step import ConfigModel

_NUMBER: Final = r"([-+]?[0-9]+(?:\.[0-9]+)?)"
_ALONE: Final = re.compile(_NUMBER)
_LAST_LINE: Final = re.compile(rf"\**score\**\s*:\s*\**\s*{_NUMBER}\s*\**", re.IGNORECASE)
_FIRST, _SECOND = "first", "second"


class JudgeConfig(ConfigModel):
    """A rubric, the endpoint that scores by it, and its sample."""

    rubric: str = Field(min_length=1, description="what is scored, and what each score means")
    scores: tuple[int, int] = Field((0, 5), description="lowest and highest score; whole numbers")
    endpoint: ModelEndpoint = Field(description="endpoint and model that score")
    sample: int = Field(5000, ge=1, description="number of documents that are scored; all of a smaller dataset")
    spread_by: tuple[Literal["kind", "language", "length", "cluster"], ...] = Field(
        ("language", "length"), description="column by which the sample is stratified"
    )
    clusters_of: str | None = Field(None, description="corpus whose clusters are the strata of `cluster`")
    repeat: float = Field(0.05, ge=0, le=1, description="share of the sample that is asked about twice")
    seed: int = Field(0, description="seed of the sample")
    budget: Budget = Field(
        Budget(), description="most requests, tokens and money over all runs", json_schema_extra={"affects_rows": False}
    )
    asking: Asking = Field(
        Asking(), description="requests at once, retries and timeouts", json_schema_extra={"affects_rows": False}
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> JudgeConfig:
        """Refuse scores without a range, a rubric with a place for the text, and clusters of no corpus."""
        if self.scores[0] >= self.scores[1]:
            raise ValueError(f"scores: [{self.scores[0]}, {self.scores[1]}] is no range; write [lowest, highest]")
        if "{text}" in self.rubric:
            raise ValueError("rubric: leave {text} out; the text follows the rubric")
        if len(set(self.spread_by)) < len(self.spread_by):
            raise ValueError("spread_by: a value is there twice; leave one out")
        if ("cluster" in self.spread_by) != (self.clusters_of is not None):
            raise ValueError("spread_by: cluster and clusters_of: CORPUS go together; write both or neither")
        return self


def templates_of(judge: JudgeConfig) -> tuple[PromptTemplate, PromptTemplate]:
    """Templates of the first and of the second question about a text; both have the same words."""
    low, high = judge.scores
    score_line = f"End your answer with a line 'Score: N', where N is a whole number from {low} to {high}."
    user = f"{judge.rubric}{BEGIN_TEXT}{{text}}{END_TEXT}{score_line}"
    return PromptTemplate(name=_FIRST, user=user), PromptTemplate(name=_SECOND, user=user)


def source_of(judge: JudgeConfig, dataset: str) -> GeneratedSource:
    """A judge as `generated.asking` asks it: an answer is kept whatever it copies and however long it is."""
    return GeneratedSource(
        parents=Parents(dataset=dataset),
        templates=templates_of(judge),
        endpoint=judge.endpoint,
        budget=judge.budget,
        asking=judge.asking,
        max_copied=1,
        max_longer=math.inf,
    )


def score_of(answer: str, scores: tuple[int, int]) -> tuple[int | None, str | None]:
    """The score in an answer, or the reason why there is none: no_score, outside_rubric.

    It gives one if it is a number alone, or its last line is `Score: N`. A number that is no score of the rubric, as
    3.5 or 9, is outside of it; nothing else in an answer is interpreted.
    """
    text = answer.strip()
    match = _ALONE.fullmatch(text) or _LAST_LINE.fullmatch(text.rpartition("\n")[2].strip())
    if match is None:
        return None, "no_score"
    value = float(match[1])
    if not scores[0] <= value <= scores[1] or not value.is_integer():
        return None, "outside_rubric"
    return int(value), None
