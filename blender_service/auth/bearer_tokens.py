"""Read bearer tokens, which tell who calls: a file, an environment variable, or both, a principal and its token a line.

    # principal   token, or the SHA-256 of it, so that the file holds no secret
    pretraining   3q2-7wEjhgYz0Vb8kLmN
    evaluation    sha256:5f2b51ca2fdc5baa31ec02e002f69aec2b2d5c8a1b9a6b9ad1bd1f2f0b3f0f6b

Tokens are looked up by their SHA-256, so the time of a look-up does not reveal how near a guess was.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from blender_service.exceptions import AccessConfigError

TOKENS_VARIABLE: Final = "HEADRACE_TOKENS"
MIN_TOKEN_CHARACTERS: Final = 16
PRINCIPAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Principals = Mapping[str, str]


def parse_tokens(where: str, text: str) -> Principals:
    """Read tokens: one a line (or between semicolons), `#` starts a comment.

    Args:
        where: name of the file or variable, for messages.
        text: its content.

    Returns:
        SHA-256 of each token (64 hex digits) to its principal.

    Raises:
        AccessConfigError: a line is not a principal and a token, or two principals have the same token. No message
            holds a token.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(re.split(r"[\n;]", text), start=1):
        words = line.split("#", maxsplit=1)[0].split()
        if not words:
            continue
        at = f"{where}: line {number}"
        if len(words) != 2 or not PRINCIPAL.fullmatch(words[0]):
            raise AccessConfigError(f"{at}: has {len(words)} words; write PRINCIPAL TOKEN, the name first")
        principal, token = words
        if not _DIGEST.fullmatch(token) and len(token) < MIN_TOKEN_CHARACTERS:
            raise AccessConfigError(
                f"{at}: the token of {principal} has {len(token)} characters; give {MIN_TOKEN_CHARACTERS} or more, "
                "for example from `openssl rand -base64 24`"
            )
        digest = token.removeprefix("sha256:") if _DIGEST.fullmatch(token) else digest_of(token)
        if found.setdefault(digest, principal) != principal:
            raise AccessConfigError(f"{at}: {principal} has the token of {found[digest]}; give each its own")
    return found


def digest_of(token: str) -> str:
    """Give the SHA-256 of a token, by which it is looked up: 64 hex digits."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer_of(value: str) -> str:
    """Take the token out of the metadata value `Bearer TOKEN`; empty if it has another form."""
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
