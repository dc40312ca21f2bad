"""What the pages of one server share: the lake, whose rows a reader may see, indexes of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, In

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.explore.dataset_at import DatasetAt, Version
from dagster_project.explore.row_index import RowIndex, file_of
from dagster_project.inspect.documents.document_lookup import FoundDocument, documents_named
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, corpora, namespaces_with
from dagster_project.restrictions import note_read
from spark_jobs.exceptions import nearest
from spark_jobs.lake.declare.quarantined import is_quarantine
from spark_jobs.lake.files.lookups import EVERYTHING

if TYPE_CHECKING:
    from blender_service.auth.visible_lake import MayRead

_INDEXES_AT_HAND = 32


class Explorer:
    """A lake that is read; safe for many threads.

    Attributes:
        catalogue: of the lake.
    """

    def __init__(
        self,
        catalogue: Catalog,
        folder: Path,
        texts_are_shown: Callable[[str], bool],
        reader: Callable[[str], MayRead | None] = lambda principal: None,
    ) -> None:
        """Read a lake.

        Args:
            catalogue: of the lake.
            folder: where indexes are kept; they may be deleted at any time.
            texts_are_shown: whether the declaration of a dataset says so.
            reader: gives the test of which tables a principal may read; None for all.
        """
        self.catalogue = catalogue
        self._folder = folder
        self._texts_are_shown = texts_are_shown
        self._reader = reader
        self._indexes = RecentlyUsed[tuple[str, Version, bool], RowIndex](_INDEXES_AT_HAND)
        self._lock = threading.Lock()

    def may_read(self, principal: str, namespace: str) -> bool:
        """Whether somebody may read a dataset or corpus; what is in quarantine nobody may here."""
        test = self._reader(principal)
        return not is_quarantine(namespace) and (test is None or test(f"{namespace}.documents"))

    def datasets(self, principal: str) -> list[str]:
        """The datasets that somebody may read, by name."""
        return [name for name in namespaces_with(self.catalogue, "documents") if self.may_read(principal, name)]

    def corpora(self, principal: str) -> list[CorpusFacts]:
        """The corpora that somebody may read, by name."""
        return [one for one in corpora(self.catalogue) if self.may_read(principal, one.name)]

    def corpus(self, principal: str, name: str) -> CorpusFacts:
        """One of them.

        Raises:
            CommandError: there is none of that name for this reader.
        """
        there = {one.name: one for one in self.corpora(principal)}
        if name not in there:
            raise CommandError(f"corpus {name} is not here{nearest(name, there)}")
        return there[name]

    def reads(self, principal: str, *names: str) -> None:
        """Let somebody read rows of datasets, corpora or tables; those that are not public leave a row of the audit.

        Raises:
            CommandError: there is no such dataset or corpus for this reader.
        """
        known = [one for table in ("documents", "members") for one in namespaces_with(self.catalogue, table)]
        for space in {name.partition(".")[0] for name in names}:
            if space not in known or not self.may_read(principal, space):
                there = [one for one in known if self.may_read(principal, one)]
                raise CommandError(f"{space} is not here{nearest(space, there)}")
        note_read(self.catalogue, names, who=principal)

    def named(self, principal: str, given: str) -> list[FoundDocument]:
        """The documents that somebody may read and may mean by a doc_id, the first digits of one, or a path."""
        found: list[FoundDocument] = []
        for dataset in self.datasets(principal):
            version = Version.newest(self.catalogue, dataset)
            where: BooleanExpression = EVERYTHING
            if file_of(self._folder, dataset, version, "rows").exists():  # else all of the table is looked through
                places = self.index(dataset).named(given)
                if not places:
                    continue
                increments, shards = ({place[at] for place in places} for at in (0, 1))
                where = And(In("increment", increments), In("shard", shards))
            found += documents_named(self.catalogue, given, [dataset], where)
        return found

    def document(self, principal: str, doc_id: str) -> FoundDocument:
        """A document that is about to be shown.

        Raises:
            CommandError: there is none for this reader.
        """
        found = self.named(principal, doc_id)
        if len(found) != 1:
            raise CommandError(f"document {doc_id} is not here" if not found else f"{doc_id} is several documents")
        self.reads(principal, found[0].dataset)
        return found[0]

    def hides_text(self, dataset: str) -> str:
        """Why the texts of a dataset are not shown; empty where they are."""
        try:
            shown = self._texts_are_shown(dataset)
        except CommandError as error:
            return str(error)
        return "" if shown else f"texts are not shown: the declaration of {dataset} does not say `samples: text`"

    def index(self, dataset: str, at: str | None = None) -> RowIndex:
        """The index of a dataset's rows, of the version that an address names or of the newest; built where it is not.

        Raises:
            CommandError: the address is of no version, or of one that is not in the lake any more.
        """
        version = Version.parse(at) if at else Version.newest(self.catalogue, dataset)
        key = (dataset, version, not self.hides_text(dataset))
        with self._lock:
            known = self._indexes.get(key)
            if known is not None and known.is_usable:
                return known
            made = RowIndex(DatasetAt(self.catalogue, dataset, version), self._folder, with_text=key[2])
            self._indexes.put(key, made)
            return made
