"""The base of all declared models, and the mark of fields without influence on rows."""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_jobs.credentials import refuse_secrets

NO_ROWS: Final[dict[str, Any]] = {"affects_rows": False}
"""`json_schema_extra` of a field that changes no row, so that a change of it computes nothing again."""


class Declared(BaseModel):
    """A frozen value without unknown fields."""

    # Dagster's components read "100" as a number, quoted or not.
    # What is refused may be a secret that stands in the wrong place, so errors do not repeat it.
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, hide_input_in_errors=True)


class WithoutSecrets(Declared):
    """A declaration with addresses, headers or parameters; possibly secret literals in them are refused."""

    public: tuple[str, ...] = Field(
        (),
        description="names of parameters, headers, properties whose values look like secrets and are none; * for all",
        json_schema_extra=NO_ROWS,
    )

    @model_validator(mode="after")
    def _holds_no_secret(self) -> Self:
        """Refuse a possible secret as a literal: the config stands in tables and in the history of runs."""
        refuse_secrets(self, self.public)
        return self
