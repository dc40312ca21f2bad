"""The part `losses` of a corpus: the step that adds up a run's losses by document, for selections and cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link
from headrace_features.losses.document_losses import DocumentLossesConfig, document_losses
from headrace_features.losses.tables import LOSSES


def losses_part(corpus: str, declared: Mapping[str, Any]) -> Iterator[Link]:
    """The step of `losses: {of: NAMESPACE, run: NAME}`.

    Args:
        corpus: its name.
        declared: as written; `of` is the namespace whose tables the run was trained on, the corpus's by default.

    Raises:
        DefinitionError: a setting is wrong.
    """
    config = dict(declared)
    of = str(config.pop("of", corpus))
    bind_config(DocumentLossesConfig, f"corpus {corpus}: losses", config)
    read = {"losses": f"{of}.{LOSSES.name}", "members": f"{of}.members"}  # whose readers may see the losses
    yield document_losses, read, config, "selection"
