"""How long a dataset keeps what landed, as it declares it.

    freeze_after: {days: 90, to: s3://archive/headrace}    kept bytes that are older move to a cold folder
    retention: {days: 365, then: report}                   increments that landed so long ago are named by the status
    retention: {days: 365, then: delete}                   or deleted for good, as by `headrace dataset delete`

The declarations are those of the project that is loaded (`lake_asset.keeping_by_dataset`), and nowhere in the lake:
what is deleted must not depend on what somebody declared before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace.tables.quarantine import quarantine_of
from spark_jobs.lake.ledger.ledger import Ledger


class Freezing(BaseModel):
    """When kept bytes move to a cold folder, and to which."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: float = Field(ge=0, description="least age of kept bytes that move")
    to: str = Field(min_length=1, description="folder, or a URI such as s3://bucket/cold; best on a cheap store")


class Retention(BaseModel):
    """How long increments are kept, and what happens then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: float = Field(gt=0, le=36_525, description="age from which an increment is not to be kept any more")
    then: Literal["report", "delete"] = Field(
        "report", description="whether maintenance deletes it, or status reports it"
    )


@dataclass(frozen=True)
class Keeping:
    """What a dataset declares about how long its bytes and increments are kept; None where it declares nothing.

    Attributes:
        freezing: when kept bytes move.
        retention: how long increments are kept.
    """

    freezing: Freezing | None = None
    retention: Retention | None = None


def keeping_of(name: str, attributes: Mapping[str, Any]) -> Keeping:
    """`freeze_after` and `retention` of a dataset, from the attributes of its declaration.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    freezing, retention = attributes.get("freeze_after"), attributes.get("retention")
    if freezing and attributes.get("landing", "reference") != "copy":
        raise DefinitionError(f"dataset {name}: freeze_after moves kept bytes; declare `landing: copy` to have some")
    return Keeping(
        bind_config(Freezing, f"dataset {name}: freeze_after", freezing) if freezing else None,
        bind_config(Retention, f"dataset {name}: retention", retention) if retention else None,
    )


def retentions(keeping: Mapping[str, Keeping]) -> dict[str, Retention]:
    """How long each dataset keeps its increments, where it says so."""
    return {name: kept.retention for name, kept in keeping.items() if kept.retention is not None}


def overdue(ledger: Ledger, dataset: str, days: float, now: datetime) -> dict[int, datetime]:
    """Increments with documents that landed longer ago than some days, in order, and when they landed."""
    quarantine = quarantine_of(dataset)
    space = quarantine if ledger.table(f"{quarantine}.arrivals") is not None else dataset
    landed, before = ledger.first_recorded(f"{space}.arrivals"), now - timedelta(days=days)
    there = {number for number, row in ledger.increments(f"{space}.documents").items() if row.row_count}
    late = {int(place): at for place, at in landed.items() if at < before and place.isdigit() and int(place) in there}
    return dict(sorted(late.items()))
