"""The first step of every dataset: what is new or changed at the source becomes one increment of documents.

    fetch      on the driver: ask an API for its pages, and keep them (`api.fetch`)
    discover   on the driver: list the files, and leave out unchanged ones of earlier arrivals
    documents  on the executors: read the bytes of the others once, as documents, repositories and arrivals; with
               `landing: copy` they are kept first, named by their hash, and what is kept is read

The same file read again gives the same document: a row does not depend on when, where or in which order it was read. A
document at its path again (the file changed back, or was deleted and restored) is not landed twice: its arrival says
`returned`. A document whose file or record is not there any more keeps its row: its arrival says `gone`. So the latest
document at a path follows from both tables, by increment:

    increment   at the source   documents   arrivals
    0           A               A           landed
    1           B               B           landed
    2           A again         -           returned, doc_id A
    3           no such file    -           gone, doc_id A

Files must be visible to the executors at the same location as to the driver. If the driver can read a file and an
executor cannot, the step fails and names it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.declare.tables import GROUP_BYTES, Check, Column, Notice, Table
from spark_jobs.lake.engine.arrangement import dealt, persist, release
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.cluster import is_local
from spark_jobs.sources.config.paged_source import PAGE_MARK
from spark_jobs.sources.config.permissions import OptOuts, permissions_of
from spark_jobs.sources.config.source_config import DocumentsConfig, Source
from spark_jobs.sources.kinds import kind_of
from spark_jobs.sources.landing.news import news
from spark_jobs.sources.landing.provenance import PROVENANCE, provenance
from spark_jobs.sources.listing.changes import discover, fetch
from spark_jobs.sources.listing.row_counts import listed_rows
from spark_jobs.sources.listing_rows import without_superseded
from spark_jobs.sources.refusals import LEFT_OUT, Reason

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


DOCUMENTS = Table(
    name="documents",
    comment="One row for each document that landed: a file (even an empty one), the prose inside one, or a record.",
    columns=(
        Column("shard!", "int", "hash of the repository (of doc_id where there is none) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity: 32 hex digits over dataset, repository, path and content_sha256"),
        Column("repository", "string", "repository it belongs to; null where there is none"),
        Column(
            "path!",
            "string",
            "path below the repository or source; #docstring, #description, #id or #member/path for a part of a file",
        ),
        Column("revision", "string", "revision of the repository it was read at"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("language", "string", "programming language as Linguist names it, or what the language column says"),
        Column("media_type", "string", "media type, without parameters"),
        Column("licence", "string", "SPDX; LicenseRef-stated-.. where not recognised, null where none is stated"),
        Column("content!", "string", "the text, decoded without loss"),
        Column("encoding!", "string", "Python codec that turns content back into exactly the bytes read"),
        Column("content_sha256!", "string", "SHA-256 of the document's bytes, lower-case hex"),
        Column("byte_count!", "long", "size of the document at its source, bytes"),
        Column(
            "metadata!",
            "map<string, string!>",
            "what else the source says about it; `headrace.evidence` for what landed for `dependencies` alone, "
            "`headrace.past_version` for a version that its path did not have any more when it landed, `headrace.page` "
            "for the page of an API or a stream that it is on",
        ),
    ),
    key=("doc_id",),
    sort=("repository", "path", "doc_id"),
    partition=("increment", "shard"),
    checks=(
        Check("doc_id_is_32_hex_digits", "doc_id RLIKE '^[0-9a-f]{32}$'", "identities have one form"),
        Check("content_sha256_is_hex", "content_sha256 RLIKE '^[0-9a-f]{64}$'", "hashes have one form"),
        Check("kind_is_known", "kind IN ('code', 'prose', 'markup', 'data')", "a kind is one of four"),
        Check("byte_count_not_negative", "byte_count >= 0", "a size is never negative"),
    ),
    sampled=("content",),
    properties={GROUP_BYTES: str(8 << 20)},  # one text is read from some MB, not from 128
)

REPOSITORIES = Table(
    name="repositories",
    comment="One row for each repository with a file that was new or changed in the increment, or with facts in a file "
    "of facts that was: what is known about it.",
    columns=(
        Column("repository!", "string", "name; of a distribution, normalised as package indexes do"),
        Column("revision", "string", "revision that was read; of a distribution, its version"),
        Column("version", "string", "version it declares"),
        Column("licence", "string", "SPDX; LicenseRef-stated-.. where not recognised, null where none is stated"),
        Column("home_page", "string", "address it declares"),
        Column("fork_of", "string", "repository it was forked from"),
        Column("topics!", "list<string!>", "topics it declares"),
        Column("dependencies!", "list<string!>", "names of what it requires, normalised; without those of extras"),
        Column("metadata!", "map<string, string!>", "what else is known, such as stars"),
    ),
    sort=("repository",),
    partition=("increment",),
)

ARRIVALS = Table(
    name="arrivals",
    comment="One row for each file that is new, changed, refused or gone, and for each record refused, returned or "
    "gone. Nothing is dropped silently; in increments before which a file did not change it has no row.",
    columns=(
        Column(
            "location!",
            "string",
            "absolute path or URI; #line:17, #row:17, #member/path for a record or member refused, #record:5f1c.. (its "
            "doc_id) for one that returned or is gone, #rest for what damage hides",
        ),
        Column("repository", "string", "repository of the file or record; null where there is none"),
        Column(
            "path",
            "string",
            "path of the file below the repository or source, or of the record; null for a record refused, and for a "
            "file that is gone while another location has its path",
        ),
        Column("content_sha256", "string", "SHA-256 of the file's bytes; null where it could not be read to its end"),
        Column("object", "string", "where its bytes are kept (landing: copy); null where they stay at the location"),
        Column("byte_count", "long", "size of the file, bytes"),
        Column("modified", "timestamptz", "when the file was last modified"),
        Column(
            "status!",
            "string",
            "landed, unchanged (its size or time changed, it was read again, and nothing new is in it), returned (an "
            "earlier document of it is the latest again), rejected, gone, or deleted (for good, after it had landed)",
        ),
        Column("reason", "string", "code of why it was rejected; an unchanged file keeps its own"),
        Column("detail", "string", "the reason in a sentence"),
        Column(
            "doc_id",
            "string",
            "the document that returned, is gone or was deleted, or that is the latest of several versions which "
            "landed together; null for others, and for files of records",
        ),
    ),
    sort=("location",),
    partition=("increment",),
    checks=(
        Check(
            "status_is_known",
            "status IN ('landed', 'unchanged', 'returned', 'rejected', 'gone', 'deleted')",
            "a status is one of six",
        ),
        Check("rejected_has_reason", "status != 'rejected' OR reason IS NOT NULL", "a rejection names its reason"),
    ),
    listed="status <> 'deleted' OR content_sha256 IS NOT NULL",  # no rows of single documents, which may be many
    condensed=without_superseded,
    notice=Notice(
        "nothing_rejected",
        "status = 'rejected'",
        "rejected",
        "reason",
        "every file and record that the source takes could be used, or no more are rejected than before",
        tuple(sorted(map(str, LEFT_OUT))),
    ),
)

_REFUSED_LOOKED_AT = 1000  # refused files that the driver tries to read itself
_FACT_TEXTS = ("revision", "version", "licence", "home_page", "fork_of")
_FACT_LISTS = ("topics", "dependencies")
_FACTS_TYPE = (
    f"repository string, {', '.join(f'{name} string' for name in _FACT_TEXTS)}, topics array<string>, "
    "dependencies array<string>, metadata string, stated boolean, touches boolean"
)


@step(
    version="16",
    scope=Scope.HISTORY,
    tables=(DOCUMENTS, REPOSITORIES, PROVENANCE, ARRIVALS),
    discover=discover,
    fetch=fetch,
    listed_rows=listed_rows,
    news=news,
    permissions=permissions_of,
)
def documents(
    files: DataFrame,
    documents: DataFrame,
    arrivals: DataFrame,
    increment: int,
    config: DocumentsConfig,
    objects: ObjectFolder | None = None,
    permissions: OptOuts | None = None,
) -> Output:
    """Read the new or changed files; one row is one document, in no earlier increment.

    Args:
        files: a listing (`spark_jobs.sources.listing_rows.LISTING`).
        documents: the dataset's documents so far: identities and paths are read, with `increment`.
        arrivals: its arrivals so far: returned, gone or deleted ones are read, with `increment`.
        increment: the new one; before the first there is nothing to return or be gone.
        config: the dataset's config.
        objects: where copies of the files' bytes are kept; without it there are none.
        permissions: opt-outs that hold now.

    Returns:
        The four tables over one persisted pass; the caller unpersists it once they are written.

    Raises:
        InputError: a file is readable for the driver, but not for an executor of a cluster.
    """
    from pyspark.sql import functions as F

    from spark_jobs.sources.landing.revisions import history_events, reading_events
    from spark_jobs.sources.reading.built_in import ONE_DOCUMENT_READERS
    from spark_jobs.sources.reading.files import read_files
    from spark_jobs.sources.reading.rows import READ_ROWS, ReadingRules

    rules = ReadingRules(
        config.dataset, config.shards, config.max_document_bytes, config.source, objects, config.landing == "copy"
    )
    conf = files.sparkSession.conf
    task_count = int(conf.get("spark.sql.shuffle.partitions") or 200)
    states_facts = F.coalesce(F.col("reader") == "repositories", F.lit(False))
    to_read = files.where((~F.col("unchanged") & ~F.col("gone")) | states_facts).drop("repository_facts")
    tasks = dealt(to_read, task_count, F.pmod("size_rank", F.lit(task_count)))
    read = tasks.map(partial(read_files, rules=rules._replace(opt_outs=permissions)), READ_ROWS).to_frame()
    deleted = arrivals.where("status = 'deleted' AND doc_id IS NOT NULL").select("doc_id").distinct()
    known_ids = documents.select("doc_id").unionByName(deleted).withColumn("known", F.lit(True))
    if known_ids.isEmpty():  # at first: an engine would sort or shuffle all texts for a join with nothing
        read = persist(read.withColumn("known", F.lit(None).cast("boolean")))
    else:
        read = persist(known_ids.join(read, "doc_id", "right"))  # Sail may hold the left side, which is to be ids
    if not is_local(conf.get("spark.master") or ""):
        _require_seen(read, config)
    landed = read.where(F.col("doc_id").isNotNull() & F.col("known").isNull())
    kind = kind_of(config.source)
    if kind.on_pages:
        landed = _first_on_pages(landed)
    facts = files.select(F.col("repository_facts").alias("facts")).unionByName(read.select("facts"))
    documents_read = read.where(F.col("location").isNotNull())
    events = None
    if kind.has_versions:
        events = history_events(files, documents_read, documents, arrivals)
    elif increment > 0:
        selection = (ONE_DOCUMENT_READERS, kind.by_repository)
        events = reading_events(files, documents_read, documents, arrivals, *selection)
    arrived = _arrivals(files, read)
    return Output(
        frames={
            "documents": landed.select([column.name for column in DOCUMENTS.columns]),
            "repositories": _repositories(facts.where(F.col("facts").isNotNull())),
            "provenance": provenance(arrived, config),
            "arrivals": _with_events(arrived, files, events),
        },
        persisted=(read,),
    )


def _require_seen(read: DataFrame, config: DocumentsConfig) -> None:
    """Fail if an executor could not read a file and the driver can.

    Raises:
        InputError: names the file.
    """
    from pyspark.sql import functions as F

    location = F.coalesce("location", "path").alias("location")
    refused = read.where(F.col("reason") == Reason.UNREADABLE).select(location, "detail")
    for row in refused.sort("location").limit(_REFUSED_LOOKED_AT).collect():
        if _is_readable(row["location"], config.source):
            release(read)
            raise InputError(
                f"{config.dataset}.documents: {row['location']}: an executor cannot read it ({row['detail']}), the "
                "driver can; put the source where all machines of the cluster see it under this path, or run without a "
                "cluster"
            )


def _is_readable(location: str, source: Source) -> bool:
    """Whether this process can open a file of a source and read from it."""
    try:
        with kind_of(source).opening() as opens, opens(location, 1) as file:
            file.read(1)
    except OSError:
        return False
    return True


def _first_on_pages(landed: DataFrame) -> DataFrame:
    """Keep each document of a paged source once, by its first record, as if every page were an increment."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    page = F.substring_index("location", PAGE_MARK, -1).cast("long")
    order = Window.partitionBy("doc_id").orderBy(page, "number", "location")
    return landed.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")


