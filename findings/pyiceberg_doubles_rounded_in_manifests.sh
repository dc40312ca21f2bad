#!/usr/bin/env bash
# pyiceberg 0.12.0 (the wheel with its compiled Avro decoder).
# One would guess: a table that is partitioned by the identity of a double column has that double in its manifests, since
#   Avro has an eight-byte double and the writer writes one.
# Seen: it is written right and read back rounded to a 32-bit float. So an equality filter on the partition's own value
#   finds no file, although the row is there, as a full scan shows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pyiceberg[sql-sqlite]==0.12.0" "pyarrow==26.0.1"
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField

folder = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
catalog.create_namespace("n")
schema = Schema(NestedField(1, "score", DoubleType(), required=False))
spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "score"))
table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
table.append(pa.table({"score": pa.array([1 / 3, 0.5])}))
table = catalog.load_table("n.t")
values = sorted(task.file.partition[0] for task in table.scan().plan_files())
found = {value: table.scan(row_filter=EqualTo("score", value)).to_arrow().num_rows for value in (1 / 3, 0.5)}
print("partition values of the manifests:", values, "; rows found by value:", found)
raise SystemExit(0 if values[0] == 0.3333333432674408 and found == {1 / 3: 0, 0.5: 1} else 1)
PY
