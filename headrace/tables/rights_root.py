"""The root of the opt-out register, which every snapshot of a lake with a register carries in its summary.

    headrace.rights-root    COUNT:ROOT, the tree hash over the first COUNT rows of `system.opt_outs`

The register has it as a property of its table. Who later changes a row would have to write again all snapshots since,
and every copy of their metadata. A root is looked up at most every five seconds, so that of a snapshot may be that of
a few rows before; it is a root of the register all the same.
"""

from __future__ import annotations

import time
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table.update import AddSnapshotUpdate

OPT_OUTS: Final = "system.opt_outs"
ROOT_PROPERTY: Final = "headrace.rights-root"
_FRESH_SECONDS: Final = 5.0  # a lookup takes .3 ms in SQLite, a round trip of a REST catalogue


class RootStamp:
    """Writes the root into the summaries of new snapshots, for the commits of one catalogue."""

    def __init__(self) -> None:
        self._root: str | None = None
        self._looked_at: float | None = None

    def stamp(self, catalogue: Catalog, identifier: str, updates: Any) -> None:
        """Add the root to the snapshots among some updates of a table; the register's own have it as a property."""
        if identifier == OPT_OUTS:
            self._looked_at = None
            return
        for update in updates:
            if isinstance(update, AddSnapshotUpdate) and update.snapshot.summary is not None:
                root = self._fresh(catalogue)
                if root is not None:
                    update.snapshot.summary.additional_properties.setdefault(ROOT_PROPERTY, root)

    def _fresh(self, catalogue: Catalog) -> str | None:
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > _FRESH_SECONDS:
            self._root, self._looked_at = current_root(catalogue), now
        return self._root


def current_root(catalogue: Catalog) -> str | None:
    """`COUNT:ROOT` of the register as it is now; None where nothing was ever asked."""
    try:
        return catalogue.load_table(OPT_OUTS).properties.get(ROOT_PROPERTY)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
