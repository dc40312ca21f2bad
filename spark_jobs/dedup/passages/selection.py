"""The selection `passages`: spans of 50 words that documents share, found, or cut but for the first."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, StrictBool, model_validator

from spark_jobs.dedup.passages.anchors import anchors
from spark_jobs.dedup.passages.passages import passages
from spark_jobs.dedup.passages.trimmed import CUT_TEXTS, TRIMMED, TrimmedConfig, trimmed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.stages import SelectionStage


class PassagesSettings(TrimmedConfig):
    """Whether passages are cut, and which."""

    cut: StrictBool = Field(False, description="cut the later occurrences; else they are found alone")

    @model_validator(mode="after")
    def _rules_are_of_cutting(self) -> PassagesSettings:
        rules = self.model_fields_set - {"cut"}
        if rules and not self.cut:
            raise ValueError(f"{min(rules)} is of cutting; write cut: true too")
        return self


def _steps(config: PassagesSettings, place: SelectionPlace) -> Iterator[Bound]:
    """The steps that find passages, and the one that cuts them."""
    read: dict[str, Source] = {"survivors": place.survivors, "texts": place.each("texts")}
    yield Bound(anchors, {**read, **place.own("members")}, {})
    found: dict[str, Source] = {"texts": read["texts"], **place.own("anchors", "revisions")}
    yield Bound(passages, found, {"cut_from": config.min_words} if config.cut else {})
    if config.cut:
        rules = config.model_dump(exclude_unset=True, exclude={"cut"})
        yield Bound(trimmed, {**read, **place.own("passages")}, rules)


PASSAGES = Selection(
    SelectionStage(
        "passages",
        TRIMMED.name,
        CUT_TEXTS.name,
        "with enough text of their own",
        "dagster_project.inspect.documents.selection_findings:passage_finding",
        cuts=True,
    ),
    PassagesSettings,
    _steps,
    selects=lambda config: config.cut,
)
