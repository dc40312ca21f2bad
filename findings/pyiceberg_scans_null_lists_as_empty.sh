#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1.
# One would guess: a scan gives a null list back as null, whatever its elements are: the Parquet file holds it as null.
# Seen: a null list of structs comes as an empty list, a null list of numbers as null. Where null and empty mean different
#   things, a reader of a table that another engine wrote has to read the files itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pyiceberg[sql-sqlite]==0.12.0" "pyarrow==26.0.1"
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
kinds = {"numbers": pa.list_(pa.int64()), "structs": pa.list_(pa.struct([("x", pa.int64())]))}
rows = pa.table({name: pa.array([None, []], kind) for name, kind in kinds.items()})
pq.write_table(rows, f"{folder}/rows.parquet")
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
catalog.create_namespace("n")
table = catalog.create_table("n.t", schema=rows.schema)
table.add_files([f"{folder}/rows.parquet"])
print("the file holds", pq.read_table(f"{folder}/rows.parquet").to_pydict())
found = table.scan().to_arrow().to_pydict()
print("the scan gives", found)
raise SystemExit(0 if found == {"numbers": [None, []], "structs": [[], []]} else 1)
PY
