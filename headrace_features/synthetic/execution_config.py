"""What a program may use in the sandbox, what runs it, and how a model's programs are executed.

execute: {rounds: 4, cpu_seconds: 5, language: python}
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from spark_jobs.sources.config.declared import NO_ROWS, Declared


class ExecutionLimits(Declared):
    """What a program may use; limits are of all its processes together unless a field says otherwise."""

    cpu_seconds: float = Field(5, gt=0, le=3600, description="CPU time of one call")
    idle_seconds: float = Field(
        10,
        gt=0,
        description="time in which it uses less than 1% of a core, such as in sleep, after which it is stopped",
    )
    memory_bytes: int = Field(1_000_000_000, ge=1 << 24, description="memory")
    address_bytes: int | None = Field(
        None,
        ge=1 << 24,
        description="address space of each process, of which Node and Java want much; without it memory_bytes",
    )
    processes: int = Field(32, ge=2, description="most processes and threads at a time")
    folder_bytes: int = Field(64_000_000, ge=1 << 16, description="bytes in /tmp, and as many in /dev/shm")
    files: int = Field(10_000, ge=1, description="files in /tmp and /dev/shm")
    file_bytes: int = Field(16_000_000, ge=1, description="largest file")
    open_files: int = Field(256, ge=16, description="open files of each process")
    output_bytes: int = Field(64_000, ge=1, description="longest output of a call, and longest value that it gives")


class Runner(Declared):
    """What programs are run by, and how many of them at a time."""

    python: str | None = Field(None, description="interpreter of Python that runs them; without it the worker's own")
    environment: str | None = Field(
        None, description="folder of packages that code may import, beside those that the interpreter has"
    )
    command: tuple[str, ...] = Field(
        (), description="instead of Python: a command line, such as [node, '{file}']; {file} is the path of the program"
    )
    isolation: Literal["bubblewrap", "unsafe_local"] = Field(
        "bubblewrap",
        description="unsafe_local runs strangers' code as the worker itself, with all that the worker may do",
        json_schema_extra=NO_ROWS,
    )
    at_once: int = Field(4, ge=1, le=256, description="most sandboxes at a time", json_schema_extra=NO_ROWS)

    @model_validator(mode="after")
    def _command_names_the_file(self) -> Runner:
        """Refuse a command without a place for the program, and one beside an interpreter."""
        if self.command and self.python is not None:
            raise ValueError("python and command: name one of them")
        if self.command and not any("{file}" in part for part in self.command):
            raise ValueError("command: nothing in it is {file}, where the path of the program goes")
        return self


class ProgramExecution(Runner, ExecutionLimits):
    """How the code in a model's answers is executed; what it gave is the model's next message."""

    rounds: int = Field(4, ge=1, le=100, description="most answers in a conversation; the code of each is executed")
    language: str = Field("python", min_length=1, description="language of the fenced code blocks that are executed")
    shown_bytes: int = Field(
        4000, ge=100, description="most bytes of a program's output, and of its errors, that the model is shown"
    )

    @model_validator(mode="after")
    def _something_runs_the_language(self) -> ProgramExecution:
        """Refuse a language nothing runs, and packages for what is not Python."""
        if self.command and self.environment is not None:
            raise ValueError("execute: environment is for Python; leave it out beside command")
        if not self.command and self.language.casefold() != "python":
            raise ValueError(f"execute: nothing runs {self.language}; name its command, such as [node, '{{file}}']")
        return self
