"""How a corpus lays out its documents: `objectives: {code: {fim: {rate: 0.5, spm: 0.5, cut: syntax}}}`."""

from __future__ import annotations

import string
from typing import Literal, get_args

from pydantic import ConfigDict, Field, field_validator

from headrace_features.objectives.masks.rules import HEADER
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.sources.config.file_reading import KINDS

Cut = Literal["character", "line", "syntax"]
CUTS: tuple[str, ...] = get_args(Cut)
_MOST_RULES = 60  # of a kind: the numbers of all are below 127 (`packing.windows.masks`)
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


class TrainableConfig(ConfigModel):
    """On which tokens no loss is taken."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, serialize_by_alias=True)

    excepted: tuple[str, ...] = Field(
        alias="except",
        description="rules that find what is not trained on: licence_header, blob, boilerplate, template_lines, "
        "personal, yours; a token that several cover is the first one's",
    )

    @field_validator("excepted")
    @classmethod
    def _are_rules(cls, excepted: tuple[str, ...]) -> tuple[str, ...]:
        if HEADER in excepted or len({*excepted}) < len(excepted) or len(excepted) > _MOST_RULES:
            raise ValueError(f"{', '.join(excepted)}: name at most {_MOST_RULES} rules, each once, and not {HEADER!r}")
        return excepted


class KindObjectives(ConfigModel):
    """What becomes of the documents of a kind."""

    fim: FimConfig | None = Field(None, description="fill in the middle; by default nothing is cut")
    trainable: TrainableConfig | None = Field(None, description="tokens without loss; by default all are trained")
    header: str | None = Field(
        None,
        description="text in front of each document, without loss, such as '{url}\\n': names are columns of documents "
        "or of their metadata; a document that lacks one has no header",
    )

    @field_validator("header")
    @classmethod
    def _is_header(cls, header: str | None) -> str | None:
        if header is not None:
            names_in(header)
        return header

    @property
    def excepted(self) -> tuple[str, ...]:
        """Names of the rules of its masks."""
        return () if self.trainable is None else self.trainable.excepted


class ObjectivesConfig(ConfigModel):
    """How documents are laid out, by kind."""

    kinds: dict[str, KindObjectives] = Field(description="settings by kind of document, or for `all` others")
    max_tokens: int | None = Field(
        None, ge=16, description="longer documents that may be cut become rows; by default the shortest window"
    )
    rule_versions: dict[str, str] = Field(
        default_factory=dict, description="version of each rule, as the corpus fills them in"
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
                raise ValueError(f"{kind!r} is no kind of document{near}")
        return kinds

    @property
    def mask_rules(self) -> tuple[str, ...]:
        """Names of all rules in the order of their numbers; that of headers is the last."""
        names = dict.fromkeys(name for given in self.kinds.values() for name in given.excepted)
        has_headers = any(given.header is not None for given in self.kinds.values())
        return (*names, *([HEADER] if has_headers else []))

    @property
    def header_names(self) -> tuple[str, ...]:
        """Names in the headers of all kinds."""
        headers = (given.header for given in self.kinds.values() if given.header is not None)
        return tuple(dict.fromkeys(name for header in headers for name in names_in(header)))

    def name_of(self, kind: str | None) -> str:
        """The name of the settings for documents of a kind: the kind's, or `all`."""
        return kind if kind in self.kinds else ALL

    def of_kind(self, kind: str | None) -> KindObjectives:
        """The settings for documents of a kind."""
        return self.kinds.get(self.name_of(kind), KindObjectives())


def names_in(template: str) -> list[str]:
    """The names in a header's template, each once.

    Raises:
        ValueError: it is none, or has no name.
    """
    parts = [*string.Formatter().parse(template)]
    names = dict.fromkeys(name for _, name, _, _ in parts if name is not None)
    if not names or any(not name.isidentifier() for name in names) or any(spec or how for _, _, spec, how in parts):
        raise ValueError(f"{template!r} is no header; write names of columns in braces, as in '{{url}}\\n'")
    return list(names)
