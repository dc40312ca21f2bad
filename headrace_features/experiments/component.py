"""Declare experiments in YAML, as a Dagster component.

type: headrace.Experiment
attributes:
  name: filtering
  variants:
    raw: {sources: {raw.packed_notes_2048: 1}}
    filtered: {sources: {main.packed_notes_2048: 1}}
  budget_tokens: 1000000
  held_out: {notes: {dataset: notes, share: 0.02}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dagster_project.components import NAME
from headrace_features.experiments.assets import experiment_assets
from headrace_features.experiments.declaration import ExperimentDeclaration, declare_experiment


class Experiment(dg.Component, dg.Model, dg.Resolvable):
    """Variants of the data, trained on by small models, measured and compared."""

    name: str = Field(pattern=NAME, description="its assets are NAME/trained, NAME/evaluated and NAME/compared")
    variants: dict[str, Any] = Field(
        default_factory=dict,
        description="by name: {blend: NAME} or {sources: {TABLE: WEIGHT, ..}}; others are compared to the first",
    )
    mixes: dict[str, Any] | None = Field(
        None,
        description="in place of variants: {sources: {NAME: TABLE, ..}, from: FORMER, target_tokens: .., runs: .., "
        "max_epochs: 4, least: {NAME: SHARE}, aims: {SET: WEIGHT}}",
    )
    budget_tokens: int | None = Field(None, description="tokens of a run, padding left out")
    budget_bytes: int | None = Field(None, description="instead, bytes of text; needed where tokenizers differ")
    seeds: int = Field(5, description="runs of each variant and rate, each with its own weights, order and sample")
    learning_rates: list[float] = Field(
        default_factory=lambda: [3e-3, 3e-4], description="peak learning rates: two, one of them small"
    )
    model_size: Literal["proxy_1m", "proxy_15m", "proxy_125m"] = Field("proxy_1m", description="size of the model")
    command: list[str] = Field(
        default_factory=list, description="instead of model_size: a program of one's own and its arguments"
    )
    held_out: dict[str, Any] = Field(
        default_factory=dict, description="by name: {dataset: NAME, share: 0.02} or {file: PATH, text: FIELD}"
    )
    questions: dict[str, Any] = Field(
        default_factory=dict, description="by name: {file: PATH} of {context, choices, answer} or {context, answer}"
    )
    harness: dict[str, Any] | None = Field(
        None, description="{tasks: [NAME, ..], folder: PATH, limit: ..}: tasks of lm-evaluation-harness"
    )
    near_share: float = Field(
        0.5, description="share of a held-out text in a document, from which the document is left out"
    )
    owners: list[str] = Field(default_factory=list, description="team:NAME or e-mail addresses")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The experiment's assets."""
        return dg.Definitions(assets=experiment_assets(self.declaration(context.path), self.owners))

    def declaration(self, folder: Path) -> ExperimentDeclaration:
        """What it declares; paths are relative to a folder."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "owners"}
        return declare_experiment(values, folder)
