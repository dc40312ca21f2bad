"""Step keys: a hash of everything behind the rows of one increment.

    step key = SHA-256 of (step, code version, config, versions of the inputs read, increment or partition)

A known key means that nothing has to be computed. Settings of speed alone are not part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no white space: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def config_json(config: BaseModel) -> str:
    """The fields of a config with influence on rows, as canonical JSON.

    Fields declared with `json_schema_extra={"affects_rows": False}` (speed, where a file lies) are left out, in configs
    inside of it too; those with `"if set"` are while they are None, so that a new setting changes no key of a lake.
    """
    return canonical_json(config.model_dump(mode="json", exclude=_decides_no_row(config)))


def _decides_no_row(config: BaseModel) -> dict[str, Any]:
    """The fields without influence on rows, in the form of pydantic's `exclude`."""
    flags: dict[str, Any] = {}
    for name, info in type(config).model_fields.items():
        value = getattr(config, name)
        affects = info.json_schema_extra.get("affects_rows") if isinstance(info.json_schema_extra, dict) else None
        if affects is False or (affects == "if set" and value is None):
            flags[name] = True
        elif isinstance(value, BaseModel) and (inner := _decides_no_row(value)):
            flags[name] = inner
    return flags


def step_key(
    *, step: str, version: str, config: str, inputs: Mapping[str, Mapping[str, str]], place: str, chained: str = ""
) -> str:
    """Hash what decides the rows of one increment or partition.

    Args:
        step: name of the step's main table.
        version: code version.
        config: canonical JSON of the config.
        inputs: data version of what is read, by table and then by increment or partition.
        place: the computed increment or partition.
        chained: for numbered tables, the key of the increment before.

    Returns:
        64 hex digits.
    """
    facts = {
        "step": step,
        "code_version": version,
        "config": config,
        "inputs": {table: dict(versions) for table, versions in inputs.items()},
        "place": place,
        "chained": chained,
    }
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()
