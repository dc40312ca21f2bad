"""Open untrusted git repositories, and run git on their objects alone.

Git executes what the config of a repository names: hooks, pagers, file-system monitors, transports for missing objects.
None of it is read here. Git runs with an empty repository of ours as its GIT_DIR, and the foreign repository lends only
its folder of objects; its refs are read by this module, in a few lines for each of the two forms.

    /tmp/headrace-git-x1/      GIT_DIR: our config, no hook, no remote, no attributes
    /data/redis.git/objects    GIT_OBJECT_DIRECTORY: read, never written
    /data/redis.git/HEAD, packed-refs, refs/**         read as text, checked, never interpreted by git

A bundle is unpacked once into a folder of the cache, laid out like a bare repository.

Files of a repository can lead to another one: a `.git` file, `commondir`, symbolic links, alternates. What is read lies
inside of the repositories named by the source, or the repository is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from spark_jobs.exceptions import InputError
from spark_jobs.sources.refusals import Reason, Refusal

_HEX: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF_LINKS = 5  # symbolic refs followed before a chain of them counts as a loop, as git does
_PACKED_REFS_BYTES = 64 << 20
_HEAP_BYTES = 4 << 30  # of one git process: a tree that names itself a million times over ends here
_LIMIT_SECONDS = 900.0
_MOST_READERS = 4
_PREFERRED_HEADS = ("refs/heads/main", "refs/heads/master")
_CONFIG = """[core]
	repositoryformatversion = {version}
	bare = true
	packedGitLimit = 1g
	packedGitWindowSize = 64m
	deltaBaseCacheLimit = 128m
"""
_SHA256_CONFIG = "[extensions]\n\tobjectformat = sha256\n"


class RefusedRepositoryError(Exception):
    """An unreadable repository, with the refusal for its arrival."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


@dataclass(frozen=True)
class Store:
    """The input parts of a repository: its folder of objects, object ids by ref, and that of HEAD."""

    objects: str
    refs: dict[str, str]
    head: str | None
    is_sha256: bool = False  # whether its object ids are SHA-256
    shallow: tuple[str, ...] = ()  # commits whose parents were not fetched
    allowed: frozenset[str] = frozenset()  # folders that its links may lead into


def open_store(root: str, cache: str, allowed: frozenset[str] | None = None) -> Store:
    """Find the objects and refs of a bare repository, a work tree or a bundle.

    Args:
        root: absolute path.
        cache: folder to unpack bundles in.
        allowed: real paths of the repositories named by the source: nothing is read outside of them; the root alone
            where none are given.

    Raises:
        RefusedRepositoryError: it is none of the three, or is stored in an unreadable way.
    """
    try:
        allowed = frozenset({os.path.realpath(root)}) if allowed is None else allowed
        _stay_inside(root, allowed)
        if os.path.isfile(root):
            root = _unbundled(root, cache)
            allowed = frozenset({os.path.realpath(root)})
        git_folder, common = _git_folders(root, allowed)
        refs = _refs(common)
        shallow = _text(os.path.join(common, "shallow"), _PACKED_REFS_BYTES).split()
        objects = os.path.join(common, "objects")
        borrowed = os.path.join(objects, "info", "alternates")
        if os.path.lexists(borrowed):
            raise RefusedRepositoryError(
                Reason.NO_REPOSITORY,
                f"it borrows objects by {borrowed}; copy them (git repack -a), remove that file",
            )
        head = _resolved(git_folder, common, refs)
        is_sha256 = any(len(oid) > 40 for oid in (*refs.values(), head or ""))
        return Store(objects, refs, head, is_sha256, tuple(filter(_HEX.fullmatch, shallow)), allowed)
    except OSError as error:
        raise RefusedRepositoryError(Reason.UNREADABLE, f"{error.strerror or error}") from error


def _stay_inside(path: str, allowed: frozenset[str]) -> None:
    """Refuse what leads out of the repositories of a source.

    Raises:
        RefusedRepositoryError: the real path is in none of the folders.
    """
    real = Path(os.path.realpath(path))
    if allowed.isdisjoint(map(str, (real, *real.parents))):
        mend = "name the repository that it is of in `repositories` too, or clone it there"
        raise RefusedRepositoryError(
            Reason.NO_REPOSITORY, f"{path} leads to {real}, outside of what the source names; {mend}"
        )


