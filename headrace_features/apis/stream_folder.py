"""A folder followed by a stream: its files by name, so many a micro-batch, each once.

Files present together are read in the order of their paths, whatever the times they have and wherever a
micro-batch ends; a later one is read later. The list of read files stands with the pages made of
them, in one row each (`Checkpoints`), so a kill at any moment neither repeats nor loses one: a micro-batch of which
pages are missing is read again, as the same files.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from spark_jobs.sources.opening.compression import decompressed_by_name
from spark_jobs.sources.opening.file_trees import FoundFile, Links, absolute, find_files, open_file
from spark_jobs.sources.paged.checkpoints import StoredPage
from spark_jobs.sources.records.records import Refused, numbered_lines
from spark_jobs.sources.refusals import Reason

_log = logging.getLogger(__name__)
_MOST_LINE_BYTES: Final = 1 << 30
_BEING_WRITTEN: Final = re.compile(r"(^|/)(\.|_(?![^/]*=))|\._COPYING_$")  # as Spark and Hadoop know such files


class MicroBatch(NamedTuple):
    """A micro-batch: its lines, and what its pages are known by, but for their number in it."""

    lines: Iterable[str | None]
    key: list[object]


class StreamFolder:
    """The unread files of a folder."""

    def __init__(
        self, path: str, most_files: int, pages: Iterable[StoredPage], state: Path, links: Links = "inside"
    ) -> None:
        """Know what was read.

        Args:
            path: the folder, or its URI.
            most_files: of a micro-batch.
            pages: that were kept of it.
            state: folder of Spark's record of read files, from before headrace listed folders itself.
            links: whether links may lead out of the folder.
        """
        self._root, self._most_files, self._links = absolute(path), most_files, links
        self._told = set[str]()
        self._locations = dict[str, str]()
        whole, begun = set[tuple[str, ...]](), dict[tuple[str, ...], None]()
        for page in pages:
            names, part = json.loads(page.cursor)[0], page.next_cursor
            if isinstance(names, list):  # else of a micro-batch of Spark, by the id of its query
                begun[tuple(names)] = None
                whole |= {tuple(names)} if part is None else set()
        self._begun = [names for names in begun if names not in whole]
        self._read = {name for names in whole for name in names} | set(_read_by_spark(state, self._root))

    def next_batch(self) -> MicroBatch | None:
        """The next micro-batch; None where no file is new.

        Raises:
            InputError: there is no such folder.
        """
        self._locations = {file.path: file.location for file in self._files() if not _BEING_WRITTEN.search(file.path)}
        while self._begun:
            names = [name for name in self._begun.pop(0) if name in self._locations]
            if names:
                return self._batch(names)
        new = sorted(self._locations.keys() - self._read)
        return self._batch(new[: self._most_files]) if new else None

    def _files(self) -> Iterator[FoundFile]:
        """Readable files; a link leading out of the folder is told once."""
        for file in find_files(self._root, links=self._links):
            if file.refusal is None:
                yield file
            elif file.refusal.reason == Reason.OUTSIDE_LINK and file.path not in self._told:
                self._told.add(file.path)
                _log.warning("%s is not read: %s", file.location, file.refusal.detail)

    def _batch(self, names: list[str]) -> MicroBatch:
        self._read.update(names)
        return MicroBatch(self._lines(names), [names])

    def _lines(self, names: list[str]) -> Iterator[str]:
        """Lines of files, one file after another.

        Raises:
            OSError: one cannot be read to its end.
        """
        for name in names:
            with open_file(self._locations[name]) as file:
                for line in numbered_lines(decompressed_by_name(file, name), _MOST_LINE_BYTES):
                    if isinstance(line, Refused):
                        raise OSError(f"{self._locations[name]}: {line.refusal.detail}; mend the file, or move it away")
                    yield line.data.decode(errors="replace")


def _read_by_spark(state: Path, root: str) -> Iterator[str]:
    """Paths below a folder of the files read in committed micro-batches, by Spark's checkpoint."""
    committed = {int(file.name) for file in (state / "commits").glob("*") if file.name.isdecimal()}
    for log in sorted((state / "sources" / "0").glob("[0-9]*")):
        for line in log.read_text().splitlines()[1:]:  # the first says the version of the log
            entry = json.loads(line)
            if entry["batchId"] <= max(committed, default=-1):
                there = unquote(urlsplit(entry["path"]).path if entry["path"].startswith("file:") else entry["path"])
                yield there.removeprefix(root).lstrip("/")
