"""Records: what a call gave, compared between runs, and written as a text and its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

_ADDRESS: Final = re.compile(r"(?<= at )0x[0-9a-fA-F]+")
_REASONS: Final = "|not_importable|time_out|idle|memory|processes|files|too_long|died|differs"
_SOME_ADDRESS: Final = "0x7f0000000000"


class _Said(BaseModel):
    """Base of what comes out of the sandbox: a program may have written it, so each field is checked."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class ProgramCall(_Said):
    """A possible call.

    Attributes:
        kind: doctest, test, generated.
        function: that is called.
        first_line: of the function in its file, from 1, decorators included.
        last_line: of the function.
        statements: as they would be typed.
        stated: of a doctest, what its file states of each statement: what is shown, the message of an exception or
            None, and options of doctest with whether they are set.
    """

    kind: str
    function: str
    first_line: int
    last_line: int
    statements: list[str]
    stated: list[tuple[str, str | None, list[tuple[int, bool]]]] = []


class Skipped(_Said):
    """A function without a call; detail says why."""

    function: str
    first_line: int
    last_line: int
    detail: str


class Collected(_Said):
    """The calls of a module; or why it could not be imported."""

    calls: list[ProgramCall] = []
    skipped: list[Skipped] = []
    error: str = ""


class TypedStatement(_Said):
    """A typed statement, its output, its value, and the last line of its exception."""

    input: str
    printed: str = ""
    value: str | None = None
    exception: str | None = None


class Result(_Said):
    """What a call gave; or the reason why it is no record. `as_stated` is None where its file states nothing."""

    call: int = -1
    reason: str = Field("", pattern=f"^({_REASONS})$")
    detail: str = ""
    statements: list[TypedStatement] = []
    trace: list[str] = []
    trace_was_cut: bool = False
    values_were_cut: bool = False
    printed_elsewhere: str = ""
    as_stated: bool | None = None


def canonical(value: Any, paths: Mapping[str, str]) -> Any:
    """A value of JSON with addresses of objects and some paths replaced, so that two runs can be compared.

    Args:
        value: any.
        paths: what stands for each; the longest are replaced first.
    """
    if isinstance(value, str):
        for path in sorted(paths, key=len, reverse=True):
            value = value.replace(path, paths[path])
        return _ADDRESS.sub(_SOME_ADDRESS, value).encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [canonical(item, paths) for item in value]
    if isinstance(value, dict):
        return {name: canonical(item, paths) for name, item in value.items()}
    return value


def agreed(results: Sequence[Result]) -> Result:
    """The common result of all runs; where they differ or one failed, a result with that reason.

    It is as its file states where it is in all runs: what hashes order is written alike here, and not in a docstring.
    """
    first = results[0]
    for other in results[1:]:
        if other.reason:
            return Result(reason="differs" if other.reason == "died" else other.reason, detail=other.detail)
        if other.model_copy(update={"as_stated": first.as_stated}) != first:
            return Result(reason="differs", detail=_difference(first, other))
    return first.model_copy(update={"as_stated": first.as_stated and all(result.as_stated for result in results)})


def _difference(mine_result: Result, other: Result) -> str:
    """The first differing field of two results, with both values."""
    for mine, theirs in zip(mine_result.statements, other.statements, strict=False):
        for name in ("value", "exception", "printed"):
            if getattr(mine, name) != getattr(theirs, name):
                return f"{name}: {str(getattr(mine, name))[:120]} and {str(getattr(theirs, name))[:120]}"
    pairs = zip(mine_result.trace, other.trace, strict=False)
    return next((f"trace: {mine[:120]} and {theirs[:120]}" for mine, theirs in pairs if mine != theirs), "length")


def record_of(source: str, result: Result, kind: str) -> dict[str, Any]:
    """The text of a record, and its fields; kind is that of the call."""
    form = _streams if kind == "command" else _typed
    session = "\n".join(line for statement in result.statements for line in form(statement))
    elsewhere = result.printed_elsewhere.rstrip()  # past Python's `sys.stdout`; a terminal would show it last
    parts = [source.rstrip("\n"), f"{session}\n{elsewhere}" if elsewhere else session]
    if result.trace:
        cut = "; it goes on" if result.trace_was_cut else ""
        parts.append("\n".join([f"Trace, by lines of the file{cut}:", *result.trace]))
    last = result.statements[-1] if result.statements else TypedStatement(input="")
    return {
        "text": "\n\n".join(parts) + "\n",
        "input": "\n".join(statement.input for statement in result.statements),
        "output": last.value or "None",
        "exception": last.exception or "",
        "printed": "".join(statement.printed for statement in result.statements) + result.printed_elsewhere,
        "steps": len(result.trace),
        "trace_was_cut": result.trace_was_cut,
        "values_were_cut": result.values_were_cut,
        **({} if result.as_stated is None else {"as_stated": result.as_stated}),
    }


def _typed(statement: TypedStatement) -> list[str]:
    """A statement as a terminal shows it, with what followed."""
    first, *others = statement.input.split("\n")
    lines = [f">>> {first}", *(f"... {line}" for line in others)]
    if statement.printed:
        lines.append(statement.printed.removesuffix("\n"))
    if statement.exception is not None:
        lines += ["Traceback (most recent call last):", "  ...", statement.exception]
    elif statement.value is not None:
        lines.append(statement.value)
    return lines


def _streams(statement: TypedStatement) -> list[str]:
    """What a command line was given, and what it wrote."""
    lines = ["Input:", statement.input.removesuffix("\n"), "", "Output:", statement.printed.removesuffix("\n")]
    return lines if statement.exception is None else [*lines, statement.exception]
