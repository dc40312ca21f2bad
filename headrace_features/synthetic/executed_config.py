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

from headrace_features.synthetic.execution_config import ExecutionLimits, Runner
from headrace_features.synthetic.generated_config import Parents
from spark_jobs.sources.config.declared import NO_ROWS, Declared
from spark_jobs.sources.config.paged_source import PagedSource


class Trace(Declared):
    """How much is noted of the steps of a call."""

    steps: int = Field(200, ge=0, description="most events in a trace; a longer one is cut, and says so")
    characters: int = Field(
        80, ge=8, description="most characters of a value in a trace; longer ones are cut, and say so"
    )


class ExecutedSource(PagedSource, Runner):
    """Calls of functions in documents of the lake, with their results; docs/prepare/executed.md."""

    kind: Literal["executed"] = "executed"
    text_column: str = Field("text", pattern="^text$", description="the record as text; there is no other")
    id_column: str = Field("key", pattern="^key$", description="the execution's key; there is no other")
    repository_column: str | None = Field(
        "repository", pattern="^repository$", description="the repository of the code; there is no other"
    )
    record_kind: Literal["code", "prose", "markup", "data"] = Field("code", description="kind of the records")
    unknown_fields: Literal["ignore", "metadata"] = "metadata"
    parents: Parents = Field(description="whose code is executed: {dataset: NAME} or {corpus: NAME}")
    language: str = Field("python", min_length=1, description="language of the documents that are taken")
    calls: tuple[Literal["doctests", "tests", "generated"], ...] = Field(
        ("doctests", "tests", "generated"), min_length=1, description="which calls of Python's functions are made"
    )
    generated_each: int = Field(5, ge=1, le=1000, description="most generated inputs of a function")
    calls_each: int = Field(200, ge=1, description="most calls of a document; one row counts the others")
    inputs: tuple[str, ...] = Field(("",), min_length=1, description="with command: what each document is given")
    limits: ExecutionLimits = Field(ExecutionLimits(), description="what a call may use")
    trace: Trace = Field(Trace(), description="how much is noted of the steps of a call")
    runs: int = Field(
        3, ge=2, le=8, description="runs of a call, which differ on purpose; a pair in the order of its hashes is the "
        "same in two runs half of the time",
    )  # fmt: skip
    accepted: int | None = Field(
        None, ge=1, description="records that are wanted; without it those of all documents",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip
    seed: int = Field(0, description="seed of the order in which documents are taken")

    @model_validator(mode="after")
    def _inputs_have_a_command(self) -> ExecutedSource:
        """Refuse inputs where nothing takes them."""
        if not self.command and self.inputs != ("",):
            raise ValueError("inputs are for a command; Python's are doctests, tests and generated ones")
        return self

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """The table of the executed code; without the right to read it nobody may read the records."""
        return (self.parents.table,)

    def address(self, endpoint: str) -> str:
        """What the locations of an endpoint's pages begin with."""
        return f"executed/{endpoint}"
