"""How many documents a listing will make, as far as that is known before files are read: for `headrace plan`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.exceptions import SparkJobsError
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.kinds import kind_of
from spark_jobs.sources.opening.file_trees import open_file
from spark_jobs.sources.reading.built_in import ONE_DOCUMENT_READERS

_MOST_FOOTERS = 500  # a footer takes about a millisecond on a disk, and 50 in a store


def listed_rows(config: DocumentsConfig, listing: pa.Table) -> int | None:
    """Rows of new files: one of a file that is a document, of Parquet those in its footer.

    Args:
        config: of the dataset.
        listing: what is new, changed or gone at its source.

    Returns:
        The number, None where a file of other records, an archive or too many footers are among them, or it would have
        to be downloaded.
    """
    if "unchanged" not in listing.column_names or kind_of(config.source).is_remote:
        return None
    new = listing.filter(~pc.field("unchanged") & ~pc.field("gone") & pc.field("reason").is_null())
    if kinds := getattr(config.source, "kinds", None):  # of files that only their content can tell, most hold no text
        new = new.filter((pc.field("reader") != "text") | pc.field("kind").isin(pa.array(kinds)))
    footers = new.filter(pc.field("reader") == "parquet")
    single = int(new.filter(pc.field("reader").isin(ONE_DOCUMENT_READERS)).num_rows)
    if footers.num_rows > _MOST_FOOTERS or single + footers.num_rows < new.num_rows:
        return None
    try:
        return single + sum(_footer_rows(row["object"] or row["location"]) for row in footers.to_pylist())
    except (OSError, pa.ArrowException, SparkJobsError):  # the run refuses the file and says why
        return None


def _footer_rows(location: str) -> int:
    with open_file(location) as file:
        return int(pq.read_metadata(file).num_rows)
