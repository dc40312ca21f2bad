"""Why the declarations below `defs` cannot be loaded: one line with the file, the field and the value.

Dagster wraps what goes wrong in several exceptions, with a drawing of the folders. What a user needs is the innermost
one that names a value, and the file it stands in.
"""

from __future__ import annotations

import importlib
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError, DagsterProjectError
from spark_jobs.exceptions import SparkJobsError

if TYPE_CHECKING:
    from pydantic import ValidationError

COMPONENTS = tuple(f"dagster_project.components.{name}" for name in ("Dataset", "Corpus", "Blend"))
_COMPONENT = re.compile(r"(?:component|definitions for) (?P<folder>[^\s\[]+)\[\d+\]")
_UNION_BRANCH = re.compile(r"\.\w+\[[\w, |\[\]]+\]")  # Dagster makes every field a union with a template


def explain(error: Exception, defs: Path) -> str:
    """One line for an error of loading `defs`: where, what, and how to mend."""
    chain = _chain(error)
    faults = [fault for file in sorted(defs.glob("**/defs.yaml")) if (fault := fault_of(file))]
    if faults:
        return faults[0]
    place = _component_file(chain, defs) or _python_line(chain, defs)
    return f"{place}: {_cause(chain)}" if place else _cause(chain)


def fault_of(file: Path) -> str | None:
    """What keeps a file from being a component at all; None where it is one."""
    kinds = " or ".join(COMPONENTS)
    try:
        content = read_yaml(file)
    except CommandError as error:
        return str(error)
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        return f"{shown(file)}: type is missing; write type: {kinds}"
    if not _is_there(content["type"]):
        return f"{shown(file)}: type {content['type']}: there is no such component; write {kinds}"
    return None


def read_yaml(file: Path, yaml: Any = None) -> Any:
    """What a YAML file holds; `yaml` is another reader, e.g. one that keeps comments.

    Raises:
        CommandError: it is not YAML; the message names the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return (yaml or YAML(typ="safe", pure=True)).load(file.read_text())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise CommandError(f"{shown(file)}{line}: {error.problem or error.context}; mend the YAML") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise CommandError(f"{shown(file)}: {' '.join(str(error).split())}; mend the YAML") from error


def shown(file: Path) -> str:
    """A path as short as it can be said from here."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def refusal(error: ValidationError) -> str:
    """The first value that a model refuses: field, reason, value."""
    first: Any = error.errors(include_url=False)[0]
    # Dagster's own errors name their place in the file: `attributes.name at FILE:LINE`.
    field = _UNION_BRANCH.sub("", ".".join(str(part) for part in first["loc"]).partition(" at ")[0])
    got = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return f"{field.removeprefix('attributes.')}: {first['msg']}{got}"


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that it was raised from, outermost first."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def _cause(chain: list[BaseException]) -> str:
    """What was said on purpose; else the refused value; else the innermost error."""
    from pydantic import ValidationError

    for error in chain:
        if isinstance(error, DagsterProjectError | SparkJobsError):
            return _one_line(error)
    for error in chain:
        if isinstance(error, ValidationError):
            return refusal(error)
    last = chain[-1]
    named = f"{type(last).__name__}: " if not type(last).__module__.startswith("dagster") else ""
    return f"{named}{_one_line(last)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


def _component_file(chain: list[BaseException], defs: Path) -> str | None:
    """The file of the component that Dagster was at."""
    for error in chain:
        found = _COMPONENT.search(str(error))
        if found and (file := defs / found["folder"] / "defs.yaml").is_file():
            return shown(file)
    return None


def _python_line(chain: list[BaseException], defs: Path) -> str | None:
    """The innermost line of the user's own code."""
    for error in reversed(chain):
        if isinstance(error, SyntaxError) and error.filename:
            return f"{shown(Path(error.filename))}, line {error.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if Path(frame.filename).is_relative_to(defs):
                return f"{shown(Path(frame.filename))}, line {frame.lineno}"
    return None


def _is_there(symbol: str) -> bool:
    """Whether a dotted name can be imported."""
    module, _, name = symbol.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name)
    except (ImportError, ValueError):
        return False
