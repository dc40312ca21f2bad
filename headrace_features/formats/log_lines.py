r"""Read log files as records: an entry is a line matched by the pattern, with the unmatched lines after it.

    line_pattern: (?P<time>\S+) (?P<level>[A-Z]+) (?P<message>.*)

    12:00 ERROR no route        an entry: time, level and message are its columns
      at net.py:17              does not match: it goes on (`unmatched_lines: continue`)
    12:01 INFO up               the next entry

Patterns are RE2's, matched in time linear to the line whatever a user writes; what RE2 does not have (references to
groups, looking around) is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import (
    LINE_SLACK_BYTES,
    NO_PARTITIONS,
    Record,
    RecordFile,
    Refused,
    all_lines,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal


class _Document:
    """Entries of one document."""

    def __init__(self, source: FileReading, max_bytes: int) -> None:
        self._source, self._max_bytes = source, max_bytes
        self.number = 0
        self.size = 0
        self.lines: list[str] = []
        self.fields: dict[str, Any] = {}

    def add(self, line: str) -> None:
        """Add a line; of a too large document no line is held."""
        self.size += len(line) + 1
        self.lines.append(line)
        if self.size > self._max_bytes:
            self.lines = []

    def record(self) -> Iterator[Record | Refused]:
        """Give the document, if it has a line, and begin a new one."""
        if self.size > self._max_bytes:
            detail = f"more than {self._max_bytes} bytes, the max_document_bytes"
            yield Refused(self.number, Refusal(Reason.TOO_LARGE, detail))
        elif self.size:
            yield usable_record(self.number, "\n".join(self.lines).rstrip(), self.fields, self._source, self._max_bytes)
        self.size, self.lines, self.fields = 0, [], {}


def compiled_pattern(source: FileReading, folders: Collection[str] = ()) -> Any:
    """The pattern of lines, compiled.

    Args:
        source: with the pattern and the mapping of columns.
        folders: columns from names of folders (`lang=de/`).

    Raises:
        InputError: RE2 does not take it, or a mapped column is no group of it.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(source.line_pattern or "", options=options)
    except re2.error as error:
        message = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise InputError(
            f"line_pattern: {message}; patterns are RE2's: without references to groups and without looking around"
        ) from error
    for name in _groups(source):
        if name not in pattern.groupindex and (name not in folders or name == source.text_column):
            groups = ", ".join(sorted(pattern.groupindex)) or "none"
            raise InputError(f"line_pattern has no group {name!r}; write (?P<{name}>..), its groups are: {groups}")
    return pattern


def _groups(source: FileReading) -> list[str]:
    """The groups of the pattern named by columns or `lines_by`."""
    by_group = () if source.lines_by in ("line", "blank_line") else (source.lines_by,)
    return list(dict.fromkeys((*source.mapped_columns, *by_group)))


def read_log(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see `log_records`."""
    return log_records(file.plain(), file.source, file.max_bytes, file.partitions)


def log_records(
    stream: Stream, source: FileReading, max_bytes: int, partitions: Mapping[str, str | None] = NO_PARTITIONS
) -> Iterator[Record | Refused]:
    """The documents of a log, each numbered by its first line, with the columns of its first entry.

    Args:
        stream: the file, decompressed.
        source: the pattern, what makes a document, and the mapping of the pattern's groups.
        max_bytes: longest text in UTF-8.
        partitions: columns from folders, where the pattern has no such group.
    """
    pattern, document = compiled_pattern(source, partitions), _Document(source, max_bytes)
    used = [name for name in _groups(source) if name in pattern.groupindex]
    constants = {name: value for name, value in partitions.items() if name not in used}
    for line in all_lines(stream, max_bytes + LINE_SLACK_BYTES):
        if isinstance(line, Refused):
            yield line
            continue
        try:
            data = line.data.removeprefix(b"\xef\xbb\xbf" if line.number == 1 else b"").removesuffix(b"\r")
            text = data.decode()
        except UnicodeDecodeError as error:
            detail = f"byte 0x{line.data[error.start]:02x} at {error.start} of the line is not UTF-8"
            yield Refused(line.number, Refusal(Reason.UNDECODABLE, detail))
            continue
        match = pattern.match(data)  # as bytes: RE2's offsets into a str cost half of the time
        if match is None and not text.strip():
            if source.lines_by == "blank_line":
                yield from document.record()
            elif document.size:
                document.add(text)
        elif match is None and (source.unmatched_lines == "refuse" or not document.size):
            yield Refused(line.number, Refusal(Reason.BAD_RECORD, "the line_pattern does not match this line"))
        elif match is None:
            document.add(text)
        else:
            groups = {**constants, **{name: _decoded(match.group(name)) for name in used}}
            if _opens(groups, document.fields, source.lines_by):
                yield from document.record()
            if not document.size:
                document.number, document.fields = line.number, groups
            document.add(text if source.text_column is None else groups[source.text_column] or "")
    yield from document.record()


def _decoded(group: bytes | None) -> str | None:
    r"""The text of a group; one ending inside of a character (`\C`) is no Unicode, and its row is refused."""
    return None if group is None else group.decode(errors="surrogateescape")


def _opens(groups: Mapping[str, Any], first: dict[str, Any], lines_by: str) -> bool:
    """Whether an entry begins another document than the open one."""
    return lines_by == "line" or (lines_by != "blank_line" and groups[lines_by] != first.get(lines_by))
