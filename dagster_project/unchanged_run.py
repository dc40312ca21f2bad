"""A run with nothing to do says so from a note, if all that the last run read to know that is as it was.

    headrace run      computes what is due, plans again, and notes: what it read, its state, what it would say now
    headrace run      finds all of it in that state, says the same, and loads neither Dagster nor the project

What was read is what Python opened and listed from the start of the process till the plan was there (an audit hook sees
both): modules, declarations, what these name, folders of sources with the size and time of each file. One file, the
catalogue's database, stands for all tables. There is no note where that is not all: another source than local files, a
catalogue elsewhere, partitions, a program or a server that was asked. The environment, the command line and the folder
have to be those of the note, which counts for an hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import source_from_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.tables.settings import DATABASE, default_root, load_settings

if TYPE_CHECKING:
    from dagster_project.lake_asset import LakeAsset

_FORM: Final = 1  # of a note
_VALID_SECONDS: Final = 3600
_MOST_PATHS: Final = 50_000  # more take longer to look at than they are worth
_TICK_NS: Final = 20_000_000  # a file's time is that of the kernel's last tick
_WRITES: Final = os.O_WRONLY | os.O_RDWR
_ASKS: Final = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec")
_PATHS: Final = ("files", "folders", "walked")  # opened; listed by name; listed with their files
_OF_CATALOGUE: Final = ("iceberg_tables", "iceberg_namespace_properties")
_OF_THE_MACHINE: Final = ("file", "uname")  # what Python's `platform` asks
# What differs between two shells of one user and says nothing to a run.
_OF_A_SHELL: Final = frozenset({"_", "SHLVL", "OLDPWD", "PWD", "COLUMNS", "LINES", "TERM", "WINDOWID", "SSH_TTY"})


def noted_texts(words: Sequence[str]) -> list[str] | None:
    """What a run says that has nothing to do; None where there is no note, or something is not as it was noted.

    Args:
        words: the command line, without its first word `headrace`.
    """
    note = _read_note(_note_file()) if _is_plain(words) else None
    if note is None or note["key"] != _key(words) or not 0 <= note["until"] - time.time() <= _VALID_SECONDS:
        return None
    if note["catalogue"] != catalogue_state() or note["state"] != _state(*(note[name] for name in _PATHS))[0]:
        return None
    return [str(text) for text in note["texts"]]


@dataclass(frozen=True)
class Idle:
    """That a run has nothing to do, as it was found after the last one.

    Attributes:
        lines: of its tables, as the command prints them.
        foretold: what it would say before them.
        catalogue: its state before that was looked at.
    """

    lines: tuple[Any, ...]
    foretold: tuple[str, ...]
    catalogue: str


@dataclass
class Reads:
    """What this process reads until `end`, for a run that may find nothing to do.

    Attributes:
        words: the command line.
        idle: set once it is known that a run now would have nothing to do.
        is_complete: whether what was read is all that decides about that.
    """

    words: Sequence[str]
    idle: Idle | None = None
    is_complete: bool = True
    _key: str = ""
    _began: int = field(default_factory=time.time_ns)
    _home: str = field(default_factory=lambda: str(default_root()) + os.sep)
    _files: set[str] = field(default_factory=set)
    _folders: set[str] = field(default_factory=set)
    _walked: set[str] = field(default_factory=set)
    _traced: bool = True

    @classmethod
    def begin(cls, words: Sequence[str]) -> Reads | None:
        """Note from now on what is opened and listed; None for a command line that is always run in full."""
        if not _is_plain(words):
            return None
        reads = cls(words, _key=_key(words))
        sys.addaudithook(reads._note)  # which stays as long as the process
        return reads

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._traced:
            return
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(flags, int) and flags & _WRITES):
                self._add(self._files, path)
        elif event == "os.listdir":
            self._add(self._folders, arguments[0])
        elif event == "os.scandir":
            self._add(self._walked, arguments[0])
        elif event in _ASKS and not (event == "subprocess.Popen" and arguments[0] in _OF_THE_MACHINE):
            self.is_complete = False

    def _add(self, paths: set[str], path: object) -> None:
        """Add a path that may be relative, bytes, a descriptor (its path was opened) or None (here)."""
        if isinstance(path, int):
            return
        absolute = os.path.abspath(os.fsdecode(path if isinstance(path, str | bytes | os.PathLike) else "."))
        if absolute.endswith(".pyc"):  # Python compares it with its module, whose state it asks without opening it
            with contextlib.suppress(ValueError):
                absolute = source_from_cache(absolute)
        if not absolute.startswith((self._home, "/proc/", "/sys/", "/dev/")):
            paths.add(absolute)

    def end(self) -> None:
        """Note no more: what is read from now on belongs to steps that are computed."""
        self._traced = False

    def give_up(self) -> None:
        """Make no note of this run."""
        self._traced = self.is_complete = False

    def cover(self, assets: Iterable[LakeAsset]) -> None:
        """Add the files that some assets are made of; gives up where these are not all that a run asks."""
        for asset in assets:
            source: Any = getattr(asset.config, "source", None)
            if asset.partitions_def is not None:
                self.give_up()
            elif asset.step.discover is not None:
                path = str(getattr(source, "path", "://"))
                if getattr(source, "kind", "") != "files" or "://" in path or source.repositories is not None:
                    self.give_up()
                path = os.path.abspath(os.path.expanduser(path))
                facts = (os.path.join(folder, "repositories.jsonl") for folder in (path, os.path.dirname(path)))
                self._files.update((path, *facts))

    def write(self, texts: Sequence[str]) -> None:
        """Leave a note for the next run, which says these lines if there is nothing to do."""
        self.end()
        note = _note_file()
        if self.idle is None or not self.is_complete or not load_settings().embedded or not note.parent.is_dir():
            return
        here = Path.cwd()
        expected = [*(folder / ".pyiceberg.yaml" for folder in (Path.home(), here))]
        expected += [folder / "pyproject.toml" for folder in (here, *here.parents)]
        paths = [sorted(part) for part in (self._files.union(map(str, expected)), self._folders, self._walked)]
        state, changed = _state(*paths)
        catalogue = catalogue_state()
        is_safe = catalogue == self.idle.catalogue and changed < self._began - _TICK_NS
        if not is_safe or sum(map(len, paths)) > _MOST_PATHS:
            return
        states = {"catalogue": catalogue, "state": state}
        facts = {"key": self._key, **states, "until": time.time() + _VALID_SECONDS, "texts": texts}
        new = note.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):  # a full disk, or a lake that this user may only read: it is but a note
            new.write_text(json.dumps({**facts, **dict(zip(_PATHS, paths, strict=True))}))
            new.replace(note)


def _is_plain(words: Sequence[str]) -> bool:
    """Whether a command line is `run` with nothing but names and `--json`."""
    return words[:1] == ["run"] and all(word == "--json" or not word.startswith("-") for word in words)


def _note_file() -> Path:
    return default_root() / "logs" / "unchanged.json"


def catalogue_state() -> str:
    """A digest of what the catalogue says: as long as it is the same, no table has changed; empty where none is."""
    import sqlite3

    database = (default_root() / DATABASE).absolute()
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            rows = [sorted(map(repr, connection.execute(f"SELECT * FROM {table}"))) for table in _OF_CATALOGUE]
    except sqlite3.Error:
        return ""
    return hashlib.sha256(repr((str(database), rows)).encode()).hexdigest()


def _read_note(file: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def _key(words: Sequence[str]) -> str:
    """A digest of what a process is started with."""
    environment = sorted(item for item in os.environ.items() if item[0] not in _OF_A_SHELL)
    start = [_FORM, list(words), os.getcwd(), os.geteuid(), sys.executable, sys.path, environment]
    return hashlib.sha256(json.dumps(start).encode(errors="surrogateescape")).hexdigest()


def _state(files: Iterable[str], folders: Iterable[str], walked: Iterable[str]) -> tuple[str, int]:
    """A digest of the state of files, of the names in folders, and of the files in others; when the latest changed.

    Returns:
        The digest; nanoseconds since 1970 of the latest change.
    """
    digest, latest = hashlib.sha256(), 0
    for path in files:
        state = _file_state(path)
        latest = max(latest, 0 if state is None else state[1])
        digest.update(f"{path}\0{state}\0".encode(errors="surrogateescape"))
    for look_inside, some in ((False, folders), (True, walked)):
        for path in some:
            names: Mapping[str, tuple[int, int, int] | None] = {}
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                names = {entry.name: _file_state(entry.path) if look_inside else None for entry in entries}
            latest = max([latest, *(state[1] for state in names.values() if state is not None)])
            digest.update(f"{path}\0{sorted(names.items())}\0".encode(errors="surrogateescape"))
    return digest.hexdigest(), latest


def _file_state(path: str) -> tuple[int, int, int] | None:
    """Size, time of the last change and inode of what is at a path; of a folder its inode; None where nothing is."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (0, 0, status.st_ino) if os.path.isdir(path) else (status.st_size, status.st_ctime_ns, status.st_ino)
