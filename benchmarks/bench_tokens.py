"""Encoding on real data: the fast encoder behind its certificate against the reference, on code and on prose.

    python benchmarks/bench_tokens.py [--tokenizer FILE] [--megabytes 40] [--compare all] [--from DIRECTORY ...]

Code is the Python sources of the installed distributions, prose the RFCs of REAL_DATA_DIR. One process, one core (the
reference's threads are off); every text is new, and both encode in the same run: the fast encoder all of it, the
reference as much as it gets through in some seconds, or with `--compare all` everything, which takes minutes. Ids are
compared on all that both encoded. Cold is the first 8 MB after both encoders are loaded, warm the rest; peak memory is
that of a process that encodes one document of 100 MB.

    python benchmarks/bench_tokens.py --vocabularies [cl100k ...]

measures tokenizers of well-known models instead (`vocabularies` says which packages ship them) on text that no encoder
has seen: sentences of REAL_DATA_DIR/languages in NFC, as `texts` has them, and code of the environment, in documents of
6 kB. The
peer is `tiktoken` with the same vocabulary; the best of three new encoders of each counts, in seconds of the processor.
Ids are compared with the reference's, and so are tiktoken's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import command
import numpy as np
import pyarrow as pa
from corpora import distinct, rfcs, sentences, up_to
from cpu_time import peak_mib
from vocabularies import NAMES, Vocabulary, vocabulary

from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.fast_encoder import FastEncoder
from spark_jobs.tokens.hf_tokenizer import ExactEncoder, cut_at_lines, train_byte_pairs

_REFERENCE_SECONDS = 8.0
_LANGUAGES = ("en", "zh", "ar", "ru", "ja", "ko")
_DOCUMENT_CHARACTERS = 6000
_LONG = """
import resource, sys, time
import pyarrow as pa
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.fast_encoder import encoder_version, reference_version
certificate = Certificate("", reference_version(), encoder_version(), None, (), 0)
data = open(sys.argv[2], "rb").read()
size = int(sys.argv[3])
text = (data * (size // len(data) + 1))[:size].decode(errors="ignore")
column = DocumentColumn(pa.array([text], pa.large_string()), pa.array(["a"]))
del data, text
encoder = DocumentEncoder(open(sys.argv[1]).read(), certificate, 1 << 18)
list(encoder.encode(DocumentColumn(pa.array(["warm up"]), pa.array(["a"]))))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
(ids,) = encoder.encode(column)
seconds = time.process_time() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"one document of {size / 1e6:.0f} MB: {size / 1e6 / seconds:.0f} MB/s, {len(ids):,} tokens, "
      f"peak {peak / 1024:,.0f} MB, "
      f"of them {(peak - before) / 1024:,.0f} MB more than before")
"""


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    if arguments.vocabularies is None or arguments.small:
        print_code_and_prose(arguments)
    if arguments.vocabularies is not None:
        command.attempt(print_vocabularies, arguments.vocabularies or NAMES, arguments.megabytes * 1e6)


def print_code_and_prose(arguments: argparse.Namespace) -> None:
    """The certificate, speeds on code and prose, and memory."""
    paths = (path for folder in arguments.sources for path in sorted(Path(folder).rglob("*.py")))
    code = up_to(distinct(paths), arguments.megabytes * 1e6)
    file = (
        Path(arguments.tokenizer).read_text()
        if arguments.tokenizer
        else train_byte_pairs(code[::4], arguments.vocabulary, 2)
    )
    started = time.perf_counter()
    certificate = certify(file)
    print(
        f"certificate: {time.perf_counter() - started:.1f} s, {certificate.probe_count:,} probes, "
        f"{int(certificate.excluded_table().sum()):,} code points excluded, {certificate.refusal or 'fast path'}"
    )
    started = time.perf_counter()
    list(DocumentEncoder(file, certificate, 1 << 18).encode(DocumentColumn(pa.array(["loads"]), pa.array(["a"]))))
    print(f"both encoders loaded, one document encoded and checked: {time.perf_counter() - started:.2f} s")
    print(
        "texts   documents     MB  slow path  cold MB/s  warm MB/s  all MB/s  reference MB/s  ratio  compared MB"
        "  differ"
    )
    compare_seconds = np.inf if arguments.compare == "all" else _REFERENCE_SECONDS
    for name, texts in (
        ("code", code),
        ("prose", up_to(rfcs(1 + int(arguments.megabytes * 100)), arguments.megabytes * 1e6)),
    ):
        if texts:
            print_speeds(name, texts, file, certificate, compare_seconds)
    print(f"peak memory of this process: {peak_mib():,} MB")
    print_long(file, code, arguments.long_bytes)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--from", dest="sources", nargs="*", default=[sysconfig.get_path("purelib")])
    parser.add_argument("--tokenizer", help="a tokenizer.json; by default one is trained on a quarter of the code")
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--vocabularies", nargs="*", choices=NAMES)
    parser.add_argument("--compare", choices=["some", "all"], default="some")
    parser.set_defaults(vocabulary=32768, long_bytes=100_000_000)
    small = {"megabytes": 0.3, "vocabulary": 1000, "long_bytes": 500_000}
    return command.read(parser, **small, vocabularies=["deepseek"])


def print_speeds(name: str, texts: list[str], file: str, certificate: Certificate, compare_seconds: float) -> None:
    """One row: the document encoder on all texts, the reference on as many as the time allows."""
    encoder = DocumentEncoder(file, certificate, 1 << 18)
    list(encoder.encode(DocumentColumn(pa.array(["loads"]), pa.array(["a"]))))
    column = DocumentColumn(
        pa.array(texts, pa.large_string()), pa.array([f"{number:032x}" for number in range(len(texts))])
    )
    sizes = np.array([len(text.encode()) for text in texts])
    ends = np.zeros(len(texts))
    found = []
    started = time.process_time()
    for number, ids in enumerate(encoder.encode(column)):
        found.append(ids)
        ends[number] = time.process_time() - started
    done = np.cumsum(sizes)
    cold = min(int(np.searchsorted(done, min(8_000_000, done[-1] // 2))), len(texts) - 2)
    warm = (done[-1] - done[cold]) / (ends[-1] - ends[cold]) / 1e6
    reference = ExactEncoder(file)
    began, compared, differing = time.process_time(), 0, 0
    for text, size, ids in zip(texts, sizes.tolist(), found, strict=True):
        (expected,) = reference.encode([text], 1 << 18)
        differing += not np.array_equal(expected, ids)
        compared += size
        if time.process_time() - began > compare_seconds:
            break
    slow = compared / (time.process_time() - began) / 1e6
    whole = done[-1] / ends[-1] / 1e6
    print(
        f"{name:6}  {len(texts):9,}  {done[-1] / 1e6:5.0f}  {encoder.tally.reference:9,}"
        f"  {done[cold] / ends[cold] / 1e6:9.0f}  {warm:9.0f}  {whole:8.0f}  {slow:14.2f}  {whole / slow:5.0f}"
        f"  {compared / 1e6:11.1f}  {differing:6}",
        flush=True,
    )


def print_vocabularies(names: list[str], byte_count: float) -> None:
    """Speeds by vocabulary and language on new text, and how many documents have other ids than the reference's."""
    texts = {code: normalize("NFC", "\n".join(found)) for code, found in sentences().items() if code in _LANGUAGES}
    texts["code"] = "\n".join(up_to(distinct(Path(sysconfig.get_path("purelib")).rglob("*.py")), byte_count))
    print("vocabulary  text    MB  tiktoken MB/s  headrace MB/s  ratio  documents  other ids: tiktoken  headrace")
    for name in names:
        command.attempt(print_vocabulary, name, {key: text[: int(byte_count)] for key, text in texts.items()})


def print_vocabulary(name: str, texts: dict[str, str]) -> None:
    """One row for each text; ids are compared with the reference's."""
    model = vocabulary(name)
    certificate = certify(model.file_text)
    left_out = int(certificate.excluded_table().sum())
    print(f"{name}: {certificate.refusal or f'certified, {left_out} code points left to the reference'}")
    for language in (*_LANGUAGES, "code"):
        documents = cut_at_lines(texts[language], _DOCUMENT_CHARACTERS)
        expected = [ids.tolist() for ids in ExactEncoder(model.file_text).encode(documents, 1 << 18)]
        size = sum(len(document.encode()) for document in documents) / 1e6
        speeds, differing = [], []
        for make in (tiktoken_encoder, certified_encoder):
            best = 0.0
            for _ in range(3):
                encode = make(model, certificate)
                encode(["warm up: é 東京"])
                started = time.process_time()
                encoded = encode(documents)
                best = max(best, size / (time.process_time() - started))
            speeds.append(best)
            differing.append(sum(list(ids) != right for ids, right in zip(encoded, expected, strict=True)))
        print(
            f"{name:10}  {language:4}  {size:4.2f}  {speeds[0]:13.1f}  {speeds[1]:13.1f}  {speeds[1] / speeds[0]:5.1f}"
            f"  {len(documents):9}  {differing[0]:19}  {differing[1]:8}",
            flush=True,
        )


def tiktoken_encoder(model: Vocabulary, certificate: Certificate) -> Callable[[list[str]], list[list[int]]]:
    """The peer, new."""
    if not importlib.util.find_spec("tiktoken"):
        raise command.MissingError("no tiktoken: pip install tiktoken==0.14.0")
    import tiktoken

    encoding = tiktoken.Encoding("peer", pat_str=model.pattern, mergeable_ranks=model.ranks, special_tokens={})
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


def certified_encoder(model: Vocabulary, certificate: Certificate) -> Callable[[list[str]], list[list[int]]]:
    """The encoder of `tokens`, new."""
    encoder = DocumentEncoder(model.file_text, certificate, 1 << 18, load_fast=FastEncoder)

    def encode(texts: list[str]) -> list[list[int]]:
        doc_ids = [f"{number:032x}" for number in range(len(texts))]
        return list(encoder.encode(DocumentColumn(pa.array(texts, pa.large_string()), pa.array(doc_ids))))

    return encode


def print_long(file: str, texts: list[str], size: int) -> None:
    """Time and memory of one long document, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, data = Path(folder, "tokenizer.json"), Path(folder, "text")
        tokenizer.write_text(file)
        data.write_text("".join(texts))
        print(command.peer(sys.executable, "-c", _LONG, str(tokenizer), str(data), str(size)).strip())


if __name__ == "__main__":
    main()
