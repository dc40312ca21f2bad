#!/usr/bin/env bash
# pysail 0.7.2 with pyspark-client 4.1.3.
# One would guess: unions nest as they do in Spark. A union of Parquet files, united by name with another such union, is
#   a frame like any other, and a filter over it keeps the rows whose column says so.
# Seen: the frame can be collected, and a filter over the same frame is refused when it is planned: it has no field of an
#   internal name, though the column that is meant stands among the valid ones. The same files united one after the
#   other are filtered well, and so are nested unions where each has a name (`alias`).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pysail==0.7.2" "pyspark-client==4.1.3" "pyarrow==21.0.0"
"$folder/venv/bin/python" - "$folder" <<'PY'
import functools
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer()
server.start()
session = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
parts = []
for number in range(4):
    pq.write_table(pa.table({"n": [0, 1], "m": [number, number]}), f"{sys.argv[1]}/{number}.parquet")
    parts.append(session.read.parquet(f"{sys.argv[1]}/{number}.parquet"))
left, right = parts[0].union(parts[1]), parts[2].union(parts[3])
frames = {
    "one after the other": functools.reduce(lambda one, other: one.unionByName(other), parts),
    "nested": left.unionByName(right),
    "nested, with names": left.alias("a").unionByName(right.alias("b")),
}
seen = {}
for name, frame in frames.items():
    try:
        seen[name] = len(frame.collect()), len(frame.where("n <> 0").collect())
    except Exception as error:
        seen[name] = len(frame.collect()), str(error).splitlines()[0]
    print(f"{name}: rows, and rows where n <> 0: {seen[name]}", flush=True)
is_refused = str(seen["nested"][1]).startswith("No field named")
os._exit(0 if is_refused and seen["one after the other"] == seen["nested, with names"] == (8, 4) else 1)
PY
