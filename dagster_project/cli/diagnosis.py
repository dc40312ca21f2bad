"""Why the declarations below `defs` cannot be loaded: one line with the file, the field and the value.

Dagster wraps what goes wrong in several exceptions, with a drawing of the folders. What a user needs is the innermost
one that names a value, and the file it stands in.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError, DagsterProjectError
from spark_jobs.exceptions import SparkJobsError, did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

COMPONENTS = tuple(f"dagster_project.components.{name}" for name in ("Dataset", "Corpus", "Blend"))
_FIELDS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")  # of a file, by Dagster
_COMPONENT = re.compile(r"(?:component|definitions for) (?P<folder>[^\s\[]+)\[\d+\]")


def explain(error: Exception, defs: Path) -> str:
    """One line for an error of loading `defs`: where, what, and how to mend."""
    chain = _chain(error)
    files = sorted(defs.glob("**/defs.yaml"))
    faults = [fault for file in files if (fault := fault_of(file))]
    if faults:
        return faults[0]
    if unknown := _unknown_dataset(_cause(chain, None), files):
        return unknown
    file = _component_file(chain, defs)
    component = None if file is None else _component(read_yaml(file)["type"])
    model = component if hasattr(component, "model_fields") else None  # other components are plain classes
    place = shown(file) if file is not None else _python_line(chain, defs)
    return f"{place}: {_cause(chain, model)}" if place else _cause(chain, None)


def repeated_name(defs: Path) -> str | None:
    """Which name two datasets or corpora share, and where: Dagster tells neither, where it sees that at all."""
    first: dict[str, Path] = {}
    for file, name in _named(sorted(defs.glob("**/defs.yaml")), COMPONENTS[:2]):
        if (before := first.setdefault(name, file)) != file:
            return f"{shown(file)}: name: {name} is the name of {shown(before)} already; choose another"
    return None


def _named(files: Iterable[Path], kinds: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """The name that each file declares, of those that can be read."""
    for file in files:
        try:
            content = read_yaml(file)
        except CommandError:
            continue
        attributes = content.get("attributes") if isinstance(content, dict) and content.get("type") in kinds else None
        if isinstance(attributes, dict) and isinstance(attributes.get("name"), str):
            yield file, attributes["name"]


def _unknown_dataset(cause: str, files: Sequence[Path]) -> str | None:
    """The corpus that names a dataset which the error says is not there."""
    known = [name for _, name in _named(files, COMPONENTS[:1])]
    for file, _ in _named(files, COMPONENTS[1:2]):
        named = read_yaml(file)["attributes"].get("datasets")
        for name in named if isinstance(named, list) else []:
            if name not in known and f" reads {name}." in cause:
                near = did_you_mean(str(name), known)
                return f"{shown(file)}: datasets: there is no dataset {name!r}{near}; correct it, or declare it"
    return None


def fault_of(file: Path) -> str | None:
    """What keeps a file from being a component at all; None where it is one."""
    kinds = " or ".join(COMPONENTS)
    try:
        content = read_yaml(file)
    except CommandError as error:
        return str(error)
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        return f"{shown(file)}: type is missing; write type: {kinds}"
    try:
        component = _component(content["type"])
    except CommandError as error:
        return f"{shown(file)}: {error}"
    if component is None:
        near = nearest(content["type"], COMPONENTS)
        return f"{shown(file)}: type {content['type']}: there is no such component{near}; write {kinds}"
    unknown = [str(field) for field in content if field not in _FIELDS]
    if unknown:
        return f"{shown(file)}: {unknown[0]}: there is no such field{did_you_mean(unknown[0], _FIELDS)}"
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


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that it was raised from, outermost first."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def _cause(chain: list[BaseException], model: type[BaseModel] | None) -> str:
    """What was said on purpose; else the value that the component's model refused; else the innermost error."""
    from pydantic import ValidationError

    from dagster_project.run_config import refusal

    for error in chain:
        if isinstance(error, DagsterProjectError | SparkJobsError):
            return _one_line(error)
    for error in chain:
        if isinstance(error, ValidationError):
            return refusal(error, model)
    last = chain[-1]
    named = f"{type(last).__name__}: " if not type(last).__module__.startswith("dagster") else ""
    return f"{named}{_one_line(last)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


def _component_file(chain: list[BaseException], defs: Path) -> Path | None:
    """The file of the component that Dagster was at."""
    for error in chain:
        found = _COMPONENT.search(str(error))
        if found and (file := defs / found["folder"] / "defs.yaml").is_file():
            return file
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


def _component(symbol: str) -> Any:
    """What a dotted name stands for; None where it cannot be imported.

    Raises:
        CommandError: the module raises something of its own.
    """
    module, _, name = symbol.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError):
        return None
    except Exception as error:
        raise CommandError(f"type {symbol}: {type(error).__name__}: {_one_line(error)}") from error
