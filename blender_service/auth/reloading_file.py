"""Read a settings file again when it has changed, so that a token can be revoked without a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from blender_service.exceptions import AccessConfigError

RELOAD_SECONDS: Final = 1.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class ReloadingFile(Generic[Value]):
    """The value of a file as it is now, at most a second old; safe for many threads.

    A file that is gone or wrong leaves the last good value in force, with an error in the log: a slip of an editor must
    not end every training run. To revoke everything, write a file that is valid and empty.
    """

    def __init__(
        self, path: Path, parse: Callable[[str, str], Value], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file for the first time.

        Args:
            path: of the file.
            parse: turns its name and its text into the value; raises AccessConfigError.
            clock: seconds, for tests.

        Raises:
            AccessConfigError: the file cannot be read, or is wrong.
        """
        self._path = path
        self._parse = parse
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._value = self._load()
        self._looked = clock()
        self.generation = 0

    def get(self) -> Value:
        """Give the value, read again if the file has changed."""
        if self._clock() - self._looked >= RELOAD_SECONDS:
            with self._lock:
                self._look()
        return self._value

    def _look(self) -> None:
        if self._clock() - self._looked < RELOAD_SECONDS:
            return  # another thread has just looked
        self._looked = self._clock()
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._value = self._load()
        except AccessConfigError as error:
            logger.error("%s; the last good version stays in force", error)
            return
        self.generation += 1
        logger.info("%s: read again", self._path)

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise AccessConfigError(f"{self._path}: {error.strerror}; restore the file") from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _load(self) -> Value:
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise AccessConfigError(f"{self._path}: {error.strerror}; restore the file") from error
        except UnicodeDecodeError as error:
            raise AccessConfigError(f"{self._path}: is not UTF-8 at byte {error.start}; write it again") from error
        return self._parse(str(self._path), text)