def _repositories(facts: DataFrame) -> DataFrame:
    """Merge facts in JSON into rows of `repositories`, one for each repository touched by any of them.

    Stated facts have precedence over those of a repository's own files; of several values the greatest as text counts.
    """
    from pyspark.sql import functions as F

    statements = facts.select(F.from_json("facts", _FACTS_TYPE).alias("facts")).select("facts.*")
    some = statements.withColumns(
        {name: F.when(F.size(name) > 0, F.col(name)) for name in _FACT_LISTS}
        | {"metadata": F.when(F.col("metadata") != "{}", F.col("metadata"))}
    )

    def greatest(name: str, stated: bool) -> SparkColumn:
        return F.max(F.when(F.col("stated") == F.lit(stated), F.col(name)))

    nothing = {name: F.lit(None).cast("string") for name in _FACT_TEXTS} | {
        name: F.array().cast("array<string>") for name in _FACT_LISTS
    }
    merged = some.groupBy("repository").agg(
        F.max("touches").alias("touches"),
        *(F.coalesce(greatest(name, True), greatest(name, False), none).alias(name) for name, none in nothing.items()),
        F.coalesce(greatest("metadata", True), F.lit("{}")).alias("first"),
        F.coalesce(greatest("metadata", False), F.lit("{}")).alias("others"),
    )
    first, others = (F.from_json(name, "map<string,string>") for name in ("first", "others"))
    metadata = F.map_concat(F.map_filter(others, lambda key, _: ~F.array_contains(F.map_keys(first), key)), first)
    columns = [column.name for column in REPOSITORIES.columns]
    return merged.where("touches").withColumn("metadata", metadata).select(columns)


