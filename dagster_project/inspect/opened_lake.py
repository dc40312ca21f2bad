"""A lake opened for reading in Python: its tables as Arrow, what became of a document, where a token came from.

lake = headrace.connect()                                      the lake of this project, as for commands
lake["notes.texts"].where("kind = 'prose'").to_polars()         rows of a table, chosen before they are read
lake.table("notes.verdicts", where="not kept", rows=10)        a pyarrow.Table
lake.documents("mine").to_pandas()                             documents of a corpus that go on, with their texts
lake.why("notes/0.jsonl#17").findings                          as `headrace doc why`
lake.trace("main.packed_notes_2048", ordinal=3, position=17)   as `headrace doc trace`
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from dagster_project.inspect.corpus_documents import CorpusDocuments
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import Story, corpora_of, tell_story
from dagster_project.inspect.documents.trace import TokenTracer, Traced
from dagster_project.inspect.lake.corpus_facts import find_corpus
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.inspect.lake_table import LakeTable
from dagster_project.restrictions import note_read
from headrace.tables.catalogue import metadata_locations
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import DATABASE, WAREHOUSE, LakeSettings, load_settings, settings_at
from spark_jobs.corpus_stages import cut_texts_of
from spark_jobs.lake.session.catalogue import open_catalogue


class OpenedLake:
    """Answers from the tables as they are at each call; nothing is computed or written, and no engine starts.

    Whoever reads a dataset that is not public leaves a row in `system.audit`, as with the commands; what is in
    quarantine is refused.
    """

    def __init__(self, catalogue: Catalog) -> None:
        self._catalogue = catalogue

    def __getitem__(self, name: str) -> LakeTable:
        """A table whose rows are chosen before they are read.

        Raises:
            CommandError: there is no such table, or it is in quarantine.
        """
        return LakeTable(name, self.iceberg(name))

    def __repr__(self) -> str:
        tables = self.tables()
        counts = Counter(name.partition(".")[0] for name in tables)
        named = ", ".join(f"{namespace} {count}" for namespace, count in counts.items())
        where = self._catalogue.properties.get("warehouse", self._catalogue.name)
        example = f'; lake["{tables[0]}"] is one, lake.tables() names all' if tables else ""
        return f"lake at {where} of {len(tables)} tables: {named or 'none yet'}{example}"

    def tables(self) -> list[str]:
        """Identifiers of all tables, sorted."""
        return sorted(metadata_locations(self._catalogue))

    def iceberg(self, name: str) -> IcebergTable:
        """A table as PyIceberg has it, for scans, snapshots and properties.

        Raises:
            CommandError: there is no such table, or it is in quarantine.
        """
        table = require_table(self._catalogue, name)
        note_read(self._catalogue, [name])
        return table

    def table(
        self, name: str, columns: Sequence[str] | None = None, where: str | None = None, rows: int | None = None
    ) -> pa.Table:
        """Rows of a table, in memory.

        Args:
            name: identifier, `namespace.table`.
            columns: names; None for all.
            where: a condition, as of `headrace table show --where`: "status = 'rejected' and byte_count > 100".
            rows: at most so many, whichever come first; None for all.

        Raises:
            CommandError: there is no such table or column, the condition cannot be read, or the table is in quarantine.
        """
        chosen = self[name].select(*columns or ())
        chosen = chosen.where(where) if where else chosen
        return (chosen if rows is None else chosen.head(rows)).to_arrow()

    def documents(self, corpus: str) -> CorpusDocuments:
        """The documents of a corpus that go on, with the texts that are tokenized, read as they are asked for.

        Raises:
            CommandError: it was never run, or one of its datasets is in quarantine.
        """
        facts = find_corpus(self._catalogue, corpus)
        note_read(self._catalogue, [*facts.datasets, corpus])
        return CorpusDocuments(self._catalogue, facts, cut_texts_of(self._catalogue, corpus))

    def why(self, document: str, corpus: str | None = None, increment: int | None = None) -> Story:
        """What every step found about a document.

        Args:
            document: its doc_id, the first 6 or more digits of it, or its path.
            corpus: only this one; None for every corpus of its dataset.
            increment: in which it landed; None for the latest at its path.

        Raises:
            CommandError: there is no such document, several, or no such corpus.
        """
        subject = find_document(self._catalogue, document, increment)
        note_read(self._catalogue, [subject.dataset])
        return tell_story(self._catalogue, subject, corpora_of(self._catalogue, subject, corpus))

    def trace(self, table: str, ordinal: int, position: int) -> Traced:
        """The file and bytes that a token of a packed table came from.

        Args:
            table: a packed one.
            ordinal: its row.
            position: index in the window, from 0.

        Raises:
            CommandError: there is no such table, row or position.
            ConfigError: the table is not packed.
        """
        traced = TokenTracer(self._catalogue, table).trace(ordinal, position)
        note_read(self._catalogue, [table, traced.dataset or ""])
        return traced


def connect(folder: str | os.PathLike[str] | None = None) -> OpenedLake:
    """Open a lake for reading.

    Args:
        folder: an embedded lake's (`warehouse`), its database, or that of the project which it lies in; None for the
            lake of the environment and of this folder, as commands.

    Raises:
        CatalogueError: there is none, it cannot be reached, or an address was given; nothing is made.
    """
    places = [load_settings()] if folder is None else _places(os.fspath(folder))
    there = next((place for place in places if place.is_there), None)
    if there is None:
        looked_for = " and ".join(str(place.database) for place in places)
        raise CatalogueError(f"no lake is there: looked for {looked_for}; name its folder `warehouse`, or headrace run")
    return OpenedLake(open_catalogue(there))


def _places(folder: str) -> list[LakeSettings]:
    """Where the lake of a folder may lie."""
    if "://" in folder:  # not repeated: it may hold a password
        raise CatalogueError(
            "an address is no folder; set PYICEBERG_CATALOG__LAKE__URI to that of the catalogue, and name no folder"
        )
    path = Path(folder).expanduser()
    if path.is_file() and path.name == DATABASE:
        path = path.parent
    return [settings_at(path), settings_at(path / WAREHOUSE)]
