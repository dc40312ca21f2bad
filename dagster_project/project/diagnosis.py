"""Explain why the declarations below `defs` cannot be loaded, in one line with the file, the field and the value.

Dagster wraps an error in several exceptions, with a drawing of the folders. A user needs the innermost exception that
names a value, and the file that has the value.
"""

from __future__ import annotations

import copy
import functools
import importlib
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError, DagsterProjectError
from spark_jobs.exceptions import SparkJobsError, did_you_mean, nearest
from spark_jobs.features import brought, missing

if TYPE_CHECKING:
    from pydantic import BaseModel

COMPONENTS = tuple(f"headrace.{name}" for name in ("Dataset", "Corpus", "Blend"))
_FIELDS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")  # of a defs.yaml
_COMPONENT = re.compile(r"(?:component|definitions for) (?P<folder>[^\s\[]+)\[\d+\]")


def explain(error: Exception, defs: Path) -> str:
    """One line for an error of loading `defs`: the file, the fault, and the mend."""
    chain = _chain(error)
    files = sorted(defs.glob("**/defs.yaml"))
    faults = [fault for file in files if (fault := component_fault(file))]
    if faults:
        return faults[0]
    if unknown := _unknown_dataset(_cause(chain, None), files):
        return unknown
    file = _component_file(chain, defs)
    component = None if file is None else _component(read_yaml(file)["type"])
    model = component if hasattr(component, "model_fields") else None  # other components are plain classes
    where = short_path(file) if file is not None else _python_line(chain, defs)
    return f"{where}: {_cause(chain, model)}" if where else _cause(chain, None)


def repeated(defs: Path) -> str | None:
    """The message for a key that a file has twice, or for two datasets, corpora or models of one name.

    Dagster would silently use the last of two equal keys, and its message about equal names does not name the files.
    """
    from ruamel.yaml.constructor import DuplicateKeyError

    from dagster_project.declared_kinds import DeclaredKind
    from spark_jobs.plugins import load

    for file in sorted(defs.glob("**/*.yaml")):
        try:
            read_yaml(file)
        except CommandError as error:  # Dagster or the step that reads the file reports other faults
            if isinstance(error.__cause__, DuplicateKeyError):
                return str(error)
    first: dict[str, Path] = {}
    kinds = {name: load("declarations", name, DeclaredKind) for name in brought("declarations")}
    spaces = (*COMPONENTS[:2], *(f"headrace.{name}" for name, kind in kinds.items() if kind.is_namespace))
    for file, name in _named(sorted(defs.glob("**/defs.yaml")), spaces):
        if (before := first.setdefault(name, file)) != file:
            return f"{short_path(file)}: name: {name} is the name of {short_path(before)} already; choose another"
    return None


def _named(files: Iterable[Path], kinds: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """File and declared name of the components of some kinds; files that cannot be read are skipped."""
    for file in files:
        try:
            content = read_yaml(file)
        except CommandError:
            continue
        attributes = content.get("attributes") if component_type(content) in kinds else None
        if isinstance(attributes, dict) and isinstance(attributes.get("name"), str):
            yield file, attributes["name"]


def component_type(content: Any) -> str | None:
    """The component that the content of a file declares; None where it names none."""
    named = content.get("type") if isinstance(content, dict) else None
    return named if isinstance(named, str) else None


def _unknown_dataset(cause: str, files: Sequence[Path]) -> str | None:
    """The message for a corpus that names an undeclared dataset; None where the error has another cause."""
    datasets = [name for _, name in _named(files, COMPONENTS[:1])]
    for file, _ in _named(files, COMPONENTS[1:2]):
        named = read_yaml(file)["attributes"].get("datasets")
        for name in named if isinstance(named, list) else []:
            if name not in datasets and f" reads {name}." in cause:
                near = did_you_mean(str(name), datasets)
                return f"{short_path(file)}: datasets: there is no dataset {name!r}{near}; correct it, or declare it"
    return None


def component_fault(file: Path) -> str | None:
    """Why a file declares no known component; None where it declares one."""
    components = [*COMPONENTS, *(f"headrace.{name}" for name in brought("declarations"))]
    kinds = " or ".join(components)
    try:
        content = read_yaml(file)
    except CommandError as error:
        return str(error)
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        return f"{short_path(file)}: type is missing; write type: {kinds}"
    try:
        component = _component(content["type"])
    except CommandError as error:
        return f"{short_path(file)}: {error}"
    if component is None:
        if feature := missing("declarations").get(content["type"].removeprefix("headrace.")):
            fault = f"is of the feature {feature}, which is not installed here; install headrace whole"
            return f"{short_path(file)}: type {content['type']} {fault}"
        near = nearest(content["type"], components)
        return f"{short_path(file)}: type {content['type']}: there is no such component{near}; write {kinds}"
    unknown = [str(field) for field in content if field not in _FIELDS]
    if unknown:
        return f"{short_path(file)}: {unknown[0]}: there is no such field{did_you_mean(unknown[0], _FIELDS)}"
    return None


def read_yaml(file: Path, yaml: Any = None) -> Any:
    """The content of a YAML file; `yaml` is another reader, e.g. one that keeps comments.

    Raises:
        CommandError: it is not YAML; the message names the line.
    """
    from ruamel.yaml.error import YAMLError

    try:
        text = file.read_text()
        return copy.deepcopy(_parsed(text)) if yaml is None else yaml.load(text)
    except (YAMLError, UnicodeDecodeError) as error:
        from spark_jobs.filters.policy_files import yaml_fault

        raise CommandError(f"{short_path(file)}{yaml_fault(error)}") from error


@functools.lru_cache(256)
def _parsed(text: str) -> Any:
    """Parse YAML; cached, since a server reads the same files often, each in some hundredths of a second."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


def short_path(file: Path) -> str:
    """A path relative to the working directory where it is below it, else as it is."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that it was raised from, outermost first."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def _cause(chain: list[BaseException], model: type[BaseModel] | None) -> str:
    """The message of headrace's own error; else the value that the model refused; else the innermost error."""
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
    """The file of the component that Dagster was loading."""
    for error in chain:
        folder_named = _COMPONENT.search(str(error))
        if folder_named and (file := defs / folder_named["folder"] / "defs.yaml").is_file():
            return file
    return None


def _python_line(chain: list[BaseException], defs: Path) -> str | None:
    """Where in the user's code an error arose, as `FILE, line 3`; None where it arose elsewhere."""
    for error in reversed(chain):
        if isinstance(error, SyntaxError) and error.filename:
            return f"{short_path(Path(error.filename))}, line {error.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if Path(frame.filename).is_relative_to(defs):
                return f"{short_path(Path(frame.filename))}, line {frame.lineno}"
    return None


def _component(symbol: str) -> Any:
    """The object of a dotted name; None where it cannot be imported.

    Raises:
        CommandError: importing the module raises another error.
    """
    module, _, name = symbol.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError):
        return None
    except Exception as error:  # a user's module may raise anything when it is imported
        raise CommandError(f"type {symbol}: {type(error).__name__}: {_one_line(error)}") from error
