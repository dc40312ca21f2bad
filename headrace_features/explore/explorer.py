"""What the pages of one server share: the lake, whose rows a reader may see, indexes of rows."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, In

from blender_service.exceptions import BlenderError
from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.reviews import Reviews
from dagster_project.inspect.corpora.snapshot_diff import find_state
from dagster_project.inspect.documents.blend_rows import dataset_of
from dagster_project.inspect.documents.counted import At, DatasetCounts, count_documents, members_that_count
from dagster_project.inspect.documents.document_lookup import FoundDocument, documents_named, latest_of
from dagster_project.inspect.documents.document_windows import HeldIn, windows_of
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, corpora, namespaces_with
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.restrictions import note_read
from headrace.tables.catalogue import SqlLake, load_table
from headrace.tables.quarantine import is_quarantine
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.removed_index import moved_index, removed_index
from headrace_features.explore.row_index import RowIndex, file_of
from headrace_features.explore.row_query import Within
from headrace_features.explore.tagging import Tags
from headrace_features.explore.vector_map import PREFIX, box_of, map_file, within_box
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.lookups import EVERYTHING
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.ledger.ledger import Ledger

if TYPE_CHECKING:
    from blender_service.auth.visible_lake import MayRead
    from blender_service.server.blender import Blender

_INDEXES_AT_HAND = 32
_COUNTING_SECONDS = 0.2
_ANSWERS_AT_HAND = 16
_DECLARED_SECONDS = 3.0
_LONG_SECONDS = 5.0
Snapshots = tuple[tuple[str, int], ...]
Answer = TypeVar("Answer")


class Explorer:
    """A lake as readers of pages may see it; safe for many threads.

    Attributes:
        catalogue: of the lake.
    """

    def __init__(
        self,
        catalogue: Catalog,
        folder: Path,
        texts_are_shown: Callable[[str], bool],
        reader: Callable[[str], MayRead | None] = lambda principal: None,
        patience: float = 1.0,
    ) -> None:
        """Read a lake.

        Args:
            catalogue: of the lake.
            folder: where indexes are kept; they may be deleted at any time.
            texts_are_shown: whether the declaration of a dataset says so.
            reader: gives the test of which tables a principal may read; None for all.
            patience: how many times as long as usual a page waits for an answer before it shows what there is.
        """
        self.catalogue = self._lake = catalogue
        self._ledger = Ledger(catalogue)
        self._folder = folder
        self._texts_are_shown = texts_are_shown
        self._reader = reader
        self.patience = patience
        self._indexes = RecentlyUsed[tuple[str, DatasetVersion, bool], RowIndex](_INDEXES_AT_HAND)
        self._answers = RecentlyUsed[Hashable, Future[Any]](_ANSWERS_AT_HAND)
        self._reviews = RecentlyUsed[str, Reviews](_INDEXES_AT_HAND)
        self._tags = RecentlyUsed[str, Tags](_INDEXES_AT_HAND)
        self._threads = ThreadPoolExecutor(2, "answers")
        self._hidden: dict[str, tuple[str, float]] = {}
        self._blenders: RecentlyUsed[str, Blender] = RecentlyUsed(1)
        self._lock = threading.Lock()

    def of_now(self) -> Explorer:
        """The same, whose catalogue answers as it is now, but for what is written through it."""
        now = copy.copy(self)
        if isinstance(self._lake, SqlLake):  # others have no answer to all questions at once
            now.catalogue = self._lake.at_one_look()
        return now

    def may_read(self, principal: str, namespace: str) -> bool:
        """Whether somebody may read a dataset or corpus; what is in quarantine nobody may here."""
        test = self._reader(principal)
        return not is_quarantine(namespace) and (test is None or test(f"{namespace}.documents"))

    def reads_all(self, principal: str) -> bool:
        """Whether a principal may read every table."""
        return self._reader(principal) is None

    def datasets(self, principal: str) -> list[str]:
        """The datasets that somebody may read, by name."""
        return [name for name in namespaces_with(self.catalogue, "documents") if self.may_read(principal, name)]

    def corpora(self, principal: str) -> list[CorpusFacts]:
        """The corpora that somebody may read, by name."""
        return [corpus for corpus in corpora(self.catalogue, self._ledger) if self.may_read(principal, corpus.name)]

    def corpus_tables(self, principal: str) -> dict[str, list[str]]:
        """The tables of each corpus that somebody may read."""
        names = [name for name in namespaces_with(self.catalogue, "members") if self.may_read(principal, name)]
        return {name: [table for _, table in self.catalogue.list_tables(name)] for name in names}

    def corpus(self, principal: str, name: str) -> CorpusFacts:
        """A corpus that somebody may read.

        Raises:
            CommandError: there is none of that name for this reader.
        """
        there = {corpus.name: corpus for corpus in self.corpora(principal)}
        if name not in there:
            raise CommandError(f"corpus {name} is not here{nearest(name, there)}")
        return there[name]

    def reads(self, principal: str, *names: str, sums_alone: bool = False) -> None:
        """Refuse what a principal may not read; reading rows that are not public leaves a row of the audit.

        Sums and counts alone, without a text, path or id, leave none.

        Raises:
            CommandError: there is no such dataset or corpus for this reader.
        """
        spaces = [space for table in ("documents", "members") for space in namespaces_with(self.catalogue, table)]
        for space in {name.partition(".")[0] for name in names}:
            if space not in spaces or not self.may_read(principal, space):
                there = [space for space in spaces if self.may_read(principal, space)]
                raise CommandError(f"{space} is not here{nearest(space, there)}")
        if not sums_alone:
            note_read(self.catalogue, names, who=principal)

    def reads_packed(self, principal: str, *tables: str) -> dict[str, str]:
        """Refuse packed tables that a principal may not read; gives by table why its texts are hidden (`hides_text`).

        Raises:
            CommandError: a table's corpus or dataset is not there for this reader.
        """
        datasets = {table: dataset_of(table) for table in tables}
        there = set(namespaces_with(self.catalogue, "documents"))  # a dataset may be deleted while its windows stay
        self.reads(principal, *tables, *(there & set(datasets.values())))
        return {table: self.hides_text(dataset) for table, dataset in datasets.items()}

    def named(self, principal: str, name: str) -> list[FoundDocument]:
        """Documents that a principal may read and that have a doc_id, its first digits, or a path."""
        documents: list[FoundDocument] = []
        for dataset in self.datasets(principal):
            version = DatasetVersion.newest(self.catalogue, dataset)
            where: BooleanExpression = EVERYTHING
            index = self._indexes.get((dataset, version, not self.hides_text(dataset)))
            places = index.shown(name) if index is not None else []
            if not places and file_of(self._folder, dataset, version, "rows").exists():
                places = self.index(dataset).named(name)
                if not places:
                    continue
            if places:  # else all of the table is looked through
                increments, shards = ({place[at] for place in places} for at in (0, 1))
                where = And(In("increment", increments), In("shard", shards))
            documents += documents_named(self.catalogue, name, [dataset], where)
        return documents

    def found(self, principal: str, doc_id: str) -> FoundDocument:
        """The document of a doc_id, or the latest at a path; call `reads` for its dataset before it is shown.

        Raises:
            CommandError: there is none for this reader.
        """
        documents = self.named(principal, doc_id)
        latest = latest_of(self.catalogue, documents)
        if latest is None:
            raise CommandError(f"document {doc_id} is not here" if not documents else f"{doc_id} is several documents")
        return latest

    def document(self, principal: str, doc_id: str) -> FoundDocument:
        """The document of a doc_id, to be shown: checked and audited by `reads`.

        Raises:
            CommandError: there is none for this reader.
        """
        document = self.found(principal, doc_id)
        self.reads(principal, document.dataset)
        return document

    def corpora_of(self, principal: str, document: FoundDocument) -> list[CorpusFacts]:
        """The corpora of a document that somebody may read."""
        return [corpus for corpus in self.corpora(principal) if document.dataset in corpus.datasets]

    def windows_of(self, principal: str, document: FoundDocument) -> list[HeldIn]:
        """The windows that hold a document, of packed tables that somebody may read."""
        windows = windows_of(self.catalogue, document)
        return [window for window in windows if self.may_read(principal, window.table.partition(".")[0])]

    def hides_text(self, dataset: str) -> str:
        """Why texts of a dataset are hidden, by its declaration seconds ago at most; empty where they are not."""
        reason, until = self._hidden.get(dataset, ("", 0.0))
        if time.monotonic() > until:
            try:
                shown = self._texts_are_shown(dataset)
                reason = "" if shown else f"texts are not shown: the declaration of {dataset} says no `samples: text`"
            except CommandError as error:
                reason = str(error)
            self._hidden[dataset] = reason, time.monotonic() + _DECLARED_SECONDS
        return reason

    def computed(self, compute: Callable[..., Answer], *key: Hashable, wait_seconds: float = 0.7) -> Answer | None:
        """An answer that is too slow for a page: computed once in a thread and kept; None while it is computed.

        Args:
            compute: called with the catalogue and the key.
            key: what the answer depends on, snapshots included.
            wait_seconds: after which the page shows what there is.

        Raises:
            Exception: what `compute` raised; the next call computes it anew.
        """
        whole = (compute.__qualname__, *key)
        running: Future[Answer] = self._answers.find(whole, lambda: self._threads.submit(compute, self.catalogue, *key))
        try:
            return running.result(wait_seconds * self.patience)
        except TimeoutError:
            return None
        except Exception:
            self._answers.forget(lambda question: question == whole)
            raise

    def reviews(self, dataset: str) -> Reviews:
        """What people decided of documents of a dataset."""
        return self._reviews.find(dataset, lambda: Reviews(self._lake, dataset))

    def tags(self, dataset: str) -> Tags:
        """The tags that people gave documents of a dataset."""
        return self._tags.find(dataset, lambda: Tags(self._lake, dataset))

    def vector_map(self, dataset: str, name: str) -> Path:
        """The map of a table of vectors.

        Raises:
            CommandError: there is no such table, or its map is still being computed.
        """
        table = load_table(self.catalogue, f"{dataset}.{name}") if name.startswith(PREFIX) else None
        head = table.current_snapshot() if table is not None else None
        if head is None:
            raise CommandError(f"{dataset} has no map of {name[:60]!r}; its page says which there are")
        key = (dataset, name, head.snapshot_id, self._folder)
        file = self._file(map_file, *key)
        if file is None:
            raise CommandError(f"the map of {dataset}.{name} is still being computed; open this page again in a moment")
        return file

    def _file(self, write: Callable[..., Path], *key: Hashable) -> Path | None:
        """A file that is written once and may be deleted at any time; None while it is being written."""
        file = self.computed(write, *key, wait_seconds=_LONG_SECONDS)
        return file if file is None or file.exists() else write(self.catalogue, *key)

    def within(self, principal: str, dataset: str, query: Mapping[str, str]) -> tuple[Within, ...]:
        """The conditions of an address that need a further file: a tag, a part of a map, documents that moved.

        Raises:
            CommandError: a value cannot be read.
        """
        chosen = []
        if query.get("tag"):
            chosen.append(Within(self.tags(dataset).file(self._folder), "tag = ?", (query["tag"],)))
        if query.get("map"):
            table, box = box_of(query["map"])
            chosen.append(within_box(self.vector_map(dataset, table), box))
        return (*chosen, *self.moved(principal, query))

    def snapshots(self, namespace: str) -> Snapshots:
        """The newest snapshot of each table of a dataset or corpus, by name of the table."""
        return tuple(sorted(find_state(self.catalogue, namespace).snapshots.items()))

    def removed(self, principal: str, corpus: str) -> Path | None:
        """The file of what deduplication removed from a corpus; None for an empty name.

        Raises:
            CommandError: there is no such corpus for this reader, or it is still being read.
        """
        if not corpus:
            return None
        self.reads(principal, corpus)
        file = self._file(removed_index, corpus, self.snapshots(corpus), self._folder)
        if file is None:
            raise CommandError(f"what went from {corpus} is still being read; open this page again in a moment")
        return file

    def moved(self, principal: str, query: Mapping[str, str]) -> tuple[Within, ...]:
        """The documents that fail `rule` in the state `until` and did not in `since`, or with `passed` the reverse.

        Raises:
            CommandError: a state is not there for this reader, or they are still being compared.
        """
        if not query.get("since"):
            return ()
        texts = [query["since"], query.get("until", "")]
        names = [text.partition("@")[0] for text in texts]
        self.reads(principal, *names, sums_alone=True)
        rule, at = query.get("passed") or query.get("rule", ""), tuple(self.snapshots(name) for name in names)
        file = self._file(_moved, *texts, rule, bool(query.get("passed")), self._folder, at)
        if file is None:
            raise CommandError("the two states are still being compared; open this page again in a moment")
        return (Within(file, "1", ()),)

    def kept(self, dataset: str) -> int | None:
        """How many documents the policy of a dataset keeps; None while they are being counted, as of a large one."""
        snapshot = DatasetVersion.newest(self.catalogue, dataset).verdicts
        return self.computed(_count_kept, dataset, snapshot, wait_seconds=_COUNTING_SECONDS)

    def counts(self, dataset: str) -> DatasetCounts | None:
        """The documents of a dataset that count; None while they are being counted."""
        return self.computed(_count_documents, dataset, self.snapshots(dataset), wait_seconds=_COUNTING_SECONDS)

    def member_count(self, corpus: str) -> int | None:
        """How many members of a corpus count; None while they are being counted."""
        return self.computed(_count_members, corpus, self.snapshots(corpus), wait_seconds=_COUNTING_SECONDS)

    def blender(self, principal: str) -> Blender:
        """A Blender for a principal, to whom blends of tables that they may not read do not exist."""
        return self._every_blend().within(lambda table: self.may_read(principal, table.partition(".")[0]))

    def _every_blend(self) -> Blender:
        from blender_service.server.blender import Blender  # a second of imports, of which the first page has no need

        return self._blenders.find("", lambda: Blender(self._lake))

    def warm(self) -> None:
        """Load what declarations, blends and repositories need, so that their first pages are quick."""
        from blender_service.order.offsets import offsets_of
        from dagster_project.inspect.corpora.repository_files import cycles_of

        for name in namespaces_with(self.catalogue, "documents"):
            self.hides_text(name)
        cycles_of([("a", "b")])
        blender = self._every_blend()
        for blend_id in blender.list_ids()[:1]:
            with contextlib.suppress(BlenderError):  # its page says what is wrong with it
                order = blender.order(blend_id)
                order.resolve(np.zeros(1, np.int64))
                next(offsets_of(order, order.names[0], 0), None)

    def index(self, dataset: str, at: str | None = None) -> RowIndex:
        """The index of a dataset's rows at the version that an address names, or the newest; built where it is missing.

        Raises:
            CommandError: the address is of no version, or of one that is not in the lake any more.
        """
        version = DatasetVersion.parse(at) if at else DatasetVersion.newest(self.catalogue, dataset)
        key = (dataset, version, not self.hides_text(dataset))
        with self._lock:
            index = self._indexes.get(key)
            if index is not None and index.is_usable:
                return index
            index = RowIndex(DatasetAt(self.catalogue, dataset, version), self._folder, with_text=key[2])
            self._indexes.put(key, index)
            return index


def _moved(catalogue: Catalog, since: str, until: str, rule: str, is_passed: bool, folder: Path, at: object) -> Path:
    return moved_index(catalogue, find_state(catalogue, since), find_state(catalogue, until), rule, is_passed, folder)


def _count_documents(catalogue: Catalog, dataset: str, at: Snapshots) -> DatasetCounts:
    return count_documents(catalogue, dataset, At(dict(at)))


def _count_members(catalogue: Catalog, corpus: str, at: Snapshots) -> int:
    return int(members_that_count(catalogue, corpus, at=At(dict(at))).num_rows)


def _count_kept(catalogue: Catalog, dataset: str, snapshot: int) -> int:
    """Documents that are kept at a snapshot of the verdicts."""
    table = require_table(catalogue, f"{dataset}.verdicts")
    batches = scan_of(table, columns=("kept",), snapshot_id=snapshot).to_arrow_batch_reader()
    return sum(int(pc.sum(batch.column("kept")).as_py() or 0) for batch in batches)
