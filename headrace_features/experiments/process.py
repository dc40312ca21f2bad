"""The process to train and measure runs of an experiment: `python -m headrace_features.experiments.process FILE`.

FILE is JSON (`experiment.LakeExperiment`); each ended run is a line of JSON on standard output. A killed run goes
on at its last checkpoint, and existing weights are not trained again.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pyiceberg.catalog import Catalog

from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import tokenizer_file
from headrace.process.interrupts import heed_interrupts
from headrace.tables.settings import load_settings
from headrace.tables.window_facts import WindowFacts
from headrace_features.experiments.evaluation import ChoiceQuestion, score_documents, score_items
from headrace_features.experiments.harness import harness_scores
from headrace_features.experiments.reading import VariantContents, VariantRows, rows_of
from headrace_features.experiments.training import network_of, next_offset, train
from headrace_features.experiments.training_run import TrainingRun, shape_of
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.progress import PROGRESS, tell
from spark_jobs.tokens.hf_tokenizer import load_reference

_STEP_TOKENS: Final = {"proxy_1m": 4096, "proxy_15m": 32_768, "proxy_125m": 131_072}
_CURVE_POINTS: Final = 500
_CHECKPOINT: Final = ".checkpoint"


def main(path: str) -> int:
    """Do all runs of a file."""
    task = json.loads(Path(path).read_text())
    catalogue = open_catalogue(load_settings())
    for number, run in enumerate(task["runs"], 1):
        tell(
            f"run {number} of {len(task['runs'])}: {run['variant']}, seed {run['seed']}, rate {run['learning_rate']:g}"
        )
        sys.stdout.write(json.dumps({"key": run["key"], **_done(task, run, catalogue)}) + "\n")
        sys.stdout.flush()
    return 0


def _done(task: Mapping[str, Any], run: Mapping[str, Any], catalogue: Catalog) -> dict[str, Any]:
    """Train and measure one run."""
    blender = Blender(catalogue)
    window = blender.config(run["blend"]).window
    declared = TrainingRun(
        shape_of(task["model"]),
        window.vocabulary_size,
        window.window_tokens,
        run["budget"],
        run["learning_rate"],
        weight_seed=run["seed"],
        device="cuda" if torch.cuda.is_available() else "cpu",
        threads=torch.get_num_threads(),
    )
    stem = Path(task["folder"]) / run["run"]
    weights, facts = stem.with_suffix(".weights"), stem.with_suffix(".json")
    checkpoint = stem.with_suffix(_CHECKPOINT)
    if not facts.exists():
        rows = max(1, _STEP_TOKENS[task["model"]] // window.window_tokens)
        batches = _batches(catalogue, task, run, rows, next_offset(checkpoint))
        trained = train(batches, declared, checkpoint=checkpoint)
        weights.write_bytes(trained.weights)
        points = np.unique(np.linspace(0, len(trained.losses) - 1, _CURVE_POINTS).astype(int))
        curve = [{"offset": int(trained.offsets[at]), "loss": float(trained.losses[at])} for at in points]
        about = {"losses": curve, "seconds": trained.seconds, "tokens": trained.tokens}
        about["device"] = f"{trained.device}, torch {trained.torch_version}"
        unfinished = facts.with_suffix(".tmp")
        unfinished.write_text(json.dumps(about))
        unfinished.replace(facts)  # from here on the run is known
        checkpoint.unlink(missing_ok=True)
    if not task["measured"]:
        return {}
    network = network_of(declared, weights.read_bytes())
    table = next(iter(blender.head(run["blend"]).pins().values())).table
    encode = _encoder(catalogue, table, window)
    return {**json.loads(facts.read_text()), "scores": list(_scores(task, network, encode))}


def _batches(
    catalogue: Catalog, task: Mapping[str, Any], run: Mapping[str, Any], rows: int, start: int
) -> Iterator[VariantRows]:
    """The rows of a run in steps, from the one on that its checkpoint wants."""
    left_out, budget = task["left_out"], run["budget"]
    read = (catalogue, run["blend"], left_out, budget, run["seed"], VariantContents(), run["start"], run["thinned"])
    groups = rows_of(*read)
    left: VariantRows | None = None
    for group in groups:
        if group.offset + len(group.input_ids) <= start:
            continue
        joined = group if left is None else left.followed_by(group)
        whole = len(joined.input_ids) // rows * rows
        yield from (joined.cut(at, at + rows) for at in range(0, whole, rows) if joined.offset + at + rows > start)
        left = joined.cut(whole, len(joined.input_ids))
    if left is not None and len(left.input_ids):
        yield left


def _scores(task: Mapping[str, Any], network: Any, encode: Callable[[str], list[int]]) -> Iterator[dict[str, Any]]:
    """Bits a byte of each set of texts; the right answers' log-probability and accuracy of questions and tasks."""
    for name, texts in task["sets"].items():
        scored = score_documents(network, [encode(text) for text in texts], [len(text.encode()) for text in texts])
        yield {"set": name, "measure": "bits_per_byte", "value": scored.bits_per_byte, "chance": None}
    for name, file in task["questions"].items():
        answered = score_items(network, _items(file), encode)
        if not len(answered.items):
            raise CommandError(f"questions {name}: none of {file} could be scored; first: {answered.left_out.get(0)}")
        yield {
            "set": name,
            "measure": "nats_per_byte",
            "value": float(answered.nats_per_byte.mean()),
            "chance": None,
        }
        yield {
            "set": name,
            "measure": "accuracy",
            "value": float(answered.correct.mean()),
            "chance": float(answered.chance.mean()),
        }
    if task["harness"] is not None:
        yield from harness_scores(task["harness"], network, encode)


@cache
def _items(file: str) -> list[ChoiceQuestion]:
    """The questions of a file.

    Raises:
        CommandError: a line is no question.
    """
    items = []
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            choices = tuple(map(str, row["choices"])) if "choices" in row else (str(row["answer"]),)
            right = int(row["answer"]) if "choices" in row else 0
            item = ChoiceQuestion(str(row["context"]), choices, right)
            choices[right]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CommandError(
                f"{file}:{number}: no question ({type(error).__name__}: {error}); write {{context, choices: [..], "
                "answer: NUMBER} or {context, answer: TEXT}"
            ) from error
        items.append(item)
    return items


def _encoder(catalogue: Catalog, table: str, window: WindowFacts) -> Callable[[str], list[int]]:
    """The ids of a text as its documents have them, by the tokenizer of a variant.

    Raises:
        CommandError: it is not in the lake any more.
    """
    file = tokenizer_file(catalogue, table, window.tokenizer_sha256)
    if file is None:
        raise CommandError(f"{table}: its tokenizer {window.tokenizer_sha256[:12]} is not in the lake; run its corpus")
    tokenizer = load_reference(file)
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    heed_interrupts()
    logging.basicConfig(format="%(message)s")
    logging.getLogger(PROGRESS).setLevel(logging.INFO)
    sys.exit(main(sys.argv[1]))
