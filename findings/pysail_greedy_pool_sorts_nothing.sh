#!/usr/bin/env bash
# pysail 0.7.2 (pyspark 4.1.4), `runtime.memory_pool` of Sail, in front of a join that may write to disk.
# One would guess: with `optimizer.prefer_hash_join=false` a join merges sorted rows, sorts write to disk, so any pool of some
#   hundred MB will do; and a pool that is shared fairly, which gives each operator less, fails sooner than one that is not.
# Seen: with `greedy` the first sorts take the pool and write nothing, and the others fail ("Failed to allocate additional
#   10.0 MB for ExternalSorterMerge"); with `fair` of the same size the join ends. Hints (`broadcast`) are ignored.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pysail==${1:-0.7.2}" "pyspark-client==4.1.3" pyarrow==26.0.1 pandas==2.3.3 grpcio-status==1.81.1
cd "$folder"
cat > join.py <<'PY'
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

for k in range(2):
    rows = np.random.default_rng(k)
    texts = [f"{number:064x}" * 6 for number in rows.integers(0, 1 << 60, 1_000_000)]
    pq.write_table(pa.table({"k": rows.permutation(1_000_000), f"v{k}": texts}), f"{k}.parquet")
server = SparkConnectServer()
server.start()
spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").create()
a, b = (spark.read.parquet(f"{os.getcwd()}/{k}.parquet") for k in range(2))
try:
    print(a.join(b, "k").selectExpr("sum(length(v0) + length(v1)) AS n").collect()[0].n, flush=True)
except Exception as error:
    print(str(error)[:200], flush=True)
    os._exit(1)
os._exit(0)
PY
export SAIL_OPTIMIZER__PREFER_HASH_JOIN=false SAIL_EXECUTION__BATCH_SIZE=2048 SAIL_EXECUTION__DEFAULT_PARALLELISM=2 RUST_LOG=error
export SAIL_RUNTIME__MEMORY_POOL__GREEDY__MAX_SIZE=300000000 SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE=300000000
if SAIL_RUNTIME__MEMORY_POOL__TYPE=greedy "$folder/venv/bin/python" join.py; then exit 1; fi
SAIL_RUNTIME__MEMORY_POOL__TYPE=fair "$folder/venv/bin/python" join.py
