"""Rows of executions: the key of each, the part of its parent, and a record or the reason why there is none."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.attempts import Landed
from headrace_features.synthetic.executed.records import ProgramCall, Result, record_of
from headrace_features.synthetic.executed.sandbox import OUTPUT, Interpreter, interpreter_of
from headrace_features.synthetic.executed_config import ExecutedSource
from headrace_features.synthetic.requests import Parent, Request
from spark_jobs.exceptions import InputError
from spark_jobs.lake.ledger.step_key import canonical_json

RECORDS: Final = "calls"
"""First part of the paths of records."""

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # as Python counts them


@dataclass(frozen=True)
class CodeDocument:
    """A document of code.

    Attributes:
        dataset: of the document.
        doc_id: its identity.
        path: in its repository.
        text: its content.
    """

    dataset: str
    doc_id: str
    path: str
    text: str


def document_key(source: ExecutedSource, text: str) -> str:
    """The key of the note about a document's execution."""
    return _key(source, text, None)


def _key(source: ExecutedSource, text: str, call: Sequence[str] | None) -> str:
    """SHA-256 over the text, the input (None: of the document as a whole), the limits and the environment."""
    named = ("limits", "trace", "runs", *(("calls", "generated_each", "inputs") if call is None else ()))
    facts = source.model_dump(mode="json", include=set(named))
    whole = {**facts, "source": text, "input": None if call is None else list(call), "environment": _facts(source)}
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def _facts(source: ExecutedSource) -> dict[str, Any]:
    """What executes the code: the versions of the interpreter and of the packages, or the command line."""
    if source.command:
        return {"command": list(source.command)}
    return {"python": interpreter(source).version, "packages": packages_in(package_folder(source.environment))}


def interpreter(source: ExecutedSource) -> Interpreter:
    """The interpreter for a dataset's code."""
    return interpreter_of(source.python or sys.executable)


def package_folder(environment: str | None) -> str | None:
    """The folder of importable packages; in a virtual environment its site-packages."""
    if environment is None:
        return None
    return str(next(Path(environment).glob("lib/python3*/site-packages"), environment))


@cache
def packages_in(folder: str | None) -> list[str]:
    """The distributions in a folder of packages.

    Raises:
        InputError: there is no such folder, or the sandbox may not read it.
    """
    if folder is None:
        return []
    if not os.path.isdir(folder):
        raise InputError(f"environment: {folder} is no folder; make it by pip install --target {folder} PACKAGE")
    if os.geteuid() == 0 and os.stat(folder).st_mode & 5 != 5:
        raise InputError(f"environment: {folder} is closed to others, as whom code runs: chmod -R o+rX {folder}")
    return sorted(
        f"{distribution.name} {distribution.version}" for distribution in metadata.distributions(path=[folder])
    )


def call_row(
    document: CodeDocument, repository: str | None, source: ExecutedSource, call: ProgramCall, result: Result
) -> Landed:
    """The row of a call: a record, or the reason why there is none."""
    span = (call.first_line, call.last_line)
    row = row_of(document, source, call.statements, result.reason, result.detail, span)
    if result.reason:
        return row
    record = record_of(row.request.parent.text, result, call.kind)
    if len(record["text"].encode()) > source.limits.output_bytes * 4:
        return row_of(document, source, call.statements, OUTPUT, "the text of the record", span)
    record |= {"function": call.function, "call": call.kind, "repository": repository}
    return Landed(row.request, row.answer, json.dumps(record), "", "")


def row_of(
    document: CodeDocument,
    source: ExecutedSource,
    call: Sequence[str] | None,
    reason: str,
    detail: str = "",
    lines: tuple[int, int] | None = None,
) -> Landed:
    """A row about lines of a document, or all of it."""
    parent = _part(document, lines)
    request = Request(_key(source, document.text, call), {}, parent, RECORDS)
    model = " ".join(source.command) or interpreter(source).version
    return Landed(request, Answer(model=model), "", reason, detail)


def _part(document: CodeDocument, lines: tuple[int, int] | None) -> Parent:
    """The part of a document in some lines, with its first and last byte."""
    if lines is None:
        return Parent(document.dataset, document.doc_id, document.text, 0, len(_bytes(document.text)))
    every = _LINE.findall(document.text)
    before, text = "".join(every[: lines[0] - 1]), "".join(every[lines[0] - 1 : lines[1]])
    start = len(_bytes(before))
    return Parent(document.dataset, document.doc_id, text, start, start + len(_bytes(text)))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
