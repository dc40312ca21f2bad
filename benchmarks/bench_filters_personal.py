"""Personal data: how fast it is found, and how much of it, beside Presidio in the same run.

    python -m venv V && V/bin/pip install presidio-analyzer==2.2.366
    python benchmarks/bench_filters_personal.py [--peer V/bin/python] [--megabytes 16] [--names FOLDER]

Speeds are megabytes of UTF-8 by CPU second of one process, the best of three; Presidio reads the first 200 kB of each
input. Precision and recall count exact spans. Of `data/pii` the half with an odd first byte of the text's SHA-256 tests
patterns; all of it tests `--names`, the folder of a model of spaCy, which has seen none of it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import pyarrow as pa
from bench_text import column
from corpora import distinct, paragraphs, real, rfcs, source_paths, up_to
from cpu_time import megabytes, seconds

from headrace_features.privacy.personal_data.find import score
from headrace_features.privacy.personal_data.names import NamesConfig, located, named_spans, read
from tests.headrace_features.privacy.personal_data.planted import decoy, planted

PEER_BYTES = 200_000
STRUCTURED = {
    "EMAIL_ADDRESS": "mail",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
    "MAC_ADDRESS": "mac",
    "US_SSN": "national_number",
}
TAGGED = {
    "PERSON": "name",
    "GPE": "place",
    "LOCATION": "place",
    "STREET_ADDRESS": "address",
    "ORGANIZATION": "organization",
    "DATE_TIME": "date",
    "TITLE": "title",
    "AGE": "age",
    "NRP": "nationality",
    "ZIP_CODE": "postcode",
}
KINDS = STRUCTURED | TAGGED
LABELS = {"PERSON": "name", "GPE": "place", "LOC": "place", "ORG": "organization", "DATE": "date"}
Spans = list[tuple[int, int, str]]


def presidio(python: str, texts: list[str]) -> tuple[float, list[Spans]]:
    """Seconds, and spans in bytes; of overlapping ones the surest, then longest."""
    peer = str(Path(__file__).with_name("presidio_peer.py"))
    answer = json.loads(command.peer(python, peer, given=json.dumps(texts)))
    found = []
    for text, spans in zip(texts, answer["spans"], strict=True):
        kept: list[tuple[int, int, str]] = []
        for start, end, entity, _ in sorted(spans, key=lambda s: (-s[3], s[0] - s[1])):
            if entity in KINDS and all(end <= other[0] or other[1] <= start for other in kept):
                kept.append((start, end, KINDS[entity]))
        found.append([(len(text[:s].encode()), len(text[:e].encode()), kind) for s, e, kind in kept])
    return answer["seconds"], found


def ours(texts: list[str]) -> list[Spans]:
    """Spans of the patterns."""
    rows = score(pa.array(texts))["spans"].to_pylist()
    return [[(span["start"], span["end"], span["kind"]) for span in spans] for spans in rows]


def compare(truth: list[Spans], found: list[Spans], kinds: set[str]) -> dict[str, tuple[int, float, float]]:
    """By kind: how many there are, precision, recall."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for wanted, got in zip(truth, found, strict=True):
        right.update(kind for *_, kind in set(got) & set(wanted))
        wrong.update(kind for *_, kind in set(got) - set(wanted))
        missed.update(kind for *_, kind in set(wanted) - set(got))
    return {
        kind: (
            right[kind] + missed[kind],
            right[kind] / max(1, right[kind] + wrong[kind]),
            right[kind] / max(1, right[kind] + missed[kind]),
        )
        for kind in sorted(kinds)
    }


def show(name: str, sides: dict[str, dict[str, tuple[int, float, float]]]) -> None:
    """A table of precision and recall by kind."""
    print(f"\n{name}: precision, recall of exact spans")
    for kind in next(iter(sides.values())):
        cells = "".join(f"   {side} {s[kind][1]:.3f} {s[kind][2]:.3f}" for side, s in sides.items())
        print(f"  {kind:16} {next(iter(sides.values()))[kind][0]:5}{cells}")


def labelled() -> list[dict[str, Any]]:
    """Texts of `data/pii`: content, and the labelled spans."""
    rows = json.loads(gzip.decompress(real("pii/presidio_synth_dataset_v2.json.gz").read_bytes()))
    texts = []
    for row in rows:
        text = row["full_text"]
        spans = [
            {
                "start": len(text[: span["start_position"]].encode()),
                "end": len(text[: span["end_position"]].encode()),
                "kind": KINDS[span["entity_type"]],
            }
            for span in row["spans"]
            if span["entity_type"] in KINDS
        ]
        texts.append({"content": text, "spans": spans})
    return texts


