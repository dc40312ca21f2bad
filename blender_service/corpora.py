"""Which datasets a corpus was made of: its table `increments` names them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchTableError

KEPT_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class CorpusDatasets:
    """Looks up the datasets of a namespace; an answer is kept for half a minute."""

    def __init__(self, catalogue: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        """Look in `catalogue`; `clock` gives seconds."""
        self._catalogue = catalogue
        self._clock = clock
        self._known: dict[str, tuple[float, frozenset[str] | None]] = {}
        self._lock = threading.Lock()

    def of(self, namespace: str) -> frozenset[str] | None:
        """Give the datasets of a corpus, none of them for another namespace; None if the lake cannot be asked now."""
        with self._lock:
            asked, datasets = self._known.get(namespace, (float("-inf"), None))
        if self._clock() - asked < KEPT_SECONDS:
            return datasets
        datasets = self._look(namespace)
        with self._lock:
            self._known[namespace] = (self._clock(), datasets)
        return datasets

    def _look(self, namespace: str) -> frozenset[str] | None:
        try:
            table = self._catalogue.load_table(f"{namespace}.increments")
            if "dataset" not in table.schema().column_names:
                return frozenset()
            names = table.scan(selected_fields=("dataset",)).to_arrow()["dataset"]
            return frozenset(pc.unique(names).drop_null().to_pylist())
        except (NoSuchTableError, NoSuchIdentifierError):
            return frozenset()
        except (OSError, ValueError, pa.ArrowException) as error:
            logger.error("namespace %s: its datasets cannot be read, so nobody may for now: %s", namespace, error)
            return None
