"""Whether what was refused for want of a package can be read now, by importing what its reader needs.

And whether the opt-out for which something was refused still holds.

A refused record or member has a row of its own in `arrivals`, while its file may have landed::

    crawl.warc.gz                    landed
    crawl.warc.gz#offset:81920       rejected, not_installed    of the same increment, else it was read since

A file is read again once the packages of one such part can be imported, and not at each run before that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.importing import import_faults
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.permissions import OptOuts, is_withdrawn
from spark_jobs.sources.reading.built_in import not_there, packages_of
from spark_jobs.sources.reading.readers import reader_by_name
from spark_jobs.sources.refusals import Reason


class Lacking:
    """What of a source was refused for want of a package; what is imported is looked at once."""

    def __init__(self, source: Any, arrivals: pa.Table, opt_outs: OptOuts | None = None) -> None:
        """Take the source, all its arrivals with `increment`, and the opt-outs that hold now."""
        self._source = source
        self._withdrawn = _withdrawn(arrivals, opt_outs)
        self._parts = _unread_parts(arrivals, self._withdrawn)
        self._stays: dict[str | None, bool] = {}

    def stays(self, reader: str | None) -> bool:
        """Whether what a reader needs cannot be imported here; what is not known of may be lacking elsewhere."""
        if reader not in self._stays:
            is_away = not_there(reader) is not None
            packages = packages_of(reader or "", self._source) if isinstance(self._source, FileReading) else ()
            self._stays[reader] = is_away or bool(import_faults(packages))
        return self._stays[reader]

    def is_mended(self, location: str, reader: str | None, reason: str | None, detail: str | None = None) -> bool:
        """Whether a file, or a part of it, was refused, and can be read now.

        Args:
            location: of the file.
            reader: of the file.
            reason: of the file's latest arrival.
            detail: likewise.
        """
        parts = self._parts.get(location, ())
        if not parts and reason != Reason.NOT_INSTALLED and detail not in self._withdrawn:
            return False
        members = {name for part in parts for name in self._readers_in(part)} if reader == "archive" else set()
        return not all(map(self.stays, members or (reader,)))

    def _readers_in(self, part: str) -> Iterator[str]:
        """The reader of a member of an archive, by its name; of what damage hides there is none."""
        if isinstance(self._source, FileReading):
            named = (reader_by_name(name, self._source, "auto")[0] for name in part.split("#"))
            yield from (name for name in named if name is not None and name != "archive")


def _withdrawn(arrivals: pa.Table, opt_outs: OptOuts | None) -> list[str]:
    """The details of refusals for opt-outs of the register that do not hold any more."""
    if not arrivals.num_rows:
        return []
    opted_out = arrivals.filter(pc.field("reason") == str(Reason.OPTED_OUT))
    return [detail for detail in opted_out["detail"].unique().to_pylist() if is_withdrawn(detail, opt_outs)]


def _unread_parts(arrivals: pa.Table, withdrawn: list[str]) -> dict[str, list[str]]:
    """Names of the parts of each file refused at its latest reading for want of a package, or with some details."""
    if not arrivals.num_rows:  # before the first, which may have no columns
        return {}
    chosen = pc.field("reason") == str(Reason.NOT_INSTALLED)
    if withdrawn:
        chosen |= pc.field("detail").isin(pa.array(withdrawn, pa.string()))
    refused = arrivals.filter(pc.field("path").is_null() & chosen).select(["location", "increment"]).to_pylist()
    if not refused:
        return {}
    stems = pa.array(sorted({stem for row in refused for stem, _ in _stems(row["location"])}), pa.string())
    files = arrivals.filter(pc.is_in(pc.field("location"), stems) & pc.field("path").is_valid())
    latest = files.group_by("location").aggregate([("increment", "max")])
    newest = dict(zip(latest["location"].to_pylist(), latest["increment_max"].to_pylist(), strict=True))
    parts = defaultdict[str, list[str]](list)
    for row in refused:
        for stem, part in _stems(row["location"]):
            if row["increment"] >= newest.get(stem, row["increment"] + 1):
                parts[stem].append(part)
    return dict(parts)


def _stems(location: str) -> Iterator[tuple[str, str]]:
    """Every location of which a part may be at this one, with the part's name: names of files may have # too."""
    for at, character in enumerate(location):
        if character == "#":
            yield location[:at], location[at + 1 :]
