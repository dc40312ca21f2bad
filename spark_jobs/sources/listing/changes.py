"""List every file of a source, and mark the new, changed or gone ones since the last arrivals.

A file is unchanged when its latest arrival has the same size and the same modification time; its bytes are not read
again. A refused file is read again when the cause may be removed: it can be opened now, the size limit was raised, the
missing column is no longer mapped, the packages of its reader can be imported (`lacking`). A landed one stays where its
reader is not installed. A file of facts about repositories is read whenever any file is, changed or not, so that the
facts are known for every new file.

A file is gone when it arrived before and is not listed any more. Files below an unreadable directory are not gone, and
a source without any file is an error unless its dataset says `allow_empty`.

The listing is one Arrow table on the driver, sorted by location, with the columns of `LISTING`. It is as long as what
changed; files without a change are compared and left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.permissions import opt_outs
from spark_jobs.sources.config.source_config import DocumentsConfig, PythonCodeSource
from spark_jobs.sources.kinds import Kind, Listing, S, kind_of
from spark_jobs.sources.languages import Language, language_columns
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.lacking import Lacking
from spark_jobs.sources.listing_rows import LISTING, listing_row, why
from spark_jobs.sources.opening.file_trees import FoundFile, absolute, find_files, is_uri, same_file
from spark_jobs.sources.opening.remote_trees import has_validator, is_web
from spark_jobs.sources.records.facts import Facts, facts_json
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.taken import BY_PATH, is_taken_as_before

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_AWAY = (Reason.NOT_INSTALLED, Reason.UNKNOWN_FORMAT)  # of a file that landed: what brings its reader is not here now
# What a server did, of a file whose bytes may be whole the next time.
_OF_SERVERS = (Reason.NO_ANSWER, Reason.HTTP_ERROR, Reason.BAD_ANSWER, Reason.FORBIDDEN_ADDRESS)
_OF_ARRIVALS = ("repository", "path", "content_sha256", "object", "byte_count", "status", "reason", "detail", "doc_id")


def discover(
    config: DocumentsConfig, arrivals: pa.Table, reread: bool = False, catalogue: Catalog | None = None
) -> pa.Table | None:
    """List the files of a source, and mark those unchanged since they arrived, and the gone ones.

    Args:
        config: the step's config.
        arrivals: all rows of `arrivals` so far, with `increment`; empty before the first increment.
        reread: whether every file is to be read again, whatever arrived before.
        catalogue: of the lake with pages of an API in its database; other sources need none.

    Returns:
        The listing (`LISTING`) of what is new, changed or gone, with the few unchanged files needed by a step; None
            where there is nothing of the kind.

    Raises:
        InputError: the source holds no file, or what it names does not exist.
    """
    return kind_of(config.source).changes(config, arrivals, reread, catalogue)


def fetch(config: DocumentsConfig, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
    """Fetch what an API has, a model writes or code gives, so that `discover` can list it."""
    kind_of(config.source).fetch(config.dataset, catalogue, objects, wait_seconds)


def listed_again(config: DocumentsConfig, arrival: Mapping[str, Any]) -> ListedFile:
    """A file of an arrival, to read it once more; the source is not asked.

    Args:
        config: as it was when the file arrived.
        arrival: the row of `arrivals`.
    """
    unchanged = {name: arrival[name] for name in ("location", "repository", "path", "byte_count", "object")}
    return ListedFile.of(unchanged | kind_of(config.source).again(arrival))


@dataclass(frozen=True)
class Listed:
    """A file of a source before it is read: its reader, language and facts, or why it is refused."""

    file: FoundFile
    path: str
    reader: str | None
    language: Language | None
    facts: Facts | None = None
    refusal: Refusal | None = None
    object: str | None = None


Earlier: TypeAlias = Mapping[str, dict[str, Any]]
"""The latest arrival at each location."""


class ListedKind(Kind[S]):
    """Kinds that list all existing files; the last arrivals tell which of them are new, changed or gone."""

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed] | None:
        """Every file of a source, by location; None where it was not fetched yet.

        Args:
            config: the step's config.
            earlier: the latest arrivals, where unchanged files need not be read again.
            lake: catalogue with what was fetched in its database.

        Raises:
            InputError: the source holds no file, or what it names does not exist.
        """
        raise NotImplementedError

    def changes(self, config: DocumentsConfig, arrivals: pa.Table, reread: bool, lake: Catalog | None) -> Listing:
        """See `discover`."""
        earlier = LatestArrivals(arrivals)
        deleted, files = _deleted_hashes(arrivals), self.files(config, {} if reread else earlier, lake)
        lacking = Lacking(self.source, arrivals, opt_outs(config.dataset, self.source, lake))
        if files is None:
            return None
        left = {
            listed.file.location: listed.file.refusal or listed.refusal
            for listed in files
            if _loses_document(listed, earlier)
        }
        rows: dict[str, dict[str, Any]] = {}  # by location; an unchanged file has one where a step reads more of it
        for listed in files:
            location = listed.file.location
            before = earlier.get(location)
            if location in left:
                continue
            earlier_row = before if before and _is_unchanged(listed, before, config, lacking) else None
            stays = (
                earlier_row is not None and earlier_row["reason"] == Reason.DELETED and listed.reader != "repositories"
            )
            if earlier_row is None or (reread and not stays):
                row = _row(listed, None, earlier_row["object"] if earlier_row else listed.object)
                rows[location] = row | {"content_sha256": deleted.get(location)}
            elif listed.reader == "repositories":
                rows[location] = _row(listed, earlier_row, earlier_row["object"])
        gone = _gone_rows([listed for listed in files if listed.file.location not in left], earlier)
        gone = [row | why(left.get(row["location"])) for row in gone]
        if not gone and all(row["unchanged"] for row in rows.values()):
            return None
        for listed in _looked_at_too(files, rows, gone):
            before = earlier[listed.file.location]
            rows[listed.file.location] = _row(listed, before, before["object"])
        _add_repository_facts(rows, files)
        listing = [*rows.values(), *gone]
        add_size_ranks(listing)
        return pa.Table.from_pylist(sorted(listing, key=lambda row: row["location"]), LISTING)


def _loses_document(listed: Listed, earlier: Earlier) -> bool:
    """Whether a file is left out by its path now, and landed before: then its document is gone."""
    refusal = listed.file.refusal or listed.refusal
    if refusal is None or refusal.reason not in BY_PATH:
        return False
    before = earlier.get(listed.file.location)
    return before is not None and before["status"] != "gone" and before["reason"] is None


def _looked_at_too(
    files: Iterable[Listed], rows: Mapping[str, Mapping[str, Any]], gone: Iterable[Mapping[str, Any]]
) -> list[Listed]:
    """Unchanged files needed by a step: one of each repository, where a file of facts is new or changed.

    And those at the path of a part of a read or gone file, so that the part is not taken for gone.
    """
    stated_anew = _stated_anew(rows)
    stems = {str(row["path"]).partition("#")[0] for row in (*rows.values(), *gone) if row["path"] is not None}
    repositories = set[str]()
    changed = []
    for listed in files:
        is_first = False
        if stated_anew and listed.facts is not None and listed.refusal is None:
            is_first = listed.facts.repository not in repositories
            repositories.add(listed.facts.repository)
        stem, _, part = listed.path.partition("#")
        if listed.file.location not in rows and (is_first or (part and stem in stems)):
            changed.append(listed)
    return changed


def _row(listed: Listed, before: dict[str, Any] | None, kept: str | None) -> dict[str, Any]:
    """One row of the listing, without the columns dependent on other rows.

    Args:
        listed: the file.
        before: its latest arrival, where it need not be read again.
        kept: the object of its bytes, where they landed before.
    """
    file, facts = listed.file, listed.facts
    refusal = file.refusal or listed.refusal
    return listing_row(
        location=file.location,
        repository=facts and facts.repository,
        path=listed.path,
        revision=facts and facts.revision,
        licence=facts and facts.licence,
        byte_count=file.byte_count,
        modified=file.modified,
        unchanged=before is not None,
        content_sha256=before and before["content_sha256"],
        object=kept,
        **language_columns(None if refusal else listed.reader, listed.language),
        **({name: before[name] for name in ("reason", "detail")} if before else why(refusal)),
    )


def _gone_rows(files: Iterable[Listed], earlier: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of files of earlier arrivals, not listed any more.

    Where another location has the file's path now, as after an upgrade or a move of the source, no document went with
    it: the row has no path then.
    """
    there = {listed.file.location for listed in files}
    hidden = tuple(
        listed.file.location.rstrip("/") + "/"
        for listed in files
        if listed.file.path.endswith("/")
        and listed.file.refusal
        and listed.file.refusal.reason not in (Reason.LISTED_TWICE, Reason.NO_DATA, Reason.HIDDEN, Reason.OUTSIDE_LINK)
    )
    rows = []
    for location in earlier:
        if location in there or location.startswith(hidden):
            continue
        before = earlier[location]
        is_part = before["path"] is None or location.endswith(f"#record:{before['doc_id']}")
        if is_part or before["status"] == "gone":
            continue
        facts = {name: before[name] for name in ("repository", "content_sha256", "object", "byte_count", "modified")}
        rows.append(listing_row(location=location, path=before["path"], gone=True, **facts))
    if rows:
        paths = {(listed.facts and listed.facts.repository, listed.path) for listed in files}
        for row in rows:
            row["path"] = None if (row["repository"], row["path"]) in paths else row["path"]
    return rows


