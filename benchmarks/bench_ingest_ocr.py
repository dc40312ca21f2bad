"""How many characters of scans are read wrongly, how fast, and which text layers are told from rubbish.

    python benchmarks/bench_ingest_ocr.py [--gold FOLDER] [--engine rapidocr] [--scale 1 0.5] [--layers]

FOLDER holds pages of yours, PDF files or pictures, each beside a text of the same name (a.tif and a.txt or a.gold.txt);
without it, the scans of REAL_DATA_DIR/ocr. For each it prints the character error rate (edits by character of the gold
text; white space closed up, quotation marks and dashes made ASCII) of the text layer and of what the engine reads, the
F1 of their words, which does not depend on the order, and seconds of processor time. --scale makes pictures smaller
first. --layers spoils texts of 75 languages (REAL_DATA_DIR/languages) in the ways that text layers go wrong, and
prints the share that scores too low.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import command
import numpy as np
from bench_ingest import timed
from corpora import real, sentences
from PIL import Image

from headrace_features.formats.pages.layer_score import layer_score
from spark_jobs.child_processes import idle_children
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.opening import parser_process
from spark_jobs.sources.reading.built_in import extract
from spark_jobs.sources.refusals import Refusal

FOLDED = str.maketrans("“”„’‘—–~", '"""\'\'---')
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAGE_CHARACTERS = 1500


def folded(text: str) -> str:
    """A text as it is compared."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(FOLDED).split())


def error_rate(text: str, gold: str) -> float:
    """Levenshtein distance by character of the gold text."""
    read, wanted = (np.array([ord(letter) for letter in folded(one)], np.int64) for one in (text, gold))
    places = np.arange(len(wanted) + 1)
    row = places
    for number, letter in enumerate(read, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (wanted != letter))
        row = np.minimum.accumulate(np.concatenate([[number], best]) - places) + places
    return int(row[-1]) / max(1, len(wanted))


def words_f1(text: str, gold: str) -> float:
    """F1 of the words as often as they occur."""
    read, wanted = Counter(folded(text).split()), Counter(folded(gold).split())
    return 2 * (read & wanted).total() / max(1, read.total() + wanted.total())


def smaller(data: bytes, scale: float) -> bytes:
    """A picture with each side shorter by a factor."""
    picture = Image.open(io.BytesIO(data)).convert("L")
    picture = picture.resize((int(picture.width * scale), int(picture.height * scale)), Image.Resampling.BOX)
    picture.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def gold_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Pages with their texts."""
    for path in sorted(folder.iterdir()):
        texts = [path.with_suffix(suffix) for suffix in (".txt", ".gold.txt")]
        found = [text for text in texts if text.is_file()]
        if found and path.suffix.lower() in (".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff"):
            yield path, found[0].read_text(encoding="utf-8")


