"""Encoding on real data: the fast encoder behind its certificate against the reference, on code and on prose.

    python benchmarks/bench_tokens.py [--tokenizer FILE] [--megabytes 40] [--compare all] [--from DIRECTORY ...]

Code is the Python sources of the installed distributions, prose the RFCs of REAL_DATA_DIR. One process, one core (the
reference's threads are off); every text is new, and both encode in the same run: the fast encoder all of it, the
reference as much as it gets through in some seconds, or with `--compare all` everything, which takes minutes. Ids are
compared on all that both encoded. Cold is the first 8 MB after both encoders are loaded, warm the rest; peak memory is
that of a process that encodes one document of 100 MB.

    python benchmarks/bench_tokens.py --languages [zh ja ...]

measures sentences of REAL_DATA_DIR/languages instead, with GPT-2's tokenizer and one of 128,000 tokens in Llama 3's
form, trained on a third of all languages. First the second third is encoded (cold: 20 to 100 kB), then the last one,
new; the best of three fresh encoders counts. Large is the second of two megabytes that a chain of characters draws
from the sentences (each by the two before it, in scripts with spaces by four), for there is no such text: most clauses
and many words of it are new. All for `tokenizers`, `tiktoken` (where it is installed), `gigatoken` alone, and the two
fast encoders as documents take them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import command
import numpy as np
import pyarrow as pa
from corpora import distinct, real, rfcs, sentences, up_to
from cpu_time import peak_mib

from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.fast_encoder import FastEncoder, LibraryEncoder
from spark_jobs.tokens.fast.pre_tokenization import SPLIT_PATTERNS, token_bytes
from spark_jobs.tokens.hf_tokenizer import Encoder, train_byte_pairs

_REFERENCE_SECONDS = 8.0
_LANGUAGES = ["zh", "ja", "ko", "ru", "ar", "hi", "th", "el", "vi", "fr", "en"]
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
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
    if arguments.languages is None or arguments.small:
        print_code_and_prose(arguments)
    if arguments.languages is not None:
        command.attempt(print_languages, arguments)


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
    parser.add_argument("--languages", nargs="*")
    parser.add_argument("--compare", choices=["some", "all"], default="some")
    parser.set_defaults(vocabulary=32768, long_bytes=100_000_000, chained=2_000_000, trained=(None, 128_000))
    small = {"megabytes": 0.3, "vocabulary": 1000, "long_bytes": 500_000, "chained": 20_000, "trained": (50, 1000)}
    return command.read(parser, **small, languages=["zh"])


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
    reference = Encoder(file)
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


def print_languages(arguments: argparse.Namespace) -> None:
    """Speeds by language, cold and on new text; ids are compared with the reference's."""
    thirds = {}
    limit, vocabulary = arguments.trained
    for language, found in sentences().items():
        lines = sorted(set(found))[:limit]
        random.Random(0).shuffle(lines)
        thirds[language] = ["\n".join(lines[start::3]) for start in range(3)]
    trained = json.loads(train_byte_pairs([texts[0] for texts in thirds.values()], vocabulary, 1))
    split = {"type": "Split", "pattern": {"Regex": SPLIT_PATTERNS["llama3"]}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    trained["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
    files = {"gpt2": real("tokenizers/gpt2.json").read_text(), "llama3": json.dumps(trained)}
    for name, file in files.items():
        encoders = encoders_of(file, _GPT2_PATTERN if name == "gpt2" else SPLIT_PATTERNS[name])
        print(
            f"{name:8}  kB new" + "".join(f"  {encoder + ' cold, new':>21}" for encoder in encoders) + "   MB/s a core"
        )
        for language in arguments.languages or _LANGUAGES:
            _, seen, new = (text.encode() for text in thirds[language])
            large = chained("\n".join(thirds[language]), 2 if language in ("zh", "ja") else 4, arguments.chained)
            expected = encoders["tokenizers"]()(new)
            row = ""
            for make in encoders.values():
                best = np.full(2, np.inf)
                for _ in range(3):
                    encode = make()
                    encode("warm up 東京".encode())
                    moments = [time.process_time()]
                    for text in (seen, new):
                        found = encode(text)
                        moments.append(time.process_time())
                    best = np.minimum(best, np.diff(moments))
                if not np.array_equal(found, expected):
                    row += " differs"
                encode(large[0])
                started = time.process_time()
                encode(large[1])
                large_speed = len(large[1]) / (time.process_time() - started) / 1e6
                row += f" {len(seen) / best[0] / 1e6:12.1f} {len(new) / best[1] / 1e6:6.1f} {large_speed:6.1f}"
            print(f"{language:8} {len(new) / 1e3:6.0f}{row}", flush=True)
    print_long(files["llama3"], ["".join(thirds["zh"][1:])], arguments.long_bytes)


def chained(text: str, order: int, size: int) -> list[bytes]:
    """Two halves of so many bytes, each character drawn by those before it."""
    following: dict[str, list[str]] = {}
    for place in range(len(text) - order):
        following.setdefault(text[place : place + order], []).append(text[place + order])
    draw = random.Random(0)
    drawn = text[:order]
    parts = []
    for _ in range(size * len(text) // len(text.encode())):
        character = draw.choice(following.get(drawn, ["\n"]))
        parts.append(character)
        drawn = drawn[1:] + character if drawn in following else text[:order]
    return ["".join(half).encode() for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :])]


def encoders_of(file: str, pattern: str) -> dict[str, Callable[[], Callable[[bytes], object]]]:
    """What makes each encoder of a tokenizer anew."""

    def reference() -> Callable[[bytes], object]:
        encoder = Encoder(file)
        return lambda data: next(encoder.encode([data.decode()], 1 << 18))

    def tiktoken() -> Callable[[bytes], object]:
        import tiktoken

        ranks = {token_bytes(name): rank for name, rank in json.loads(file)["model"]["vocab"].items()}
        encoder = tiktoken.Encoding(file[:9], pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return lambda data: encoder.encode_ordinary(data.decode())

    made: dict[str, Callable[[], Callable[[bytes], object]]] = {"tokenizers": reference}
    if importlib.util.find_spec("tiktoken"):
        made["tiktoken"] = tiktoken
    return {**made, "gigatoken": lambda: LibraryEncoder(file).encode, "both": lambda: FastEncoder(file).encode}


def print_long(file: str, texts: list[str], size: int) -> None:
    """Time and memory of one long document, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, data = Path(folder, "tokenizer.json"), Path(folder, "text")
        tokenizer.write_text(file)
        data.write_text("".join(texts))
        print(command.peer(sys.executable, "-c", _LONG, str(tokenizer), str(data), str(size)).strip())


if __name__ == "__main__":
    main()
