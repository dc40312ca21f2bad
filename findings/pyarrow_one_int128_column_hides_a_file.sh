#!/usr/bin/env bash
# polars 2.1.0 and pyarrow 26.0.1: one column of 128-bit integers makes a Parquet file unreadable for Arrow, its other
# columns too.
#
# One would guess that a reader of columns reads those that it knows, and fails for the one that it does not.
# Polars writes Int128 as 16 bytes of fixed length, which Parquet has, and keeps Arrow's schema in the file's key
# `ARROW:schema`. pyarrow parses that key before it looks at any column and refuses the whole file ("Integers with more
# than 64 bits not implemented"), also for `columns=["text"]`. The same file without the key is read, Int128 as bytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polars==2.1.0 pyarrow==26.0.1
cat > "$folder/see.py" <<'PYTHON'
import sys

import polars
import pyarrow.parquet as parquet

path = sys.argv[1]
polars.DataFrame({"text": ["a", "b"], "n": polars.Series([1, 2], dtype=polars.Int128)}).write_parquet(path)
print("polars reads:", polars.read_parquet(path)["text"].to_list())
try:
    parquet.read_table(path, columns=["text"])
    seen = "the column was read"
except Exception as error:
    seen = f"{type(error).__name__}: {error}"
print("pyarrow, columns=['text']:", seen)
sys.exit("128" not in seen and "64 bits" not in seen)
PYTHON
"$folder/venv/bin/python" "$folder/see.py" "$folder/file.parquet"
