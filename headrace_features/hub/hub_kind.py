"""The kind of data sets of the Hub: files of a commit, each at the first commit that was seen with its content."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.catalog import Catalog

from headrace_features.hub.hub_files import without_commit
from headrace_features.hub.hub_source import HubSource
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.files import FileKind
from spark_jobs.sources.listing.changes import Earlier, Listed


class HubKind(FileKind[HubSource]):
    """Files of the Hub; a new commit makes no file new whose path and content stay."""

    is_remote = True

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed] | None:
        """Every file; one that arrived before at the location that it had then, so that it is unchanged.

        Raises:
            InputError: they cannot be listed, or records have no text column.
        """
        before = {without_commit(location): location for location in earlier}
        placed = [
            replace(listed, file=listed.file._replace(location=before.get(without_commit(place), place)))
            for listed in super().files(config, earlier, lake) or ()
            for place in [listed.file.location]
        ]
        return sorted(placed, key=lambda listed: listed.file.location)
