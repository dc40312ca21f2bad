"""Show one caller's part of the lake: tables and blends closed to the caller do not exist in it.

Rules are applied to the catalogue and to the store of blends, not to single requests. So every message about a
forbidden table or blend is, letter for letter, the one about a missing table or blend.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from blender_service.blend.config import BlendConfig
from blender_service.blend.store import BlendStore, not_found
from blender_service.exceptions import BlendNameTakenError, BlendNotFoundError, StoredBlendError
from blender_service.order.resolved_blend import Head
from blender_service.recently_used import RecentlyUsed

MayRead = Callable[[str], bool]
MayCreate = Callable[[str], bool]

logger = logging.getLogger(__name__)


def visible_catalogue(catalogue: Catalog, may_read: MayRead) -> Catalog:
    """Give a catalogue without the tables closed to the caller; it can load tables, nothing else."""
    return cast(Catalog, _VisibleTables(catalogue, may_read))


class _VisibleTables:
    def __init__(self, catalogue: Catalog, may_read: MayRead) -> None:
        self._catalogue = catalogue
        self._may_read = may_read

    def load_table(self, identifier: str) -> Table:
        """Load a table open to the caller."""
        if not self._may_read(identifier):
            raise NoSuchTableError(f"Table does not exist: {identifier}")
        return self._catalogue.load_table(identifier)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"catalogue.{name}: only load_table honours namespace rules; extend visible_lake.py")


class VisibleBlends(BlendStore):
    """The blends with all their tables, those of their ancestors included, open to the caller."""

    def __init__(self, whole: BlendStore, may_read: MayRead, tables_of: RecentlyUsed[str, frozenset[str]]) -> None:
        """Show a caller's part of a store."""
        super().__init__(whole.objects)
        self._whole = whole
        self._may_read = may_read
        self._tables_of = tables_of

    def get(self, blend_id: str) -> BlendConfig:
        """Read a config by its full id; see `BlendStore.get`."""
        if not self.shows(blend_id):
            raise not_found(blend_id)
        return self._whole.get(blend_id)

    def has(self, blend_id: str) -> bool:
        """Whether a blend of that id exists and the caller may read it."""
        return self._whole.has(blend_id) and self.shows(blend_id)

    def head(self, config: BlendConfig) -> Head:
        """Give the head of a blend; its ancestors are read for it, also hidden ones."""
        return self._whole.head(config)

    def bind(self, name: str, blend_id: str) -> None:
        """Bind a name to an id; where a hidden blend has the name, the error says only that it is taken."""
        try:
            self._whole.bind(name, blend_id)
        except BlendNameTakenError:
            if self._bound(name) is None:
                raise BlendNameTakenError(f"blend name {name}: is taken; choose another name") from None
            raise

    def list_ids(self) -> list[str]:
        """List the visible ids, ascending."""
        return [blend_id for blend_id in self._whole.list_ids() if self.shows(blend_id)]

    def names_of(self, blend_id: str) -> list[str]:
        """List the names of a blend, ascending."""
        return self._whole.names_of(blend_id) if self.shows(blend_id) else []

    def shows(self, blend_id: str) -> bool:
        """Whether a blend exists for this caller; a lost or damaged config hides it."""
        tables = self._tables_of.get(blend_id)
        if tables is None:
            try:
                config = self._whole.get(blend_id)
                pins = self._whole.head(config).pins().values()
            except (BlendNotFoundError, StoredBlendError) as error:
                if isinstance(error, StoredBlendError):
                    logger.error("%s", error)
                return False
            tables = frozenset((*(pin.table for pin in pins), *(source.table for source in config.sources)))
            self._tables_of.put(blend_id, tables)
        return all(self._may_read(table) for table in tables)

    def _bound(self, name: str) -> str | None:
        """Give the id that a name is bound to, None if it is not shown."""
        bound = self._whole._bound(name)
        return bound if bound is not None and self.shows(bound) else None
