"""Check a statement of `headrace rights statement` against a lake, with PyIceberg and hashlib alone.

    python verify_statement.py STATEMENT.json LAKE      LAKE: a folder with catalog.db, or a catalogue of PyIceberg's
log         rows of system.opt_outs have their hashes, and give every root (RFC 9162) that is written anywhere
statement   its rows are those of the log, each with a path to the root; no row and no document is left out
windows     no document is in a packed table's head, nor in what blends and tags name; texts leave out system.excisions
What came after the statement does not break it. Ends with status 1 and a line for each fault.
"""

import hashlib
import json
import sys
from datetime import UTC, datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

from pyiceberg.catalog import load_catalog


def leaf_of(row):
    """Hash of a row: of 0x00 and the JSON of its columns that say something, but the hash; times in UTC."""
    named = {name: value for name, value in row.items() if name != "leaf_hash" and value is not None}
    shown = {"default": lambda at: f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "separators": (",", ":")}
    return hashlib.sha256(b"\x00" + json.dumps(named, sort_keys=True, ensure_ascii=False, **shown).encode()).digest()


def _node(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots_of(leaves):
    """The roots over the first 0, 1, 2, .. leaves; `whole` has the roots of whole subtrees, the largest first."""
    roots, whole = [hashlib.sha256().hexdigest()], []
    for count, leaf in enumerate(leaves, 1):
        whole.append(leaf)
        for _ in range((count & -count).bit_length() - 1):
            whole[-2:] = [_node(*whole[-2:])]
        roots.append(reduce(lambda right, left: _node(left, right), whole[::-1]).hex())
    return roots


def root_by(path, leaf, index, count):
    """The root that a path gives (RFC 9162, 2.1.3); another one where it is too short or too long."""
    if count == 1 or not path:
        return leaf if count == 1 and not path else b""
    if index < (split := 1 << (count - 1).bit_length() - 1):
        return _node(root_by(path[:-1], leaf, index, split), path[-1])
    return _node(path[-1], root_by(path[:-1], leaf, index - split, count - split))


def check_log(rows, tables, statement):
    """Rows, their order, and every root that is written anywhere."""
    for before, row in pairwise([{"leaf": -1, "at": datetime.min.replace(tzinfo=UTC)}, *rows]):
        if row["leaf"] != before["leaf"] + 1:
            yield f"leaf {before['leaf'] + 1}: its row was removed, or two rows have one number"
        if row["at"] < before["at"]:
            yield f"leaf {row['leaf']}: was inserted late, its time is before that of leaf {before['leaf']}"
        if leaf_of(row).hex() != row["leaf_hash"]:
            yield f"leaf {row['leaf']} ({row['act']} of entry {row['entry']}): was changed, it has not its hash"
    count, root = tables["system.opt_outs"].properties.get("headrace.rights-root", "0:").split(":")
    yield from (f"leaf {row['leaf']}: was inserted beside the register of {count} rows" for row in rows[int(count) :])
    said = [("system.opt_outs", count, root), ("the statement", *map(statement["register"].get, ("leaves", "root")))]
    written = tables["system.rights_roots"].scan().to_arrow().sort_by("leaves").to_pylist()
    said += [(f"{row['day']} in system.rights_roots", row["leaves"], row["root"]) for row in written]
    for name, table in tables.items():
        for snapshot in table.metadata.snapshots:
            if stamp := snapshot.summary and snapshot.summary.additional_properties.get("headrace.rights-root"):
                said.append((f"snapshot {snapshot.snapshot_id} of {name}", *stamp.split(":")))
    roots = roots_of(map(leaf_of, rows))
    for where, leaves, root in said:
        if root != (there := roots[int(leaves)] if int(leaves) < len(roots) else "that of fewer rows"):
            yield f"root of {where}: over {leaves} leaves it is {root[:16]}.., of the rows {there[:16]}.."


def check_statement(rows, statement):
    """Its rows, verdict and facts against the log."""
    count, root = statement["register"]["leaves"], statement["register"]["root"]
    leaves, by_leaf = {leaf["leaf"]: leaf for leaf in statement["leaves"]}, {row["leaf"]: row for row in rows}
    for number, leaf in leaves.items():
        hashed = leaf_of(leaf["row"])
        if number not in by_leaf or leaf_of(by_leaf[number]) != hashed or leaf["leaf_hash"] != hashed.hex():
            yield f"leaf {number} of the statement: is not the row of the log"
        if root_by([*map(bytes.fromhex, leaf["audit_path"])], hashed, number, count).hex() != root:
            yield f"leaf {number} of the statement: its path does not lead to the root"
    entries = {row["entry"] for row in rows if statement["about"] in (row["entry"], row["request"])}
    log = [row for row in rows[:count] if row["entry"] in entries]
    yield from (f"leaf {row['leaf']}: the statement leaves it out" for row in log if row["leaf"] not in leaves)
    for part, key in (("documents",) * 2, ("read_before", "runs"), ("derived",) * 2, ("models",) * 2):
        both = statement[part], [fact for row in log for fact in json.loads(row["detail"] or "{}").get(key, ())]
        named = ("doc_id", "run", "blend", "table", "windows", "reads")
        one, other = ({str([*map(f.get, named)] if isinstance(f, dict) else f) for f in of} for of in both)
        yield from (f"{part}: {fact} is not in both, the statement and its excisions" for fact in sorted(one ^ other))
    for entry in statement["entries"]:
        if any(by_leaf.get(entry["leaf"], {}).get(key) != entry[key] for key in ("entry", "asker", "kind", "values")):
            yield f"entry {entry['entry']} of the statement: is not that of leaf {entry['leaf']}"
    states = {row["entry"]: row["decision"] or "waiting" for row in log if row["act"] != "excision"}
    states |= {row["entry"]: "taken out" for row in log if row["act"] == "excision"}
    if statement["verdict"] != "absent" or {*states.values()} - {"refused", "withdrawn"} != {"taken out"}:
        yield f"the statement says: {statement['claim']} Its entries are {states or 'none'}"


def check_windows(tables, statement, warehouse, looked):
    """Every snapshot that is served now; those of the time of the statement have to be in it."""
    stated = {(part["table"], int(part["snapshot_id"])) for part in [*statement["windows"], *statement["kept"]]}
    doc_ids = {document["doc_id"] for part in ("documents", "since") for document in statement[part]}
    made_at = datetime.fromisoformat(statement["made_at"])
    listed = tables["system.excisions"].scan().to_arrow().to_pylist() if "system.excisions" in tables else []
    pins = {
        name: {} for name in tables
    }  # by snapshot, the column of ids of texts; where blends are no files, tags tell
    for path in Path(warehouse.removeprefix("file://"), "blends").glob("*.json"):
        for source in (blend := json.loads(path.read_text()))["sources"]:
            of_texts = blend.get("texts", {}).get("doc_id")
            pins.setdefault(source["table"], {})[int(source.get("snapshot_id", 0))] = of_texts
    for name, table in tables.items():
        packed = "headrace.window-tokens" in table.properties or name in {pair[0] for pair in stated}
        pinned = pins[name]
        key = "segments" if packed else next(iter(pinned.values()), None)
        left = doc_ids if packed else doc_ids - {row["doc_id"] for row in listed if row["table"] in (None, name)}
        later = json.loads(table.properties.get("headrace.successors", "{}"))
        tags = [ref.snapshot_id for ref in table.refs().values() if ref.snapshot_ref_type == "tag"]
        served = {table.metadata.current_snapshot_id, *(int(later.get(str(one), one)) for one in (*tags, *pinned))}
        for snapshot in (one for one in table.metadata.snapshots if key and one.snapshot_id in served):
            where, is_stated = f"{name} at {snapshot.snapshot_id}", (name, snapshot.snapshot_id) in stated
            if packed and not is_stated and snapshot.timestamp_ms <= made_at.timestamp() * 1000:
                yield f"{where}: is served, and the statement leaves it out"
            looked.append(where)
            scan = table.scan(selected_fields=(key, "ordinal")[: 1 + packed], snapshot_id=snapshot.snapshot_id)
            for row in (row for batch in (scan.to_arrow_batch_reader() if left else ()) for row in batch.to_pylist()):
                for doc_id in left & ({part["doc_id"] for part in row[key]} if packed else {row[key]}):
                    yield f"{where}: still holds document {doc_id}" + (f" in window {row['ordinal']}" if packed else "")


def _main(path, lake):
    statement, folder, looked = json.loads(Path(path).read_text()), Path(lake).resolve(), []
    of_folder = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}
    catalogue = load_catalog("lake", **of_folder) if folder.is_dir() else load_catalog(lake)
    names = (name for space in catalogue.list_namespaces() for name in catalogue.list_tables(space))
    tables = {".".join(name): catalogue.load_table(name) for name in sorted(names)}
    rows = tables["system.opt_outs"].scan().to_arrow().sort_by("leaf").to_pylist()
    faults = [*check_log(rows, tables, statement), *check_statement(rows, statement)]
    faults += check_windows(tables, statement, catalogue.properties.get("warehouse", ""), looked)
    print("\n".join(f"FAULT {fault}" for fault in faults) or f"the statement on {statement['about']} holds")
    print(f"{len(rows)} rows; {len(statement['documents'])} documents looked for in {', '.join(looked)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:3]))
