"""What the core asks of conversations when it reads a column of messages."""

from __future__ import annotations

from typing import Final

from spark_jobs.sources.config.reader import ColumnReading

RULE: Final = "1"
"""Version of the rule by which rows become canonical messages; another makes other documents."""
MESSAGES: Final = ColumnReading(RULE, "headrace_features.conversations.messages.canonical:message_document")