def smallest(pages: Iterator[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """The page with the least text."""
    return sorted(pages, key=lambda page: len(page[1]))[:1]


def judge(folder: Path, engine: str, scale: float, small: bool) -> None:
    """One line for each file, and the sums."""
    rules = {
        "engine": engine,
        "hidden_layers": "replace",
        "min_layer_score": 1,
        "min_confidence": 0,
        "page_seconds": 600,
    }
    source = FilesSource.model_validate({"path": ".", "ocr": rules})
    layer_only = FilesSource.model_validate({"path": ".", "ocr": "none"})
    edits, characters, pages, cost = 0.0, 0, 0, 0.0
    for path, gold in smallest(gold_files(folder)) if small else gold_files(folder):
        reader = "pdf" if path.suffix.lower() == ".pdf" else "picture"
        data = path.read_bytes() if scale == 1 or reader == "pdf" else smaller(path.read_bytes(), scale)
        layer = extract(reader, data, source=layer_only)
        layer_text = "" if isinstance(layer, Refusal) else layer.text
        start = time.perf_counter()
        found, seconds = timed(lambda: extract(reader, data, source=source))  # noqa: B023
        text, told = ("", {}) if isinstance(found, Refusal) else (found.text, found.metadata)
        rate = error_rate(text, gold)
        print(
            f"{engine} x{scale:<4} {path.name:22} CER {rate:.4f} (layer {error_rate(layer_text, gold):.4f})  words F1 "
            f"{words_f1(text, gold):.3f}  confidence {told.get('ocr_confidence', '-')}  {seconds:.1f} s CPU with the "
            f"start of the child, {time.perf_counter() - start:.1f} s"
        )
        edits, characters = edits + rate * len(folded(gold)), characters + len(folded(gold))
        pages, cost = pages + int(told.get("page_count", 1)), cost + seconds
    print(
        f"{engine} x{scale}: CER {edits / characters:.4f} of {characters:,} characters, {pages / cost:.3f} pages/s/core"
    )


def speed(folder: Path, engine: str, small: bool) -> None:
    """Seconds a page as the slope between one and three readings in one child, and the most memory that it held."""
    source = FilesSource.model_validate({"path": ".", "ocr": {"engine": engine, "page_seconds": 600}})
    pages = smallest(gold_files(folder)) if small else gold_files(folder)
    path = max((path for path, _ in pages if path.suffix != ".pdf"), key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    costs = [timed(lambda: [extract("picture", data, source=source) for _ in range(count)])[1] for count in (1, 3)]  # noqa: B023
    extract("picture", data, source=source)
    for child in idle_children(parser_process._kind(source.ocr.memory_mb << 20)):
        status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        held = {line.split(":")[0]: int(line.split()[1]) >> 10 for line in status if line.startswith("Vm")}
        cost = (costs[1] - costs[0]) / 2
        print(f"{path.name}: {cost:.1f} s CPU a page, {held['VmHWM']} MB, address space {held['VmPeak']} MB")


def spoiled(dice: random.Random) -> dict[str, Callable[[str], str]]:
    """The ways in which text layers go wrong."""
    mixed = "".join(dice.sample(LETTERS, 26))
    table = str.maketrans(LETTERS + LETTERS.upper(), mixed + mixed.upper())
    noise = ("", "l ", "1", "|", "t", "'", "rn", "e")

    def noisy(text: str, rate: float) -> str:
        return "".join(dice.choice(noise) if dice.random() < rate and not one.isspace() else one for one in text)

    return {
        "good": lambda text: text,
        "codes of glyphs": lambda text: "".join(chr(ord(one) - 29) if " " <= one <= "~" else one for one in text),
        "exchanged letters": lambda text: text.translate(table),
        "private use": lambda text: "".join(one if one.isspace() else chr(0xE000 + ord(one) % 4096) for one in text),
        "glyphs out of order": lambda text: "\n".join(
            "".join(dice.sample(line, len(line))) for line in text.split("\n")
        ),
        "without spaces": lambda text: text.replace(" ", ""),
        "spaced out": " ".join,
        "UTF-8 as cp1252": lambda text: text.encode().decode("cp1252", "replace"),
        "10 % wrong": lambda text: noisy(text, 0.1),
        "20 % wrong": lambda text: noisy(text, 0.2),
        "40 % wrong": lambda text: noisy(text, 0.4),
    }


def layers(languages: dict[str, list[str]], threshold: float) -> None:
    """One line for each way to spoil a text: the share of pages that score too low, in Latin script and in others."""
    dice = random.Random(1)
    pages = list[tuple[bool, str]]()
    for lines in languages.values():
        for _ in range(3):
            page = "\n".join(dice.choice(lines) for _ in range(PAGE_CHARACTERS // 20))[:PAGE_CHARACTERS]
            latin = sum("LATIN" in unicodedata.name(one, "") for one in page)
            pages.append((latin > 0.8 * sum(map(str.isalpha, page)), page))
    for name in spoiled(dice):
        scores = [(latin, layer_score(spoiled(dice)[name](page))) for latin, page in pages]
        told = [np.array([score for latin, score in scores if latin is wanted]) for wanted in (True, False)]
        shares = "  ".join(
            f"{(one < threshold).mean():.3f} (least {one.min():.2f}, median {np.median(one):.2f})" for one in told
        )
        print(f"{name:20} below {threshold}: Latin {shares} other scripts")


def main() -> None:
    """Print one line for each measurement."""
    parser = command.parser(__doc__)
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--engine", default="rapidocr")
    parser.add_argument("--scale", type=float, nargs="*", default=[1.0])
    parser.add_argument("--layers", action="store_true")
    given = command.read(parser, scale=[0.5])
    sys.path.insert(0, ".")  # where an engine of one's own may be
    command.attempt(spoil if given.layers else scan, given)
    if given.small:
        command.attempt(spoil, given)


def spoil(given: argparse.Namespace) -> None:
    """The table of text layers."""
    texts = sentences("?[en]" if given.small else "??")
    layers(texts, FilesSource(path=".").ocr.min_layer_score)


def scan(given: argparse.Namespace) -> None:
    """The lines of scans."""
    folder = given.gold or real("ocr")
    for scale in given.scale:
        judge(folder, given.engine, scale, given.small)
    speed(folder, given.engine, given.small)


if __name__ == "__main__":
    main()
