"""A data set of the Hugging Face Hub as a source: its Parquet files, at the commit that a revision names.

source: {kind: hub, repo_id: HuggingFaceFW/fineweb, glob: sample/10BT/*, text_column: text, id_column: id}

    main                                              the revision, resolved once a run
    hf://datasets/HuggingFaceFW/fineweb@9f3c1e../data/a.parquet#sha256=5f1c..&bytes=12
                                                      a file: its commit and path, by which it is asked for; its content
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Literal

from pydantic import Field

from headrace_features.hub.hub_files import HubFile
from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.declared import NO_ROWS
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.opening.file_trees import FoundFile, glob_pattern, is_hidden
from spark_jobs.sources.refusals import Reason, Refusal, first_line

_NO_PARQUET = Refusal(Reason.UNKNOWN_FORMAT, "not a Parquet file, and no other is read from the Hub")


class HubSource(FileSource):
    """Parquet files of a data set on the Hugging Face Hub, at a revision; docs/prepare/ingest.md."""

    kind: Literal["hub"] = "hub"
    repo_id: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$", description="the data set, OWNER/NAME")
    revision: str = Field(
        "main",
        min_length=1,
        description="branch, tag or commit; refs/convert/parquet has what the Hub made of other formats",
    )
    glob: str | None = Field(
        None, min_length=1, description="only files whose path matches, such as sample/10BT/* or data/train-*"
    )
    format: Literal["parquet"] = Field("parquet", description="of the files; there is no other")
    cache: str = Field(
        "~/.cache/headrace/hub",
        min_length=1,
        description="folder on each machine for files while they are read, and for parts of broken downloads",
        json_schema_extra=NO_ROWS,
    )
    cache_gb: float = Field(
        50,
        gt=0,
        description="most GB of whole files in `cache`; those that were read longest ago go first",
        json_schema_extra=NO_ROWS,
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="hosts in private networks that redirects may lead to", json_schema_extra=NO_ROWS
    )

    @property
    def listed_as(self) -> str:
        """The kind that keeps the location of a file while its content stays."""
        return "hub"

    def entries(self) -> Iterator[FoundFile]:
        """The files of the commit with matching paths; those of other formats with their refusal."""
        from headrace_features.hub.hub_client import Hub  # its library is for driver and workers, not for declarations

        wanted = glob_pattern(self.glob or "*")
        try:
            with Hub(self) as hub:
                commit = hub.commit()
                listed = [file for file in hub.files(commit) if not any(map(is_hidden, file.path.split("/")))]
        except OSError as error:
            raise InputError(f"source hub: {first_line(error)}") from error
        matching = [file for file in listed if wanted.fullmatch(file.path)]
        if not any(file.is_parquet for file in matching):
            raise InputError(f"source hub: {self._nothing(listed, commit)}")
        for file in matching:
            yield FoundFile(file.location, file.path, file.byte_count, None, None if file.is_parquet else _NO_PARQUET)

    def _nothing(self, listed: list[HubFile], commit: str) -> str:
        """Why no file is read, with the nearest thing that there is."""
        where = f"{self.repo_id} at {self.revision} ({commit[:12]})"
        if parquet := [file.path for file in listed if file.is_parquet]:
            return f"{where}: none of {len(parquet)} Parquet files matches {self.glob!r}; such as {min(parquet)}"
        others = f"has no Parquet file among {len(listed)}" + (f" (such as {listed[-1].path})" if listed else "")
        return f"{where} {others}; try revision refs/convert/parquet, or download it and read it as kind files"

    def open(self, location: str) -> IO[bytes] | Any:
        """The file at a location, downloaded before it is read.

        Raises:
            OSError: the server does not give it, or gives other bytes.
        """
        from headrace_features.hub.hub_client import Hub

        with Hub(self) as hub:
            return hub.open(HubFile.at(location))
