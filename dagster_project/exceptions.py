"""The errors of the Dagster project and its command line.

DagsterProjectError         catch this one
+-- DefinitionError         assets or YAML are declared wrongly; nothing has run
+-- CommandError            a command was given something it cannot use
+-- SourceError             a sensor could not read the source that it looks at
+-- RunFailedError          a run ended with failed steps
    +-- CheckFailedError    the first of them computed rows that a check refused
"""


class DagsterProjectError(Exception):
    """Base of all errors raised by dagster_project on purpose."""


class DefinitionError(DagsterProjectError):
    """Assets or YAML are declared wrongly; nothing has run."""


class CommandError(DagsterProjectError):
    """A command was given something it cannot use."""


class SourceError(DagsterProjectError):
    """A sensor could not read its source."""


class RunFailedError(DagsterProjectError):
    """A run ended with failed steps."""


class CheckFailedError(RunFailedError):
    """A run ended with failed steps, and the first of them computed rows refused by a check."""
