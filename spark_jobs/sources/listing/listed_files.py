"""Which files a source has, each with its reader: below a path, at web addresses, of packages, of distributions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from spark_jobs.exceptions import InputError, SparkJobsError
from spark_jobs.sources.api.checkpoints import Checkpoints
from spark_jobs.sources.config.api_config import PagedSource
from spark_jobs.sources.config.file_reading import COLUMN_READERS, FACTS_FILE
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.config.source_config import (
    DocumentsConfig,
    FilesSource,
    GitSource,
    PackagesSource,
    PythonCodeSource,
    PythonDocsSource,
    TreeSource,
)
from spark_jobs.sources.formats.extraction import EXTRA_OF, missing_package
from spark_jobs.sources.languages import PLAIN_TEXT, Language, is_manifest, language_of
from spark_jobs.sources.opening.file_trees import FoundFile, absolute, find_files, is_uri, stat_file, stat_web_file
from spark_jobs.sources.opening.remote_trees import file_system_of, is_web
from spark_jobs.sources.reading.readers import is_picture, told_by_name
from spark_jobs.sources.refusals import Reason, Refusal, first_line
from spark_jobs.sources.repositories.packages import list_packages
from spark_jobs.sources.repositories.repositories import (
    Facts,
    Repository,
    directory_repositories,
    installed_repositories,
    stable_path,
)

_LICENCE_TEXTS = r"(?:LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|CONTRIBUTORS)[^/]*"
_README_OR_CHANGES = r"(?:README|CHANGE|HISTORY|NEWS|RELEASE)[^/.]*(?:\.txt)?"
_PROSE = re.compile(
    rf"(?i)(?:\.(?:mdx?|markdown|rst)$|(?:^|/)(?:{_LICENCE_TEXTS}|{_README_OR_CHANGES})$|\.dist-info/licenses/)"
)
_DESCRIPTION = re.compile(r"(?:\.dist-info/METADATA|\.egg-info/PKG-INFO)$")
_MAKES_PAGES = re.compile(r"(?i)\.(?:php\d?|aspx?|jspx?|cgi|pl|do|cfm)$")
_INFO_DIRECTORY = re.compile(r"^[^/]+\.(?:dist|egg)-info/")


@dataclass(frozen=True)
class Listed:
    """A file, and what is known about the document in it before it is read."""

    file: FoundFile
    path: str
    reader: str | None
    language: Language | None
    facts: Facts | None = None
    refusal: Refusal | None = None
    object: str | None = None


def list_files(
    config: DocumentsConfig, earlier: Mapping[str, dict[str, Any]], store: Checkpoints | None = None
) -> list[Listed]:
    """Every file of the source, by location; a location that two repositories claim goes to the first by name.

    Args:
        config: the step's config.
        earlier: the latest arrival at each location, where files that are as they were need not be read again.
        store: what was fetched of a list of addresses.

    Raises:
        InputError: the source holds no file, what it names does not exist, or records have no text column.
    """
    source = config.source
    assert not isinstance(source, GitSource | PagedSource)  # listed by `git.listing` and `api.pages`
    by_location = (
        {} if isinstance(source, PackagesSource) else {file.file.location: file for file in _list_facts(source)}
    )
    facts_count = len(by_location)
    files: Iterator[Listed]
    if isinstance(source, PackagesSource):
        found = list_packages(source, earlier)
        files = (Listed(file, ".", "package", PLAIN_TEXT, facts, refusal) for file, facts, refusal in found)
    elif store is not None and isinstance(source, FilesSource):
        from spark_jobs.sources.api.addresses import found_addresses

        files = (replace(listed_file(file, source), object=kept) for file, kept in found_addresses(source, store))
    else:
        files = _list_tree(source) if isinstance(source, FileSource) else _list_repositories(source)
    for listed in files:
        by_location.setdefault(listed.file.location, listed)
    if len(by_location) == facts_count and not config.allow_empty:
        raise InputError(
            f"dataset {config.dataset}: the source holds no file ({source.kind}); check what it names, or declare "
            "`allow_empty: true` if all of its files were deleted"
        )
    if isinstance(source, FileSource) and source.line_pattern is not None:
        _require_pattern(config.dataset, source)
    if isinstance(source, FileSource) and source.text_column is None:
        records = [file.path for file in by_location.values() if file.reader in COLUMN_READERS]
        if records:
            raise InputError(
                f"dataset {config.dataset}: {len(records)} files of records (such as {min(records)}) "
                "and no text_column; name the column that holds the text, or leave such files out by `glob`"
            )
    return [by_location[location] for location in sorted(by_location)]


def _require_pattern(dataset: str, source: FileSource) -> None:
    """Fail if the pattern of the lines of logs is no pattern.

    Raises:
        InputError: says why.
    """
    from spark_jobs.sources.formats.log_lines import compiled_pattern

    if missing_package("log", source) is None:
        try:
            compiled_pattern(source)
        except InputError as error:
            raise InputError(f"dataset {dataset}: {error}") from error


def _list_facts(source: TreeSource) -> Iterator[Listed]:
    """Files of facts about repositories: the one that is named, else those in the root of the source.

    A root is `path`, or the folder that holds the directories. Records without a repository need no facts, and so their
    file may have any name.
    """
    if source.repositories is not None:
        found: Iterable[FoundFile] = find_files(absolute(source.repositories))
    elif isinstance(source, FilesSource):
        has_repositories = source.repository_column is not None or source.text_column is None
        needed = has_repositories and not source.urls and not source.fact_columns
        root = absolute(source.path)
        if needed and is_web(root):  # a server that answers to everything would have it link to more
            file = stat_web_file(f"{root}/{FACTS_FILE}", FACTS_FILE, source.stall_seconds)
            found = () if file.refusal else (file,)
        else:
            found = find_files(f"{root}/{FACTS_FILE}") if needed and _is_file(f"{root}/{FACTS_FILE}") else ()
    elif isinstance(source, FileSource):
        found = ()
    else:
        roots = sorted({os.path.dirname(absolute(pattern)) for pattern in source.directories})
        found = [stat_file(f"{root}/{FACTS_FILE}", FACTS_FILE) for root in roots if _is_file(f"{root}/{FACTS_FILE}")]
    for file in found:
        yield Listed(file, file.path, "repositories", None)


def _is_file(location: str) -> bool:
    """Whether a file is there, at a path or a URI."""
    if not is_uri(location):
        return os.path.isfile(location)
    try:
        file_system, path = file_system_of(location)
        return bool(file_system.get_file_info(path).type == fs.FileType.File)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location}: {str(error).splitlines()[0]}; check the URI and the credentials") from error


def _list_repositories(source: PythonCodeSource | PythonDocsSource) -> Iterator[Listed]:
    """Files of installed distributions or of directories, repository by repository."""
    if source.directories:
        repositories = directory_repositories(source.directories)
    else:
        repositories = installed_repositories(source.distributions)
    for repository in repositories:
        yield from (
            _list_code(repository, source) if isinstance(source, PythonCodeSource) else _list_docs(repository, source)
        )


def _list_code(repository: Repository, source: PythonCodeSource) -> Iterator[Listed]:
    """Source files, by their extension, and manifests; files that describe the distribution are left out."""

    def wanted(path: str) -> bool:
        language = language_of(path)
        taken = (language is not None and language.kind in source.kinds) or is_manifest(path)
        return taken and not _INFO_DIRECTORY.match(path)

    for file in repository.files(wanted):
        yield Listed(file, file.path, "text", language_of(file.path), repository.facts)


def _list_docs(repository: Repository, source: PythonDocsSource) -> Iterator[Listed]:
    """Prose files, the long description, and the docstring of each module."""

    def wanted(path: str) -> bool:
        reader = _prose_reader(path)
        return reader is not None and (source.docstrings or reader != "docstring")

    for file in repository.files(wanted):
        path, reader = stable_path(file.path), _prose_reader(file.path)
        part = "" if reader == "text" else f"#{reader}"
        language = language_of(path) if reader == "text" else None
        yield Listed(file, path + part, reader, language or PLAIN_TEXT, repository.facts)


def _prose_reader(path: str) -> str | None:
    """The reader for the prose in a file of a repository, or None where there is none in it."""
    if path.endswith(".py"):
        return "docstring"
    if _DESCRIPTION.search(path):
        return "description"
    language = language_of(path)
    return "text" if _PROSE.search(path) and (language is None or language.kind == "prose") else None


def _list_tree(source: FileSource) -> Iterator[Listed]:
    """Files of a source, each with the reader for its format.

    Raises:
        InputError: they cannot be listed.
    """
    try:
        yield from (listed_file(file, source) for file in source.entries())
    except SparkJobsError:
        raise
    except Exception as error:  # a class of somebody else's may fail in any way
        raise InputError(f"source {source.kind}: {type(error).__name__}: {first_line(error)}") from error


def listed_file(file: FoundFile, source: FileSource) -> Listed:
    """A file of a source, with the reader for its format and what its documents are."""
    is_address = isinstance(source, FilesSource) and source.urls is not None
    reader, language = told_by_name(_name_at(file.path) if is_address else file.path, source, source.format)
    reader = reader or ("detect" if is_address else None)
    refusal = None
    if reader is None:
        mend = "`ocr: rapidocr` reads text in pictures" if is_picture(file.path) else "state `format`"
        refusal = Refusal(Reason.UNKNOWN_FORMAT, f"no reader for this extension; {mend}, or narrow `glob`")
    elif package := missing_package(reader, source):
        mend = f"pip install 'headrace[{EXTRA_OF.get(reader, 'ingest')}]' and run again"
        refusal = Refusal(Reason.NOT_INSTALLED, f"its reader needs {package}, which is not installed; {mend}")
    return Listed(file, file.path, reader, language, None, refusal)


def _name_at(address: str) -> str:
    """The name of the file at a web address; empty where none is named, or what is named makes pages."""
    parts = urlsplit(address)
    return "" if parts.query or _MAKES_PAGES.search(parts.path) else parts.path.rpartition("/")[2]
