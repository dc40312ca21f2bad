"""The opt-out register `system.opt_outs`: what people asked for, what was decided, what was taken out; rows only grow.

    leaf  act       entry     kind         values
    0     entry     5f1c..    domain       [example.org]
    1     entry     88a0..    author       [sha256 of an alias, sha256 of another]
    2     decision  5f1c..                 accepted, by whom, why
    3     excision  5f1c..                 what was taken out, as JSON in `detail`

Each row is a leaf of a Merkle tree (`merkle`): its hash is over the canonical JSON of its other columns. One commit
appends rows and moves the table's property `headrace.rights-root` (`COUNT:ROOT`), so a crash leaves both or neither;
`system.rights_roots` has the root after each append, and snapshots of other tables carry it in their summaries.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable

from headrace.tables.rights_root import OPT_OUTS, ROOT_PROPERTY
from headrace_features.rights.register.merkle import leaf_hash, root_of
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import EVERYTHING, read_columns, read_rows
from spark_jobs.lake.ledger.process import user_name
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table

Kind = Literal["repository", "author", "domain", "url_prefix", "path", "sha256", "dataset", "record"]
Scope = Literal["all", "training"]
Decision = Literal["accepted", "refused", "withdrawn"]

ROOTS: Final = "system.rights_roots"
SALT_PROPERTY: Final = "headrace.rights-salt"
KINDS: Final[tuple[str, ...]] = get_args(Kind)
# A commit holds where the register was read, or not at all: PyIceberg's own retry would number leaves twice.
_NO_RETRY: Final = {"commit.retry.num-retries": "0"}
_TRIES: Final = 20  # other commands append too, each in some .1 s

DECLARED = Table(
    name="opt_outs",
    comment="One row for each opt-out, decision and excision; rows never change, and each is a leaf of a hash tree.",
    columns=(
        Column("leaf!", "long", "number of the row, dense from 0"),
        Column("leaf_hash!", "string", "RFC 9162's hash of the row: SHA-256 over 0x00 and its canonical JSON; hex"),
        Column("at!", "timestamptz", "when it was written"),
        Column("by!", "string", "user that wrote it"),
        Column("act!", "string", "entry, decision or excision"),
        Column("entry!", "string", "identity of the entry: 16 hex digits over what it asks for"),
        Column("request", "string", "the request that named it, such as a ticket or a list with its SHA-256"),
        Column("asker", "string", "who asks, as the request names itself"),
        Column("kind", "string", "repository, author, domain, url_prefix, path, sha256, dataset or record"),
        Column("values!", "list<string!>", "what it is about; of an author, a salted hash for each alias"),
        Column("scope", "string", "all, or training alone"),
        Column("since", "timestamptz", "from when on it holds; null: always"),
        Column("evidence", "string", "a reference: an address, the line and group of a file, a ticket"),
        Column("decision", "string", "accepted, refused or withdrawn"),
        Column("reason", "string", "why it was decided so"),
        Column("detail", "string", "of an excision: what was taken out, as JSON"),
    ),
    key=("leaf",),
)
DECLARED_ROOTS = Table(
    name="rights_roots",
    comment="One row for each append to the opt-out register: the root over all of its rows; a day's root is its last.",
    columns=(
        Column("day!", "date", "day of the append, UTC"),
        Column("leaves!", "long", "rows of the register"),
        Column("root!", "string", "RFC 9162's tree hash over them, hex"),
        Column("at!", "timestamptz", "when it was written"),
    ),
    key=("leaves",),
)


@dataclass(frozen=True)
class OptOut:
    """What somebody asks to leave out.

    Attributes:
        asker: as the request names itself.
        kind: of what it is about.
        values: what it is about, in the form of `canonical`; of an author the salted hashes of `author_hashes`.
        scope: everything, or training alone.
        since: from when on; None for always.
        evidence: a reference.
        request: of which it is a part.
    """

    asker: str
    kind: Kind
    values: tuple[str, ...]
    scope: Scope = "all"
    since: datetime | None = None
    evidence: str = ""
    request: str = ""

    @property
    def entry(self) -> str:
        """Identity: the same thing asked for by the same asker is one entry, however often a list is read."""
        since = None if self.since is None else written(self.since)
        named = [self.asker, self.kind, sorted(self.values), self.scope, since]
        return hashlib.sha256(json.dumps(named, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Entry:
    """An opt-out with what became of it.

    Attributes:
        opt_out: what is asked for.
        entry: its identity.
        leaf: number of its row.
        at: when it was written.
        decision: the newest; None while it waits for one.
        applied: when documents were last taken out for it; None before.
    """

    opt_out: OptOut
    entry: str
    leaf: int
    at: datetime
    decision: str | None = None
    applied: datetime | None = None

    @property
    def holds(self) -> bool:
        """Whether it is to be kept to: neither refused nor withdrawn. Without a decision it holds."""
        return self.decision not in ("refused", "withdrawn")

    @property
    def state(self) -> str:
        """Waiting (no decision, or accepted and not applied), applied, refused or withdrawn."""
        if not self.holds:
            return str(self.decision)
        return "waiting" if self.applied is None else "applied"


def author_alias(name: str) -> str:
    """The compared form of an author's name or address: NFKC, casefolded, runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def author_hash(salt: str, name: str) -> str:
    """Salted SHA-256 of a name or address, hex: the register tells nobody who asked, and still knows them again."""
    return hashlib.sha256(f"{salt}\0{author_alias(name)}".encode()).hexdigest()


