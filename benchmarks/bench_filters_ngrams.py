"""How fast n-gram models are made and score, KenLM on the same ARPA file in the same run.

    python -m venv V && V/bin/pip install kenlm
    python benchmarks/bench_filters_ngrams.py --peer V/bin/python

Times are CPU seconds of a process, the best of three for headrace; megabytes are of UTF-8. The texts are RFCs: a model
is trained on some and scores others. KenLM cannot train here (`lmplz` is not in the package), so the model is written
as an ARPA file, of n-grams that are spelled by reading the training texts once more.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from corpora import articles, sentences
from corpora import rfcs as all_rfcs
from cpu_time import megabytes, seconds

from headrace_features.models.ngram_kernel import hash_ngram
from headrace_features.models.ngram_model import NgramConfig, NgramModel, read_arpa, read_ngram_model
from headrace_features.models.ngram_training import count_ngrams, estimate, merge_counts


def plain_words(text: str) -> list[list[str]]:
    """Words of lines, in letters and digits of ASCII alone, for which both ways to split agree."""
    digits = re.sub("[0-9]", "0", text.lower())
    return [words for line in digits.split("\n") if (words := re.sub("[^a-z0]", " ", line).split())]


def write_arpa(model: NgramModel, texts: list[list[list[str]]], path: Path) -> int:
    """The model as an ARPA file; gives its n-grams."""
    known = dict(zip(model.hashes.tolist(), range(len(model.hashes)), strict=True))
    found: list[dict[str, int]] = [{} for _ in range(model.order + 1)]
    seen: set[tuple[str, ...]] = {("<unk>",), ("<s>",), ("</s>",)}
    for lines in texts:
        for line in lines:
            whole = ("<s>", *line, "</s>")
            seen.update(whole[i : i + n] for n in range(1, model.order + 1) for i in range(len(whole) - n + 1))
    for ngram in seen:
        row = known.get(hash_ngram(list(ngram)))
        if row is not None:
            found[len(ngram)][" ".join(ngram)] = row
    with path.open("w") as file:
        file.write("\\data\\\n" + "".join(f"ngram {n}={len(found[n])}\n" for n in range(1, model.order + 1)))
        for n in range(1, model.order + 1):
            file.write(f"\n\\{n}-grams:\n")
            for words, row in found[n].items():
                backoff = f"\t{model.log10_backoffs[row]:.9g}" if n < model.order else ""
                file.write(f"{model.log10_probabilities[row]:.9g}\t{words}{backoff}\n")
        file.write("\n\\end\\\n")
    return sum(map(len, found))


def main() -> None:
    """Print the figures."""
    parser = command.parser(__doc__)
    parser.add_argument("--peer", help="python of a venv with kenlm")
    parser.set_defaults(limit=None, steps=(300, 30, 6))
    options = command.read(parser, limit=300, steps=(100, 30))
    rfcs = all_rfcs(options.limit)
    for step in options.steps:
        train, test = rfcs[::step], rfcs[1::60]
        column, size = pa.array(train), megabytes(train)
        count_ngrams(column[:1], 5)
        start = time.process_time()
        counts = merge_counts([count_ngrams(column, 5)])
        counted = time.process_time() - start
        start = time.process_time()
        model = estimate(counts, NgramConfig())
        estimated = time.process_time() - start
        data = model.to_bytes()
        model = read_ngram_model(data, "model")
        tested = pa.array(test)
        model.score(tested)
        rate = megabytes(test) / seconds(lambda m=model, t=tested: m.score(t))
        own, other = (np.nanmedian(model.score(texts)["perplexity"].to_numpy(False)) for texts in (column, tested))
        print(
            f"RFCs, {size:.1f} MB: {len(counts):,} n-grams counted at {size / counted:.1f} MB/s, "
            f"{len(model.hashes):,} kept in {estimated:.1f} s, file {len(data) / 1e6:.1f} MB; "
            f"scoring {rate:.1f} MB/s; median perplexity {own:.1f} (trained on), {other:.1f} (others)"
        )
    for name, texts in command.readable(other_texts(test)):
        found = np.percentile(model.score(pa.array(texts))["perplexity"].drop_null().to_numpy(), [10, 50, 90])
        print(f"{name}, {len(texts)} texts: perplexity of the last model {found.round(1)} (tenth, median, nine tenths)")
    if options.peer:
        command.attempt(beside_kenlm, rfcs, options.peer)


def other_texts(test: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Texts of 2,000 characters that are less and less like RFCs."""
    draw = random.Random(0)
    cut = [text[5000:7000] for text in test if len(text) > 5000]
    yield "RFCs, other ones", cut
    yield "RFCs, words shuffled", [" ".join(draw.sample(text.split(), len(text.split()))) for text in cut]
    code = sorted(Path(np.__file__).parent.rglob("*.py"))[::10]
    yield "Python files", [path.read_text("utf-8", "ignore")[:2000] for path in code]
    yield "news articles", [text[:2000] for text in articles(1000).values()][:200]
    for name, language in (("English", "en"), ("German", "de"), ("Chinese", "zh")):
        lines = sentences(language)[language]
        yield f"{name} sentences", ["\n".join(lines[k : k + 15]) for k in range(0, 900, 15)]


def beside_kenlm(rfcs: list[str], peer: str) -> None:
    """Scores and speed of KenLM on the same ARPA file and the same lines."""
    train, test = [plain_words(text) for text in rfcs[::100]], [plain_words(text) for text in rfcs[1::60]]
    joined = [["\n".join(" ".join(line) for line in lines) for lines in texts] for texts in (train, test)]
    model = estimate(merge_counts([count_ngrams(pa.array(joined[0]), 5)]), NgramConfig())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rfc.arpa"
        written = write_arpa(model, train, path)
        arpa = read_arpa(path.read_bytes(), path.name)
        texts = [[" ".join(line) for line in lines] for lines in test]
        script = str(Path(__file__).with_name("kenlm_peer.py"))
        theirs = json.loads(command.peer(peer, script, str(path), given=json.dumps(texts)))
    lines = pa.array([line for of_text in texts for line in of_text])
    counts = np.array([len(line.split()) + 1 for of_text in texts for line in of_text])
    wanted = np.array([score for of_text in theirs["scores"] for score in of_text])
    size, tested = megabytes(joined[1]), pa.array(joined[1])
    for name, one in (("the ARPA file", arpa), ("the model itself", model)):
        scores = -np.log10(one.score(lines)["perplexity"].to_numpy()) * counts
        rate = size / seconds(lambda m=one: m.score(tested))
        print(
            f"{name}, {written:,} n-grams: log10 of {len(lines):,} lines differ from KenLM's by at most "
            f"{np.abs(scores - wanted).max():.1e}; {rate:.1f} MB/s, KenLM {size / theirs['seconds']:.1f}"
        )


if __name__ == "__main__":
    main()
