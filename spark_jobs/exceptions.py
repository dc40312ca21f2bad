"""The exceptions of the steps and the lake, and the outcome of a check that they carry.

SparkJobsError              the base to catch: every message says what, where and how to mend
+-- SetupError              the machine lacks something (Java, jars, disk)
+-- DeclarationError        a mistake in code or YAML, found before anything runs
|   +-- TableDeclarationError
|   +-- StepDeclarationError
+-- ConfigError             a value that a user gave cannot be used
+-- CatalogueError, WrongLakeError, PackedTableError    of `headrace.tables.exceptions`
+-- TableMismatchError      rows or properties are not what the table says
+-- AuditError              a blocking check failed; the table is as it was
+-- RolloutError            a trial on some shards moved too far from what is published
+-- LeaseError              another writer holds the table
+-- InputError              an input table or file is missing or unusable
|   +-- EmptyBagError       a bag without weight has no signature
+-- StepRunError            Spark failed while a step ran
    +-- StepMemoryError     an engine had too little memory for it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from headrace.tables.exceptions import LakeError

SparkJobsError = LakeError
"""Base of all errors that spark_jobs raises on purpose, and of those of what lies below it (`headrace.tables`)."""


class SetupError(SparkJobsError):
    """The machine lacks something that headrace needs."""


class DeclarationError(SparkJobsError):
    """A mistake in a declaration, found before anything runs."""


class TableDeclarationError(DeclarationError):
    """A table is declared wrongly."""


class StepDeclarationError(DeclarationError):
    """A step is declared wrongly."""


class ConfigError(SparkJobsError):
    """A value that a user gave cannot be used."""


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one blocking check.

    Attributes:
        name: of the check.
        passed: whether no row broke it.
        bad_row_count: rows that did.
        description: what it demands.
        bad_keys: keys of up to ten of them, as text.
        bad_rows: the same rows, the values as text by column; no text of a document, no list.
    """

    name: str
    passed: bool
    bad_row_count: int
    description: str
    bad_keys: tuple[str, ...] = ()
    bad_rows: tuple[Mapping[str, str], ...] = ()

    def __str__(self) -> str:
        """The check with its number of bad rows, and the keys of some."""
        keys = f", such as {'; '.join(self.bad_keys)}" if self.bad_keys else ""
        return f"{self.name}: {self.bad_row_count} rows ({self.description}){keys}"


class TableMismatchError(SparkJobsError):
    """Rows or properties are not what the table says."""


class AuditError(SparkJobsError):
    """A blocking check failed; readers still see the table as it was.

    Attributes:
        table: identifier of the table.
        checks: results of all its checks.
    """

    def __init__(self, message: str, table: str, checks: tuple[CheckResult, ...]) -> None:
        super().__init__(message)
        self.table = table
        self.checks = checks


class RolloutError(SparkJobsError):
    """What a step made of some shards is too far from what is published; readers still see the table as it was."""


class LeaseError(SparkJobsError):
    """Another writer holds the table."""


class InputError(SparkJobsError):
    """An input table or file is missing or unusable."""


class EmptyBagError(InputError):
    """A bag without weight has no signature."""


class StepRunError(SparkJobsError):
    """Spark failed while a step ran."""


class StepMemoryError(StepRunError):
    """An engine had too little memory for a step."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known name most like it, and a list of at most twenty."""
    names = list(choices)
    question = nearest(name, names)
    more = ", .." if len(names) > 20 else ""
    return f"{question} (there are {', '.join(names[:20])}{more})" if names else question


def nearest(name: str, choices: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known name most like it; empty where none is."""
    close = get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
