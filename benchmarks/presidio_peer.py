"""Presidio's findings in texts: run by bench_filters_personal.py with the interpreter of a venv that has Presidio.

Reads a JSON list of texts, writes {"seconds", "spans": [[start, end, entity, score], ..] by text}; positions are
characters. Presidio's models are on no registry, so it runs with a blank spaCy pipeline: its patterns, checksums and
context words work, its names and places find nothing.
"""

from __future__ import annotations

import json
import logging
import sys
import time

import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine


def main() -> None:
    """Analyze standard input."""
    logging.disable(logging.CRITICAL)
    nlp = SpacyNlpEngine()
    nlp.nlp = {"en": spacy.blank("en")}
    nlp.nlp["en"].max_length = 10**8
    engine = AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"])
    texts = json.load(sys.stdin)
    engine.analyze("Warm up: 4111 1111 1111 1111", language="en")
    started = time.process_time()
    found = [engine.analyze(text, language="en") for text in texts]
    seconds = time.process_time() - started
    spans = [[[one.start, one.end, one.entity_type, one.score] for one in of_text] for of_text in found]
    json.dump({"seconds": seconds, "spans": spans}, sys.stdout)


if __name__ == "__main__":
    main()
