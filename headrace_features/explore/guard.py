"""The guard of the explorer's pages: its cookie, its token, and what a page may load."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from dagster_project.pages_guard import Guard

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # by no-referrer a browser would send `Origin: null` with our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ExplorerGuard(Guard):
    """Guards the pages of the explorer."""

    command = "headrace explore"
    cookie = "headrace_explore"
    headers: Mapping[str, str] = HEADERS
    without_token = ("/static/",)


def one_token(principal: str) -> tuple[str, Callable[[str], str]]:
    """A new token for a principal, and a function that gives the principal of a token, empty for any other token."""
    token = secrets.token_urlsafe(24)
    return token, lambda text: principal if hmac.compare_digest(text.encode(errors="replace"), token.encode()) else ""
