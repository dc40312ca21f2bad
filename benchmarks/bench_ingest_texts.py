"""How well encodings are told, mojibake is mended and tokens are estimated, on texts that are there.

    python benchmarks/bench_ingest_texts.py

Sentences in 75 languages are encoded again in each legacy encoding of their language and told by `encoding: detect`;
mended as they are (clean, but for what is broken in the corpus itself) and after UTF-8 was read by another codec; and
their tokens, with those of installed code and RFCs, are counted by GPT-2. Times are CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator

import command
import numpy as np
import pyarrow as pa
from corpora import distinct, real, rfcs, source_paths, up_to
from corpora import sentences as all_sentences
from cpu_time import megabytes
from tokenizers import Tokenizer

from spark_jobs.sources.formats.legacy_encoding import tell_encoding
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.text.measures import measure
from spark_jobs.text.mojibake import mend

CODECS = {
    "cp1252": "af ca cy da de es et eu fi fr ga id is it la ms nb nl nn pt so sq sv sw tl",
    "iso8859-1": "de fr es pt sv",
    "iso8859-15": "fr fi de",
    "cp1250": "bs cs hr hu pl ro sk sl",
    "iso8859-2": "cs hr hu pl sk sl",
    "cp1251": "be bg mk mn ru sr uk kk",
    "koi8-r": "ru",
    "koi8-u": "uk",
    "cp866": "ru",
    "iso8859-5": "ru bg",
    "mac-cyrillic": "ru",
    "cp1253": "el",
    "iso8859-7": "el",
    "cp1254": "tr",
    "cp1255": "he",
    "cp1256": "ar fa",
    "cp1257": "lt lv et",
    "cp1258": "vi",
    "cp874": "th",
    "cp932": "ja",
    "euc_jp": "ja",
    "gb18030": "zh",
    "big5": "zh",
    "cp949": "ko",
    "utf-16-le": "en ru zh ja ar hi ko",
    "utf-16-be": "en ru zh ja ar",
}
SIZES = (1, 5, 40)  # sentences of a document
DOCUMENTS = 40


def sentences(language: str) -> list[str]:
    """The sentences of a language; the Romanian letters that windows-1250 lacks as it has them."""
    letters = str.maketrans("șțȘȚ", "şţŞŢ")
    return [line.translate(letters) for line in all_sentences(language)[language]]


def every_sentence(limit: int | None) -> dict[str, list[str]]:
    """The sentences of all languages, at most so many of each."""
    return {language: sentences(language)[:limit] for language in all_sentences()}


def encoded(lines: list[str], size: int, codec: str) -> Iterator[tuple[str, bytes]]:
    """Documents of so many sentences in a codec, without characters that it lacks; none that are UTF-8 as well."""
    for first in range(0, len(lines) - size + 1, max(size, len(lines) // DOCUMENTS)):
        data = ("\n".join(lines[first : first + size]) + "\n").encode(codec, "ignore")
        try:
            data.decode()
            if not codec.startswith("utf-16"):
                continue
        except UnicodeDecodeError:
            pass
        text = data.decode(codec, "replace")
        if "\ufffd" not in text and text.encode(codec) == data:
            yield text, data


def tell_encodings(given: argparse.Namespace) -> None:
    """One line for each encoding: documents that were told right, of all, by their size; and what was told wrongly."""
    seconds, byte_count = 0.0, 0
    for codec, languages in CODECS.items():
        cells, wrong = [], Counter[str]()
        for size in SIZES:
            right = count = 0
            for language in languages.split():
                for text, raw in encoded(sentences(language)[: given.sentences], size, codec):
                    before = time.process_time()
                    found = tell_encoding(raw, "detect", is_whole=True)
                    seconds, byte_count = seconds + time.process_time() - before, byte_count + len(raw)
                    is_right = isinstance(found, Extracted) and raw.decode(found.metadata["source_encoding"]) == text
                    right, count = right + is_right, count + 1
                    if not is_right:
                        said = found.metadata["source_encoding"] if isinstance(found, Extracted) else "refused"
                        wrong[f"{language}: {said}"] += 1
            cells.append(f"{right}/{count}")
        print(codec, *cells, dict(wrong.most_common(4)))
    print(f"{byte_count / seconds / 1e6:.1f} MB/s")


def mend_texts(given: argparse.Namespace) -> None:
    """Sentences that change as they are; and of those that were decoded wrongly, how many come back."""
    every = [line for lines in every_sentence(given.sentences).values() for line in lines]
    before = time.process_time()
    changed = [line for line in every if mend(line)[0] != line]
    seconds = time.process_time() - before
    print(f"clean: {len(changed)} of {len(every)} change, {megabytes(every) / seconds:.1f} MB/s")
    odd = {line for line in every if mend(line)[0] != line}
    for codec in ("latin-1", "cp1252", "cp1250", "cp1251"):
        outcomes = Counter[str]()
        for line in every[::5]:
            try:
                wrong = line.encode().decode(codec)
            except UnicodeDecodeError:
                continue
            if line in odd or wrong == line:
                continue
            mended = mend(wrong)[0]
            outcomes["mended" if mended == line else "left" if mended == wrong else "other"] += 1
        print(f"UTF-8 read as {codec}: {dict(outcomes)}")


def estimate_tokens(given: argparse.Namespace) -> None:
    """The estimate, and bytes / 4, over GPT-2's count, by language and for code."""
    gpt2 = Tokenizer.from_file(str(real("tokenizers/gpt2.json")))
    texts = every_sentence(given.sentences)
    documents = [(name, "\n".join(x[at : at + 60])) for name, x in texts.items() for at in range(0, len(x), 200)]
    for name, source in (("code", distinct(source_paths())), ("rfc", iter(rfcs(300)))):
        documents += [(name, text) for text in up_to(source, given.code_bytes) if len(text) > 300]
    estimates = measure(pa.array([text for _, text in documents]))["token_estimate"]
    counts = np.array([len(gpt2.encode(text).ids) for _, text in documents])
    sizes = np.array([len(text.encode()) for _, text in documents]) / 4
    names = np.array([name for name, _ in documents])
    for name in dict.fromkeys(names):
        total = counts[names == name].sum()
        print(f"{name} {estimates[names == name].sum() / total:.2f} {sizes[names == name].sum() / total:.2f}", end="; ")
    for title, found in (("estimate", estimates), ("bytes / 4", sizes)):
        error = np.abs(found / counts - 1)
        print(
            f"\n{title}: within 10, 25, 50 %: {[round(float((error < bound).mean()), 3) for bound in (0.1, 0.25, 0.5)]}"
        )


def main() -> None:
    """Print the three tables."""
    parser = command.parser(__doc__)
    parser.set_defaults(sentences=None, code_bytes=4 << 20)
    given = command.read(parser, sentences=50, code_bytes=50_000)
    for part in (tell_encodings, mend_texts, estimate_tokens):
        command.attempt(part, given)


if __name__ == "__main__":
    main()
