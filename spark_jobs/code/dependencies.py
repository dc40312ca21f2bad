"""The step `dependencies`: which files of a repository need which others, found by the rules of their languages."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from spark_jobs.code.imports.dependency import KINDS
from spark_jobs.code.syntax.syntax_child import SyntaxLimits
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.sources.languages import MANIFEST, PAST
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F


class DependenciesConfig(ConfigModel):
    """Most bytes read per file and repository to find dependencies, and limits of parsing."""

    max_file_bytes: int = Field(
        1_000_000,
        ge=1,
        description="larger files are not read (hand-written ones are smaller, generated ones import little); they are "
        "listed with the reason too_large and ordered by their path and by the files that need them",
    )
    max_repository_bytes: int = Field(
        500_000_000,
        ge=1,
        description="code of one repository that is read, small files first; the rest is listed with the reason "
        "repository_full. Bounds the memory of a task at about three times as much",
    )
    syntax: SyntaxLimits = Field(SyntaxLimits(), description="what parsing a file for its symbols may cost")


_KINDS = ", ".join(f"'{kind}'" for kind in KINDS)

DEPENDENCIES = Table(
    name="dependencies",
    comment="One row per pair of files of a repository and kind of dependency: the first file needs the other one.",
    columns=(
        Column("shard!", "int", "hash of the repository modulo the dataset's shards"),
        Column("repository!", "string", "repository of both files"),
        Column("doc_id!", "string", "document that depends"),
        Column("path!", "string", "its path"),
        Column("needed_doc_id!", "string", "document that it depends on"),
        Column("needed_path!", "string", "its path"),
        Column(
            "kind!",
            "string",
            "import (runs when the file is loaded), import_inner (inside a function), import_type (for the type "
            "checker), module (a part of the file), symbol (a name defined there is used here)",
        ),
        Column("evidence!", "string", "the statement or the name that says so, at most 200 characters"),
    ),
    key=("doc_id", "needed_doc_id", "kind"),
    partition=("increment", "shard"),
    checks=(
        Check("never_itself", "doc_id != needed_doc_id", "no file depends on itself"),
        Check("kind_is_known", f"kind IN ({_KINDS})", "a kind is one of five"),
        Check("evidence_is_short", "char_length(evidence) <= 200", "evidence is at most 200 characters"),
    ),
    sampled=("evidence",),
)

DEPENDENCY_METHODS = Table(
    name="dependency_methods",
    comment="One row per repository with files in the increment: what its order can rest on, and what was not read.",
    columns=(
        Column("shard!", "int", "hash of the repository modulo the dataset's shards"),
        Column("repository!", "string", "the repository"),
        Column("method!", "string", "imports, symbols, imports_and_symbols, or path where no dependency was found"),
        Column("file_count!", "long", "files, one per path"),
        Column("read_count!", "long", "those that were read: code, and what names packages (package.json, ..)"),
        Column("import_count!", "long", "rows of kinds other than symbol"),
        Column("symbol_count!", "long", "rows of the kind symbol"),
        Column(
            "unread!",
            "list<struct<path!: string, reason!: string>!>",
            "code that was not read, by path, with the reason: too_large, repository_full, or what its parser died of",
        ),
        Column("language", "string", "that of most files of code; null where there is none"),
        Column(
            "unordered",
            "list<struct<language!: string, file_count!: long>!>",
            "files of code in languages without rules of imports or symbols here: nothing says what they need",
        ),
    ),
    key=("repository",),
    partition=("increment", "shard"),
    checks=(
        Check(
            "method_is_known",
            "method IN ('imports', 'symbols', 'imports_and_symbols', 'path')",
            "a method is one of four",
        ),
        Check("counts_in_bounds", "read_count + size(unread) <= file_count", "no file is both read and unread"),
    ),
)


@step(version="9", scope=Scope.INCREMENT, tables=(DEPENDENCIES, DEPENDENCY_METHODS))
def dependencies(documents: DataFrame, texts: DataFrame, config: DependenciesConfig) -> Output:
    """Find the dependencies between the files of each repository; one task has all files of a repository.

    Args:
        documents: shard, doc_id, repository, path, kind, language, byte_count, metadata; those without repository, and
            past versions of their path, are left out.
        texts: shard, doc_id, content.
        config: bounds of what is read.

    Returns:
        Both tables over one persisted DataFrame, to be unpersisted by the caller once they are written.
    """
    from spark_jobs.code.repository_edges import FOUND, found_batches

    find = partial(found_batches, max_repository_bytes=config.max_repository_bytes, limits=config.syntax)
    names = ["shard", "doc_id", "repository", "path", "kind", "language", "byte_count"]
    is_present = F.col("metadata").getItem(PAST).isNull()
    about = documents.where(F.col("repository").isNotNull() & is_present).select(names)
    if about.isEmpty():  # without repositories no text is read: an engine reads all of them for a join with nothing
        texts = texts.where(F.lit(False))
    files = about.join(texts.select("shard", "doc_id", "content"), ["shard", "doc_id"])
    files = files.select(
        *("shard", "repository", "doc_id", "path", "kind", "language", "byte_count"),
        F.when(_is_read() & ~_is_large(config), F.col("content")).alias("content"),
        F.when(_is_read() & _is_large(config), F.lit("too_large")).alias("unread"),
    )
    of_repositories = grouped(files, ["shard", "repository"], ["byte_count", "doc_id"])
    edges_and_methods = persist(of_repositories.map(find, FOUND).to_frame())
    edges = edges_and_methods.where(F.col("method").isNull())
    repositories = edges_and_methods.where(F.col("method").isNotNull())
    return Output(
        frames={
            DEPENDENCIES.name: edges.select([column.name for column in DEPENDENCIES.columns]),
            DEPENDENCY_METHODS.name: repositories.select([column.name for column in DEPENDENCY_METHODS.columns]),
        },
        persisted=(edges_and_methods,),
    )


def _is_read() -> SparkColumn:
    """Whether a file is read: code, and manifests, for the names of a repository's packages."""
    return (F.col("kind") == "code") | F.col("path").rlike(MANIFEST)


def _is_large(config: DependenciesConfig) -> SparkColumn:
    return F.col("byte_count") > config.max_file_bytes
