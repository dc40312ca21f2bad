"""The registry `system.registry`: policies, models, eval sets, tokenizers and templates by the hash of their content.

An entry is never overwritten: `web_en@3` means the same rules for as long as the lake exists. What a run judges by is
entered when it runs, so that the hash in an old table can be read years later.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import And, EqualTo

from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.process import user_name
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table

Kind = Literal["policy", "model", "eval_set", "tokenizer", "template"]

REGISTRY: Final = "system.registry"
_TRIES: Final = 5
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,80}")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,80}")

DECLARED = Table(
    name="registry",
    comment="One row per entry: what a name and version mean, for good.",
    columns=(
        Column("kind!", "string", "policy, model, eval_set, tokenizer or template"),
        Column("name!", "string", "its name"),
        Column("version!", "string", "its version; the same name and version is never another content"),
        Column("content_hash!", "string", "SHA-256 of the content, lower-case hex"),
        Column("content!", "binary", "the content; of a policy its canonical JSON"),
        Column("recorded_at!", "timestamptz", "when it was entered"),
        Column("recorded_by!", "string", "user that entered it"),
    ),
    key=("kind", "name", "version"),
    checks=(Check("hash_is_hex", "content_hash RLIKE '^[0-9a-f]{64}$'", "hashes have one form"),),
)


@dataclass(frozen=True)
class Entry:
    """One entry, as the columns of the table."""

    kind: str
    name: str
    version: str
    content_hash: str
    content: bytes
    recorded_at: datetime
    recorded_by: str

    @property
    def label(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def by(self) -> str:
        """The user that entered it and the day: `ann, 2026-11-20`."""
        return f"{self.recorded_by}, {self.recorded_at:%Y-%m-%d}"


def entries(catalogue: Catalog, kind: Kind, name: str | None = None) -> list[Entry]:
    """The entries of a kind, the oldest first."""
    wanted = EqualTo("kind", kind) if name is None else And(EqualTo("kind", kind), EqualTo("name", name))
    columns = tuple(column.name for column in DECLARED.columns)
    rows = read_rows(catalogue, REGISTRY, columns, wanted)
    return sorted((Entry(**row) for row in rows), key=lambda entry: (entry.recorded_at, entry.name, entry.version))


def find_entries(catalogue: Catalog, kind: Kind, references: Iterable[str], mend: str) -> list[Entry]:
    """Entries of a kind, each by its `name@version`.

    Raises:
        InputError: one is not there; the message names the nearest, and says how to mend.
    """
    there, matching = {entry.label: entry for entry in entries(catalogue, kind)}, []
    for reference in references:
        if reference not in there:
            near = did_you_mean(str(reference), there) or f"; it has {', '.join(there) or 'none'}"
            raise InputError(f"{kind.replace('_', ' ')} {reference} is not in the registry{near} ({mend})")
        matching.append(there[reference])
    return matching


def record(
    catalogue: Catalog,
    kind: Kind,
    name: str,
    version: str,
    content: bytes,
    same: Callable[[bytes, bytes], bool] = operator.eq,
) -> Entry:
    """Enter a content under a name and version; nothing is written where the same content is entered already.

    Raises:
        InputError: the name and version have another content, or are malformed.
        CatalogueError: the lake cannot be written.
    """
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise InputError(
            f"{kind} {name}@{version}: write a name of a-z, 0-9 and _, a letter first, and a version of letters, "
            "digits, '.', '_', '-' and '+'"
        )
    digest = hashlib.sha256(content).hexdigest()
    with catalogue_errors():
        table = ensure_table(catalogue, REGISTRY, DECLARED, {SCOPE_PROPERTY: "registry"})
        for attempt in range(_TRIES):
            if there := known(catalogue, kind, name, version, content, same):
                return there
            entry = Entry(kind, name, version, digest, content, datetime.now(UTC), user_name())
            try:
                table.append(pa.Table.from_pylist([vars(entry)], schema=table.schema().as_arrow()))
                return entry
            except CommitFailedException:  # another entry came between, perhaps of this name
                if attempt == _TRIES - 1:
                    raise
                table = table.refresh()
    raise AssertionError("the loop returns or raises")


def known(
    catalogue: Catalog, kind: Kind, name: str, version: str, content: bytes, same: Callable[[bytes, bytes], bool]
) -> Entry | None:
    """The entry of a name and version; None where there is none.

    Raises:
        InputError: it has another content.
    """
    there = next((entry for entry in entries(catalogue, kind, name) if entry.version == version), None)
    if there is not None and not same(there.content, content):
        raise InputError(
            f"{kind} {name}@{version} is in the registry with another content ({there.content_hash[:12]} of "
            f"{there.recorded_at:%Y-%m-%d}, this is {hashlib.sha256(content).hexdigest()[:12]}); give it a new version"
        )
    return there