def _arrivals(files: DataFrame, read: DataFrame) -> DataFrame:
    """The arrivals of read files, of refused records, and of gone files.

    A file read without a new document is unchanged: only its time changed, or its text is an old one.
    """
    from pyspark.sql import functions as F

    is_document, tells = F.col("doc_id").isNotNull(), F.col("facts").isNotNull()
    facts = ("repository", "path", "content_sha256", "object", "byte_count", "modified", "status", "reason", "detail")
    columns_of_files = {name: F.when(~is_document, F.col(name)) for name in facts}
    arrived = (
        read.where(F.col("location").isNotNull())
        .groupBy("location")
        .agg(
            F.max((is_document & F.col("known").isNull()) | tells).alias("lands"),
            *(F.max(column).alias(name) for name, column in columns_of_files.items()),
        )
    )
    status = F.when((F.col("status") == "landed") & ~F.col("lands"), "unchanged").otherwise(F.col("status"))
    columns = ("location", *facts)
    gone = files.where("gone").withColumn("status", F.lit("gone")).select(*columns)
    return arrived.withColumn("status", status).select(*columns).unionByName(gone)


def _with_events(rows: DataFrame, files: DataFrame, events: DataFrame | None) -> DataFrame:
    """Add returned or gone documents to the arrivals: for a file in its row, for a record as a row more."""
    from pyspark.sql import functions as F

    names = [column.name for column in ARRIVALS.columns]
    if events is None:
        return rows.withColumn("doc_id", F.lit(None).cast("string")).select(names)
    files_of = files.select("location", F.struct("repository", "path").alias("file"), F.col("gone").alias("file_gone"))
    is_whole = F.expr("struct(repository, path) <=> file AND (file_gone OR status <> 'gone')")
    of_files = events.join(files_of, "location").withColumn("whole", is_whole)
    by_file = of_files.groupBy("location").agg(
        F.max(F.when(F.col("whole"), F.col("doc_id"))).alias("doc_id"),
        F.max(F.col("status") == "returned").alias("returned"),
    )
    returned = F.when((F.col("status") == "unchanged") & F.col("returned"), "returned").otherwise(F.col("status"))
    whole_files = rows.join(by_file, "location", "left").withColumn("status", returned).select(names)
    records = of_files.where("NOT whole").withColumn("location", F.concat("location", F.lit("#record:"), "doc_id"))
    return whole_files.unionByName(records.drop("file", "file_gone", "whole"), allowMissingColumns=True)
