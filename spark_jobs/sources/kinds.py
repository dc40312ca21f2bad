"""What the steps ask of a kind of source, and where the code of each kind of the core is; features bring others.

    fetch      ask a server, a model or a sandbox for what is new, and keep it where `changes` lists it
    changes    which files or pages are new, changed or gone: rows of the listing, with the way to read each
    opening    bytes of a listed file, on the workers
    member     which files in an archive are read, and how
    packages   what of foreign packages the source needs, for a look before a run
    again      how a file of an earlier arrival is read again, without asking the source
    steps      further steps of its datasets; `facts` for the page of their documents
    follow     bring what comes until interrupted, where the source is a stream
    forget     delete the pages, answers and checkpoints of a dataset, outside of its tables

Sources of files, those of packages too, have two methods instead (`config.file_source`), behind one kind.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from spark_jobs.exceptions import InputError
from spark_jobs.features import brought, missing
from spark_jobs.plugins import attribute, reference
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.opening.file_trees import open_file
from spark_jobs.sources.refusals import Refusal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from spark_jobs.lake.files.objects import ObjectFolder
    from spark_jobs.sources.config.source_config import DocumentsConfig

S = TypeVar("S")
Listing: TypeAlias = "pa.Table | None"
"""Rows of `listing_rows.LISTING`; None where nothing is new, changed or gone."""
Opens: TypeAlias = "Callable[[str, int], AbstractContextManager[Any]]"
"""Opens the file at a location; the number is the most bytes to read of a blob of git."""
OpensListed: TypeAlias = "Callable[[ListedFile, int], AbstractContextManager[Any]]"
"""Opens a listed file; the number as for `Opens`."""
KINDS: Final[Mapping[str, str]] = {
    "files": "spark_jobs.sources.files:FileKind",
    "python_code": "spark_jobs.sources.repositories.repositories:CodeKind",
    "python_docs": "spark_jobs.sources.repositories.repositories:DocsKind",
    "packages": "spark_jobs.sources.repositories.packages:PackagesKind",
    "git": "spark_jobs.sources.git.kind:GitKind",
    "paged": "spark_jobs.sources.paged.pages:PagedKind",  # of no declaration: what features' kinds have in common
}


class Kind(Generic[S]):
    """How a source is fetched, listed and opened; one class for each kind."""

    takes_manifests: ClassVar[bool] = False
    """Whether manifests land whatever `kinds` the source takes, for `dependencies` alone."""
    by_repository: ClassVar[bool] = False
    """Whether a file holds all files of a repository."""
    has_versions: ClassVar[bool] = False
    """Whether several versions of a document may be in one listing, in an order that it states."""
    on_pages: ClassVar[bool] = False
    """Whether its files are pages, cut anywhere: records of one path, on one page or several, are versions in order."""

    reads_tables: ClassVar[bool] = False
    """Whether its folders may be those of tables, beside whose data engines keep files of their own."""

    is_remote: ClassVar[bool] = False
    """Whether a file is downloaded whole to be opened, so that a plan opens none."""

    steps: ClassVar[tuple[str, ...]] = ()
    """Further steps of its datasets, as `module:name`; each reads `arrivals` with the config of `documents`."""

    def __init__(self, source: S) -> None:
        """Take the source."""
        self.source = source

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Bring what is new to where `changes` can list it; most kinds have nothing to fetch."""

    def follow(self, dataset: str, lake: Catalog, objects: ObjectFolder, seal: Callable[[], None], once: bool) -> int:
        """Keep what comes and have it sealed, until interrupted or, with `once`, all is read; returns how many came.

        Raises:
            InputError: the source is no stream.
        """
        raise InputError(f"dataset {dataset}: its source is no stream; bring it up to date by `headrace run {dataset}`")

    @classmethod
    def facts(cls, source: Mapping[str, Any], dataset: str, catalogue: Catalog) -> Mapping[str, Any]:
        """Facts about the source as it is declared, for the page of the dataset's documents."""
        return {}

    @classmethod
    def forget(cls, dataset: str, catalogue: Catalog, objects: Collection[str] | None = None) -> None:
        """Delete the state of a dataset outside of its tables, such as pages of an API; or references to some objects.

        Args:
            dataset: its name; its declaration may be gone, or be of another kind.
            catalogue: of the lake.
            objects: SHA-256 of deleted objects, to which alone references are deleted; None: all of the state.
        """

    def changes(self, config: DocumentsConfig, arrivals: pa.Table, reread: bool, lake: Catalog | None) -> Listing:
        """The listing; arguments and results as of `listing.changes.discover`."""
        raise NotImplementedError

    @contextlib.contextmanager
    def opening(self) -> Iterator[Opens]:
        """A function to open files of the source; what it needs, such as processes, is held for one task."""
        yield lambda location, _: self.open(location)

    def open(self, location: str) -> Any:
        """The bytes at a location.

        Raises:
            OSError: they cannot be read.
        """
        return open_file(location)

    def packages(self) -> Mapping[str, tuple[str, ...]]:
        """Foreign packages needed by the source now, by the extra of headrace to install them.

        Raises:
            OSError: its files cannot be listed.
            InputError: likewise.
        """
        return {}

    def member(self, name: str, location: str) -> dict[str, Any] | Refusal:
        """Columns of the listing for a member of the archive at a location, or why it is left out or not read."""
        raise NotImplementedError

    def taking(self) -> str | None:
        """Which members of an archive are taken, in the words of its arrival; None where all that are readable."""
        return None

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of the listing to read a file of an earlier arrival again."""
        raise NotImplementedError


@functools.cache
def kind_named(name: str) -> type[Kind[Any]]:
    """The code of a kind by its name in a declaration, imported when it is asked for; kinds of packages are files.

    Raises:
        ConfigError: it is of a missing feature.
    """
    of_feature = name in brought("kinds") or name in missing("kinds")
    kind: type[Kind[Any]] = attribute(
        reference("kinds", name, KINDS) if of_feature else KINDS.get(name, KINDS["files"])
    )
    return kind


def kind_of(source: Any) -> Kind[Any]:
    """The code of a source's kind."""
    return kind_named(getattr(source, "listed_as", source.kind))(source)


@contextlib.contextmanager
def opening(source: Any, objects: ObjectFolder | None = None) -> Iterator[OpensListed]:
    """Give the function for opening listed files: a member's stream, else the kept copy, else the source.

    Args:
        source: as it is declared.
        objects: where bytes are kept, if that is known.
    """
    with kind_of(source).opening() as at_source:

        def opens(file: ListedFile, most_bytes: int) -> AbstractContextManager[Any]:
            if file.stream is not None:
                return contextlib.nullcontext(file.stream)
            if file.object is None or objects is None:
                return at_source(file.location, most_bytes)
            return objects.open(file.object)  # type: ignore[no-any-return]

        yield opens


def forget(dataset: str, catalogue: Catalog, objects: Collection[str] | None = None) -> None:
    """Delete the state of a dataset, of whichever kind it is or was; see `Kind.forget`."""
    for name in (*KINDS, *brought("kinds")):
        kind_named(name).forget(dataset, catalogue, objects)
