"""Config models as Dagster run config: every field shows in the Launchpad with its description and its bound value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import dagster as dg
from pydantic import BaseModel, ValidationError

from dagster_project.exceptions import DefinitionError

Model = TypeVar("Model", bound=BaseModel)
_SCALARS: Mapping[type, Any] = {bool: dg.Bool, int: dg.Int, float: dg.Float, str: dg.String}


def config_fields(bound: BaseModel | None, model: type[BaseModel]) -> dict[str, dg.Field]:
    """Dagster fields for a config model, with the values of `bound` as defaults.

    Scalars keep their type; everything else is free-form here and checked by the model itself.
    """
    values = bound.model_dump(mode="json") if bound is not None else {}
    fields = {}
    for name, info in model.model_fields.items():
        kind = _SCALARS.get(info.annotation or object, dg.Any) if isinstance(info.annotation, type) else dg.Any
        text = info.description or ""
        if name in values and values[name] is not None:
            fields[name] = dg.Field(kind, default_value=values[name], is_required=False, description=text)
        else:
            needed = info.is_required() and bound is None
            fields[name] = dg.Field(kind if needed else dg.Noneable(kind), is_required=needed, description=text)
    return fields


def bind_config(model: type[Model], asset: str, given: Mapping[str, Any]) -> Model:
    """A checked config from plain values.

    Raises:
        DefinitionError: a value is refused; the message names the field and the value.
    """
    present = {name: value for name, value in given.items() if value is not None or name not in model.model_fields}
    try:
        return model.model_validate(present)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DefinitionError(
            f"{asset}: config {place}: {first['msg']} (got {first.get('input')!r}); mend it in YAML or run config"
        ) from error