def _git_folders(root: str, allowed: frozenset[str]) -> tuple[str, str]:
    """The folder of HEAD, and the one of objects and refs; they differ for linked work trees."""
    git_folder = os.path.join(root, ".git") if os.path.lexists(os.path.join(root, ".git")) else root
    if os.path.isfile(git_folder):
        _stay_inside(git_folder, allowed)
        git_folder = os.path.join(root, _text(git_folder).removeprefix("gitdir:").strip())
    _stay_inside(git_folder, allowed)
    common = git_folder
    if os.path.isfile(os.path.join(git_folder, "commondir")):
        common = os.path.join(git_folder, _text(os.path.join(git_folder, "commondir")).strip())
        _stay_inside(common, allowed)
    _stay_inside(os.path.join(common, "objects"), allowed)
    if not os.path.isfile(os.path.join(git_folder, "HEAD")) or not os.path.isdir(os.path.join(common, "objects")):
        raise RefusedRepositoryError(
            Reason.NO_REPOSITORY, "no git repository: a bare one, a work tree or a .bundle file was looked for"
        )
    if os.path.isdir(os.path.join(common, "reftable")):
        raise RefusedRepositoryError(Reason.NO_REPOSITORY, "its refs are a reftable; git refs migrate them to files")
    return git_folder, common


def _refs(common: str) -> dict[str, str]:
    """The object id of every ref; a loose ref goes before the packed one of its name."""
    refs: dict[str, str] = {}
    for line in _text(os.path.join(common, "packed-refs"), _PACKED_REFS_BYTES).splitlines():
        oid, _, name = line.partition(" ")
        if _HEX.fullmatch(oid) and name.startswith("refs/"):
            refs[name] = oid
    for folder, _, names in os.walk(os.path.join(common, "refs")):
        for name in names:
            path = os.path.join(folder, name)
            oid = _text(path).strip()
            if _HEX.fullmatch(oid):
                refs[os.path.relpath(path, common)] = oid
    return refs


def _text(path: str, limit: int = 4096) -> str:
    """The beginning of a file; empty where there is none, or no regular file."""
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(limit)


def _resolved(git_folder: str, common: str, refs: dict[str, str]) -> str | None:
    """The object id behind HEAD, through refs to other refs; None where a branch has no commit yet."""
    head = _text(os.path.join(git_folder, "HEAD")).strip()
    for _ in range(_REF_LINKS):
        name = head.removeprefix("ref:").strip()
        if name == head or name in refs:
            break
        if not name.startswith("refs/") or ".." in name.split("/"):
            return None
        head = _text(os.path.join(common, name)).strip()
    head = refs.get(head.removeprefix("ref:").strip(), head)
    return head if _HEX.fullmatch(head) else None


