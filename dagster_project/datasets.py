"""Make the assets of a dataset: from its source to verdicts and dependencies, as tables in its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Presentation, step_asset
from spark_jobs.code.dependencies import dependencies
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.run.binding import Source
from spark_jobs.sources.documents import documents
from spark_jobs.text.signals import signals
from spark_jobs.text.texts import texts
from spark_jobs.text.verdicts import verdicts

CLOCK = "arrivals"  # table whose increments every step of the dataset follows


@dataclass(frozen=True)
class DatasetDeclaration:
    """A dataset as a user declares it.

    Attributes:
        name: its namespace.
        source: where its documents come from (`spark_jobs.sources.source_config`), as plain values.
        shards: parts that joins and packing plans work on, a power of two; 1 for small data.
        max_document_bytes: larger documents are refused, with a row in `arrivals`.
        allow_empty: whether a source without files means that all were deleted; else it is an error.
        steps: config of `texts`, `signals`, `verdicts` and `dependencies`, by step.
        samples: which sample rows the UI shows.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: who may see its rows.
    """

    name: str
    source: Mapping[str, Any]
    shards: int = 1
    max_document_bytes: int = 100_000_000
    allow_empty: bool = False
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    samples: Samples = Samples.IDS
    owners: tuple[str, ...] = ()
    visibility: Visibility = PUBLIC


def dataset_assets(declared: DatasetDeclaration) -> list[dg.AssetsDefinition]:
    """The assets of a dataset: arrivals, documents, repositories, texts, signals, verdicts, dependencies.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    name = declared.name
    intake = {
        "dataset": name,
        "shards": declared.shards,
        "max_document_bytes": declared.max_document_bytes,
        "allow_empty": declared.allow_empty,
        "source": dict(declared.source),
    }
    chain: list[tuple[Step, Mapping[str, Source], Mapping[str, Any], str]] = [
        (documents, {}, intake, "sources"),
        (texts, {"documents": f"{name}.documents"}, {}, "text"),
        (signals, {"texts": f"{name}.texts"}, {}, "text"),
        (verdicts, {"signals": f"{name}.signals", "documents": f"{name}.documents"}, {}, "text"),
        (dependencies, {"documents": f"{name}.documents", "texts": f"{name}.texts"}, {}, "code"),
    ]
    unknown = set(declared.steps) - {made.name for made, *_ in chain}
    if unknown:
        known = [made.name for made, *_ in chain if made is not documents]
        first = min(unknown)
        raise DefinitionError(f"dataset {name}: steps: there is no step {first!r}{did_you_mean(first, known)}")
    return [
        step_asset(
            made,
            name,
            inputs,
            bind_config(made.config, f"{name}/{made.name}", {**config, **declared.steps.get(made.name, {})}),
            clock=f"{name}.{CLOCK}",
            presentation=Presentation(
                owners=declared.owners, domain=domain, samples=declared.samples, visibility=declared.visibility
            ),
        )
        for made, inputs, config, domain in chain
    ]
