"""The base of all models that users declare, and the mark of fields on which no row depends."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

NO_ROWS: Final[dict[str, Any]] = {"affects_rows": False}
"""`json_schema_extra` of a field that changes no row, so that a change of it computes nothing again."""


class Declared(BaseModel):
    """A frozen value that refuses unknown fields."""

    # Dagster's components read "100" as a number, quoted or not.
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)
