"""Read archives: each member becomes what it would be as a file of that name, and a refused one is an arrival.

The path of a member is `archive.zip#folder/page.html`, in an archive inside of the archive `a.zip#b.tar.gz#page.html`;
a refused one has the same after the archive's location. In packages the archive is the repository: the path of a member
is the one below the folder around all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.kinds import kind_of
from spark_jobs.sources.languages import EXTRACTED_BY, language_columns
from spark_jobs.sources.listed_file import Enclosing, ListedFile
from spark_jobs.sources.opening.archives import Member, Unpacking, archive_members
from spark_jobs.sources.opening.file_trees import is_hidden, unreadable
from spark_jobs.sources.opening.streams import HashedFile
from spark_jobs.sources.opening.table_folders import engine_refusal
from spark_jobs.sources.reading.built_in import COLUMN_READERS, missing_package, not_installed, not_there
from spark_jobs.sources.reading.readers import reader_by_name
from spark_jobs.sources.reading.record_rows import DocumentRows, each_row
from spark_jobs.sources.reading.rows import ReadingRules, Row, arrival, closing_arrivals, refused_part
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.taken import BY_PATH

_Read: TypeAlias = "Callable[[ListedFile], Iterable[Row | DocumentRows]]"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_DAMAGES = (str(Reason.CORRUPT_ARCHIVE), str(Reason.DECOMPRESSION_BOMB))


def read_archive(file: ListedFile, rules: ReadingRules, read: _Read) -> Iterator[Row]:
    """Documents, facts and refusals of the members of an archive, then its arrival.

    Ids of all documents are held to find repeated ones, about 100 bytes for each.

    Args:
        file: as it is listed, or a member.
        rules: of the dataset.
        read: gives the rows of one member.
    """
    outer = file.enclosing or Enclosing(Unpacking(rules.source.archives), set(), 1)
    if outer.depth > rules.source.archives.max_depth:
        detail = f"an archive at depth {outer.depth}; max_depth is {rules.source.archives.max_depth}"
        yield arrival(file, Refusal(Reason.DECOMPRESSION_BOMB, detail))
        return
    names, fault, damaged, lacking, content_sha256 = set[str](), None, None, None, None
    document_count = refused_count = 0
    try:
        with rules.opens(file, rules.max_document_bytes) as stream, HashedFile(stream) as source:
            for member in archive_members(source, file.byte_count, outer.unpacking):
                if member.name is None:
                    fault = member.refusal
                    continue
                for row in _member_rows(member, file, outer, names, rules, read):
                    if row["doc_id"] is not None:
                        document_count += 1
                    elif row.get("status") == "rejected":
                        refused_count += row["reason"] not in BY_PATH
                        damaged = row["location"] if row["reason"] in _DAMAGES else damaged
                        if row["reason"] == Reason.NOT_INSTALLED:  # not read to its end: what it held is not gone
                            lacking = lacking or Refusal(Reason.NOT_INSTALLED, row["detail"])
                    yield row
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault = unreadable(error)
    if document_count and fault is None and damaged is not None and outer.depth == 1:
        fault = Refusal(Reason.CORRUPT_ARCHIVE, f"what is damaged at {damaged} is not read")
    fault = fault or lacking
    every = Refusal(Reason.NO_USABLE_RECORD, f"all {refused_count} of its members and records were refused")
    nothing = every if refused_count else Refusal(Reason.EMPTY, "it holds no file that is taken")
    taking = kind_of(rules.source).taking() if outer.depth == 1 else None
    nothing = Refusal(nothing.reason, f"{nothing.detail}; {taking}") if taking else nothing
    yield from closing_arrivals(file, document_count > 0, fault, nothing, content_sha256, taking)


def _member_rows(
    member: Member, file: ListedFile, outer: Enclosing, names: set[str], rules: ReadingRules, read: _Read
) -> Iterator[Row]:
    """Documents at the location of the archive, facts, and refusals at the location of the member or record."""
    member_file = _member_file(member, file, outer, names, rules)
    if isinstance(member_file, Refusal):
        yield refused_part(f"{file.location}#{_shown(member.name or '')}", member_file)
    else:
        for row in chain.from_iterable(map(each_row, read(member_file))):
            if row["doc_id"] is None and row.get("status") == "rejected":
                yield refused_part(row["location"], Refusal(Reason(row["reason"]), row["detail"]))
            elif row["doc_id"] is None and row.get("facts"):
                yield row
            elif outer.depth == 1 and row["doc_id"] in outer.doc_ids:
                repeated = Refusal(Reason.REPEATED_RECORD, "same path and text as an earlier document of the archive")
                yield refused_part(member_file.location, repeated)
            elif row["doc_id"] is not None:
                if outer.depth == 1:
                    outer.doc_ids.add(row["doc_id"])
                name = member_file.location.removeprefix(f"{file.location}#")
                yield _of_member(row, name) | {"location": file.location}


def _of_member(row: Row, name: str) -> Row:
    """The document of a member; an offset stated by its reader counts in the member, not in the archive."""
    metadata = dict(row["metadata"])
    if EXTRACTED_BY in metadata and "offset" in metadata:
        metadata["member_offset"] = metadata.pop("offset")
    inner = row.get("member")  # no column of READ_ROWS; for those who ask where it stands
    return row | {"metadata": metadata, "member": name if inner is None else f"{name}#{inner}"}


def _member_file(
    member: Member, file: ListedFile, outer: Enclosing, names: set[str], rules: ReadingRules
) -> ListedFile | Refusal:
    """A member as a file to be read, or why it is not read."""
    name = "/".join(part for part in (member.name or "").split("/") if part not in ("", "."))
    fault = _bad_name(member.name or "")
    if fault is None and (part := next(filter(is_hidden, name.split("/")), None)):
        return Refusal(Reason.HIDDEN, f"{part} in its path")
    if fault is None and kind_of(rules.source).reads_tables:
        fault = engine_refusal(name)
    columns = kind_of(rules.source).member(name, file.location) if fault is None else fault
    if isinstance(columns, Refusal) and columns.reason in BY_PATH:
        return columns
    if refusal := fault or member.refusal:
        return refusal
    if name in names:
        return Refusal(Reason.LISTED_TWICE, "an earlier member has this name")
    names.add(name)
    if isinstance(columns, Refusal):
        return columns
    of_member = {
        "path": f"{file.path}#{name}",
        **columns,
        "location": f"{file.location}#{name}",
        "content_sha256": None,
        "object": None,
        "byte_count": member.byte_count,
        "stream": member.stream,
        "enclosing": outer._replace(depth=outer.depth + 1),
    }
    return replace(file, **of_member)


def member_columns(source: FileReading, name: str) -> Row | Refusal:
    """Columns of the listing from the name of a member of an archive, or why it is not read."""
    reader, language = reader_by_name(name, source, "auto")
    if reader is None:
        return Refusal(Reason.UNKNOWN_FORMAT, "no reader for this extension")
    if reader in COLUMN_READERS and source.body_column is None:
        return Refusal(Reason.MISSING_COLUMN, "a file of records, and no text_column; name the column of the text")
    if absent := not_there(reader):
        return absent
    if package := missing_package(reader, source):
        return not_installed(reader, package)
    return language_columns(reader, language)


def _bad_name(name: str) -> Refusal | None:
    """The refusal of a name leading out of the archive, or impossible to write on one line."""
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        return Refusal(Reason.BAD_NAME, "its name is an absolute path")
    if ".." in re.split(r"[/\\]", name):
        return Refusal(Reason.BAD_NAME, "its name leads out of the archive")
    if _CONTROL.search(name) or not name.strip("/."):
        return Refusal(Reason.BAD_NAME, "its name is empty, or has control characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        return Refusal(Reason.BAD_NAME, "its name is not UTF-8")
    return None


def _shown(name: str) -> str:
    r"""A name on one line; control characters become escapes such as `\x07`."""
    text = name.encode("utf-8", "surrogateescape").decode(errors="backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
