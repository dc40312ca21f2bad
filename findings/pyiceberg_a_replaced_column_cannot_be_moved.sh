#!/usr/bin/env bash
# pyiceberg 0.12.0, `update_schema`: a column is taken out and one of the same name and another type added, in one update.
# One would guess: since `delete_column`, `add_column` and `move_after` are each for the names of one update, the new column
#   can be put where the old one was, as it can be when the two changes are two updates of one transaction.
# Seen: `move_after` looks for the field among those of before, finds the one that goes, and the commit ends in a
#   `StopIteration` without a message; without the move, and as two updates, it is the new column.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pyiceberg[sql-sqlite]==0.12.0" "pyarrow==26.0.1"
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

folder = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
catalog.create_namespace("n")
names = ("a", "b", "c")
schema = Schema(*(NestedField(at, name, StringType(), required=False) for at, name in enumerate(names, 1)))


def replaced(name, moves, updates):
    """The columns after `b` became a long, or the error."""
    table = catalog.create_table(f"n.{name}", schema=schema)
    try:
        with table.transaction() as transaction:
            update = transaction.update_schema(allow_incompatible_changes=True)
            update.delete_column("b")
            if updates == 2:
                update.commit()
                update = transaction.update_schema()
            update.add_column("b", LongType())
            if moves:
                update.move_after("b", "a")
            update.commit()
    except Exception as error:
        return repr(error)
    return [f"{field.name} {field.field_type}" for field in catalog.load_table(f"n.{name}").schema().fields]


seen = {(moves, updates): replaced(f"t{moves}{updates}".lower(), moves, updates) for moves in (False, True) for updates in (1, 2)}
for (moves, updates), columns in seen.items():
    print("moved" if moves else "not moved", updates, "update(s):", columns)
expected = {
    (False, 1): ["a string", "c string", "b long"],
    (False, 2): ["a string", "c string", "b long"],
    (True, 1): "StopIteration()",
    (True, 2): ["a string", "b long", "c string"],
}
raise SystemExit(0 if seen == expected else 1)
PY
