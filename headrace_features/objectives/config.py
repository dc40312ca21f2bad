"""How a corpus lays out its documents: `objectives: {code: {fim: {rate: 0.5, spm: 0.5, cut: syntax}}}`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.sources.config.file_reading import KINDS

Cut = Literal["character", "line", "syntax"]
CUTS: tuple[str, ...] = get_args(Cut)
ALL = "all"  # in place of a kind: of all kinds that are not named


class SentinelNames(ConfigModel):
    """Names of the tokens before a prefix, a middle and a suffix."""

    prefix: str = Field(min_length=1, description="token before what stands in front of the middle")
    middle: str = Field(min_length=1, description="token before what is filled in")
    suffix: str = Field(min_length=1, description="token before what stands behind the middle")


class FimConfig(ConfigModel):
    """Which documents are cut into prefix, middle and suffix, where, and how they are written."""

    rate: float = Field(0.5, ge=0, le=1, description="share of documents (rows of longer ones) that are cut")
    spm: float = Field(0.5, ge=0, le=1, description="share of these with the suffix in front of the prefix")
    spm_order: Literal["prefix_suffix", "suffix_prefix"] = Field(
        "prefix_suffix",
        description="prefix_suffix writes SPM as PRE SUF suffix MID prefix middle (Megatron, StarCoder, Code Llama), "
        "suffix_prefix as SUF suffix PRE prefix MID middle",
    )
    cut: Cut = Field(
        "character",
        description="where: between any characters, at ends of lines, or around a node of the grammar (statement, "
        "block, argument list, expression); languages without a parser are cut by lines",
    )
    least: int = Field(10, ge=0, description="shorter texts, in characters, are left whole")
    seed: int = Field(0, ge=0, lt=1 << 64, description="chooses anew what is cut, where and how")
    sentinels: SentinelNames | None = Field(
        None, description="tokens of the tokenizer; by default those that its models were trained with"
    )


class KindObjectives(ConfigModel):
    """What becomes of the documents of a kind."""

    fim: FimConfig | None = Field(None, description="fill in the middle; by default nothing is cut")


class ObjectivesConfig(ConfigModel):
    """How documents are laid out, by kind."""

    kinds: dict[str, KindObjectives] = Field(description="settings by kind of document, or for `all` others")
    max_tokens: int | None = Field(
        None, ge=16, description="longer documents that may be cut become rows; by default the shortest window"
    )
    batch_characters: int = Field(
        1 << 18, ge=1, description="characters encoded at once", json_schema_extra={"affects_rows": False}
    )
    use_fast_encoder: bool = Field(
        True,
        description="whether texts that the tokenizer's certificate covers go through the fast encoder",
        json_schema_extra={"affects_rows": False},
    )

    @field_validator("kinds")
    @classmethod
    def _are_kinds(cls, kinds: dict[str, KindObjectives]) -> dict[str, KindObjectives]:
        there = (*KINDS, ALL)
        for kind in kinds:
            if kind not in there:
                near = did_you_mean(kind, there)
                raise ValueError(f"{kind!r} is no kind of document{near}; kinds are {', '.join(there)}")
        return kinds

    def name_of(self, kind: str | None) -> str:
        """The name of the settings for documents of a kind: the kind's, or `all`."""
        return kind if kind in self.kinds else ALL

    def of_kind(self, kind: str | None) -> KindObjectives:
        """The settings for documents of a kind."""
        return self.kinds.get(self.name_of(kind), KindObjectives())
