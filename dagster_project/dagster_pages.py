"""Dagster's web server with the guard of its pages before it; Dagster itself has no login and answers any `Host`.

    python -m dagster_project.dagster_pages dev ..           `dagster dev`, with its web server behind the guard
    python -m dagster_project.dagster_pages webserver ..     `dagster-webserver` behind the guard

HEADRACE_UI_HOSTS names our hosts beside those of the loopback, with commas between; HEADRACE_UI_TOKENS a file
of tokens (docs/feed/operation.md, Who may call); without it none is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from headrace.process.interrupts import heed_interrupts

HOSTS: Final = "HEADRACE_UI_HOSTS"
TOKENS: Final = "HEADRACE_UI_TOKENS"


def guarded(app: Any) -> Any:
    """Dagster's application behind the guard described by the environment.

    Raises:
        AccessConfigError: the file of tokens is wrong.
    """
    from dagster_project.pages_guard import LOCAL_HOSTS, PagesGuard

    hosts = (name.strip().lower() for name in os.environ.get(HOSTS, "").split(","))
    return PagesGuard(app, frozenset({*LOCAL_HOSTS, *filter(None, hosts)}), _holder(os.environ.get(TOKENS)))


def _holder(tokens: str | None) -> Callable[[str], str]:
    """Gives the principal of a token; where there are no tokens everybody is one."""
    if not tokens:
        return lambda _: "anybody"
    from blender_service.auth.access_files import ReloadingFile, digest_of, parse_tokens

    principals = ReloadingFile(Path(tokens), parse_tokens)
    return lambda token: principals.get().get(digest_of(token), "") if token else ""


def webserver() -> None:
    """Run `dagster-webserver` behind the guard."""
    cli: Any = import_module("dagster_webserver.cli")
    unguarded = cli.create_app_from_workspace_process_context
    cli.create_app_from_workspace_process_context = lambda *values, **named: guarded(unguarded(*values, **named))
    cli.main()


def dev() -> None:
    """Run `dagster dev` with this module in place of the web server, started as a module."""
    from dagster_project.dagster_core import dev_module

    command = dev_module()
    start = command.open_ipc_subprocess

    def started(parts: Sequence[str], **named: Any) -> Any:
        ours = ("dagster_project.dagster_pages", "webserver")
        return start([part for old in parts for part in (ours if old == "dagster_webserver" else (old,))], **named)

    command.open_ipc_subprocess = started
    command.dev_command()


if __name__ == "__main__":
    heed_interrupts()
    {"dev": dev, "webserver": webserver}[sys.argv.pop(1)]()
