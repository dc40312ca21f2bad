"""Tags that people give documents: rows of `system.audit`, each undone by a later one.

Pages read them as they stand now (`tagging`). A run reads those that stood when its definitions were loaded
(`tag_scorer`).
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

import pandas as pd
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In

from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.acts import AUDIT_TABLE

TAG, UNTAG, _DELETE = "tag", "untag", "delete"
COLUMNS: Final = ("at", "who", "act", "doc_id", "tag", "why", "increment")


def acts_of(catalogue: Catalog, dataset: str, until: datetime | None = None) -> pd.DataFrame:
    """All rows about the tags of a dataset since it was last deleted, up to a time, in the order of the acts."""
    condition = And(EqualTo("subject", dataset), In("act", (TAG, UNTAG, _DELETE)))
    table = load_table(catalogue, AUDIT_TABLE)
    has_tags = table is not None and "tag" in table.schema().column_names
    rows = read_columns(catalogue, AUDIT_TABLE, COLUMNS, condition) if has_tags else None
    acts = pd.DataFrame(columns=list(COLUMNS)) if rows is None else rows.to_pandas()
    acts = acts.sort_values(["at", "act"], kind="stable", ignore_index=True)
    if until is not None:
        acts = acts[acts["at"] <= until]
    deleted = acts.index[(acts["act"] == _DELETE) & acts["increment"].isna()]
    acts = acts.loc[deleted[-1] + 1 :] if len(deleted) else acts
    return acts[acts["act"] != _DELETE].reset_index(drop=True)


def standing(acts: pd.DataFrame) -> pd.DataFrame:
    """The newest row for each document and tag, where it gives the tag; by doc_id, then tag."""
    newest = acts.drop_duplicates(["doc_id", "tag"], keep="last")
    return newest[newest["act"] == TAG].sort_values(["doc_id", "tag"], ignore_index=True)


def digest_of(tagged: pd.DataFrame) -> str:
    """A digest of which documents have which tags; empty for none."""
    lines = "\n".join(f"{doc_id} {tag}" for doc_id, tag in zip(tagged["doc_id"], tagged["tag"], strict=True))
    return hashlib.sha256(lines.encode()).hexdigest() if lines else ""
