"""The config of a dataset of executions: functions of a dataset of code, called in a sandbox.

source:
  kind: executed
  parents: {dataset: code}
  calls: [doctests, tests, generated]
  limits: {cpu_seconds: 5, memory_bytes: 1_000_000_000}
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from spark_jobs.sources.config.api_config import PagedSource
from spark_jobs.sources.config.declared import NO_ROWS, Declared
from spark_jobs.sources.config.execution_config import ExecutionLimits
from spark_jobs.sources.config.generated_config import Parents


class Trace(Declared):
    """What is noted of each step of a call."""

    steps: int = Field(200, ge=0, description="events of a trace; a longer one is cut, and says so")
    characters: int = Field(80, ge=8, description="of each value in a trace; longer ones are cut, and say so")


class ExecutedSource(PagedSource):
    """Calls of functions in documents of the lake, with what they gave; docs/executed.md."""

    kind: Literal["executed"] = "executed"
    text_column: str = Field("text", pattern="^text$", description="the record as text; there is no other")
    id_column: str = Field("key", pattern="^key$", description="the execution's key; there is no other")
    repository_column: str | None = Field("repository", pattern="^repository$", description="that of the code")
    record_kind: Literal["code", "prose", "markup", "data"] = Field("code", description="as for files")
    unknown_fields: Literal["ignore", "metadata"] = "metadata"
    parents: Parents = Field(description="whose code is executed: {dataset: NAME} or {corpus: NAME}")
    language: str = Field("python", min_length=1, description="language of the documents that are taken")
    calls: tuple[Literal["doctests", "tests", "generated"], ...] = Field(
        ("doctests", "tests", "generated"), min_length=1, description="which calls of Python's functions are made"
    )
    generated_each: int = Field(5, ge=1, le=1000, description="most generated inputs of a function")
    calls_each: int = Field(200, ge=1, description="most calls of a document; the rest is a row with that reason")
    python: str | None = Field(None, description="interpreter that runs them; without it the worker's own")
    environment: str | None = Field(
        None, description="folder of packages that code may import, beside the standard library and its repository"
    )
    command: tuple[str, ...] = Field(
        (), description="instead of Python: a command line; {file} stands for the document, input comes on stdin"
    )
    inputs: tuple[str, ...] = Field(("",), min_length=1, description="with command: what each document is given")
    limits: ExecutionLimits = Field(ExecutionLimits(), description="what a call may use")
    trace: Trace = Field(Trace(), description="what is noted of a call's steps")
    runs: int = Field(
        3, ge=2, le=8, description="runs of a call, which differ on purpose; a pair in the order of its hashes is the "
        "same in two runs half of the time",
    )  # fmt: skip
    accepted: int | None = Field(
        None, ge=1, description="records that are wanted; without it those of all documents",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip
    seed: int = Field(0, description="of the order in which documents are taken")
    isolation: Literal["bubblewrap", "unsafe_local"] = Field(
        "bubblewrap",
        description="unsafe_local runs strangers' code as the worker itself, with all that the worker may do",
        json_schema_extra=NO_ROWS,
    )
    at_once: int = Field(4, ge=1, le=256, description="sandboxes at a time", json_schema_extra=NO_ROWS)

    @model_validator(mode="after")
    def _one_way_to_run(self) -> ExecutedSource:
        """Refuse settings of Python beside a command line, and a command that never sees the document."""
        if self.command and self.python is not None:
            raise ValueError("python and command: name one of them")
        if self.command and not any("{file}" in part for part in self.command):
            raise ValueError("command: nothing in it is {file}, where the path of the document goes")
        if not self.command and self.inputs != ("",):
            raise ValueError("inputs are for a command; Python's are doctests, tests and generated ones")
        return self

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """The table that says whose code is executed; who may not read it may not read the records."""
        return (self.parents.table,)

    def address(self, endpoint: str) -> str:
        """What locations of pages begin with."""
        return f"executed/{endpoint}"
