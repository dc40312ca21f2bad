"""A catalogue is cloned at its address while the original goes on: every command of ours in the clone, thrice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.main_path.services import Postgres, lake_environment, object_store, postgres, rest_catalogue
from tests.main_path.test_restore import command

pytestmark = pytest.mark.nightly
_LAKE = "PYICEBERG_CATALOG__LAKE__"
_WRITING = (
    ("run",),
    ("maintain", "--days", "0"),
    ("dataset", "delete", "notes", "--yes"),
    ("dataset", "delete", "notes", "--increment", "0", "--yes"),
    ("doc", "excise", "--increment", "notes:0", "--yes"),
    ("table", "delete", "first.survivors", "--yes"),
    ("release", "create", "later", "--corpus", "first"),
    ("release", "delete", "kept", "--yes"),
    ("corpus", "refresh", "first", "--yes"),
    ("blend", "create", "more", "--source", "first.packed_notes_64=1", "--seed", "5"),
    ("blend", "delete", "half"),
    ("evals", "add", "asked", "--from", "{evals}", "--columns", "body"),
)
_READING = (
    ("table", "show", "notes.texts", "--rows", "3"),
    ("plan",),
    ("status",),
    ("blend", "show"),
    ("release", "show"),
)


class Cloned:
    """A lake whose catalogue is files of a service that can be stopped, copied, exchanged and started again."""

    def __init__(self, environment: dict[str, str], objects: Path, files: tuple[Path, ...]) -> None:
        """Know the environment of commands, the folder of all objects, and the files of the catalogue."""
        self.environment, self.objects, self.files = environment, objects, files

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The service stands still."""
        yield

    def keep(self, name: str) -> None:
        """Clone the catalogue."""
        with self.stopped():
            for file in self.files:
                subprocess.run(["rm", "-rf", f"{file}.{name}"], check=True)
                if file.exists():
                    subprocess.run(["cp", "-a", str(file), f"{file}.{name}"], check=True)

    def put_back(self, name: str) -> None:
        """Have a clone at the catalogue's place."""
        with self.stopped():
            for file in self.files:
                subprocess.run(["rm", "-rf", str(file)], check=True)
                if Path(f"{file}.{name}").exists():
                    subprocess.run(["cp", "-a", f"{file}.{name}", str(file)], check=True)

    def hashes(self) -> dict[str, str]:
        """SHA-256 of all objects but the fencing token."""
        own = {str(one) for one in self.objects.rglob("*") if "catalog.db" in one.name or one.name == "log"}
        return {
            str(one): hashlib.sha256(one.read_bytes()).hexdigest()
            for one in self.objects.rglob("*")
            if one.is_file() and "headrace-fence" not in str(one) and str(one) not in own
        }


class ClonedPostgres(Cloned):
    """The whole data directory of a server at one port."""

    def __init__(self, server: Postgres, environment: dict[str, str], objects: Path) -> None:
        """Take a running server."""
        super().__init__(environment, objects, (server.folder / "data",))
        self.server = server

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """As its machine is, when its disk is cloned."""
        self.server.stop()
        yield
        self.server.start()


class ClonedRest(Cloned):
    """The database behind a REST catalogue; `stack` holds the running server."""

    def __init__(self, folder: Path, environment: dict[str, str], objects: Path, s3: dict[str, str]) -> None:
        """Start one."""
        super().__init__(environment, objects, tuple(folder / f"catalog.db{end}" for end in ("", "-wal", "-shm")))
        self.folder, self.s3, self.stack = folder, s3, contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start the server."""
        self.environment[f"{_LAKE}URI"] = self.stack.enter_context(rest_catalogue(self.folder, self.s3))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server is ended, and another one started."""
        self.stack.close()
        yield
        self.start()


@pytest.fixture(params=["sqlite", "postgres", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloned]:
    """A lake in S3 with a catalogue of each kind."""
    objects = tmp_path / "objects"
    with object_store(objects) as store, contextlib.ExitStack() as stack:
        server = (
            stack.enter_context(postgres("lake"))
            if request.param == "postgres"
            else Postgres(tmp_path, 0, tmp_path, None)
        )
        environment = {**os.environ, **lake_environment(server, store), "DAGSTER_HOME": str(tmp_path)}
        if request.param == "postgres":
            yield ClonedPostgres(server, environment, objects / "lake")
        elif request.param == "sqlite":
            database = tmp_path / "catalog.db"
            environment[f"{_LAKE}URI"] = f"sqlite:///{database}"
            yield Cloned(environment, objects / "lake", tuple(Path(f"{database}{end}") for end in ("", "-wal", "-shm")))
        else:
            environment[f"{_LAKE}TYPE"] = "rest"
            s3 = {
                key.removeprefix(f"{_LAKE}S3__"): value for key, value in environment.items() if f"{_LAKE}S3__" in key
            }
            cloned = ClonedRest(tmp_path / "catalogue", environment, objects / "lake", s3)
            stack.callback(cloned.stack.close)
            yield cloned


def test_no_command_in_a_clone_touches_what_the_original_made(
    lake: Cloned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All objects are the same after each; the clone is read as before, and the original goes on without a hitch."""
    monkeypatch.chdir(tmp_path)
    environment = lake.environment
    command(environment, "init", "mine")
    monkeypatch.chdir(tmp_path / "mine")
    notes = tmp_path / "mine" / "data" / "notes.jsonl"
    command(environment, "run")
    command(environment, "release", "create", "kept", "--corpus", "first")
    command(environment, "blend", "create", "half", "--source", "first.packed_notes_64=1")
    lake.keep("clone")
    lacking = json.loads(notes.read_text().splitlines()[0])
    add(notes, "a new note of the original " + lacking["body"][::-1])
    command(environment, "run")
    command(environment, "maintain", "--days", "0")
    lake.keep("original")
    lake.put_back("clone")
    add(notes, "a new note for the clone, of sluices, dams and a weir that nobody saw before")
    before = lake.hashes()
    evals = shutil.copy(notes, tmp_path / "evals.jsonl")
    for words in _READING:
        command(environment, *words)
    for words in _WRITING:
        said = command(environment, *(word.format(evals=evals) for word in words), status=None)
        assert "through another catalogue" in said or "nothing to" in said, (words, said[-2000:])
        after = lake.hashes()
        lost = [path for path, digest in before.items() if after.get(path) != digest]
        assert not lost, (words, lost[:3])
    assert '"lake"' in command(environment, "doctor", "--json", status=None)
    lake.put_back("original")
    command(environment, "run")
    command(environment, "maintain", "--days", "0")
    command(environment, "dataset", "verify", "notes")
    command(environment, "blend", "delete", "half")


def add(notes: Path, body: str) -> None:
    """Add a note to the source."""
    with notes.open("a") as lines:
        lines.write(json.dumps({"name": hashlib.sha256(body.encode()).hexdigest()[:8], "body": body}) + "\n")
