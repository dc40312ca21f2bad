"""Messages of errors, as rows keep them: the same in every run."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


def without_addresses(message: str) -> str:
    """A message without the addresses of objects in it, which no two runs share: `<BytesIO object at 0x7f..>`."""
    return _ADDRESS.sub("", message) if " at 0x" in message else message
