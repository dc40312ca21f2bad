"""KenLM's scores of texts: run by bench_filters_ngrams.py with the interpreter of a venv that has kenlm.

Reads the path of an ARPA file from its arguments and a JSON list of lists of lines from standard input; writes
{"seconds", "scores": [[log10 of a line, ..], ..] by text}.
"""

from __future__ import annotations

import json
import sys
import time

import kenlm


def main() -> None:
    """Score standard input."""
    model = kenlm.Model(sys.argv[1])
    texts = json.load(sys.stdin)
    started = time.process_time()
    scores = [[model.score(line) for line in lines] for lines in texts]
    seconds = time.process_time() - started
    json.dump({"seconds": seconds, "scores": scores}, sys.stdout)


if __name__ == "__main__":
    main()
