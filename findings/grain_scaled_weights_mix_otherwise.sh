#!/usr/bin/env bash
# grain 0.2.18.
# One would guess: weights .62, .19, .19 and 62, 19, 19 are one mixture.
# Seen: MapDataset.mix makes whole numbers of weights, the smallest near 100, and cuts the rest off. The two mixtures
#   differ, and the distance from the wanted share grows with the rows without a bound.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "grain==0.2.18"
"$folder/venv/bin/python" - <<'PY'
import grain

ROWS = 100_000


def counts(weights, rows):
    parts = [grain.MapDataset.source([name]).repeat(10 * ROWS) for name in "abc"]
    mixed = grain.MapDataset.mix(parts, weights)
    read = [mixed[place] for place in range(rows)]
    return [read.count(name) for name in "abc"]


small, whole = counts([0.62, 0.19, 0.19], ROWS), counts([62, 19, 19], ROWS)
few = counts([0.62, 0.19, 0.19], ROWS // 10)
off = [abs(row[0] - 0.62 * rows) for row, rows in ((few, ROWS // 10), (small, ROWS))]
print(f"of {ROWS:,} rows: .62 .19 .19 gives {small}, 62 19 19 gives {whole}; wanted [62000, 19000, 19000]")
print(f"rows off in the first source: {off[0]:.0f} of {ROWS // 10:,}, {off[1]:.0f} of {ROWS:,}")
raise SystemExit(0 if small != whole and off[1] > 5 * off[0] > 0 else 1)
PY
