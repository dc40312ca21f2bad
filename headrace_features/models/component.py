"""Declare models in YAML, as a Dagster component.

type: headrace.Model
attributes:
  name: quality
  train: {reference: [wiki], raw: [crawl], min_auc: 0.9}
"""

from __future__ import annotations

from typing import Any

import dagster as dg
from pydantic import Field

from dagster_project.components import NAME
from dagster_project.restrictions import parse_visibility
from headrace_features.models.assets import ModelDeclaration, model_assets


class Model(dg.Component, dg.Model, dg.Resolvable):
    """A classifier of texts, trained on datasets; a run enters it into the registry, where scorers find it."""

    name: str = Field(pattern=NAME, description="its namespace in the lake, and its name in the registry")
    train: dict[str, Any] = Field(
        description="{reference: [DATASET, ..], raw: [DATASET, ..]} or {table: .., label_column: ..}; min_auc, .."
    )
    owners: list[str] = Field(default_factory=list, description="team:NAME or e-mail addresses")
    visibility: Any = Field(
        "public", description="who may see its rows: public, on_device, or {restricted: [TEAM, ..]}"
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The model's assets."""
        visibility = parse_visibility(f"model {self.name}", self.visibility)
        declared = ModelDeclaration(self.name, self.train, tuple(self.owners), visibility)
        return dg.Definitions(assets=model_assets(declared))
