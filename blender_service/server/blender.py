"""Create, describe and open the blends of one lake, independent of the transport.

The sources of a blend are checked against the lake at every read. Replicas share nothing but the lake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from blender_service.auth.visible_lake import MayCreate, MayRead, VisibleBlends, visible_catalogue
from blender_service.blend.config import BLEND_ID, BlendConfig
from blender_service.blend.create import Draft, delete_blend, draft_blend, draft_update, store_drafts
from blender_service.blend.definition_messages import Description
from blender_service.blend.describe import describe
from blender_service.blend.requests import BlendSpec, UpdateSpec
from blender_service.blend.store import BlendStore, not_found, open_store
from blender_service.blend.text_warnings import text_warnings
from blender_service.exceptions import (
    InvalidReadError,
    NotAllowedError,
    OffsetOutOfRangeError,
    StateError,
)
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head
from blender_service.rows.blend_reader import BlendReader
from blender_service.server.shared_caches import OpenedBlend, SharedCaches, warn_of_small_cache
from blender_service.server.source_readers import SourceReaders
from blender_service.tables.block_cache import DEFAULT_CACHE_BYTES, BlockCache
from blender_service.tables.packed_table import EVALS
from blender_service.tables.source_rows import SourceRows
from blender_service.tables.table_watch import TableWatch
from headrace.tables.generations import EXCISED_PROPERTY

DEFAULT_PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 1000

logger = logging.getLogger(__name__)


class BlendPage(NamedTuple):
    """Some of the blends, ascending by id; `next_token` gives the page after this one, empty if there is none."""

    blend_ids: tuple[str, ...]
    next_token: str


class Blender:
    """Creates, lists and opens the blends of one lake; used by the commands and by the server."""

    def __init__(
        self,
        catalogue: Catalog,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        *,
        store: BlendStore | None = None,
        shared: SharedCaches | None = None,
    ) -> None:
        """Serve the blends of a catalogue's warehouse.

        Args:
            catalogue: of the lake.
            cache_bytes: bound of the decoded blocks in memory.
            store: of the blends; that of the warehouse if None.
            shared: caches of another view of the same lake; new ones if None.
        """
        self._catalogue = catalogue
        self._store = store or open_store(catalogue)
        self._shared = shared or SharedCaches(catalogue, BlockCache(cache_bytes), TableWatch(catalogue))
        self._load: Callable[[str], Table | None] = self._shared.watch.load
        self._may_create: MayCreate = lambda table: True
        self._team = ""
        self.cache = self._shared.cache

    def within(self, may_read: MayRead | None, may_create: MayCreate = lambda table: True, team: str = "") -> Blender:
        """Give the lake as a caller with access to some tables sees it; the others do not exist in it.

        Args:
            may_read: whether a table (namespace.table) may be read; None for all.
            may_create: whether blends of a readable table may be created.
            team: its share of the cache is for the caller's reads.
        """
        store = self._store if may_read is None else VisibleBlends(self._store, may_read, self._shared.tables_of)
        catalogue = self._catalogue if may_read is None else visible_catalogue(self._catalogue, may_read)
        view = Blender(catalogue, store=store, shared=self._shared)
        view._may_create, view._team = may_create, team
        if may_read is not None:
            view._load = lambda table: self._load(table) if may_read(table) else None
        return view

    def create(self, spec: BlendSpec) -> BlendConfig:
        """Create a blend, or find an equal one; see `draft_blend`, `store_drafts`."""
        config = self._store_all(draft_blend(self._catalogue, spec, self._store.objects), spec.name)
        logger.info("created blend %s of %d sources", config.blend_id, len(config.sources))
        return config

    def update(self, spec: UpdateSpec) -> BlendConfig:
        """Create a child of a blend, or find an equal one; see `draft_update`, `store_drafts`."""
        config = self._store_all(draft_update(self._catalogue, self._store, spec), spec.name)
        logger.info("created blend %s, which follows %s from %s", config.blend_id, config.parent, config.from_offset)
        return config

    def _store_all(self, drafts: Sequence[Draft], name: str) -> BlendConfig:
        """Store drafts if the caller may create them; an existing one of this name is given to anybody.

        Raises:
            NotAllowedError: the caller may not create blends of a table.
        """
        last = drafts[-1].config
        denied = sorted({s.table for draft in drafts for s in draft.config.sources if not self._may_create(s.table)})
        if denied:
            if self._store.has(last.blend_id) and name in ("", *self._store.names_of(last.blend_id)):
                return last
            raise NotAllowedError(
                f"blend: you may read {', '.join(denied)}, and not create blends of them; ask for a rule with "
                "create = true, or read a blend that is there"
            )
        config = store_drafts(self._store, drafts, name)
        self._sources().index(config)
        return config

    def delete(self, blend_id: str) -> list[str]:
        """Delete a blend, by its full id; see `delete_blend`."""
        return delete_blend(self._catalogue, self._store, blend_id)

    def draft(self, spec: BlendSpec | UpdateSpec) -> Draft:
        """Check a request and give its future blend; nothing is pinned or stored."""
        if isinstance(spec, BlendSpec):
            return draft_blend(self._catalogue, spec, self._store.objects)[-1]
        return draft_update(self._catalogue, self._store, spec)[-1]

    def bind(self, name: str, blend_id: str) -> None:
        """Bind a name to a blend, for good; see `BlendStore.bind`."""
        self._store.bind(name, blend_id)

    def resolve(self, reference: str) -> str:
        """Turn an id, the start of one or a name into the id."""
        return self._store.resolve(reference)

    def config(self, blend_id: str) -> BlendConfig:
        """Give the config of a blend by its full id."""
        return self._open(blend_id).config

    def head(self, blend_id: str) -> Head:
        """Give the head of a blend by its full id."""
        return self._open(blend_id).head

    def order(self, blend_id: str) -> BlendOrder:
        """Give the order of a blend's rows by its full id."""
        return self._open(blend_id).order

    def describe(self, blend_id: str, offset: int | None = None) -> Description:
        """Describe what a blend has read at an offset; see `blend.describe`."""
        config, head, _ = self._open(blend_id)
        return describe(config, head, offset)

    def prove_continuation(self, from_id: str, to_id: str, offset: int) -> int | None:
        """Prove that a run may continue with another blend after rows [0, offset) of its own.

        Returns:
            The first offset where the two may differ, None if nowhere.

        Raises:
            InvalidReadError: the offset is below 0.
            OffsetOutOfRangeError: one of the blends ends before the offset.
            StateError: the blends may differ below the offset, so rows would be repeated or skipped.
        """
        if offset < 0:
            raise InvalidReadError(f"continuation: offset is {offset}; give the state's offset, 0 or more")
        heads = (self.head(from_id), self.head(to_id))
        for head in heads:
            if head.end is not None and offset > head.end:
                raise OffsetOutOfRangeError(
                    f"blend {head.blend_id}: offset {offset} is beyond its end {head.end}; load a state of this blend"
                )
        differs_from = heads[1].shares_rows_until(heads[0])
        if differs_from is not None and differs_from < offset:
            raise StateError(
                f"state: a run at offset {offset} of blend {from_id} cannot go on with {to_id}: their rows may differ "
                f"from {differs_from} on, so some would be repeated or skipped; update {from_id[:12]} from offset "
                f"{offset} or later"
            )
        return differs_from

    def excised_documents(self, blend_id: str) -> dict[str, int]:
        """Count the documents taken out of each source's table; sources without a count are left out."""
        stated = self._stated(blend_id, EXCISED_PROPERTY)
        return {name: int(count) for name, count in stated.items() if count.isdecimal()}

    def searched_evals(self, blend_id: str) -> dict[str, str]:
        """The digest of the benchmarks searched for in each source's table; empty where the table states none."""
        return self._stated(blend_id, EVALS)

    def _stated(self, blend_id: str, name: str) -> dict[str, str]:
        """Map each source to the present value of one property of its table."""
        tables = {source: self._load(pin.table) for source, pin in self.head(blend_id).pins().items()}
        return {source: table.properties.get(name, "") for source, table in tables.items() if table is not None}

    def warnings(self, blend_id: str) -> list[str]:
        """Say what to know of a blend before training on it, a line each; see `text_warnings`."""
        return list(text_warnings(self.config(blend_id), self._load, self._store.objects))

    def list_ids(self) -> list[str]:
        """List the ids of all blends, ascending."""
        return self._store.list_ids()

    def list_page(self, page_size: int = 0, token: str = "") -> BlendPage:
        """List a page of blends, ascending by id; one created between two pages is listed if its id comes later.

        A page has at most `page_size` blends (0: 100) and begins after the one whose `next_token` is given (empty: the
        first).

        Raises:
            InvalidReadError: page_size is out of range, or the token is not one from a page.
        """
        if not 0 <= page_size <= MAX_PAGE_SIZE:
            raise InvalidReadError(f"list: page_size is {page_size}; give 1 to {MAX_PAGE_SIZE}, or 0 for the default")
        if token and not BLEND_ID.fullmatch(token):
            raise InvalidReadError(f"list: page_token is {token!r}; give next_page_token of the page before")
        ahead = [blend_id for blend_id in self.list_ids() if blend_id > token]
        page = tuple(ahead[: page_size or DEFAULT_PAGE_SIZE])
        return BlendPage(page, page[-1] if len(page) < len(ahead) else "")

    def names(self) -> dict[str, list[str]]:
        """List the names of each named blend."""
        return self._store.names()

    def names_of(self, blend_id: str) -> list[str]:
        """List the names of one blend."""
        return self._store.names_of(blend_id)

    def open(self, blend_id: str, offset: int = 0, columns: Sequence[str] = ()) -> BlendReader:
        """Open a blend for reading; every source needed from `offset` on must still be as the blend pinned it.

        Args:
            blend_id: of the blend.
            offset: first row.
            columns: names of columns with a value for each token, for the rows to have (`token_columns`).

        Raises:
            BlendNotFoundError: there is no such blend.
            InvalidReadError: a source has no such column.
            SourceChangedError: a table is not as the blend pinned it.
        """
        if not self._store.has(blend_id):  # it may have been deleted since it was resolved
            raise not_found(blend_id)
        config, head, order = self._open(blend_id)
        pins, since = head.pins(), config.window_from
        earlier = self.open(self._before_longer_rows(config), offset, columns) if 0 <= offset < since else None
        ahead = [segment for segment in head.segments if segment.end is None or segment.end > max(offset, since)]
        needed = {part.name for segment in ahead for part in segment.parts}
        sources = {index: (name, pins[name]) for index, name in enumerate(order.names) if name in needed}
        followed = self._sources().follow(config, sources, tuple(dict.fromkeys(columns)))
        most = self.cache.max_bytes // 2
        return BlendReader(
            config, order, followed.readers, self._shared.fetcher, most, followed.changed, followed.columns, earlier
        )

    def _before_longer_rows(self, config: BlendConfig) -> str:
        """The id of the blend whose rows stand before those of a config's length: they are its own."""
        ancestor = config
        while ancestor.spans[-1] == config.spans[-1]:
            ancestor = self.config(ancestor.parent or "")
        return ancestor.blend_id

    def source_rows(self, blend_id: str) -> dict[str, SourceRows]:
        """Give the rows of each source of a blend, by name, in the tables as they are served now; none is read.

        Raises:
            SourceChangedError: a table is not as the blend pinned it.
        """
        config, head, order = self._open(blend_id)
        pins = head.pins()
        sources = {index: (name, pins[name]) for index, name in enumerate(order.names)}
        return {rows.name: rows for rows in self._sources().follow(config, sources, ()).readers.values()}

    def _sources(self) -> SourceReaders:
        return SourceReaders(self._shared, self._store.objects, self._load, self._team)

    def prewarm(self, blend_id: str, offset: int, rows: int, columns: Sequence[str] = ()) -> Iterator[tuple[int, bool]]:
        """Build the blocks of some rows, so that reading them waits for nothing; see `BlendReader.prewarm`."""
        reader = self.open(blend_id, offset, columns)
        return reader.prewarm(offset, rows, self.cache.max_bytes)

    def _open(self, blend_id: str) -> OpenedBlend:
        """Resolve a blend; recently used ones are cached, since a blend never changes."""
        if not self._store.shows(blend_id):
            raise not_found(blend_id)
        opened = self._shared.opened.get(blend_id)
        if opened is None:
            config = self._store.get(blend_id)
            head = self._store.head(config)
            opened = OpenedBlend(config, head, config.order(head))
            warn_of_small_cache(config, self.cache.max_bytes)
            self._shared.opened.put(blend_id, opened)
        return opened
