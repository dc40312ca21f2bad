#!/usr/bin/env bash
# resiliparse 2.0.1.
# One would guess: to go through what query_selector_all, get_elements_by_tag_name or child_nodes give takes time by its
#   length, as in every other parser; the search itself takes 0.3 ms for 2,000 links.
# Seen: by the square of it: 500 links take about a second, 1,000 about three, 2,000 about twelve.
# Instead: walk by first_child and next, or count in text that extract_plain_text gives.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "resiliparse==2.0.1"
"$folder/venv/bin/python" - <<'PY'
import time
from resiliparse.parse.html import HTMLTree

seconds = []
for count in (200, 800):
    links = HTMLTree.parse("<body>" + "<p><a href=x>a</a></p>" * count).body.query_selector_all("a")
    start = time.process_time()
    assert len([link for link in links]) == count
    seconds.append(time.process_time() - start)
print(f"200 links: {seconds[0]:.3f} s, 800 links: {seconds[1]:.3f} s, {seconds[1] / seconds[0]:.1f} times as long")
raise SystemExit(0 if seconds[1] > 7 * seconds[0] else 1)
PY
