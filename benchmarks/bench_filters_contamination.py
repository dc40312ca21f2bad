"""Decontamination: speed on clean texts, recall on planted items, false alarms; datatrove beside it in the same run.

    python benchmarks/bench_filters_contamination.py [--items 1000] [--code FOLDER]
        [--peer PYTHON] [--peer-items 50] [--peer-megabytes 4]

HumanEval (prompt, canonical_solution, test) and GSM8K (question, answer, both splits) are registered. Items are drawn
by a seed from those that are searched for, and planted in ways that people and programs change texts; *found* is a
finding of that very item. Hosts are runs of 10,000 words of the RFC series. PYTHON is that of an environment with
datatrove; a document counts as found where datatrove drops it. Times are CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sysconfig
import tempfile
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import command
import pyarrow as pa
from corpora import articles, distinct, manual, real, rfcs, sentences, up_to
from cpu_time import megabytes

from spark_jobs.filters.contamination.eval_set import EvalSet, EvalText, read_eval_set
from spark_jobs.filters.contamination.findings import score
from spark_jobs.filters.contamination.index import IndexContents, index_of

EVALS = {
    "humaneval": ("HumanEval.jsonl.gz", ["prompt", "canonical_solution", "test"]),
    "gsm8k_test": ("gsm8k_test.jsonl.gz", ["question", "answer"]),
    "gsm8k_train": ("gsm8k_train.jsonl.gz", ["question", "answer"]),
}
HOST_WORDS = 10_000
RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
SPACES = [" ", "\t", "\n\n", "  ", "\r\n", "\u00a0"]
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SYNONYM_PAIRS = """
buys:purchases bought:purchased gets:receives many:numerous each:every total:overall how:by~how sells:trades
makes:produces gives:hands money:cash left:remaining more:additional per:for~each day:working~day takes:needs
spends:pays friend:pal friends:pals has:owns wants:would~like house:home big:large small:little week:seven~days
year:twelve~months half:50% twice:two~times return:yield list:sequence given:provided string:text number:figure
numbers:figures check:verify whether:if first:initial new:fresh also:too costs:is~priced~at
"""
SYNONYMS = dict(pair.split(":") for pair in SYNONYM_PAIRS.split())
Change = Callable[[str, random.Random], str]


def spelled(number: int) -> str:
    """A number in English words."""
    if number >= 1000:
        return f"{spelled(number // 1000)} thousand {spelled(number % 1000) if number % 1000 else ''}".strip()
    if number >= 100:
        return f"{DIGITS[number // 100]} hundred {spelled(number % 100) if number % 100 else ''}".strip()
    if number >= 20:
        return f"{TENS[number // 10]} {DIGITS[number % 10] if number % 10 else ''}".strip()
    return TEENS[number - 10] if number >= 10 else DIGITS[number]


def per_word(text: str, change: Callable[[str], str | None]) -> str:
    """A text whose words are changed one by one; None drops one."""
    parts = (change(part) if not part.isspace() else part for part in re.split(r"(\s+)", text))
    return "".join(part for part in parts if part is not None)


def replaced(share: float) -> Change:
    """Replace a share of words by others of the same text or the word `thing`."""
    return lambda text, draw: per_word(text, lambda word: "thing" if draw.random() < share else word)


def dropped(share: float) -> Change:
    """Leave out a share of words."""
    return lambda text, draw: per_word(text, lambda word: None if draw.random() < share else word)


def hyphenated(text: str, draw: random.Random) -> str:
    """Break a third of the longer words over two lines."""
    longer = re.compile(r"\b([^\W\d_]{3})([^\W\d_]{3,})")
    return longer.sub(lambda found: "-\n".join(found.groups()) if draw.random() < 0.33 else found[0], text)


def swapped(text: str, draw: random.Random) -> str:
    """Swap a tenth of the words with the next one."""
    words = text.split()
    for k in range(len(words) - 1):
        if draw.random() < 0.1:
            words[k], words[k + 1] = words[k + 1], words[k]
    return " ".join(words)


def behind_each_sixth(mark: Callable[[int], str]) -> Change:
    """Write a footnote's mark behind each sixth word."""

    def marked(text: str, draw: random.Random) -> str:
        numbers = itertools.count(1)
        return per_word(text, lambda word: word + mark(number // 6) if (number := next(numbers)) % 6 == 0 else word)

    return marked


def mistyped(text: str, draw: random.Random) -> str:
    """Mistype each fifth word of three letters or more: two letters swapped, one left out, added, or another."""
    numbers = itertools.count(1)

    def typo(word: str) -> str:
        if next(numbers) % 5 or len(word) < 3:
            return word
        at, letter = draw.randrange(len(word) - 1), draw.choice("abcdefghijklmnopqrstuvwxyz")
        swapped_letters = word[at + 1] + word[at]
        changed = (swapped_letters + word[at + 2 :], word[at + 1 :], letter + word[at:], letter + word[at + 1 :])
        return word[:at] + draw.choice(changed)

    return per_word(text, typo)


SURFACE: dict[str, Change] = {
    "verbatim": lambda text, draw: text,
    "upper case": lambda text, draw: text.upper(),
    "title case": lambda text, draw: text.title(),
    "one line": lambda text, draw: " ".join(text.split()),
    "wrapped at 40": lambda text, draw: textwrap.fill(text, 40),
    "wrapped and quoted": lambda text, draw: "> " + textwrap.fill(text, 60).replace("\n", "\n> "),
    "hyphenated at line ends": hyphenated,
    "random white space": lambda text, draw: re.sub(r"\s+", lambda _: draw.choice(SPACES), text),
    "punctuation left out": lambda text, draw: re.sub(r"[^\w\s]", "", text),
    "punctuation as spaces": lambda text, draw: re.sub(r"[^\w\s]", " ", text),
    "typographic quotes, dashes": lambda text, draw: text.translate({39: "\u2019", 34: "\u201d", 45: "\u2013"}),
    "decomposed (NFKD)": lambda text, draw: unicodedata.normalize("NFKD", text),
    "full width": lambda text, draw: text.translate({c: c + 0xFEE0 for c in range(0x21, 0x7F)}),
    "escaped as JSON": lambda text, draw: json.dumps(text),
    "footnotes [n]": behind_each_sixth("[{}]".format),
    "footnotes <sup>n</sup>": behind_each_sixth("<sup>{}</sup>".format),
    "raised footnotes": behind_each_sixth(lambda number: str(number).translate(RAISED)),
    "tags around words": lambda text, draw: per_word(
        text, lambda word: f"<b>{word}</b>" if draw.random() < 0.2 else word
    ),
    "blanks as entities": lambda text, draw: re.sub(" ", lambda _: draw.choice([" ", " ", "&nbsp;"]), text),
}  # fmt: skip
MEANING: dict[str, Change] = {
    "each fifth word mistyped": mistyped,
    "some synonyms": lambda text, draw: per_word(text, lambda word: SYNONYMS.get(word.lower(), word).replace("~", " ")),
    "10% of words replaced": replaced(0.1),
    "20% of words replaced": replaced(0.2),
    "30% of words replaced": replaced(0.3),
    "10% of words left out": dropped(0.1),
    "20% of words left out": dropped(0.2),
    "10% of words swapped": swapped,
    "other numbers": lambda text, draw: re.sub(r"\d+", lambda _: str(draw.randint(2, 99)), text),
    "numbers in words": lambda text, draw: re.sub(
        r"\d+", lambda found: spelled(int(found[0])) if len(found[0]) < 7 else found[0], text
    ),
    "other numbers, 10% replaced": lambda text, draw: replaced(0.1)(MEANING["other numbers"](text, draw), draw),
}


def hosts(texts: list[str], count: int) -> list[list[str]]:
    """Runs of `HOST_WORDS` words, with the white space between them."""
    found = []
    for text in texts:
        parts = re.split(r"(?<=\s)(?=\S)", text)
        if len(parts) >= HOST_WORDS:
            found.append(parts[:HOST_WORDS])
        if len(found) == count:
            break
    return found


def embedded(text: str, host: list[str], draw: random.Random) -> str:
    """A text in the midst of others' words."""
    at = draw.randrange(len(host))
    return "".join([*host[:at], "\n", text, "\n", *host[at:]])


def other_texts() -> Iterator[str]:
    """Manuals, web pages, articles, and sentences of 75 languages in documents of fifty."""
    yield from manual().values()
    for name, pattern in (("html_articles", "**/*.html"), ("ocr", "**/*.txt")):
        yield from (path.read_text("utf-8", "replace") for path in sorted(real(name).glob(pattern)))
    yield from articles().values()
    for lines in sentences().values():
        yield from ("\n".join(lines[start : start + 50]) for start in range(0, len(lines), 50))


def speed_and_false_alarms(name: str, documents: list[str], contents: IndexContents) -> None:
    """Print the speed on some documents, and every finding in them."""
    texts = pa.array(documents, pa.large_string())
    score(texts.slice(0, 1), contents)
    started = time.process_time()
    findings = score(texts, contents)["findings"]
    seconds = time.process_time() - started
    size = megabytes(texts.to_pylist())
    held = [(row, one) for row, found in enumerate(findings.to_pylist()) for one in found]
    print(
        f"{name:8} {len(texts):7,} documents {size:6.1f} MB {size / seconds:6.0f} MB/s, "
        f"findings in {len({row for row, _ in held})} documents"
    )
    for row, one in held:
        text = texts[row].as_py().encode()[one["start"] : one["end"]].decode()
        print(
            f"    {one['kind']} {one['share']:.2f} {one['eval_set']} {one['item'][:8]}: {' '.join(text.split())[:160]}"
        )


def recall(documents: list[str], items: list[EvalText], contents: IndexContents) -> str:
    """Shares of documents with a finding of their item, by kind and in all, as text."""
    kinds = dict.fromkeys(("exact", "ngram", "near", "any"), 0)
    for start in range(0, len(documents), 256):
        findings = score(pa.array(documents[start : start + 256]), contents)["findings"].to_pylist()
        for item, found in zip(items[start : start + 256], findings, strict=True):
            seen = {one["kind"] for one in found if one["item"] == item.item_id}
            for kind in seen | ({"any"} if seen else set()):
                kinds[kind] += 1
    return " ".join(f"{count / len(documents):8.2%}" for count in kinds.values())


def main() -> None:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--code", type=Path, action="append", help="folders of code; default: the installed packages")
    parser.set_defaults(hosts=50, documents=None)
    parser.add_argument("--peer", help="a Python that has datatrove")
    parser.add_argument("--peer-items", type=int, default=50)
    parser.add_argument("--peer-megabytes", type=float, default=4)
    options = command.read(parser, items=20, hosts=3, documents=60, peer_items=5, peer_megabytes=0.3)
    command.attempt(measure, options)


def measure(options: argparse.Namespace) -> None:
    """Print speeds, recalls and false alarms."""
    eval_sets = [read_eval_set(name, real(f"evals/{file}"), columns) for name, (file, columns) in EVALS.items()]
    print(*eval_sets, sep="\n")
    index_of(eval_sets[:1])
    started = time.process_time()
    contents = index_of(eval_sets)
    print(f"{contents}; made in {time.process_time() - started:.1f} s\n")
    clean = rfcs(options.documents, every=10 if options.small else 1)
    speed_and_false_alarms("RFCs", clean, contents)
    for folder in options.code or [Path(sysconfig.get_path("purelib"))]:
        files = itertools.islice(distinct(sorted(folder.rglob("*.py"))), options.documents)
        speed_and_false_alarms("code", list(files), contents)
    others = command.readable(itertools.islice(other_texts(), options.documents))
    speed_and_false_alarms("others", list(others), contents)

    draw = random.Random(17)
    items = draw.sample(searched(eval_sets, contents), options.items)
    around = hosts(clean, options.hosts)
    print(f"\nplanted, {len(items):,} items     exact    ngram     near      any | in 10,000 words: any alike")
    peer_documents: dict[str, list[str]] = {}
    for name, change in (SURFACE | MEANING).items():
        changed = [change(item.text, draw) for item in items]
        inside = [embedded(text, draw.choice(around), draw) for text in changed]
        print(f"{name:28} {recall(changed, items, contents)} | {recall(inside, items, contents)}")
        peer_documents[name] = changed[: options.peer_items] + inside[: options.peer_items // 5]
    if options.peer:
        command.attempt(versus_peer, options, eval_sets, peer_documents, clean, contents)


def searched(eval_sets: list[EvalSet], contents: IndexContents) -> list[EvalText]:
    """Items that are searched for, once each."""
    wanted = set(contents.holders.field("item").to_pylist())
    return list({item.item_id: item for one in eval_sets for item in one.items if item.item_id in wanted}.values())


def versus_peer(
    options: argparse.Namespace,
    eval_sets: list[EvalSet],
    planted: dict[str, list[str]],
    searched_in: list[str],
    contents: IndexContents,
) -> None:
    """Print how many of the same documents both drop, and both speeds on the same clean texts."""
    clean = up_to(searched_in, options.peer_megabytes * 1e6)
    size = megabytes(clean)
    started = time.process_time()
    score(pa.array(clean), contents)
    seconds = time.process_time() - started
    items = [item.text for one in eval_sets for item in one.items]
    every = [*clean, *(text for texts in planted.values() for text in texts)]
    with tempfile.TemporaryDirectory() as folder:
        for file, texts in (("items", items), ("documents", every)):
            Path(folder, file).write_text("".join(json.dumps(text) + "\n" for text in texts))
        script = str(Path(__file__).with_name("contamination_peer.py"))
        output = command.peer(options.peer, script, f"{folder}/items", f"{folder}/documents", str(len(clean)))
    theirs = json.loads(output.splitlines()[-1])
    print(f"\n{size:.1f} MB of RFCs: headrace {size / seconds:.1f} MB/s, ", end="")
    print(f"datatrove {size / theirs['seconds']:.2f} MB/s on one core")
    ours = [bool(found) for found in score(pa.array(every), contents)["findings"].to_pylist()]
    start = 0
    print(f"\n{'documents dropped':28} headrace  datatrove  of")
    for name, documents in {"clean": clean, **planted}.items():
        end = start + len(documents)
        print(
            f"{name:28} {sum(ours[start:end]) / len(documents):8.1%} "
            f"{sum(theirs['dropped'][start:end]) / len(documents):9.1%} {len(documents):5,}"
        )
        start = end


if __name__ == "__main__":
    main()