def _unbundled(bundle: str, cache: str) -> str:
    """Unpack a bundle into a folder of the cache, once; gives the folder."""
    about = os.stat(bundle)
    with open(bundle, "rb") as file:
        head = file.read(4096)
    if not head.startswith(b"# v"):
        raise RefusedRepositoryError(Reason.NO_REPOSITORY, "a file that is no git bundle")
    key = hashlib.sha256(f"{bundle}\0{about.st_size}\0{about.st_mtime_ns}".encode(errors="surrogateescape")).hexdigest()
    folder = os.path.join(cache, key[:32])
    if os.path.isdir(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    unpacked = tempfile.mkdtemp(dir=cache)
    try:
        os.makedirs(os.path.join(unpacked, "objects", "pack"))
        with IsolatedGit(Store(os.path.join(unpacked, "objects"), {}, None, b"object-format=sha256" in head)) as git:
            lines = git.output("bundle", "unbundle", bundle).decode(errors="replace").splitlines()
        refs = {name: oid for oid, _, name in (line.partition(" ") for line in lines) if _HEX.fullmatch(oid)}
        heads = sorted(name for name in refs if name.startswith("refs/heads/"))
        chosen = [name for name in ("HEAD", *_PREFERRED_HEADS, *heads) if name in refs]
        head_line = refs[chosen[0]] if chosen else "ref: refs/heads/main"
        Path(unpacked, "HEAD").write_text(head_line, encoding="utf-8")
        packed = "".join(f"{oid} {name}\n" for name, oid in sorted(refs.items()))
        Path(unpacked, "packed-refs").write_text(packed, encoding="utf-8")
        with contextlib.suppress(OSError):  # another process was first, with the same objects
            os.rename(unpacked, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return folder


def _check_links(objects: str, allowed: frozenset[str]) -> None:
    """Refuse a folder of objects with a link out of the repositories of the source.

    Raises:
        RefusedRepositoryError: names the link.
    """
    todo, visited = [objects], set[str]()
    while todo:
        folder = todo.pop()
        visited.add(os.path.realpath(folder))
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    _stay_inside(entry.path, allowed)
                if entry.is_dir() and os.path.realpath(entry.path) not in visited:
                    todo.append(entry.path)


class IsolatedGit(contextlib.AbstractContextManager["IsolatedGit"]):
    """Runs git on the objects of a store, with a config of ours and nothing of the repository's own.

    Raises:
        RefusedRepositoryError: the folder of objects cannot be read, or leads elsewhere.
    """

    def __init__(self, store: Store) -> None:
        try:
            _check_links(store.objects, store.allowed)
        except OSError as error:
            raise RefusedRepositoryError(Reason.UNREADABLE, f"{error.strerror or error}") from error
        self._folder = tempfile.mkdtemp(prefix="headrace-git-")
        git_folder = Path(self._folder)
        for name in ("objects", "refs"):
            (git_folder / name).mkdir()
        (git_folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
        config = _CONFIG.format(version=int(store.is_sha256)) + _SHA256_CONFIG * store.is_sha256
        (git_folder / "config").write_text(config, encoding="utf-8")
        if store.shallow:
            (git_folder / "shallow").write_text("".join(f"{oid}\n" for oid in store.shallow), encoding="utf-8")
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self._folder,
            "LC_ALL": "C",
            "GIT_DIR": self._folder,
            "GIT_OBJECT_DIRECTORY": store.objects,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_OPTIONAL_LOCKS": "0",
        }

    def __exit__(self, *raised: object) -> None:
        """Remove the empty repository."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, *arguments: str, stdin: IO[bytes] | int, stderr: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """A git process with a bounded heap.

        Raises:
            InputError: git is not installed.
        """
        try:
            process = subprocess.Popen(
                ["git", *arguments],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                cwd=self._folder,
            )
        except FileNotFoundError as error:
            raise InputError("git is not installed, or not on the PATH; install git 2.33 or newer") from error
        if hasattr(resource, "prlimit"):  # Linux; elsewhere the time limit alone holds
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_HEAP_BYTES, _HEAP_BYTES))
        return process

    @contextlib.contextmanager
    def stream(self, *arguments: str, parts: Iterable[bytes] = ()) -> Iterator[IO[bytes]]:
        """What a git command prints, given its input in parts; it is ended if it takes too long or is left early.

        Raises:
            RefusedRepositoryError: git failed, with what it said.
        """
        with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as errors:
            typed.writelines(parts)
            typed.seek(0)
            process = self.start(*arguments, stdin=typed, stderr=errors)
            assert process.stdout is not None
            limit = threading.Timer(_LIMIT_SECONDS, process.kill)
            limit.start()
            try:
                yield process.stdout
                failed = process.stdout.read(1) == b"" and process.wait() != 0
            finally:
                limit.cancel()
                process.kill()
                process.stdout.close()
                process.wait()
            if failed:
                errors.seek(0)
                lines = errors.read(4096).decode(errors="replace").strip().splitlines()
                why = [f"ended by {process.returncode}", *lines][-1]
                raise RefusedRepositoryError(Reason.CORRUPT_REPOSITORY, f"git {arguments[0]}: {why}; try git fsck")

    def output(self, *arguments: str, parts: Iterable[bytes] = ()) -> bytes:
        """All that a git command prints; see `stream`."""
        with self.stream(*arguments, parts=parts) as printed:
            return printed.read()


class BlobReader:
    """Reads blobs of one repository by their ids, from one process of `git cat-file --batch`."""

    def __init__(self, root: str, cache: str, allowed: frozenset[str] | None = None) -> None:
        self._git = IsolatedGit(open_store(root, cache, allowed))
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, oid: str, limit: int) -> bytes:
        """The bytes of a blob; of a longer one than `limit`, that many and one more.

        Raises:
            OSError: it is missing or damaged.
        """
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stdin, printed = self._process.stdin, self._process.stdout
        assert stdin is not None and printed is not None
        try:
            stdin.write(oid.encode() + b"\n")
            stdin.flush()
            header = printed.readline().split()
            if len(header) == 3 and header[1] == b"blob":
                size = int(header[2])
                data = printed.read(size if size <= limit else limit + 1)
                if size > limit:
                    self._end()
                    return data
                if len(data) == size and printed.read(1) == b"\n":
                    return data
        except BrokenPipeError:
            header = []
        if header[1:] != [b"missing"]:
            self._end()  # a damaged object ends git; the next blob starts it anew
        raise OSError(f"git has no blob {oid}, or it is damaged; try git fsck")

    def close(self) -> None:
        """End the process, and remove its folder."""
        self._end()
        self._git.__exit__()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class BlobReaders:
    """The readers of a task, one for each repository; at most four are open at once."""

    def __init__(self, cache: str, allowed: Callable[[], frozenset[str]] | None = None) -> None:
        """`allowed` gives the only folders to be read (see `open_store`)."""
        self._cache, self._allowed = cache, allowed
        self._readers: dict[str, BlobReader] = {}

    def read(self, root: str, oid: str, limit: int) -> bytes:
        """The bytes of a blob of a repository; see `BlobReader.read`.

        Raises:
            OSError: the blob or the repository cannot be read.
        """
        if root not in self._readers:
            while len(self._readers) >= _MOST_READERS:
                self._readers.pop(next(iter(self._readers))).close()
            try:
                allowed = None if self._allowed is None else self._allowed()
                self._readers[root] = BlobReader(root, self._cache, allowed)
            except RefusedRepositoryError as error:
                raise OSError(str(error)) from error
        return self._readers[root].read(oid, limit)

    def close(self) -> None:
        """End them all."""
        while self._readers:
            self._readers.popitem()[1].close()
