#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1.
# One would guess: a column that Iceberg's schema calls `string` has one Arrow type in the Parquet files of a table,
#   whatever the caller's Arrow table held, since append() casts rows to the table's schema.
# Seen: `append` keeps string and large_string as they came, so two files of one table tell readers of the Arrow schema
#   in their footers different types. PyIceberg's own scan hides it; a reader that merges the schemas of files, as
#   DataFusion's engines do, may refuse to read the two together.
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
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
catalog.create_namespace("n")
table = catalog.create_table("n.t", schema=pa.schema([("text", pa.string())]))
for kind in (pa.string(), pa.large_string()):
    table.append(pa.table({"text": pa.array(["a"], kind)}))
files = [task.file.file_path.removeprefix("file://") for task in catalog.load_table("n.t").scan().plan_files()]
kinds = sorted(str(pq.read_schema(file).field("text").type) for file in files)
print("the table says", table.schema().find_field("text").field_type, "; its files say", kinds)
raise SystemExit(0 if kinds == ["large_string", "string"] else 1)
PY
