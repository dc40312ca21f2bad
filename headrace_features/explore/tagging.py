"""Give documents tags and take them off, for the pages."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pandas as pd
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace_features.explore.index_files import written
from headrace_features.explore.tags import COLUMNS, TAG, UNTAG, acts_of, digest_of, standing
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, note_acts

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_READ_SECONDS: Final = 600.0  # a page that reads an earlier file is done by then


class Tags:
    """Tags of one dataset in memory, read anew where somebody wrote to the audit; safe for many threads."""

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        """Hold the tags of a dataset; nothing is read yet."""
        self._catalogue, self._dataset, self._lock = catalogue, dataset, threading.Lock()
        self._snapshot: int | None = -1
        self._acts = self._standing = pd.DataFrame(columns=list(COLUMNS))

    def now(self) -> pd.DataFrame:
        """A row for each document and tag: doc_id, tag, who, at, why."""
        with self._lock:
            return self._fresh()

    def of(self, doc_ids: Iterable[str]) -> dict[str, list[str]]:
        """The tags of some documents, by doc_id."""
        tagged = self.now()
        chosen = tagged[tagged["doc_id"].isin(list(doc_ids))] if len(tagged) else tagged
        return {str(doc_id): list(tags) for doc_id, tags in chosen.groupby("doc_id")["tag"]}

    def counts(self) -> dict[str, int]:
        """How many documents have each tag, the most frequent first."""
        return {str(tag): int(n) for tag, n in self.now()["tag"].value_counts().items()}

    def batches(self) -> list[dict[str, Any]]:
        """What people did, the newest first: at, who, act, tag, why and the documents."""
        self.now()
        groups = self._acts.groupby(["at", "who", "act", "tag"], sort=False)
        acts = []
        for (at, who, act, tag), rows in groups:
            facts = {"who": who, "act": act, "tag": tag, "count": len(rows), "why": rows["why"].iloc[0]}
            acts.append({"at": cast("Any", at).isoformat(), **facts})
        return acts[::-1]

    def note(self, act: str, tag: str, doc_ids: Sequence[str], person: str, why: str | None = None) -> int:
        """Give documents a tag, or take it off; gives how many that changed, so that a form sent twice is one.

        Raises:
            CommandError: the tag is no name that a rule could say.
        """
        if act not in (TAG, UNTAG) or not _NAME.fullmatch(tag):
            raise CommandError(f"tag {tag[:80]!r}: write up to 64 letters, digits, `_`, `.` and `-`")
        with self._lock:
            tagged = self._fresh()
            has = set(tagged.loc[tagged["tag"] == tag, "doc_id"])
            changed = sorted({*doc_ids} - has if act == TAG else {*doc_ids} & has)
            if changed:
                columns = {"doc_id": changed, "tag": [tag] * len(changed)}
                note_acts(self._catalogue, act, self._dataset, columns, why=why, who=person)
        return len(changed)

    def undo(self, at: str, who: str, tag: str, person: str) -> int:
        """Undo one act for the documents that it changed; gives how many that changes."""
        self.now()
        acts = self._acts
        batch = acts[(acts["who"] == who) & (acts["tag"] == tag)]
        batch = batch[[moment.isoformat() == at for moment in batch["at"]]]
        if batch.empty:
            raise CommandError(f"there is no such act on the tag {tag[:64]!r} of {self._dataset}")
        opposite = UNTAG if batch["act"].iloc[0] == TAG else TAG
        return self.note(opposite, tag, list(batch["doc_id"]), person, f"undoes {who}, {at}"[:200])

    def _fresh(self) -> pd.DataFrame:
        table = load_table(self._catalogue, AUDIT_TABLE)
        head = table.current_snapshot() if table is not None else None
        newest = head.snapshot_id if head is not None else None
        if newest != self._snapshot:
            self._acts = acts_of(self._catalogue, self._dataset)
            self._standing, self._snapshot = standing(self._acts), newest
        return self._standing

    def file(self, folder: Path) -> Path:
        """A file of SQLite with docs(doc_id, tag), by which lists are filtered; its name says which tags stand."""
        tagged = self.now()
        file = folder / f"{self._dataset}.{digest_of(tagged)[:16]}.tags.sqlite"
        if not file.exists():
            with written(file) as (database, _):
                database.execute("CREATE TABLE docs (doc_id BLOB, tag TEXT)")
                ids = map(bytes.fromhex, tagged["doc_id"])
                database.executemany("INSERT INTO docs VALUES (?, ?)", zip(ids, tagged["tag"], strict=True))
                database.execute("CREATE INDEX by_tag ON docs (tag, doc_id)")
                database.commit()
            for former in folder.glob(f"{self._dataset}.*.tags.sqlite"):
                if former != file and time.time() - former.stat().st_mtime > _READ_SECONDS:
                    former.unlink(missing_ok=True)
        return file
