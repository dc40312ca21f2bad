"""Messages of errors, as rows keep them: the same in every run, and without secrets."""

from __future__ import annotations

import re

from spark_jobs.credentials import without_secrets

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


def kept_message(message: str) -> str:
    """A message without secrets and addresses of objects, which no two runs share: `<BytesIO object at 0x7f..>`."""
    message = without_secrets(message)
    return _ADDRESS.sub("", message) if " at 0x" in message else message
