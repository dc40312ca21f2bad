"""The thresholds of alerts about a lake, set by a project in its pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.lake.removed_documents import (
    MOST_DOUBTED,
    MOST_REMOVED,
)
from dagster_project.inspect.lake.run_notices import LEAST_KEPT
from spark_jobs.exceptions import nearest

_Settings = TypeVar("_Settings", bound=BaseModel)


class Thresholds(BaseModel):
    """The values beyond which there is an alert; `[tool.headrace.monitoring]` in a project's pyproject.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_share: float = Field(
        0.01, ge=0, description="share of the newest increment's files and records that are refused for a fault"
    )
    moved: float = Field(
        0.05,
        ge=0,
        description="change of a share (duplicates, a rule's rejections), or relative change of a signal's mean, in "
        "the newest increment against all earlier ones",
    )
    backlog_hours: float = Field(
        48, ge=0, description="age of the oldest increment that a corpus has not packed, hours"
    )
    step_seconds: float = Field(3600, ge=0, description="99th percentile of the seconds of a step over its history")
    waiting_hours: float = Field(
        168, ge=0, description="age of the oldest increment in quarantine that nobody has decided about, hours"
    )
    least_kept: float = Field(
        LEAST_KEPT, ge=0, le=1, description="least share of the newest increment's documents that the verdicts keep"
    )
    most_removed: float = Field(
        MOST_REMOVED, ge=0, le=1, description="largest share of a dataset's new documents removed as duplicates"
    )
    most_doubted: float = Field(
        MOST_DOUBTED,
        ge=0,
        le=1,
        description="largest share of a sample of removed documents that share few runs of words with their witness",
    )
    heartbeat_seconds: float = Field(
        300, ge=60, description="age of the last sign of Dagster's daemon, where something waits for it, seconds"
    )
    failures_in_a_row: int = Field(
        3, ge=1, description="failed ticks of a schedule or sensor, or failed runs of a job, without a success between"
    )
    least_rows: int = Field(100, ge=1, description="increments with fewer documents are not compared")


def read_thresholds(package: Path) -> Thresholds:
    """The thresholds of a project, from the pyproject.toml above its package.

    Raises:
        DefinitionError: a field does not exist, or has an unusable value.
    """
    return project_settings(package, "monitoring", Thresholds)


def project_settings(package: Path, section: str, model: type[_Settings]) -> _Settings:
    """The settings of `[tool.headrace.SECTION]` in the pyproject.toml above a project's package.

    Raises:
        DefinitionError: a field does not exist, or has an unusable value.
    """
    file = next((file for folder in package.parents if (file := folder / "pyproject.toml").is_file()), None)
    tool = tomllib.loads(file.read_text()).get("tool", {}) if file is not None else {}
    try:
        return model(**tool.get("headrace", {}).get(section, {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        near = "" if name in model.model_fields else nearest(name, model.model_fields)
        raise DefinitionError(f"{file}: tool.headrace.{section}.{name}: {first['msg']}{near}; correct it") from error
