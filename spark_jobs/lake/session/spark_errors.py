"""The cause of a failure in one line, found in the long message where it is Spark's."""

from __future__ import annotations

import re

from spark_jobs import exceptions
from spark_jobs.lake.engine.choice import ENGINE
from spark_jobs.lake.engine.memory import MEMORY, SPARK_MEMORY

_OWN_ERROR = re.compile(r"(?P<module>spark_jobs\.exceptions\.)?(?P<name>\w+Error): (?P<message>.+)")
_OF_SAIL = re.compile(r"^.*\bExternal error: (?=\w+(Error|Exception): )")  # before a worker's error, without its module
_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|scala\.|py4j\.)[\w.]*(Error|Exception): ")
_LOST_DATABASE = re.compile(
    r"PSQLException: (FATAL: (terminating connection|the database system is)|Connection to \S+ refused|"
    r"An I/O error|This connection has been closed)"
)
_SAIL_IS_FULL = ("remain available for the total memory pool", "Not enough memory to continue external sort")
# The last is what is seen of a JVM that the kernel ended.
_SPARK_IS_FULL = ("java.lang.OutOfMemoryError", "Answer from Java side is empty")
_GRPC_DETAILS = re.compile(r'details = "(.+)"')  # of Sail
_FULL_DISK = ("No space left on device", "Disk quota exceeded")


def lost_database(error: BaseException | None) -> bool:
    """Whether Spark failed because the catalogue's database server ended its connections, or is starting."""
    return _LOST_DATABASE.search(str(error)) is not None


def is_spark_error(error: Exception) -> bool:
    """Whether it is Spark's or its JVM's; neither need be imported."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an engine failed for memory: Sail's pool was too small, Spark's heap, or the kernel ended its JVM."""
    return any(sign in str(error) for sign in (*_SAIL_IS_FULL, *_SPARK_IS_FULL))


def cause_line(error: Exception) -> str:
    """The message of any error in one line, without Spark's trace."""
    if is_spark_error(error):
        return failure_line(error)
    return " ".join(str(error).split()) or type(error).__name__


def failure_line(error: Exception, trace: str = "the same command as `headrace --debug ..`") -> str:
    """The line of a Spark failure that says what happened.

    For an error that a step raised on purpose on an executor this is its own message; else the last line of a Python
    worker's trace, or the deepest cause in the JVM.

    Args:
        error: the failure.
        trace: what shows all of it.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(sign in line for line in lines for sign in _FULL_DISK):
        return "the disk is full; free some space and run again, nothing was published"
    if any(sign in str(error) for sign in _SAIL_IS_FULL):
        return (
            f"Sail needs more memory than {MEMORY} allows; raise it where there is more, or run with {ENGINE}=spark; "
            "the table is as it was"
        )
    if any(sign in str(error) for sign in _SPARK_IS_FULL):
        return (
            f"Spark needs more memory than its heap; set {SPARK_MEMORY} to more where there is more, or run with "
            f"{ENGINE}=sail; the table is as it was"
        )
    if any("NOT_NULL_ASSERT_VIOLATION" in line for line in lines):
        column = _after(lines, "NOT_NULL_ASSERT_VIOLATION")
        return f"column {column} is null in a row, the table says it is required; fill it or leave such rows out"
    lines = [_OF_SAIL.sub("", line) for line in lines]
    for raised in filter(None, map(_OWN_ERROR.match, reversed(lines))):
        if raised["module"] or hasattr(exceptions, raised["name"]):
            return raised["message"]
    return f"{spark_cause(error)}; the table is as it was; the whole trace: {trace}"


def spark_cause(error: Exception) -> str:
    """The last line of a Python worker's trace, or the deepest cause in the JVM, or else the first line."""
    lines = [_OF_SAIL.sub("", line.strip()) for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    grpc = [details[1] for details in map(_GRPC_DETAILS.match, lines) if details is not None]
    return (python[-1:] or causes[-1:] or java[:1] or grpc or lines[:1] or [type(error).__name__])[0][:500].rstrip("; ")


def _after(lines: list[str], sign: str) -> str:
    """The line that follows the one with `sign`."""
    number = next(number for number, line in enumerate(lines) if sign in line)
    return "".join(lines[number + 1 : number + 2]).replace('"', "")
