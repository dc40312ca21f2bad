"""The errors of rollouts beside Blender's, going over the wire."""

from dagster_project.exceptions import DagsterProjectError


class LogError(DagsterProjectError):
    """A log of rollouts lacks decisions."""


class SnapshotError(DagsterProjectError):
    """What was saved of a log of rollouts is damaged, or of another log."""
