"""Find what can be called in a module, and with what: doctests, tests, and inputs made from annotations.

A call is a list of statements as they would be typed. Inputs are literal text, so a record can be run by its reader.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
import importlib
import inspect
import itertools
import math
import string
import sys
import typing
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

_MOST_STATEMENTS = 50
_MOST_CHARACTERS = 2000  # longest call with a generated input
_TRIES = 3  # inputs made for each that is taken
# Any character would make texts that nobody writes, and hypothesis take 2.5 s to list them all.
_ALPHABET = string.ascii_letters + string.digits + string.punctuation + " \n\täöüßéñçøαωжяאب中日本語한🙂"
# What a repr may name that its module does not; the statement that imports it comes first.
_IMPORTED = ("collections", "datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid")


class _NoInputsError(Exception):
    """No input can be made for a function."""


def collect(module: ModuleType, path: str, kinds: list[str], each: int, tools: str | None) -> dict[str, Any]:
    """The calls of a module's functions, and why a function has none.

    Args:
        module: that was imported.
        path: of its file.
        kinds: doctests, tests, generated.
        each: most generated inputs of a function.
        tools: folder of hypothesis.
    """
    with open(path, encoding="utf-8") as file:
        source = file.read()
    nodes = [node for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    calls, skipped = [], []
    for name, node in {node.name: node for node in nodes}.items():
        function = vars(module).get(name)
        if not inspect.isfunction(function) or function.__code__.co_filename != path:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        where = {"function": name, "first_line": first, "last_line": node.end_lineno}
        collected: list[tuple[str, list[str]]] = []
        why, examples = "", _examples(function) if "doctests" in kinds else []
        if examples:
            stated = [[example.want, example.exc_msg, list(example.options.items())] for example in examples]
            collected.append(("doctest", [example.source.rstrip("\n") for example in examples]))
        if name.startswith("test_"):
            if "tests" in kinds and not _required(function):
                collected.append(("test", [f"{name}()"]))
        elif "generated" in kinds:
            text = ast.get_source_segment(source, node) or name
            try:
                collected += [("generated", call) for call in _generated(module, function, each, text, tools)]
            except _NoInputsError as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 - whatever a program's annotations do
                why = f"{type(error).__name__}: {error}"[:300]
        calls += [
            {**where, "kind": kind, "statements": statements, "stated": stated if kind == "doctest" else []}
            for kind, statements in collected
        ]
        if not collected:
            skipped.append({**where, "detail": why or "no doctest, and no annotations to make inputs from"})
    return {"calls": calls, "skipped": skipped}


def _examples(function: FunctionType) -> list[doctest.Example]:
    """The examples in a function's docstring, as one call: later ones may need earlier ones."""
    try:
        examples = doctest.DocTestParser().get_examples(function.__doc__ or "")
    except ValueError:
        return []
    return [example for example in examples if not example.options.get(doctest.SKIP)][:_MOST_STATEMENTS]


def _required(function: FunctionType) -> list[inspect.Parameter]:
    """The required parameters of a call."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter for parameter in parameters if parameter.default is parameter.empty and parameter.kind not in several
    ]


def _generated(
    module: ModuleType, function: FunctionType, each: int, source: str, tools: str | None
) -> list[list[str]]:
    """Calls with inputs made by hypothesis from annotations, the smallest first; the seed is the function's hash."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise _NoInputsError("it is asynchronous")
    form = "list({})" if inspect.isgeneratorfunction(function) else "{}"
    required = _required(function)
    parameters = inspect.signature(function).parameters
    if not parameters:
        return [[form.format(f"{function.__name__}()")]]
    if missing := [parameter.name for parameter in required if parameter.annotation is parameter.empty]:
        raise _NoInputsError(f"{missing[0]} has no annotation")
    if tools is None:
        raise _NoInputsError("hypothesis is not there")
    drawn = dict[str, list[str]]()

    def note(values: dict[str, Any]) -> None:
        text = form.format(f"{function.__name__}({_arguments(parameters, values)})")
        imports = _evaluates(module, values)
        if imports is not None and len(text) <= _MOST_CHARACTERS:
            drawn[text] = [*imports, text]

    _draw(note, parameters, typing.get_type_hints(function), each * _TRIES, source, tools)
    texts = sorted(drawn, key=lambda text: (len(text), text))
    chosen = [texts[number * len(texts) // each] for number in range(each)] if len(texts) > each else texts
    return [drawn[text] for text in chosen]


def _draw(
    note: Callable[[dict[str, Any]], None], parameters: Any, hints: dict[str, Any], count: int, source: str, tools: str
) -> None:
    """Let hypothesis make values of parameters, and give them to `note`; those with defaults are left out at times."""
    if tools not in sys.path:
        sys.path.append(tools)
    hypothesis = importlib.import_module("hypothesis")
    strategies = importlib.import_module("hypothesis.strategies")
    strategies.register_type_strategy(str, strategies.text(_ALPHABET))
    of = {name: strategies.from_type(hints[name]) for name in parameters if name in hints}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = {name: strategy for name, strategy in of.items() if parameters[name].kind not in several}
    values = strategies.fixed_dictionaries(
        {name: strategy for name, strategy in taken.items() if parameters[name].default is inspect.Parameter.empty},
        optional={
            name: strategy
            for name, strategy in taken.items()
            if parameters[name].default is not inspect.Parameter.empty
        },
    )
    phases, checks = [hypothesis.Phase.generate], list(hypothesis.HealthCheck)
    settings = hypothesis.settings(
        max_examples=count, database=None, deadline=None, phases=phases, suppress_health_check=checks
    )
    seed = hypothesis.seed(int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big"))
    seed(settings(hypothesis.given(values)(note)))()


def _arguments(parameters: Any, values: dict[str, Any]) -> str:
    """The text between the brackets of a call; by name from the first left-out parameter."""
    parts, by_name = [], False
    for name, parameter in parameters.items():
        if name not in values:
            by_name = True
        elif parameter.kind is parameter.POSITIONAL_ONLY or (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not by_name
        ):
            parts.append(repr(values[name]))
        else:
            parts.append(f"{name}={values[name]!r}")
    return ", ".join(parts)


def _evaluates(module: ModuleType, values: dict[str, Any]) -> list[str] | None:
    """The imports with which the `repr` of each value gives the value again; None where it does not."""
    names, imports = dict(vars(module)), list[str]()
    for value in values.values():
        for _ in itertools.chain(_IMPORTED, [""]):
            try:
                again = eval(repr(value), names)
            except NameError as error:
                name = str(error).split("'")[1]
                if name in ("nan", "inf") and "math" not in imports:
                    imports.append(f"from math import {name}")
                    names[name] = getattr(math, name)
                elif name in _IMPORTED:
                    imports.append(f"import {name}")
                    names[name] = importlib.import_module(name)
                else:
                    return None
            except Exception:  # noqa: BLE001 - whatever a `repr` gives
                return None
            else:
                if type(again) is not type(value) or repr(again) != repr(value):
                    return None
                break
        else:
            return None
    return imports
