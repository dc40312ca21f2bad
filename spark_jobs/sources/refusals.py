"""Why a file or a record did not become a document: the codes of `arrivals.reason`.

A refusal is a value, not an exception: a bad file is ordinary data here, and must never stop the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spark_jobs.messages import kept_message


class Reason(enum.StrEnum):
    """The codes of faults; the sentence in `arrivals.detail` says what was found in the file."""

    UNREADABLE = "unreadable"
    """The file system refused to list or open it, or it vanished between listing and reading."""
    NOT_A_FILE = "not_a_file"
    """A pipe, socket or device: reading it could wait for ever. In archives, a link too."""
    BAD_NAME = "bad_name"
    """The file's name is no UTF-8, so no path could be written down for it; in archives also one that leads out."""
    OUTSIDE_LINK = "outside_link"
    """A symbolic link that leads out of the source's folder, where the source does not say `links: follow`."""
    LISTED_TWICE = "listed_twice"
    """A directory, mostly a link to one, whose files are listed already; a loop of links ends here. Or a member of an
    archive with the name of an earlier one, or a record with the id of an earlier one and another text."""
    NO_FILE_LIST = "no_file_list"
    """An installed distribution that does not say which files are its own."""
    UNKNOWN_FORMAT = "unknown_format"
    """No reader takes this extension; in a repository, neither name nor content says which language it is in."""
    NOT_INSTALLED = "not_installed"
    """The package that reads it is not installed; with it the file is read by the next run."""
    HIDDEN = "hidden"
    """A file or folder whose name begins with a dot, `__pycache__` or `node_modules`."""
    OTHER_KIND = "other_kind"
    """A file of a repository or package that is of none of the `kinds` that the source takes."""
    NO_DATA = "no_data"
    """What an engine keeps beside the data of a table: a log, a mark, the files of a task that was not committed."""
    UNKNOWN_CONTENT = "unknown_content"
    """No reader takes what the file is by its content."""
    TOO_LARGE = "too_large"
    """More than `max_document_bytes`."""
    BINARY = "binary"
    """A null character near the start, of a file or of a record: not a text."""
    UNDECODABLE = "undecodable"
    """Bytes that are not text in UTF-8 nor in the encoding the file itself declares."""
    TOO_COMPLEX = "too_complex"
    """Its parser needed more processor time or memory than one document is given."""
    CORRUPT_ARCHIVE = "corrupt_archive"
    """A compressed file or an archive that ends early, is damaged or lies; what is before the damage lands."""
    NOT_UNPACKED = "not_unpacked"
    """A compressed file that is not damaged, and needs more memory than `ArchiveLimits` allow, a dictionary that it
    does not hold, or what the library of its format does not know."""
    DECOMPRESSION_BOMB = "decompression_bomb"
    """An archive that unpacks to more than its limits: in ratio, members, depth or bytes; see `ArchiveLimits`."""
    ENCRYPTED = "encrypted"
    """A member of an archive, or a PDF file, that needs a password."""
    OTHER_PACKAGE = "other_package"
    """A package, where another one of its name is taken: a newer one, or the sources of the same version."""
    NO_PACKAGE = "no_package"
    """A package without metadata that name it."""
    CORRUPT_FILE = "corrupt_file"
    """A file that is not what its extension says (a broken Parquet footer or page, a page without any tag)."""
    HTTP_ERROR = "http_error"
    """What a server answered with another status than success: a redirect, an error page."""
    FORBIDDEN_ADDRESS = "forbidden_address"
    """A redirect, a next page or a listed address that leads to a private network, or where no request may go."""
    OPTED_OUT = "opted_out"
    """What somebody asked to leave out (an entry of the opt-out register), or a site does not let be taken."""
    SITE_UNREACHABLE = "site_unreachable"
    """An address whose site could not be asked what it lets be taken; it is asked for again by the next run."""
    NO_ANSWER = "no_answer"
    """A server that could not be reached, broke off, or did not come to the end of its answer in time."""
    BAD_ANSWER = "bad_answer"
    """An answer of an API that is not what its config says: no JSON, no list of records, an error inside."""
    UNSTABLE_LIST = "unstable_list"
    """Pages of an API that moved, repeated or expired in each of several readings; what was read lands."""
    MISSING_COLUMN = "missing_column"
    """A mapped column is not there."""
    WRONG_TYPE = "wrong_type"
    """The text column holds something else than text."""
    NULL_TEXT = "null_text"
    """A record without text."""
    UNKNOWN_KIND = "unknown_kind"
    """A record whose kind column says something else than a kind."""
    BAD_MESSAGES = "bad_messages"
    """A row that is no conversation: an unknown role, a tool's answer without a call, an empty turn, no JSON."""
    BAD_RECORD = "bad_record"
    """A line that is not one JSON object, a row that is not of the header's columns, a broken record of an archive."""
    REPEATED_RECORD = "repeated_record"
    """The same path and the same text as an earlier record of the file."""
    NO_USABLE_RECORD = "no_usable_record"
    """A file of records, every one of which was refused."""
    EMPTY = "empty"
    """A file of records that holds none, or a description, page or document without text."""
    NO_DOCSTRING = "no_docstring"
    """A Python module that does not start with a docstring."""
    NO_REPOSITORY = "no_repository"
    """No git repository is there, or one that is stored in a way that is not read."""
    CORRUPT_REPOSITORY = "corrupt_repository"
    """A git repository whose commits or trees are missing or damaged."""
    NOT_SELECTED = "not_selected"
    """A git repository that the rules of `select` leave out."""
    MISSING_OBJECT = "missing_object"
    """A file of a git repository whose blob is not there."""
    LFS_POINTER = "lfs_pointer"
    """A file that git LFS keeps elsewhere: the repository has a pointer to it."""
    MARKED = "marked"
    """A file that .gitattributes calls generated, vendored or without a diff."""
    DELETED = "deleted"
    """A file that landed, and whose increment was deleted for good: the same bytes do not land there again."""
    SYNTAX_ERROR = "syntax_error"
    """A Python module whose first statement cannot be parsed."""


