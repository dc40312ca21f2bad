"""The file of the tables of rollouts: TOML, a `[[table]]` each, given to `headrace serve --rollouts`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dagster_project.exceptions import CommandError
from headrace.tables.window_facts import WindowFacts
from spark_jobs.exceptions import TableDeclarationError
from spark_jobs.lake.declare.tables import check_identifier


class RolloutTable(BaseModel):
    """A live table of rollouts: which rows it has, and when one is refused or must wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str = Field(description="namespace.table; made by the server where it does not exist")
    like: str | None = Field(
        None, description="packed table from which it takes window length, tokenizer and special ids"
    )
    window: WindowFacts | None = Field(None, description="these facts themselves, where there is no such table")
    max_lag: int = Field(
        ge=0,
        description="optimizer steps that the oldest token of a rollout may be behind the announced version when it is "
        "admitted and when its group is published; and steps' worth of rows that may wait for the trainer",
    )
    rows_per_step: int = Field(ge=1, description="rows that the trainer reads in one optimizer step")
    group_timeout_seconds: float = Field(
        600.0, gt=0, description="how long a group waits for its other rollouts, unless they say it"
    )
    commit_seconds: float = Field(1.0, ge=0, le=2, description="least time between two commits")

    @field_validator("table")
    @classmethod
    def _is_a_table(cls, text: str) -> str:
        try:
            check_identifier(f"{text}_log")
        except TableDeclarationError as error:
            raise ValueError(str(error)) from error
        return text

    @model_validator(mode="after")
    def _has_facts(self) -> RolloutTable:
        if (self.like is None) == (self.window is None):
            raise ValueError("give one of like and window")
        return self


class _SettingsFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    table: list[RolloutTable] = Field(min_length=1)


def read_settings(path: Path) -> list[RolloutTable]:
    """Read the tables of a file.

    Raises:
        CommandError: it cannot be read, is no TOML, or a setting is wrong.
    """
    try:
        tables = _SettingsFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).table
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; name a file of [[table]]s") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CommandError(f"{path}: {where}: {first['msg']}; docs/feed/rollouts.md has an example") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CommandError(f"{path}: is not TOML: {error}; docs/feed/rollouts.md has an example") from error
    if len({table.table for table in tables}) < len(tables):
        raise CommandError(f"{path}: names a table twice; give each one [[table]]")
    return tables
