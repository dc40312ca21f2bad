"""What a planned mix is to be: a curve, a table of repeats or shares, how many tokens, how often a cell at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dagster_project.exceptions import CommandError
from dagster_project.project.diagnosis import read_yaml, short_path
from dagster_project.run_config import refusal
from headrace_features.composition.curves import RepeatCurve, Repeats

MOST_REPEATS: Final = 7.0  # of the best twentieth of Olmo 3
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_tokens(written: Any) -> Any:
    """Read a number of tokens, such as 20B, 1.5T or 500_000; another value is given back as it is."""
    match = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([KMBT]?)", str(written).strip().upper())
    return written if match is None else round(float(match[1].replace("_", "")) * _UNITS[match[2]])


Tokens = Annotated[int, BeforeValidator(parse_tokens), Field(gt=0)]


class MixConfig(BaseModel):
    """A mix of the cells of a corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str | None = Field(None, description="packed table; by default all of the corpus that have cells")
    tokens: Tokens | None = Field(
        None, description="tokens in all: 20B; by default those of the curve as it is written"
    )
    max_repeats: float | None = Field(
        None, gt=0, description="refused where a cell would be read more often; by default most of the curve, or 7"
    )
    curve: dict[str, RepeatCurve] = Field({}, max_length=1, description="by the dimension that it is of")
    repeats: dict[str, Repeats] = Field({}, description="by choice of cells; those that none names are never read")
    shares: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="of the tokens, in proportion, by choice of cells; a curve then holds inside of each"
    )
    seed: int = Field(0, ge=0, lt=1 << 64, description="of the blend")

    @model_validator(mode="after")
    def _says_what_is_read(self) -> MixConfig:
        if bool(self.curve) == bool(self.repeats) and (self.curve or not self.shares):
            raise ValueError("a mix has a curve or repeats, or shares with or without one of them")
        if self.tokens is None and (self.shares or any(curve.most is not None for curve in self.curve.values())):
            raise ValueError("shares, and a curve with most, need tokens")
        return self

    @property
    def bound(self) -> float:
        """How often a cell may be read."""
        bounds = [curve.most for curve in self.curve.values()] + [self.max_repeats]
        return min((bound for bound in bounds if bound is not None), default=MOST_REPEATS)


def read_mix(file: Path | None, curve: str | None, given: dict[str, Any]) -> MixConfig:
    """Read a mix from a file, a curve of the form DIMENSION:FILE, and what was given beside them, which counts first.

    Raises:
        CommandError: it is none.
    """
    settings = read_yaml(file) if file is not None else {}
    where = short_path(file) if file is not None else "mix plan"
    if not isinstance(settings, dict):
        raise CommandError(f"{where}: is no mapping; write curve, repeats or shares, and tokens")
    if curve is not None:
        dimension, colon, place = curve.partition(":")
        if not colon or not Path(place).is_file():
            raise CommandError(
                f"--curve {curve!r}: write DIMENSION:FILE, such as quality:curve.yaml; FILE has the curve"
            )
        settings["curve"] = {dimension: read_yaml(Path(place))}
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        return MixConfig.model_validate(settings)
    except ValidationError as error:
        raise CommandError(f"{where}: {refusal(error, MixConfig)}") from error
