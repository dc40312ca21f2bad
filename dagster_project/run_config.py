"""Convert config models to Dagster run config, and say in one line what a model refuses.

Every field is shown in the Launchpad with its description and its bound value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import dagster as dg
from pydantic import BaseModel, ValidationError

from dagster_project.exceptions import DefinitionError
from spark_jobs.credentials import without_literals
from spark_jobs.exceptions import did_you_mean

_UNKNOWN = "extra_forbidden"
_OTHER_FORMS = {"list_type", "dict_type", "string_type", "model_type"}  # what to write then is not told by the type
_KIND = "kind"  # tells the models of a union apart
_UNION_BRANCH = re.compile(r"\.\w+\[[\w, |'\[\]]+\]")  # Dagster makes every field a union with a template
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


def bind_config(model: type[Model], asset: str, values: Mapping[str, Any]) -> Model:
    """A checked config from plain values.

    Raises:
        DefinitionError: a value is refused; the message names the field and the value.
    """
    present = {name: value for name, value in values.items() if value is not None or name not in model.model_fields}
    try:
        return model.model_validate(present)
    except ValidationError as error:
        raise DefinitionError(f"{asset}: config {refusal(error, model)}; mend it in YAML or run config") from error


def parse_settings(model: type[Model], text: str, mend: str, **defaults: Any) -> Model:
    """A checked config from JSON, as settings of a blend have it.

    Args:
        model: of the config.
        text: an object.
        mend: what to write, where it is none.
        defaults: of fields that it leaves out.

    Raises:
        DefinitionError: it is no object, or a value is refused.
    """
    try:
        stated = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DefinitionError(f"{text:.80} is no JSON: {error}; {mend}") from error
    if not isinstance(stated, dict):
        raise DefinitionError(f"{text:.80} is no object; {mend}")
    try:
        return model.model_validate({**defaults, **stated})
    except ValidationError as error:
        raise DefinitionError(refusal(error, model)) from error


def refusal(error: ValidationError, model: type[BaseModel] | None) -> str:
    """The first value that a model refuses: field, reason, and the nearest name where one is unknown.

    Args:
        error: what the model raised; of an unknown field and a missing one, the unknown one is named.
        model: the model, where it is known.
    """
    errors: list[Any] = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != _UNKNOWN)
    first, kind, context = errors[0], errors[0]["type"], errors[0].get("ctx", {})
    refused = without_literals(errors[0].get("input"), str(first["loc"][-1]) if first["loc"] else "", True)
    # Dagster's own errors name the line of the file, `attributes.name at FILE:LINE`, and branches of its unions.
    located = _UNION_BRANCH.sub("", ".".join(str(part) for part in first["loc"]).partition(" at ")[0])
    parts = located.removeprefix("attributes.").split(".")
    within, above = _models_at(model, parts[:-1])
    path = ".".join((*above, parts[-1]))
    if kind == _UNKNOWN:
        if (instead := _instead(errors, within)) is not None:
            return instead
        fields = [name for inner in within for name in inner.model_fields]
        return f"{path}: there is no such field{did_you_mean(parts[-1], fields)}"
    if kind == "missing":
        return f"{path} is missing; write it"
    if kind in ("literal_error", "union_tag_invalid"):
        expected = re.findall(r"'([^']*)'", context.get("expected") or context["expected_tags"])
        field, value = (path, refused) if kind == "literal_error" else (f"{path}.{_KIND}", context["tag"])
        return f"{field}: {value!r} is not known{did_you_mean(str(value), expected)}"
    if kind == "union_tag_not_found":
        return f"{path}.{_KIND} is missing; write one of {', '.join(_tagged(_models_at(model, parts)[0]))}"
    if kind == "value_error":
        return f"{path}: {context['error']}".removeprefix(": ")
    return f"{path}: {first['msg']} (got {refused!r}){_wanted(model, parts) if kind in _OTHER_FORMS else ''}"


def _wanted(model: type[BaseModel] | None, parts: Sequence[str]) -> str:
    """The end of a message about a value of another form: what its field says of itself."""
    for end in range(len(parts), 0, -1):
        for within in _models_at(model, parts[: end - 1])[0]:
            field = within.model_fields.get(parts[end - 1])
            if field is not None:
                return f"; it is: {field.description}" if field.description else ""
    return ""


def _instead(errors: Sequence[Any], within: Sequence[type[BaseModel]]) -> str | None:
    """What a model says to write for fields that it had once (its `former`: their names, and a function of them)."""
    unknown = {
        str(one["loc"][-1]).partition(" at ")[0].rpartition(".")[2]: one["input"]
        for one in errors
        if one["type"] == _UNKNOWN
    }
    for model in within:
        names, say = getattr(model, "former", ((), None))
        if say is not None and (had := {name: given for name, given in unknown.items() if name in names}):
            return str(say(had))
    return None


def _models_at(model: type[BaseModel] | None, parts: Sequence[str]) -> tuple[list[type[BaseModel]], list[str]]:
    """The models of a nested field, and its path without the tags that pydantic puts after unions."""
    models: list[type[BaseModel]] = [] if model is None else [model]
    path = []
    for part in parts:
        if part in (tagged := _tagged(models)):
            models = [tagged[part]]
            continue
        path.append(part)
        if not part.isdigit():
            models = [inner for outer in models if part in outer.model_fields for inner in _models_of(outer, part)]
    return models, path


def _tagged(models: Sequence[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """The models of a union by their tags; none where it is no union."""
    tags = {str(variant.model_fields[_KIND].default): variant for variant in models if _KIND in variant.model_fields}
    return tags if len(models) > 1 else {}


def _models_of(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    """The models in the type of a field."""
    waiting, models = [model.model_fields[field].annotation], list[type[BaseModel]]()
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            models.append(kind)
        waiting += get_args(kind)
    return models