def register_salt(catalogue: Catalog) -> str:
    """The salt of this lake's author hashes; the register is made where there is none."""
    with catalogue_errors():
        return str(_table(catalogue).properties[SALT_PROPERTY])


def add_entries(catalogue: Catalog, opt_outs: Iterable[OptOut], now: datetime | None = None) -> list[Entry]:
    """Enter opt-outs and give the new ones; what stands there already (and was not withdrawn) is not entered again.

    Raises:
        CatalogueError: the register cannot be written.
    """
    wanted = {opt_out.entry: opt_out for opt_out in opt_outs}

    def rows() -> list[dict[str, Any]]:
        there = {entry.entry for entry in entries(catalogue) if entry.decision != "withdrawn"}
        return [_row("entry", key, opt_out) for key, opt_out in wanted.items() if key not in there]

    leaves = append(catalogue, rows, now)
    return [entry for entry in entries(catalogue) if entry.leaf in leaves] if leaves else []


def decide(catalogue: Catalog, entry_ids: Sequence[str], decision: Decision, reason: str) -> None:
    """Write a decision about entries."""
    append(catalogue, lambda: [_row("decision", entry, decision=decision, reason=reason) for entry in entry_ids])


def note_excision(
    catalogue: Catalog,
    details: Mapping[str, Mapping[str, Any]],
    applied: Mapping[str, datetime | None] | None = None,
) -> None:
    """Write what was taken out, by entry; called once for each entry whose documents are out.

    Args:
        catalogue: of the lake.
        details: what was taken out, by entry.
        applied: when each was applied before; what another command wrote since, of the same documents, is enough.
    """

    def rows() -> list[dict[str, Any]]:
        log = [row for row in read_log(catalogue) if row["act"] == "excision"] if applied is not None else []
        newest = {row["entry"]: row for row in log if applied and _is_later(row["at"], applied.get(row["entry"]))}
        return [
            _row("excision", entry, detail=canonical_json(detail))
            for entry, detail in details.items()
            if entry not in newest or not _taken(detail) <= _taken(json.loads(newest[entry]["detail"]))
        ]

    append(catalogue, rows)


def _is_later(moment: datetime, other: datetime | None) -> bool:
    return other is None or moment > other


def _taken(detail: Mapping[str, Any]) -> set[str]:
    return {document["doc_id"] for document in detail["documents"]}


def entries(catalogue: Catalog) -> list[Entry]:
    """All opt-outs with what became of them, in order of entry; after a withdrawal a new entry counts anew."""
    return entries_of(read_log(catalogue))


