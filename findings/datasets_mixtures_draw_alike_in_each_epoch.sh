#!/usr/bin/env bash
# datasets 5.2.0.
# One would guess: a mixture by interleave_datasets that is shuffled draws its sources in another order in each epoch that
#   set_epoch names, as a shuffled dataset gives its rows in another order.
# Seen: the draw is that of the seed alone. Every epoch takes its sources at the same places, so what stands beside what
#   at the edge of a buffer repeats; only rows inside the shuffle buffer change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "datasets==5.2.0"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PY'
from datasets import Dataset, interleave_datasets

parts = [Dataset.from_dict({"of": [name] * 500}).to_iterable_dataset() for name in "abc"]


def drawn(seed, epoch):
    mixed = interleave_datasets(parts, probabilities=[0.5, 0.3, 0.2], seed=seed, stopping_strategy="all_exhausted")
    mixed = mixed.shuffle(seed=seed, buffer_size=1)  # a shuffled mixture; one row at a time, so that the draw shows
    mixed.set_epoch(epoch)
    return "".join(row["of"] for row in mixed.take(40))


orders = {seed: [drawn(seed, epoch) for epoch in (0, 1, 2)] for seed in (1, 2)}
for seed, of_epochs in orders.items():
    print(f"seed {seed}, epochs 0 to 2:", *of_epochs, sep="\n  ")
alike = all(len(set(of_epochs)) == 1 for of_epochs in orders.values())
raise SystemExit(0 if alike and orders[1] != orders[2] else 1)
PY
