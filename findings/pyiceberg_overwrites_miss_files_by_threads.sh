#!/usr/bin/env bash
# pyiceberg 0.12.0.
# One would guess: an overwrite snapshot that is told which data files go finds each of them in its manifest, since the
#   table is read by nobody else and nothing else is written.
# Seen: the manifests are looked through by a pool of threads that share one evaluator of partition bounds, and the
#   evaluator keeps the manifest that it was last asked about in an attribute. So a manifest is judged by the bounds of
#   another, is passed over, and the commit is refused for missing files that are there: in some of a hundred commits
#   with Python's own switch interval, in nearly all with a short one, in none with one thread.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pyiceberg[sql-sqlite]==0.12.0" "pyarrow==26.0.1"
cat > "$folder/overwrites.py" <<'PY'
import sys
import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

PARTS, COMMITS = 40, 20


class Undone(Exception):
    """Ends a transaction after its snapshot was made, so that each commit meets the same table."""


folder = tempfile.mkdtemp(dir=sys.argv[1])
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
catalog.create_namespace("n")
schema = Schema(NestedField(1, "part", LongType(), required=False))
spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
table = catalog.create_table("n.t", schema, partition_spec=spec, properties={"commit.manifest-merge.enabled": "false"})
for part in range(PARTS):
    table.append(pa.table({"part": pa.array([part])}))
sys.setswitchinterval(1e-6)
refused = 0
for _ in range(COMMITS):
    gone = [task.file for task in table.scan().plan_files()][:-1]
    try:
        with table.transaction() as change:
            with change.update_snapshot().overwrite() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
            raise Undone
    except Undone:
        pass
    except ValidationException:
        refused += 1
print(refused)
PY
many=$("$folder/venv/bin/python" "$folder/overwrites.py" "$folder")
alone=$(PYICEBERG_MAX_WORKERS=1 "$folder/venv/bin/python" "$folder/overwrites.py" "$folder")
echo "of 20 commits refused for missing files: $many with threads, $alone with one"
test "$many" -gt 0 && test "$alone" -eq 0
