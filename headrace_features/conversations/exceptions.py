"""Errors of conversations."""

from __future__ import annotations

from spark_jobs.exceptions import InputError


class TemplateRefusedError(InputError):
    """A template is none, lacks something, or refuses a conversation; the message says why, without naming either."""
