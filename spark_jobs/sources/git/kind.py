"""The kind of git repositories: their listing, and blobs as files."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from spark_jobs.sources.config.permissions import opt_outs
from spark_jobs.sources.config.source_config import DocumentsConfig, GitSource
from spark_jobs.sources.git.listing import discover_git
from spark_jobs.sources.git.repositories import allowed_folders, find_repositories
from spark_jobs.sources.git.store import BlobReaders
from spark_jobs.sources.kinds import Kind, Listing, Opens
from spark_jobs.sources.languages import PLAIN_TEXT, language_columns, language_of
from spark_jobs.sources.opening.file_trees import absolute

_BLOB = re.compile(r"(.+?)@([0-9a-f]{40}|[0-9a-f]{64}):", re.DOTALL)


class GitKind(Kind[GitSource]):
    """Git repositories, with blobs as files."""

    takes_manifests = has_versions = True

    def changes(self, config: DocumentsConfig, arrivals: pa.Table, reread: bool, lake: Catalog | None) -> Listing:
        """See `discover_git`."""
        return discover_git(config, self.source, arrivals, reread, opt_outs(config.dataset, self.source, lake))

    @contextlib.contextmanager
    def opening(self) -> Iterator[Opens]:
        """Open blobs by one process of git for each of the last repositories read."""
        allowed = functools.cache(lambda: allowed_folders(find_repositories(self.source)))
        with contextlib.closing(BlobReaders(absolute(self.source.cache), allowed)) as blobs:

            def opened(location: str, most_bytes: int) -> io.BytesIO:
                blob = _BLOB.match(location)
                if blob is None:
                    raise OSError("no blob of a git repository")
                return io.BytesIO(blobs.read(blob[1], blob[2], most_bytes))

            yield opened

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """As a text, with the blob of its location."""
        blob = arrival["location"].removesuffix(f":{arrival['path']}").rpartition("@")[2]
        return language_columns("text", language_of(arrival["path"]) or PLAIN_TEXT) | {"blob": blob}
