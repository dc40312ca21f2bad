"""Files of policies: headrace's own, and those of users."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_jobs.exceptions import ConfigError, did_you_mean

SHIPPED: Final = Path(__file__).with_name("policies")
Find = Callable[[str], Mapping[str, Any]]
"""Looks up the fields of a policy by a reference: a name, `name@version`, a hash or a path."""


def shipped() -> dict[str, Path]:
    """Files of headrace's own policies, by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def find_in_files(reference: str) -> Mapping[str, Any]:
    """Read a policy by the name of one of headrace's own, or by its path.

    Raises:
        ConfigError: there is none of this name or version, or the file cannot be read.
    """
    if is_file(reference):
        return read_file(Path(reference))
    name, _, version = reference.partition("@")
    files = shipped()
    if name not in files:
        raise ConfigError(f"policy {reference}: headrace brings none of this name{did_you_mean(name, files)}")
    policy = read_file(files[name])
    if version not in ("", str(policy["version"])):
        raise ConfigError(f"policy {reference}: there is {name}@{policy['version']}; name that, or add your own")
    return policy


def is_file(reference: str) -> bool:
    """Whether a reference is the path of a file."""
    return reference.endswith((".yaml", ".yml", ".json"))


def located(policy: Any, folder: Path) -> Any:
    """A policy named or held in a file of a folder, with paths relative to the folder made relative to here."""
    if isinstance(policy, str):
        return str(folder / policy) if is_file(policy) else policy
    extended = policy.get("extends") if isinstance(policy, Mapping) else None
    if not isinstance(extended, list):
        return policy
    return {**policy, "extends": [located(base, folder) for base in extended]}


def read_file(path: Path) -> Mapping[str, Any]:
    """Read the fields of a policy; paths in its `extends` are made relative to here, as the path given is.

    Raises:
        ConfigError: it cannot be read, or is no policy.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ConfigError(f"policy {path}{yaml_fault(error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"policy {path}: {reason}; give a YAML file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"policy {path}: it holds a {type(content).__name__}; write name, version and rules")
    for field in ("name", "version"):
        if field not in content:
            raise ConfigError(f"policy {path}: {field} is missing; write it")
    policy: Mapping[str, Any] = located(content, path.parent)
    return policy


def yaml_fault(error: Exception) -> str:
    """The end of a message about a file other than YAML: line, fault and mend."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = f", line {mark.line + 1}" if mark is not None else ""
    fault = getattr(error, "problem", None) or getattr(error, "context", None) or " ".join(str(error).split())
    repeated = re.match(r'found duplicate key "(.*?)"', fault)
    return f"{line}: {repeated[1]} is there twice; leave one of them" if repeated else f"{line}: {fault}; mend the YAML"