def located(config: DocumentsConfig, files: Iterable[Listed]) -> list[Listed]:
    """Files by location; one claimed by two repositories goes to the first.

    Raises:
        InputError: there is none beside files of facts.
    """
    by_location: dict[str, Listed] = {}
    for listed in files:
        by_location.setdefault(listed.file.location, listed)
    if not config.allow_empty and all(listed.reader == "repositories" for listed in by_location.values()):
        raise InputError(
            f"dataset {config.dataset}: the source holds no file ({config.source.kind}); check what it names, or "
            "declare `allow_empty: true` if all of its files were deleted"
        )
    return [by_location[location] for location in sorted(by_location)]


def facts_files(*locations: str | None) -> Iterator[Listed]:
    """Files of facts about repositories.

    Raises:
        InputError: one is not there.
    """
    for location in filter(None, locations):
        for file in find_files(absolute(location)):
            yield Listed(file, file.path, "repositories", None)


class LatestArrivals(Mapping[str, dict[str, Any]]):
    """The latest arrival of each location, in columns: a row is made when it is asked for, as there may be millions."""

    def __init__(self, arrivals: pa.Table) -> None:
        """Index all arrivals, with `increment`."""
        self._at: dict[str, int] = {}
        self._columns: dict[str, pa.Array] = {}
        if arrivals.num_rows:
            ordered = arrivals.take(pc.sort_indices(arrivals["increment"]))
            self._at = dict(zip(ordered["location"].to_pylist(), range(ordered.num_rows), strict=True))
            modified = ordered["modified"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            self._columns = {name: ordered[name].combine_chunks() for name in _OF_ARRIVALS}
            self._columns["modified"] = modified.combine_chunks()

    def __getitem__(self, location: str) -> dict[str, Any]:
        at = self._at[location]
        return {"location": location} | {name: column[at].as_py() for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


def _deleted_hashes(arrivals: pa.Table) -> dict[str, str]:
    """The hashes of each location at its deletion, joined by spaces."""
    if arrivals.num_rows == 0:
        return {}
    gone = arrivals.filter((pc.field("reason") == str(Reason.DELETED)) & pc.field("content_sha256").is_valid())
    pairs = gone.group_by(["location", "content_sha256"]).aggregate([]).sort_by("content_sha256")
    hashes: dict[str, str] = {}
    for location, sha256 in zip(pairs["location"].to_pylist(), pairs["content_sha256"].to_pylist(), strict=True):
        hashes[location] = f"{hashes[location]} {sha256}" if location in hashes else sha256
    return hashes


def _is_unchanged(listed: Listed, before: dict[str, Any], config: DocumentsConfig, lacking: Lacking) -> bool:
    """Whether a file has not changed since its arrival, nor has the cause of its refusal, or of a part of it."""
    file = listed.file
    reason, refusal = before["reason"], file.refusal or listed.refusal
    if refusal is not None and refusal.reason in BY_PATH:
        return bool(reason == refusal.reason)
    has_time = not is_web(file.location) or has_validator(file.location, file.modified)
    if before["status"] == "gone" or not has_time or not same_file(file, before):
        return False
    if refusal is not None:
        # What was read stays while its reader is away, or a run on a machine without it would take it out of the lake.
        is_away = refusal.reason in _AWAY and isinstance(config.source, FileReading)
        return bool(reason == refusal.reason or (reason is None and is_away))
    if lacking.is_mended(file.location, listed.reader, reason, before["detail"]):
        return False
    return _is_refused_still(reason, listed, before, config)


def _is_refused_still(reason: str | None, listed: Listed, before: dict[str, Any], config: DocumentsConfig) -> bool:
    """Whether the same bytes land, or are refused, as they were."""
    file = listed.file
    if reason in (Reason.UNREADABLE, Reason.NOT_A_FILE):
        return not (is_uri(file.location) or os.access(file.location, os.R_OK))
    if reason in (Reason.OTHER_PACKAGE, *_OF_SERVERS):
        return False
    if reason == Reason.TOO_LARGE:
        return file.byte_count is None or file.byte_count > config.max_document_bytes
    if reason == Reason.UNKNOWN_FORMAT and listed.reader is not None and listed.language is not None:
        return False
    if isinstance(config.source, PythonCodeSource):
        return is_taken_as_before(reason, before["detail"] or "", config.source)
    if reason == Reason.MISSING_COLUMN and isinstance(config.source, FileReading):
        return any(f"{column!r} in " in before["detail"] for column in config.source.mapped_columns)
    return True


def _stated_anew(rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a file of facts about repositories is new or changed."""
    return any(row["reader"] == "repositories" and not row["unchanged"] for row in rows.values())


def _add_repository_facts(rows: Mapping[str, dict[str, Any]], files: Iterable[Listed]) -> None:
    """Put the facts of a repository on its first new or changed file, or on any where a file of facts is."""
    stated_anew = _stated_anew(rows)
    done: set[str] = set()
    for listed in files:
        facts, row = listed.facts, rows.get(listed.file.location)
        if (
            facts is not None
            and row is not None
            and listed.refusal is None
            and (stated_anew or not row["unchanged"])
            and facts.repository not in done
        ):
            done.add(facts.repository)
            row["repository_facts"] = facts_json(facts)


def add_size_ranks(rows: list[dict[str, Any]]) -> None:
    """Rank the files to be read by size, largest first; distributed round robin, they load all tasks about alike."""
    fresh = [row for row in rows if not row["unchanged"] and not row["gone"]]
    sizes = np.array([row["byte_count"] or 0 for row in fresh], np.int64)
    for rank, index in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        fresh[index]["size_rank"] = rank