def is_test(key: str) -> bool:
    """The half of a key, by hash."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def decoys() -> Iterator[str]:
    """The worst case: nearly every line is a candidate of several rules."""
    rng = random.Random(5)
    while True:
        yield "\n".join(decoy(rng) if rng.random() < 0.9 else planted(rng)[0] for _ in range(20))


def access_log() -> Iterator[str]:
    """Requests to a web server, each with a public address of its own."""
    rng = random.Random(6)
    while True:
        lines = [
            f"{rng.randrange(20, 99)}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)} - - "
            f'[10/Oct/2024:13:55:{rng.randrange(60):02d} +0000] "GET /s/{rng.randrange(10**6)}?q=shoes HTTP/1.1" 200 '
            f'{rng.randrange(10**6)} "-" "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0"'
            for _ in range(200)
        ]
        yield "\n".join(lines)


def speeds(byte_count: float, peer: str | None) -> None:
    """Megabytes a second for each kind of text."""
    score(pa.array(["warm up"]))
    inputs = {
        "RFCs": iter(rfcs(2 + int(byte_count // 10_000))),
        "Python code": distinct(source_paths()),
        "75 languages": command.readable(paragraphs("NFC")),
        "access log": access_log(),
        "decoys": decoys(),
    }
    for name, texts in inputs.items():
        batches, taken = column(texts, byte_count)
        if not taken:
            continue
        rate = taken / 1e6 / seconds(lambda chosen=batches: [score(batch) for batch in chosen])
        line = f"{name:14} {taken / 1e6:6.1f} MB   patterns {rate:6.1f} MB/s"
        if peer:
            sample = [text[:PEER_BYTES] for text in up_to(batches[0].to_pylist(), PEER_BYTES)]
            peer_rate = megabytes(sample) / presidio(peer, sample)[0]
            line += f"   Presidio {peer_rate:6.3f} MB/s   {rate / peer_rate:6.0f} times"
        print(line)


def main() -> None:
    """Print speeds, then precision and recall."""
    parser = command.parser(__doc__)
    parser.add_argument("--peer", help="an interpreter that has Presidio")
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--names", help="the folder of a model of spaCy")
    parser.set_defaults(planted=2000, texts=None)
    options = command.read(parser, megabytes=0.2, planted=100, texts=200)
    if options.peer and command.attempt(presidio, options.peer, ["warm up"]) is None:
        options.peer = None
    speeds(options.megabytes * 1e6, options.peer)
    rng = random.Random(99)
    cases = [planted(rng) for _ in range(options.planted)] + [(decoy(rng), []) for _ in range(options.planted // 4)]
    texts, truth = [text for text, _ in cases], [spans for _, spans in cases]
    kinds = {kind for spans in truth for *_, kind in spans}
    sides = {"patterns": compare(truth, ours(texts), kinds)}
    if options.peer:
        sides["Presidio"] = compare(truth, presidio(options.peer, texts)[1], kinds)
    show(f"{options.planted:,} planted values and {2 * options.planted:,} lines of decoys", sides)
    command.attempt(tell_names, options)


def tell_names(options: argparse.Namespace) -> None:
    """Print precision and recall on labelled texts."""
    rows = labelled()[: options.texts]
    test = [row for row in rows if is_test(row["content"])]
    texts, truth = [row["content"] for row in test], spans_of(test)
    sides = {"patterns": ours(texts)} | ({"Presidio": presidio(options.peer, texts)[1]} if options.peer else {})
    kinds = set(STRUCTURED.values()) - {"mac"}
    show("data/pii, the other half", {side: compare(truth, spans, kinds) for side, spans in sides.items()})
    if options.names:
        texts, truth = [row["content"] for row in rows], spans_of(rows)
        config = located(NamesConfig(model=options.names, labels=LABELS))
        model, batch = read(config, None), pa.array(texts)
        found = named_spans(batch, model, LABELS, 0)
        rate = megabytes(texts) / seconds(lambda: named_spans(batch, model, LABELS, 0))
        print(f"\nmodel of names {rate:.3f} MB/s")
        sides = {"names": [[(one.start, one.end, one.kind) for one in spans] for spans in found]}
        if options.peer:
            sides["Presidio"] = presidio(options.peer, texts)[1]
        kinds = set(LABELS.values())
        show("data/pii, all", {side: compare(truth, spans, kinds) for side, spans in sides.items()})


def spans_of(rows: list[dict[str, Any]]) -> list[Spans]:
    """The labelled spans of texts."""
    return [[(span["start"], span["end"], span["kind"]) for span in row["spans"]] for row in rows]


if __name__ == "__main__":
    main()
