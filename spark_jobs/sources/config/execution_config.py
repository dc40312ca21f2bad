"""What a program may use that is executed in the sandbox, and how the programs that a model writes are executed.

execute: {rounds: 4, cpu_seconds: 5, language: python}
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from spark_jobs.sources.config.declared import Declared


class ExecutionLimits(Declared):
    """What a program may use; its processes together where nothing else is said."""

    cpu_seconds: float = Field(5, gt=0, le=3600, description="of one call, of all its processes")
    idle_seconds: float = Field(10, gt=0, description="with less than 1% of a core used, as a program that sleeps")
    memory_bytes: int = Field(1_000_000_000, ge=1 << 24, description="of all processes")
    address_bytes: int | None = Field(
        None, ge=1 << 24, description="address space of each process; without it memory_bytes. Node and Java want more"
    )
    processes: int = Field(32, ge=2, description="processes and threads at a time")
    folder_bytes: int = Field(64_000_000, ge=1 << 16, description="in /tmp, and as much in /dev/shm")
    files: int = Field(10_000, ge=1, description="files in /tmp and /dev/shm")
    file_bytes: int = Field(16_000_000, ge=1, description="of one file")
    open_files: int = Field(256, ge=16, description="of each process")
    output_bytes: int = Field(64_000, ge=1, description="of what a call prints, and of the value that it gives")


class ProgramExecution(ExecutionLimits):
    """How the code in a model's answers is executed; what it gave is the model's next message."""

    rounds: int = Field(4, ge=1, le=100, description="answers to a conversation at most; the code of each is executed")
    language: str = Field("python", min_length=1, description="of the fenced code blocks that are executed")
    python: str | None = Field(None, description="interpreter that runs them; without it the worker's own")
    environment: str | None = Field(
        None, description="folder of packages that code may import, beside what the interpreter has"
    )
    command: tuple[str, ...] = Field((), description="instead of Python: a command line; {file} stands for the program")
    shown_bytes: int = Field(
        4000, ge=100, description="of what a program printed, and of its errors, that the model is shown"
    )
    isolation: Literal["bubblewrap", "unsafe_local"] = Field(
        "bubblewrap",
        description="unsafe_local runs a model's code as the worker itself, with all that the worker may do",
    )
    at_once: int = Field(4, ge=1, le=256, description="sandboxes at a time")

    @model_validator(mode="after")
    def _one_way_to_run(self) -> ProgramExecution:
        """Refuse a language that nothing runs, and a command that never sees the program."""
        if self.command and (self.python is not None or self.environment is not None):
            raise ValueError("execute: python and environment are of Python; leave them out beside command")
        if self.command and not any("{file}" in part for part in self.command):
            raise ValueError("execute.command: nothing in it is {file}, where the path of the program goes")
        if not self.command and self.language.casefold() != "python":
            raise ValueError(f"execute: nothing runs {self.language}; name its command, such as [node, '{{file}}']")
        return self
