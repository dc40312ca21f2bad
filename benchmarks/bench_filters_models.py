"""How fast and how good the filters' models are: languages, fastText models, classifiers, beside fastText itself.

    python benchmarks/bench_filters_models.py [languages] [mixtures] [classifiers] [programming]

Times are CPU seconds of this process, the best of three; megabytes are of UTF-8. The peer is fasttext-predict, the
program's own code, in the same run. Data are real: sentences in 75 languages, RFCs, installed Python files, this
machine's logs, labelled tweets, articles, and the pages of a manual.
"""

from __future__ import annotations

import argparse
import random
import sysconfig
import time
from collections import defaultdict
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from corpora import articles, manual, rfcs, some_python_files, tweets
from corpora import sentences as all_sentences
from cpu_time import megabytes, seconds

from headrace_features.models.classifier_training import train
from spark_jobs.filters.languages.languages import (
    LanguagesConfig,
    installed_model_path,
    load_model,
    score,
    score_programming,
)
from spark_jobs.sources.languages import language_of


def sentences(given: argparse.Namespace) -> dict[str, list[str]]:
    """Sentences by the ISO code of their language."""
    return {code: lines[: given.sentences] for code, lines in all_sentences().items()}


def languages(given: argparse.Namespace) -> None:
    """Speed and accuracy on sentences and long documents, fastText in the same run."""
    import fasttext

    model, own = load_model(installed_model_path()), fasttext.load_model(str(installed_model_path()))
    labelled = [(code, line) for code, lines in sentences(given).items() for line in lines]
    texts = [line for _, line in labelled]
    for name, documents in (("sentences", texts), ("RFCs", rfcs(given.documents // 4, every=20))):
        column, size = pa.array(documents), megabytes(documents)
        lines = [document.replace("\n", " ") for document in documents]
        score(column), model.judge(column, [])
        theirs = seconds(lambda lines=lines: [own.predict(line) for line in lines])
        for what, work in (
            ("the same model here", lambda column=column: model.judge(column, [])),
            ("languages", lambda column=column: score(column)),
        ):
            ours = seconds(work)
            print(
                f"{name}, {size:.1f} MB: {what} {size / ours:.1f} MB/s, fastText {size / theirs:.1f} MB/s, "
                f"{theirs / ours:.1f} times"
            )
    best, probabilities, _ = model.judge(pa.array(texts), [])
    said = [own.predict(line) for line in texts]
    differences = np.array([p[0] for _, p in said]) - probabilities.to_numpy(zero_copy_only=False)
    same = sum(names[0] == f"__label__{label}" for (names, _), label in zip(said, best.to_pylist(), strict=True))
    print(f"equal labels {same} of {len(texts)}, probabilities differ by at most {np.abs(differences).max():.1e}")
    found = score(pa.array(texts))["language"].to_pylist()
    right = np.mean([language == code for language, (code, _) in zip(found, labelled, strict=True)])
    own_right = np.mean([names[0] == f"__label__{code}" for (names, _), (code, _) in zip(said, labelled, strict=True)])
    print(f"accuracy on sentences: here {right:.4f}, fastText {own_right:.4f}")


def mixtures(given: argparse.Namespace) -> None:
    """What windows and their sampling cost in documents of one language and of two, and in RFCs."""
    known = set(load_model(installed_model_path()).labels) - {"bs", "hr", "nn", "ms", "id"}  # those are told by nobody
    by_code = {code: lines for code, lines in sentences(given).items() if code in known}
    rng = random.Random(5)
    documents, truth = [], []
    for _ in range(given.documents):
        (first, second), share, total = (
            rng.sample(sorted(by_code), 2),
            rng.choice([0, 0.1, 0.3]),
            rng.choice([20, 80, 300]),
        )
        count = round(total * share)
        one, other = (rng.choices(by_code[first], k=total - count), rng.choices(by_code[second], k=count))
        cut = rng.randrange(len(one))
        documents.append("\n".join(one[:cut] + other + one[cut:]))
        letters = [sum(map(str.isalpha, "".join(lines))) for lines in (one, other)]
        truth.append((first, second if count else None, letters[1] / sum(letters)))
    column, rfc_column = pa.array(documents), pa.array(rfcs(given.documents // 2, every=10))
    size = megabytes(documents)
    for window_bytes, max_windows in ((256, 16), (512, 8), (512, 16), (512, 32), (512, 4096), (1024, 16)):
        config = LanguagesConfig(window_bytes=window_bytes, max_windows=max_windows)
        took = seconds(lambda config=config: score(column, config))
        rows = pa.RecordBatch.from_pydict(score(column, config)).to_pylist()
        pairs = list(zip(rows, truth, strict=True))
        first_right = np.mean([row["language"] == first for row, (first, _, _) in pairs])
        alone = [row["second_language"] is not None for row, (_, second, _) in pairs if second is None]
        mixed = [(row, second, share) for row, (_, second, share) in pairs if second]
        hits = [abs(row["second_share"] - share) for row, second, share in mixed if row["second_language"] == second]
        in_rfcs = score(rfc_column, config)
        english = np.mean([code == "en" for code in in_rfcs["language"].to_pylist()])
        print(
            f"{max_windows} windows of {window_bytes}: {size / took:.0f} MB/s, language {first_right:.3f}, second "
            f"found {len(hits) / len(mixed):.3f} (share off by {np.mean(hits):.3f}), wrongly {np.mean(alone):.3f}; "
            f"{len(rfc_column)} RFCs: English {english:.3f}, with a second "
            f"{len(rfc_column) - in_rfcs['second_language'].null_count}"
        )


def labelled_tables(given: argparse.Namespace) -> dict[str, pa.Table]:
    """Tweets by toxicity; prose, code and logs; two kinds of prose, in pieces of 2,000 characters."""

    def pieces(texts: list[str], label: str, count: int = given.pieces) -> list[tuple[str, str]]:
        cut = [text[at : at + 2000] for text in texts for at in range(0, min(len(text), 10_000), 2000)]
        return [(piece, label) for piece in random.Random(0).sample(cut, min(count, len(cut))) if piece.strip()]

    logs = [path.read_text("utf-8", "ignore") for path in sorted(Path("/var/log").rglob("*.log"))]
    prose = rfcs(given.documents, every=8)
    tables = {
        "toxicity of tweets": tweets()[:: 25_000 // (16 * given.pieces)],
        "prose, code, logs": [
            *pieces(prose, "prose"),
            *pieces(some_python_files(given.documents), "code"),
            *pieces(logs, "logs"),
        ],
        "RFCs, articles, manual": [
            *pieces(prose, "RFC"),
            *pieces([*articles().values()], "article"),
            *pieces([*manual().values()], "manual"),
        ],
    }
    return {name: pa.table([*zip(*rows, strict=True)], names=["content", "label"]) for name, rows in tables.items()}


def classifiers(given: argparse.Namespace) -> None:
    """Train, evaluate, and score; the speed of scoring beside that of fastText's language model on the same texts."""
    import fasttext

    own = fasttext.load_model(str(installed_model_path()))
    for name, table in labelled_tables(given).items():
        start = time.process_time()
        classifier, evaluation = train(table)
        took = time.process_time() - start
        texts = table["content"].to_pylist()
        lines, column = [text.replace("\n", " ") for text in texts], pa.array(texts)
        ours = megabytes(texts) / seconds(lambda column=column, classifier=classifier: classifier.score(column))
        theirs = megabytes(texts) / seconds(lambda lines=lines: [own.predict(line) for line in lines])
        print(
            f"{name}: accuracy {evaluation.accuracy:.3f} on {evaluation.test_count} texts, trained on "
            f"{evaluation.train_count} in {took:.0f} s; scores {ours:.1f} MB/s, fastText's lid.176 {theirs:.1f} MB/s"
        )
        for each in evaluation.labels:
            names = ("precision", "recall", "auc", "average_precision", "calibration_error")
            values = {name: getattr(each, name) for name in names}  # None where no test text has the label
            shown = ", ".join(f"{name} {'-' if x is None else f'{x:.4f}'}" for name, x in values.items())
            print(f"    {each.label:10} {each.test_count:5} texts, {shown}")


def programming(given: argparse.Namespace) -> None:
    """Installed files with their names hidden: the share whose language is that of their extension."""
    by_name = defaultdict(list)
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*")):
        language = language_of(path.name)
        if language and language.kind != "prose" and path.is_file() and 0 < path.stat().st_size < 1_000_000:
            by_name[language.name].append(path)
    rng = random.Random(1)
    files = [
        (name, path)
        for name, paths in sorted(by_name.items())
        for path in rng.sample(paths, min(given.files, len(paths)))
    ]
    texts = [path.read_bytes().decode("utf-8", "ignore") for _, path in files]
    start = time.process_time()
    found = score_programming(pa.array(texts))["programming_language"].to_pylist()
    took = time.process_time() - start
    right: dict[str, list[bool]] = defaultdict(list)
    for (name, _), said in zip(files, found, strict=True):
        right[name].append(said == name)
    share = np.mean([said == name for (name, _), said in zip(files, found, strict=True)])
    print(f"{len(files)} files, {len(files) / took:.0f} a second, {share:.3f} as their names say")
    print(", ".join(f"{name} {np.mean(hits):.2f} of {len(hits)}" for name, hits in right.items() if len(hits) > 5))


PARTS = {"languages": languages, "mixtures": mixtures, "classifiers": classifiers, "programming": programming}


def main() -> None:
    """Run the parts that are named, all by default."""
    parser = command.parser(__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.set_defaults(documents=600, sentences=None, pieces=1500, files=40)
    arguments = command.read(parser, documents=30, sentences=20, pieces=60, files=2)
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    command.run_parts(PARTS, arguments.parts, arguments)


if __name__ == "__main__":
    main()
