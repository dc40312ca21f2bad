"""`headrace explore`: a server of the lake's pages on this machine, until it is stopped."""

from __future__ import annotations

import contextlib
import getpass
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvicorn

from dagster_project.addresses import EXPLORER, announced, require_tokens
from dagster_project.exceptions import CommandError
from dagster_project.pages_guard import LOCAL_HOSTS
from headrace.tables.settings import load_settings
from headrace_features.explore.app import make_app, other_pages
from headrace_features.explore.guard import one_token

if TYPE_CHECKING:
    from blender_service.auth.access import Access
    from headrace_features.explore.explorer import Explorer

_FIRST_ANSWERS, _FIRST_SECONDS = 2, 0.3  # the first page comes before what the others import
_WARM_AFTER_SECONDS = 1.0


def serve_pages(
    host: str, port: int, tokens: Path | None, rules: Path | None, allowed_hosts: tuple[str, ...], **settings: Any
) -> None:
    """Serve pages until Ctrl-C.

    Without a file of tokens one token is made, and whoever has the printed address may read what the user of this
    process may. On an address that others can reach, a file of tokens is required.

    Raises:
        CommandError: the address is taken, or open to others without tokens.
        CatalogueError: the lake cannot be opened; without a file of tokens this is raised after the first page is
            there.
    """
    require_tokens("explore", host, tokens)
    first, opened = "", Future[Any]()
    if tokens is None:
        first, holder = one_token(getpass.getuser())
    else:
        explorer, access = open_explorer(tokens, rules)
        opened.set_result(explorer)
        holder = access.holder
    hosts = frozenset({*LOCAL_HOSTS, *(name.lower() for name in (host, *allowed_hosts))})
    app = make_app(opened, hosts, holder)
    settings = {"log_level": "warning", "access_log": False, "server_header": False, "ws": "none", **settings}
    server = uvicorn.Server(uvicorn.Config(app, **settings))
    with _listening(host, port) as listener, contextlib.ExitStack() as noted:
        shown = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        click.echo(f"explorer at {shown}{f'?token={first}' if first else ' (each reader opens it with ?token=..)'}")

        def open_behind() -> None:
            deadline = time.monotonic() + _FIRST_SECONDS
            while server.server_state.total_requests < _FIRST_ANSWERS and time.monotonic() < deadline:
                time.sleep(0.01)
            _open(opened, rules, server, lambda: noted.enter_context(announced(EXPLORER, shown)))

        threading.Thread(target=open_behind, daemon=True).start()
        server.run(sockets=[listener])
    if opened.done():
        opened.result()


def _open(opened: Future[Any], rules: Path | None, server: uvicorn.Server, announce: Callable[[], object]) -> None:
    """Open the lake, then load what the first pages need; a lake that cannot be opened ends the server."""
    try:
        from dagster_project.project.loading import require_lake_or_project
        from headrace.tables.settings import load_settings

        require_lake_or_project(load_settings())
        announce()
        if not opened.done():
            opened.set_result(open_explorer(None, rules)[0])
    except BaseException as error:  # noqa: BLE001 (whoever waits for the lake has it)
        opened.set_exception(error)
        server.should_exit = True
        return
    time.sleep(_WARM_AFTER_SECONDS)
    other_pages()
    opened.result().warm()


def open_explorer(tokens: Path | None, rules: Path | None) -> tuple[Explorer, Access]:
    """The lake of this project, with who may read what of it."""
    from blender_service.auth.access import Access
    from dagster_project.project.declared import texts_are_shown
    from dagster_project.project.loading import require_lake_or_project
    from headrace_features.explore.explorer import Explorer
    from spark_jobs.lake.session.catalogue import open_catalogue

    loaded = load_settings()
    require_lake_or_project(loaded)
    catalogue = open_catalogue(loaded)
    access = Access(catalogue, tokens, rules)
    explorer = Explorer(catalogue, loaded.home / "explore", texts_are_shown, access.reader)
    return explorer, access


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise CommandError(f"port {port} on {host}: {error.strerror}; choose another with --port") from error
