"""datatrove's n-gram decontamination on the documents of bench_filters_contamination.py, in an environment of its own.

    python benchmarks/contamination_peer.py ITEMS.jsonl DOCUMENTS.jsonl TIMED

Prints one line of JSON: which documents datatrove drops, and the CPU seconds that the first TIMED took.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer


def main(items: Path, documents: Path, timed: int) -> None:
    """Index the items as labels, without the indexer's `run`, which asks for lighteval's tasks; then filter."""
    for step in (NGramsDecontIndexer, NGramsDecontFilter):
        step._requires_dependencies = []
    folder = tempfile.mkdtemp()
    indexer = NGramsDecontIndexer(folder, config=NGramsDecontConfig(n_grams=12))
    hashes = {value: "item" for line in items.open() for value in indexer.compute_hashes(json.loads(line), None)}
    n_grams_filter = NGramsDecontFilter(folder, config=indexer.config)
    n_grams_filter._index_hashes = hashes
    texts = [json.loads(line) for line in documents.open()]
    n_grams_filter.filter(Document(text="warm up", id="0"))
    started = time.process_time()
    dropped = [n_grams_filter.filter(Document(text=text, id="0")) is not True for text in texts[:timed]]
    seconds = time.process_time() - started
    dropped += [n_grams_filter.filter(Document(text=text, id="0")) is not True for text in texts[timed:]]
    print(json.dumps({"dropped": dropped, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
