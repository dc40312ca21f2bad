#!/usr/bin/env bash
# pysail 0.7.2 with pyspark-client 4.1.3.
# One would guess: rint(x) of Spark's SQL, which Sail takes over, gives the nearest whole double and on a tie the even
#   one, as C's rint, Java's Math.rint and IEEE 754 do: rint(2.5) = 2.0, rint(-0.5) = -0.0.
# Seen: ties go away from zero: rint(2.5) = 3.0, rint(-0.5) = -1.0. Beside it bround(2.5D), which is documented to round
#   half to even, does give 2.0, but bround(2.5), of a decimal, gives the double 3.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pysail==0.7.2" "pyspark-client==4.1.3"
"$folder/venv/bin/python" - <<'PY'
import os
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer()
server.start()
session = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
row = session.sql("SELECT rint(2.5D), rint(3.5D), rint(-0.5D), bround(2.5D), bround(2.5)").first()
print(dict(zip(("rint(2.5D)", "rint(3.5D)", "rint(-0.5D)", "bround(2.5D)", "bround(2.5)"), map(repr, row))), flush=True)
os._exit(0 if list(map(repr, row)) == ["3.0", "4.0", "-1.0", "2.0", "3.0"] else 1)
PY
