"""Where the explorer and Dagster's UI of a lake run on this machine, so that each leads to the other.

Whoever serves one of them leaves a note beside the lake, with its process; a note of a dead process is ignored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from dagster_project.exceptions import CommandError
from spark_jobs.lake.ledger.process import Process, this_process

EXPLORER, DAGSTER = "explorer", "dagster"
EXPLORER_PORT = 4141
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
EXPLORER_VARIABLE = "HEADRACE_EXPLORER"  # its address, for definitions that Dagster loads


def require_tokens(command: str, host: str, tokens: Path | None) -> None:
    """Refuse to serve without tokens on an address reached by others.

    Args:
        command: the serving one, for the message.
        host: it listens on.
        tokens: file of tokens; None where nobody is asked for one.

    Raises:
        CommandError: the host is not the loopback, and there are no tokens.
    """
    if host not in _LOOPBACK and tokens is None:
        raise CommandError(
            f"{command}: --host {host} is open to others; give --tokens FILE, a name and its token a line"
        )


@contextlib.contextmanager
def announced(name: str, address: str) -> Iterator[None]:
    """Keep a note of the address of `name` while the block runs."""
    note = _note(name)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"address": address.rstrip("/"), "process": asdict(this_process())}))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if Process(**json.loads(note.read_text())["process"]) == this_process():  # another may have begun since
                note.unlink()


def address_of(name: str) -> str:
    """Where the explorer or Dagster is served, such as `http://127.0.0.1:4141`; empty where it is not."""
    try:
        note = json.loads(_note(name).read_text())
        return str(note["address"]) if Process(**note["process"]).lives() else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def document_page(doc_id: str) -> str:
    """The page of a document in the running explorer; empty where none does."""
    explorer = address_of(EXPLORER)
    return f"{explorer}/documents/{doc_id}" if explorer else ""


def _note(name: str) -> Path:
    from headrace.tables.settings import load_settings  # PyIceberg's: half of what a first page waits for

    return load_settings().home / "explore" / f"{name}.json"
