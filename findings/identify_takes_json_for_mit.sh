#!/usr/bin/env bash
# identify 2.6.20, the library that pre-commit asks for kinds of files and licences.
# One would guess: license_id names the licence of a file, or gives None where the text has another condition.
# Seen: the official text of the JSON licence ("The Software shall be used for Good, not Evil.") is MIT, because texts
#   count as equal up to an edit distance of 5% of their length: a condition of nine words is less than that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "identify==2.6.20" "ukkonen==1.1.0"
cat > "$folder/LICENSE" <<'TEXT'
JSON License

Copyright (c) 2002 JSON.org

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

The Software shall be used for Good, not Evil.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
TEXT
"$folder/venv/bin/python" - "$folder/LICENSE" <<'PY'
import sys

from identify.identify import license_id

licence = license_id(sys.argv[1])
print("licence:", licence)
sys.exit(0 if licence == "MIT" else 1)
PY
