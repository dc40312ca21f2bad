"""A catalogue is cloned at its address while the original goes on: each kind of it in S3, and every command of ours."""

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

from headrace.tables.exceptions import WrongLakeError
from headrace.tables.settings import LakeSettings
from spark_jobs.lake.files.maintenance import expire, remove_orphans
from spark_jobs.lake.files.relocation import relocate
from spark_jobs.lake.session.catalogue import connect
from tests.headrace.tables.test_fence import LATER, NAME, Place, refused, writes
from tests.main_path.services import PASSWORD, Postgres, Wire, object_store, postgres, rest_catalogue
from tests.main_path.test_restore import command

pytestmark = pytest.mark.nightly
_WRITING = (
    ("run",),
    ("maintain", "--days", "0"),
    ("dataset", "delete", "notes", "--yes"),
    ("dataset", "delete", "notes", "--increment", "0", "--yes"),
    ("doc", "excise", "--increment", "notes:0", "--yes"),
    ("table", "delete", "first.survivors", "--yes"),
    ("release", "later", "--corpus", "first"),
    ("release", "kept", "--delete", "--yes"),
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
    ("release",),
)


class Cloned(Place):
    """A lake in S3 whose catalogue is files of a service that is stopped, copied, exchanged and started again."""

    def __init__(self, folder: Path, store: Wire, files: tuple[Path, ...]) -> None:
        """Know the store, and the files of the catalogue."""
        self.s3 = {"endpoint": f"http://127.0.0.1:{store.port}", "region": "us-east-1", "access-key-id": "lake"}
        self.s3 |= {"secret-access-key": PASSWORD}
        super().__init__(folder, "s3://lake/lake", {f"s3.{key}": value for key, value in self.s3.items()})
        self.files = files

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The service stands still, as when its disk is cloned."""
        yield

    def keep(self, name: str) -> None:
        """Clone the catalogue."""
        self._copy("", f".{name}")

    def put_back(self, name: str) -> None:
        """Have a clone at the catalogue's place."""
        self._copy(f".{name}", "")

    def _copy(self, source: str, target: str) -> None:
        with self.stopped():
            for file in self.files:
                subprocess.run(["rm", "-rf", f"{file}{target}"], check=True)
                if Path(f"{file}{source}").exists():
                    subprocess.run(["cp", "-a", f"{file}{source}", f"{file}{target}"], check=True)

    def point_at(self, **properties: str) -> None:
        """Change settings of the catalogue."""
        self.settings = LakeSettings({**self.settings.properties, **properties}, embedded=False)