def entries_of(log: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """The same of the rows of the register, by leaf."""
    standing: dict[str, Entry] = {}
    for row in log:
        name, before = row["entry"], standing.get(row["entry"])
        if row["act"] == "entry":
            values = {key: row[key] for key in ("asker", "kind", "scope", "since", "evidence", "request")}
            standing[name] = Entry(OptOut(values=tuple(row["values"]), **values), name, row["leaf"], row["at"])
        elif before is not None and row["act"] == "decision":
            standing[name] = Entry(before.opt_out, name, before.leaf, before.at, row["decision"], before.applied)
        elif before is not None and row["act"] == "excision":
            standing[name] = Entry(before.opt_out, name, before.leaf, before.at, before.decision, row["at"])
    return sorted(standing.values(), key=lambda entry: entry.leaf)


def read_log(catalogue: Catalog) -> list[dict[str, Any]]:
    """All rows of the register, by leaf."""
    columns = [column.name for column in DECLARED.columns]
    return sorted(read_rows(catalogue, OPT_OUTS, columns, EVERYTHING), key=lambda row: row["leaf"])


def append(catalogue: Catalog, rows: Callable[[], Sequence[dict[str, Any]]], now: datetime | None = None) -> range:
    """Append rows as leaves, with the root that they give, in one commit; the numbers of the leaves.

    Args:
        catalogue: of the lake.
        rows: gives them, and again where another process appended in between.
        now: when; by default the clock.
    """
    with catalogue_errors():
        for attempt in range(_TRIES):
            table = _table(catalogue)
            first, hashes, newest = _hashes(table)
            moment = max(now or datetime.now(UTC), newest)  # clocks of machines differ, and leaves are in order of time
            if hashes and all(row["leaves"] != first for row in roots(catalogue)):  # a kill came between two commits
                _note_root(catalogue, first, root_of(hashes).hex(), newest)
            new = [{**row, "leaf": first + at, "at": moment, "by": user_name()} for at, row in enumerate(rows())]
            if not new:
                return range(first, first)
            for row in new:
                row["leaf_hash"] = leaf_hash(leaf_bytes(row)).hex()
            root = root_of([*hashes, *(bytes.fromhex(row["leaf_hash"]) for row in new)]).hex()
            try:
                with table.transaction() as transaction:
                    transaction.append(pa.Table.from_pylist(new, schema=table.schema().as_arrow()))
                    transaction.set_properties({ROOT_PROPERTY: f"{first + len(new)}:{root}"})
            except CommitFailedException:
                if attempt == _TRIES - 1:
                    raise
                continue
            _note_root(catalogue, first + len(new), root, moment)
            return range(first, first + len(new))
    raise AssertionError("the loop returns or raises")


def leaf_bytes(row: Mapping[str, Any]) -> bytes:
    """The bytes under a row's hash: JSON of its columns but the hash, keys sorted, times in UTC with microseconds.

    Columns that say nothing are left out, so that a column of a later version breaks no hash of today.
    """
    names = [column.name for column in DECLARED.columns if column.name != "leaf_hash"]
    named = {name: row[name] for name in names if row.get(name) is not None}
    return canonical_json(
        {name: written(value) if isinstance(value, datetime) else value for name, value in named.items()}
    ).encode()


def written(moment: datetime) -> str:
    """A time as hashes and statements have it: UTC, with microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _row(act: str, entry: str, opt_out: OptOut | None = None, **facts: Any) -> dict[str, Any]:
    """A row with nulls where it says nothing."""
    row: dict[str, Any] = {column.name: None for column in DECLARED.columns}
    row |= {"act": act, "entry": entry, "values": [], **facts}
    if opt_out is not None:
        row |= {**vars(opt_out), "values": list(opt_out.values)}
    return row


def _table(catalogue: Catalog) -> IcebergTable:
    properties = {SCOPE_PROPERTY: "opt_outs", SALT_PROPERTY: secrets.token_hex(16), **_NO_RETRY}
    return ensure_table(catalogue, OPT_OUTS, DECLARED, properties)


def _hashes(table: IcebergTable) -> tuple[int, list[bytes], datetime]:
    """How many leaves there are, their hashes in order, and when the newest was written.

    Raises:
        InputError: numbers are not dense from 0, so a row was taken away or added by hand.
    """
    if table.current_snapshot() is None:
        return 0, [], datetime.min.replace(tzinfo=UTC)
    rows = table.scan(selected_fields=("leaf", "leaf_hash", "at")).to_arrow().sort_by("leaf")
    if rows["leaf"].to_pylist() != list(range(rows.num_rows)):
        raise InputError(
            f"{OPT_OUTS}: its leaves are not numbered from 0 to {rows.num_rows - 1}, so rows were removed or added by "
            "hand; roll it back to a snapshot before that (headrace rights verify names the first)"
        )
    hashes = [bytes.fromhex(value) for value in rows["leaf_hash"].to_pylist()]
    return rows.num_rows, hashes, rows["at"][-1].as_py() if hashes else datetime.min.replace(tzinfo=UTC)


def _note_root(catalogue: Catalog, leaves: int, root: str, moment: datetime) -> None:
    """Write a root unless it is there: after a kill the next append writes it, in a race another process."""
    row = {"day": moment.astimezone(UTC).date(), "leaves": leaves, "root": root, "at": moment}
    for attempt in range(_TRIES):
        table = ensure_table(catalogue, ROOTS, DECLARED_ROOTS, {SCOPE_PROPERTY: "rights_roots", **_NO_RETRY})
        if leaves in table.scan(selected_fields=("leaves",)).to_arrow()["leaves"].to_pylist():
            return
        try:
            return table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
        except CommitFailedException:  # the register has its rows: another's root must not make that an error
            if attempt == _TRIES - 1:
                raise


def roots(catalogue: Catalog) -> list[dict[str, Any]]:
    """The rows of `system.rights_roots`, by count of leaves."""
    rows = read_columns(catalogue, ROOTS, [column.name for column in DECLARED_ROOTS.columns])
    return [] if rows is None else rows.sort_by("leaves").to_pylist()
