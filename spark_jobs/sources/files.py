"""The kind of all sources of files: trees, tables of Iceberg, those of packages; each file with its reader."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import InputError, SparkJobsError
from spark_jobs.plugins import attribute
from spark_jobs.sources.config.file_reading import FACTS_FILE
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.languages import PLAIN_TEXT, Language, language_columns
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.changes import Earlier, Listed, ListedKind, facts_files, located
from spark_jobs.sources.listing_rows import why
from spark_jobs.sources.opening.file_trees import FoundFile, absolute, is_file, leads_out, stat_web_file
from spark_jobs.sources.opening.remote_trees import is_web
from spark_jobs.sources.opening.table_folders import partitions
from spark_jobs.sources.reading.archive_files import member_columns
from spark_jobs.sources.reading.built_in import (
    COLUMN_READERS,
    COLUMNLESS_READERS,
    READERS,
    missing_package,
    not_installed,
    not_there,
    packages_of,
)
from spark_jobs.sources.reading.readers import is_picture, reader_by_name
from spark_jobs.sources.reading.record_files import record_columns
from spark_jobs.sources.records.records import messages_among
from spark_jobs.sources.refusals import Reason, Refusal, first_line

F = TypeVar("F", bound=FileSource)
_LOOKED_AT = 10_000  # files by whose names it is told which packages a source needs


class FileKind(ListedKind[F]):
    """Files of a source, from its `entries` and `open`."""

    reads_tables = True

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed] | None:
        """Every file, each with the reader for its format; those of facts about repositories first.

        Raises:
            InputError: they cannot be listed, or records have no text column.
        """
        return self.checked(config, (*self._facts(), *map(self.listed, self._entries())))

    def checked(self, config: DocumentsConfig, listed: Iterable[Listed]) -> list[Listed]:
        """Sort files by location, and refuse a source with settings unfit for the formats of its files.

        Raises:
            InputError: there is no file, `line_pattern` is no pattern, or files of records have no text column.
        """
        files, source = located(config, listed), self.source
        if source.line_pattern is not None and "log" in READERS and missing_package("log", source) is None:
            try:
                folders = {name for file in files if file.reader == "log" for name in partitions(file.file.location)}
                with contextlib.suppress(ImportError):  # then its files are refused
                    attribute(READERS["log"].check)(source, folders)
            except InputError as error:
                raise InputError(f"dataset {config.dataset}: {error}") from error
        records = [file for file in files if file.reader in COLUMN_READERS and file.file.refusal is None]
        if records and source.body_column is None:
            first = min(records, key=lambda file: file.path)
            messages = self._messages_in(first)
            mend = "name the column that holds the text" if messages is None else f"write messages_column: {messages}"
            raise InputError(
                f"dataset {config.dataset}: {len(records)} files of records (such as {first.path}) "
                f"and no text_column; {mend}, or leave such files out by `glob`"
            )
        read = [file for file in files if file.reader not in (None, "repositories") and file.refusal is None]
        if source.body_column is not None and read and all(file.reader in COLUMNLESS_READERS for file in read):
            first = min(read, key=lambda file: file.path)
            field = "text_column" if source.messages_column is None else "messages_column"
            raise InputError(
                f"dataset {config.dataset}: {field} is {source.body_column!r}, and none of {len(read)} files has "
                f"columns (such as {first.path}, which is read by {first.reader}); state `format` (jsonl, json, csv, "
                f"parquet, ..), or leave {field} out"
            )
        return files

    def _messages_in(self, file: Listed) -> str | None:
        """A column of conversations in a file of records, if there seems to be one."""
        try:
            names = record_columns(ListedFile(file.file.location, file.path, file.reader or ""), self.source)
        except OSError:
            return None  # whatever is the matter with it, a run says
        return messages_among(names)

    def _facts(self) -> Iterator[Listed]:
        """Files of facts about repositories: the one named in `repositories`, else the one in the root of a tree.

        Records without a repository need no facts, and so their file may have any name.
        """
        source: FileSource = self.source
        if not isinstance(source, FilesSource) or source.repositories is not None:
            return facts_files(source.repositories)
        root = absolute(source.path)
        has_repositories = source.repository_column is not None or source.body_column is None
        if not has_repositories or source.fact_columns:
            return iter(())
        if is_web(root):  # a server that answers to everything would have it link to more
            file = stat_web_file(f"{root}/{FACTS_FILE}", FACTS_FILE, source.stall_seconds)
            return iter(() if file.refusal else (Listed(file, file.path, "repositories", None),))
        facts = f"{root}/{FACTS_FILE}"
        is_out = source.links == "inside" and leads_out(facts, root) is not None
        return facts_files(facts if is_file(facts) and not is_out else None)

    def _entries(self) -> Iterator[FoundFile]:
        try:
            yield from self.source.entries()
        except SparkJobsError:
            raise
        except Exception as error:  # a class of somebody else's may fail in any way
            raise InputError(f"source {self.source.kind}: {type(error).__name__}: {first_line(error)}") from error

    def listed(self, file: FoundFile) -> Listed:
        """A file, with the reader for its format and what its documents are."""
        (reader, language), refusal = self.reader_of(file.path), None
        if reader is None:
            mend = "`ocr: rapidocr` reads text in pictures" if is_picture(file.path) else "state `format`"
            refusal = Refusal(Reason.UNKNOWN_FORMAT, f"no reader for this extension; {mend}, or narrow `glob`")
        elif absent := not_there(reader):
            refusal = absent
        elif package := missing_package(reader, self.source):
            refusal = not_installed(reader, package)
        return Listed(file, file.path, reader, language, None, refusal)

    def reader_of(self, path: str) -> tuple[str | None, Language]:
        """The reader of a file and what its documents are, by its path."""
        return reader_by_name(path, self.source, self.source.format)

    def packages(self) -> Mapping[str, tuple[str, ...]]:
        """Those of the readers of its first files, and what lists them."""
        readers = {self.reader_of(file.path)[0] for file in islice(self._entries(), _LOOKED_AT)}
        needed = dict[str, tuple[str, ...]]()
        for reader in sorted(name for name in readers if name is not None and name in READERS):
            extra = READERS[reader].extra
            needed[extra] = (*needed.get(extra, ()), *packages_of(reader, self.source))
        return {extra: tuple(dict.fromkeys(packages)) for extra, packages in needed.items() if packages}

    def open(self, location: str) -> Any:
        """The bytes at a location.

        Raises:
            OSError: they cannot be read.
        """
        try:
            return self.source.open(location)
        except OSError:
            raise
        except Exception as error:  # a class of somebody else's may fail in any way, for this file alone
            raise OSError(f"its source failed: {type(error).__name__}: {first_line(error)}") from error

    def member(self, name: str, location: str) -> dict[str, Any] | Refusal:
        """A member of an archive is what it would be as a file of that name."""
        return member_columns(self.source, name)

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """The present reader of the file."""
        file = FoundFile(arrival["location"], arrival["path"], arrival["byte_count"], None)
        listed = self.listed(file)
        reader = None if listed.refusal else listed.reader
        return language_columns(reader, listed.language or PLAIN_TEXT) | why(listed.refusal)