class ClonedPostgres(Cloned):
    """The whole data directory of a server at one port."""

    def __init__(self, folder: Path, store: Wire, server: Postgres) -> None:
        """Take a running server."""
        super().__init__(folder, store, (server.folder / "data",))
        self.server = server
        self.point_at(uri=server.uri("lake", "+psycopg2"))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server is down."""
        self.server.stop()
        yield
        self.server.start()


class ClonedRest(Cloned):
    """The database behind a REST catalogue; `stack` holds the running server."""

    def __init__(self, folder: Path, store: Wire) -> None:
        """Start one."""
        super().__init__(folder, store, files_of(folder / "rest" / "catalog.db"))
        self.stack = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start the server, at an address of its own, which tells nothing of the catalogue."""
        s3 = {key.upper().replace("-", "_"): value for key, value in self.s3.items()}
        address = self.stack.enter_context(rest_catalogue(self.folder / "rest", s3))
        self.point_at(type="rest", uri=address)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server is ended, and another one started."""
        self.stack.close()
        yield
        self.start()


def files_of(database: Path) -> tuple[Path, ...]:
    """The files of a database of SQLite."""
    return tuple(Path(f"{database}{end}") for end in ("", "-wal", "-shm"))


@pytest.fixture(params=["sqlite", "postgres", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloned]:
    """A lake in S3 with a catalogue of each kind."""
    with object_store(tmp_path / "objects") as store, contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield ClonedPostgres(tmp_path, store, stack.enter_context(postgres("lake")))
        elif request.param == "sqlite":
            yield Cloned(tmp_path, store, files_of(tmp_path / "catalog.db"))
        else:
            rest = ClonedRest(tmp_path, store)
            yield rest
            rest.stack.close()


def test_a_clone_of_each_catalogue_is_told(lake: Cloned) -> None:
    """It deletes nothing of the original that went on; of two the first to write goes on, until it is replaced."""
    for number in range(2):
        lake.append(number)
    lake.keep("clone")
    for number in range(2, 4):
        lake.append(number)
    lake.keep("original")
    lake.put_back("clone")
    refused(lake)
    lake.put_back("original")
    lake.append(4)
    expire(lake.open(), NAME, LATER)
    remove_orphans(lake.open(), NAME, LATER)
    assert lake.rows() == [0, 1, 2, 3, 4]
    lake.keep("original")
    lake.append(5)  # the clone
    lake.keep("clone")
    lake.put_back("original")
    refused(lake)
    list(relocate(connect(lake.settings), lake.warehouse, lake.warehouse))
    lake.append(6)
    assert lake.rows() == [0, 1, 2, 3, 4, 6]
    lake.put_back("clone")
    for write in writes().values():
        with pytest.raises(WrongLakeError, match="headrace relocate"):
            write(lake.open())


def hashes(objects: Path) -> dict[str, str]:
    """SHA-256 of all files of a lake but the fencing token."""
    files = (one for one in objects.rglob("*") if one.is_file() and "headrace-fence" not in str(one))
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


def exchange(database: Path, source: str, target: str) -> None:
    """Copy the files of a database of SQLite over others."""
    for file in files_of(database):
        Path(f"{file}{target}").unlink(missing_ok=True)
        if Path(f"{file}{source}").exists():
            shutil.copy(f"{file}{source}", f"{file}{target}")


def test_no_command_in_a_clone_touches_what_the_original_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects are the same after each; the clone is read as before, and the original goes on without a hitch."""
    monkeypatch.chdir(tmp_path)
    objects, database = tmp_path / "lake", tmp_path / "catalog.db"
    lake = {"TYPE": "sql", "URI": f"sqlite:///{database}", "WAREHOUSE": str(objects)}
    settings = {f"PYICEBERG_CATALOG__LAKE__{key}": value for key, value in lake.items()}
    environment = {**os.environ, **settings, "DAGSTER_HOME": str(tmp_path)}
    command(environment, "init", "mine")
    monkeypatch.chdir(tmp_path / "mine")
    notes = tmp_path / "mine" / "data" / "notes.jsonl"
    command(environment, "run")
    command(environment, "release", "kept", "--corpus", "first")
    command(environment, "blend", "create", "half", "--source", "first.packed_notes_64=1")
    exchange(database, "", ".clone")
    lacking = json.loads(notes.read_text().splitlines()[0])
    add(notes, "a new note of the original " + lacking["body"][::-1])
    command(environment, "run")
    exchange(database, "", ".original")
    exchange(database, ".clone", "")
    add(notes, "a new note for the clone, of sluices, dams and a weir that nobody saw before")
    before = hashes(objects)
    evals = shutil.copy(notes, tmp_path / "evals.jsonl")
    for words in _READING:
        command(environment, *words)
    for words in _WRITING:
        said = command(environment, *(word.format(evals=evals) for word in words), status=None)
        refusals = ("through another catalogue", "nothing to", "corpus first names it")
        assert any(refusal in said for refusal in refusals), (words, said[-2000:])
        after = hashes(objects)
        lost = [path for path, digest in before.items() if after.get(path) != digest]
        assert not lost, (words, lost[:3])
    assert '"lake"' in command(environment, "doctor", "--json", status=None)
    exchange(database, ".original", "")
    command(environment, "run")
    command(environment, "maintain", "--days", "0")
    command(environment, "dataset", "verify", "notes")
    command(environment, "blend", "delete", "half")


def add(notes: Path, body: str) -> None:
    """Add a note to the source."""
    with notes.open("a") as lines:
        lines.write(json.dumps({"name": hashlib.sha256(body.encode()).hexdigest()[:8], "body": body}) + "\n")