LEFT_OUT = frozenset(
    {
        Reason.UNKNOWN_FORMAT,
        Reason.UNKNOWN_CONTENT,
        Reason.HIDDEN,
        Reason.OTHER_KIND,
        Reason.NO_DATA,
        Reason.NOT_A_FILE,
        Reason.LISTED_TWICE,
        Reason.OTHER_PACKAGE,
    }
    | {Reason.NO_DOCSTRING, Reason.NOT_SELECTED, Reason.MARKED, Reason.DELETED, Reason.OPTED_OUT}
)
"""Reasons that are no faults: the source does not take such files."""
TRIED_AGAIN = (str(Reason.MISSING_OBJECT), str(Reason.UNREADABLE))
"""Reasons of blobs of git that may be whole the next time."""


@dataclass(frozen=True)
class Refusal:
    """A fault and one sentence about it: the value seen, and how to mend it where a user can.

    The sentence is a row's, so it is the same in every run, and holds no secret: addresses of objects and keys in
    addresses, possible in messages of libraries, are taken out of it.
    """

    reason: Reason
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", kept_message(self.detail))

    def and_also(self, other: Refusal) -> Refusal:
        """This fault, with the sentence of another fault of the same file appended."""
        return Refusal(self.reason, f"{self.detail}; {other.detail}")


DELETED = Refusal(Reason.DELETED, "deleted by headrace dataset delete; the same bytes do not land here again")


class RefusedError(OSError):
    """Bytes that cannot be read on, with the refusal that says why; readers take it like any fault of a file."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


def first_line(error: object) -> str:
    """The first line of an error's message, at most 300 characters; the name of its class where it has none."""
    return kept_message((str(error) or type(error).__name__).splitlines()[0])[:300]


def reason_of(error: Exception, otherwise: Reason) -> Reason:
    """The reason of a `RefusedError`; for any other error the given one."""
    return error.refusal.reason if isinstance(error, RefusedError) else otherwise
