"""Execute a bundle of documents: a pure function of it and the config, whoever calls it, in a pool or on a worker.

Every call is made in several runs differing on purpose; where their results do, the call is a row with that reason.
A program taking the sandbox down with it ends its own call alone: the following ones are made in another.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from headrace_features.synthetic.attempts import Landed
from headrace_features.synthetic.executed.groups import CPU
from headrace_features.synthetic.executed.records import (
    Collected,
    ProgramCall,
    Result,
    TypedStatement,
    agreed,
    canonical,
)
from headrace_features.synthetic.executed.rows import CodeDocument, call_row, interpreter, package_folder, row_of
from headrace_features.synthetic.executed.sandbox import Program, ProgramOutcome, run
from headrace_features.synthetic.executed_config import ExecutedSource
from spark_jobs.exceptions import InputError

_INSIDE: Final = Path(__file__).with_name("inside")
_BEGIN: Final = "import sys; sys.path[0] = {0!r}; from inside.main import main; main()"
_FOLDER, _LEFT_SECONDS = "headrace-code-", 60
_IMPORT_SECONDS, _COLLECT_SECONDS = 10.0, 30.0  # CPU time beside that of calls
_MOST_BYTES: Final = 64 << 20  # most output of a sandbox that is read
_LATER: Final = 400 * 86_400  # seconds by which the clock of a run is ahead of that of the run before


@dataclass(frozen=True)
class Bundle:
    """Executed documents of a repository, with their files to import and read.

    Attributes:
        repository: its name; None for a document without one.
        files: text by path.
        documents: that are executed.
    """

    repository: str | None
    files: Mapping[str, str]
    documents: tuple[CodeDocument, ...]


@dataclass(frozen=True)
class _Run:
    """A run of a document, and how it differs from the others on purpose; the folders are paths inside."""

    number: int
    root: str = ""
    folder: str = ""
    is_ascii: bool = True  # the names of all files; others are not found where the locale has no such characters

    @property
    def variables(self) -> dict[str, str]:
        """Its environment: hash seed, time zone, locale."""
        if self.number % 2 == 0:
            return {"PYTHONHASHSEED": str(self.number + 1), "TZ": "UTC"}
        locale = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"} if self.is_ascii else {}
        return {"PYTHONHASHSEED": str(self.number + 1), "TZ": "XXX-14", **locale}

    @property
    def asked(self) -> dict[str, Any]:
        """What `inside/main.py` changes: the clock, numbers of processes, addresses of objects, cores."""
        number = self.number
        moved = {"clock_seconds": number * _LATER, "earlier_processes": 23 * number}
        return {**moved, "earlier_objects": 1 + 997 * number, "one_core": number % 2 == 1}


_OWN, _OTHER = ("/code", "/tmp/work"), ("/srv/elsewhere/tree", "/tmp/other/folder")


def execute(bundle: Bundle, source: ExecutedSource) -> Iterator[list[Landed]]:
    """The rows of each document, one document after the other: its records, and its calls without one.

    Raises:
        SetupError: the sandbox lacks something on this machine.
        InputError: the folder of packages is not there.
    """
    with written(bundle.files) as (folder, paths):
        is_ascii = all(map(str.isascii, paths))
        for document in bundle.documents:
            if document.path not in paths:
                yield [row_of(document, source, None, "not_importable", "no file can have its path here")]
            elif source.command:
                done = _run_command(document, source, folder)
                rows = [call_row(document, bundle.repository, source, call, result) for call, result in done]
                yield [*rows, row_of(document, source, None, "executed", f"{len(rows)} inputs")]
            else:
                yield _Python(document, bundle.repository, source, folder, is_ascii).rows()


@contextmanager
def written(files: Mapping[str, str]) -> Iterator[tuple[str, set[str]]]:
    """A folder with some files, readable to every user, and their paths; a path leading out of it is left out."""
    paths = set[str]()
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:  # a new one may not be locked yet
                with _locked(str(left)):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder, _locked(folder):
        os.chmod(folder, 0o755)
        for path, text in files.items():
            parts = PurePosixPath(path)
            if parts.is_absolute() or ".." in parts.parts or "\0" in path:
                continue
            file = Path(folder, parts)
            with suppress(OSError):  # a name that this file system does not take, a file where a folder has to be
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode(errors="surrogatepass"))
                paths.add(path)
        yield folder, paths


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder, no longer held by a killed worker.

    Raises:
        OSError: another holds it.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)


class _Python:
    """The execution of a document of Python."""

    def __init__(
        self, document: CodeDocument, repository: str | None, source: ExecutedSource, folder: str, is_ascii: bool
    ) -> None:
        self._document, self._repository, self._source, self._folder = document, repository, source, folder
        self._is_ascii = is_ascii
        self._isolated = source.isolation == "bubblewrap"
        self._python = interpreter(source)

    def rows(self) -> list[Landed]:
        """All rows of the document."""
        collected = self._collect()
        document, source = self._document, self._source
        if collected.error:
            return [row_of(document, source, None, "not_importable", collected.error)]
        calls, beyond = collected.calls[: source.calls_each], collected.calls[source.calls_each :]
        calls_left = [(number, call.statements, call.stated) for number, call in enumerate(calls)]
        runs: list[dict[int, Result]] = []
        for number in range(source.runs):
            runs.append(self._make(calls_left, self._run(number)))
            calls_left = [call for call in calls_left if not runs[-1][call[0]].reason]
        rows = []
        if beyond:
            problem = f"{len(beyond)} calls beyond calls_each: {source.calls_each}"
            rows.append(row_of(document, source, ["", "too_many"], "too_many", problem))
        for number, call in enumerate(calls):
            result = agreed([done[number] for done in runs if number in done])
            rows.append(call_row(document, self._repository, source, call, result))
        for function in collected.skipped:
            span = (function.first_line, function.last_line)
            rows.append(row_of(document, source, [function.function, ""], "no_inputs", function.detail, span))
        reason = "executed" if collected.calls or collected.skipped else "no_functions"
        unique = {row.request.key: row for row in reversed(rows)}
        return [*reversed(unique.values()), row_of(document, source, None, reason, f"{len(calls)} calls")]

    def _run(self, number: int) -> _Run:
        """The run of a number; without a sandbox all runs are in the folder itself."""
        if not self._isolated:
            return _Run(number, self._folder, f"{self._folder}.call", self._is_ascii)
        return _Run(number, *(_OWN if number % 2 == 0 else _OTHER), self._is_ascii)

    def _collect(self) -> Collected:
        """The calls of the document."""
        source = self._source
        tools = _tools() if "generated" in source.calls else {}
        request = {
            "mode": "collect",
            "kinds": list(source.calls),
            "each": source.generated_each,
            "tools": "/tools"
            if self._isolated
            else next(iter({os.path.dirname(file) for file in tools.values()}), None),
        }
        outcome = self._ask(request, self._run(0), tools, _COLLECT_SECONDS + _IMPORT_SECONDS, 16 << 20)
        try:
            return Collected.model_validate_json(outcome.output)
        except ValidationError:
            return Collected(error=_why(outcome))

    def _make(self, calls: Sequence[tuple[int, list[str], Sequence[Any]]], run: _Run) -> dict[int, Result]:
        """Make calls in a run; after one taking the sandbox down, in another."""
        limits, trace = self._source.limits, self._source.trace
        results = dict[int, Result]()
        left, typed = list(calls), {number: len(statements) for number, statements, _ in calls}
        each = 12 * (limits.output_bytes + trace.steps * trace.characters) + 4096  # escaped in JSON, one has six bytes
        while left:
            request = {"mode": "run", "calls": left, "isolated": self._isolated, "result_bytes": each}
            request |= limits.model_dump(include={"cpu_seconds", "idle_seconds", "output_bytes"})
            request |= {"trace_steps": trace.steps, "trace_characters": trace.characters}
            seconds = _IMPORT_SECONDS + limits.cpu_seconds * (len(left) + 1)
            outcome = self._ask(request, run, {}, seconds, min(each * len(left), _MOST_BYTES))
            paths = {run.root: "/code", run.folder: "/tmp/work"}
            paths |= dict.fromkeys(self._python.folders, "/python")
            answers = _results(outcome.output, paths, 2 * each)
            imported = next(answers, None)
            for result in answers:
                if result.call in typed and len(result.statements) <= typed[result.call]:
                    results.setdefault(result.call, result)
            lacking = [number for number, *_ in left if number not in results]
            # The module was imported, so it is the first of them that failed. That a call uses more CPU than it may is
            # seen inside, unless the module took the watch away: then each of the others would use as much.
            if imported and not imported.reason and outcome.reason != CPU:
                lacking = lacking[:1]
            failed = Result(reason=outcome.reason or "died", detail=_why(outcome))
            results |= dict.fromkeys(lacking, imported if imported and imported.reason else failed)
            left = [call for call in left if call[0] not in results]
        return results

    def _ask(
        self,
        request: Mapping[str, Any],
        isolated_run: _Run,
        tools: Mapping[str, str],
        cpu_seconds: float,
        output_bytes: int,
    ) -> ProgramOutcome:
        """Run `inside/main.py` in the sandbox: it collects calls or makes them as `request` says."""
        packages = package_folder(self._source.environment)
        inside = {"/headrace/inside": str(_INSIDE), isolated_run.root: self._folder, **self._python.folders, **tools}
        if packages is not None:
            inside["/packages"] = packages
            packages = "/packages" if self._isolated else packages
        tools_folder = "/headrace" if self._isolated else str(_INSIDE.parent)
        where = {
            "root": isolated_run.root,
            "path": self._document.path,
            "folder": isolated_run.folder,
            "packages": packages,
        }
        program = Program(
            (self._python.path, "-S", "-s", "-B", "-c", _BEGIN.format(tools_folder)),
            inside,
            isolated_run.variables,
            json.dumps({**request, **where, **isolated_run.asked}).encode(),
            output_bytes,
            cpu_seconds,
        )
        limits = self._source.limits
        patient = limits.model_copy(update={"idle_seconds": 2 * limits.idle_seconds + 5})  # a call is stopped inside
        return run(program, patient, isolated=self._isolated)


def _results(output: bytes, paths: Mapping[str, str], most_bytes: int) -> Iterator[Result]:
    """The lines from a sandbox, as far as they are results; a longer line is not read."""
    for line in output.splitlines():
        with suppress(ValueError, RecursionError):
            if len(line) <= most_bytes:
                yield Result.model_validate(canonical(json.loads(line), paths))


def _run_command(document: CodeDocument, source: ExecutedSource, folder: str) -> Iterator[tuple[ProgramCall, Result]]:
    """Give each input to a command line, in several runs."""
    for typed in source.inputs:
        results = []
        for number in range(source.runs):
            root = folder if source.isolation != "bubblewrap" else "/code" if number % 2 == 0 else _OTHER[0]
            file = f"{root}/{document.path}"
            command = tuple(part.replace("{file}", file) for part in source.command)
            extra = {} if source.environment is None else {source.environment: source.environment}
            limits = source.limits
            variables = _Run(number, is_ascii=document.path.isascii()).variables
            program = Program(
                command, {root: folder, **extra}, variables, typed.encode(), limits.output_bytes, limits.cpu_seconds
            )
            outcome = run(program, limits, isolated=source.isolation == "bubblewrap")
            text, errors = (stream.decode(errors="backslashreplace") for stream in (outcome.output, outcome.errors))
            status = f"exit status {outcome.status}: {errors.strip()}" if outcome.status else None
            statement = TypedStatement(input=typed, printed=text, exception=status)
            result = Result(
                reason=outcome.reason, detail=_why(outcome) if outcome.reason else "", statements=[statement]
            )
            results.append(Result.model_validate(canonical(result.model_dump(), {root: "/code"})))
            if outcome.reason:
                break
        lines = document.text.count("\n") + 1
        call = ProgramCall(kind="command", function="", first_line=1, last_line=lines, statements=[typed])
        yield call, agreed(results) if len(results) > 1 else results[0]


def _why(outcome: ProgramOutcome) -> str:
    """How a program without a result ended."""
    if outcome.reason:
        return f"{outcome.reason} after {outcome.cpu_seconds:.1f} CPU seconds"
    lines = outcome.errors.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"ended with status {outcome.status}")[:300]


@cache
def _tools() -> dict[str, str]:
    """The packages Hypothesis and what it needs: their paths in the sandbox, each with the path outside.

    Raises:
        InputError: it is not installed.
    """
    mounted = dict[str, str]()
    for name in ("hypothesis", "sortedcontainers"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError as error:
            raise InputError(
                f"calls: generated inputs are made by {name}, which is not installed; run: pip install "
                "'headrace[execute]', or leave out `generated`"
            ) from error
        for top in {Path(file).parts[0] for file in files if file.suffix == ".py"} - {".."}:
            mounted[f"/tools/{top}"] = str(metadata.distribution(name).locate_file(top))
    return mounted
