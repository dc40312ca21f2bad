"""Tasks of lm-evaluation-harness, asked of a trained model: the extra `harness`.

Its models answer by likelihood, so tasks of writing text are refused. Datasets of tasks are looked for where the
`datasets` package looks for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dagster_project.exceptions import CommandError

if TYPE_CHECKING:
    from headrace_features.experiments.declaration import Harness
    from headrace_features.experiments.evaluation import Tokens
    from headrace_features.models.network import Network


def harness_digest(declared: Harness) -> str:
    """SHA-256 of what decides scores besides the model: tasks, limit, files of the folder, version of the harness.

    Raises:
        CommandError: lm_eval is not installed.
    """
    try:
        version = metadata.version("lm_eval")
    except metadata.PackageNotFoundError as error:
        raise CommandError("harness: lm_eval is not installed; run: pip install 'headrace[harness]'") from error
    digest = hashlib.sha256(f"{declared.tasks} {declared.limit} {version}".encode())
    folder = declared.folder
    for file in sorted(folder.rglob("*")) if folder is not None else ():
        if folder is not None and file.is_file():
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def harness_scores(
    settings: Mapping[str, Any], network: Network, encode: Callable[[str], Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """Scores of tasks: where there are choices the right one's log-probability per byte, and every metric of the task.

    Args:
        settings: the fields of a `Harness`.
        network: trained.
        encode: from a text to its token ids.

    Raises:
        CommandError: a task is not known, its dataset is not there, or it asks for text.
    """
    import lm_eval
    from lm_eval.tasks import TaskManager

    names, folder = list(settings["tasks"]), settings["folder"]
    in_folder = {file.stem for file in Path(folder).rglob("*.yaml")} if folder else set()
    try:
        # Its own tasks are thousands of files, which take a quarter of a minute to list.
        manager = TaskManager(include_path=folder, include_defaults=not set(names) <= in_folder)
        model = _answering(network, encode)
        evaluated = lm_eval.simple_evaluate(
            model, tasks=names, limit=settings["limit"], bootstrap_iters=0, task_manager=manager, log_samples=True
        )
    except CommandError:
        raise
    except Exception as error:  # whatever a task's own code raises
        reason = " ".join(str(error).split())[:300]
        raise CommandError(f"harness, tasks {', '.join(names)}: {type(error).__name__}: {reason}") from error
    for name, metrics in evaluated["results"].items():
        samples = evaluated["samples"].get(name, [])
        answered = [sample for sample in samples if len(sample["arguments"]) > 1 and isinstance(sample["target"], int)]
        chance = float(np.mean([1 / len(sample["arguments"]) for sample in answered])) if answered else None
        if answered:
            yield {"set": name, "measure": "nats_per_byte", "value": _nats_per_byte(answered), "chance": None}
        for metric, value in metrics.items():
            measure, _, filtered = metric.partition(",")
            if filtered and "stderr" not in measure and isinstance(value, int | float):
                label = measure if filtered == "none" else f"{measure} {filtered}"
                of_chance = chance if measure in ("acc", "acc_norm") else None
                yield {"set": name, "measure": label, "value": float(value), "chance": of_chance}


def _nats_per_byte(answered: Sequence[Mapping[str, Any]]) -> float:
    """The mean log-probability of right choices per byte of each."""
    right = [
        (sample["filtered_resps"][sample["target"]][0], sample["arguments"][sample["target"]][1]) for sample in answered
    ]
    return float(np.mean([nats / len(text.encode()) for nats, text in right]))


def _answering(network: Network, encode: Callable[[str], Tokens]) -> Any:
    """The network as a model of the harness (`LM`), answering by likelihood."""
    from lm_eval.api.model import LM

    from headrace_features.experiments.evaluation import ChoiceQuestion, score_documents, score_items

    class Answering(LM):  # type: ignore[misc]
        """Answers by likelihood."""

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            """Log-probability in nats of each continuation, and whether all its tokens are the likeliest."""
            # Without a context there is nothing to predict the first token from but the start of a line.
            items = [
                ChoiceQuestion(context or "\n", (continuation,))
                for context, continuation in (request.args for request in requests)
            ]
            scored = score_items(network, items, encode)
            if scored.left_out:
                number, why = next(iter(scored.left_out.items()))
                raise CommandError(
                    f"harness, task {requests[number].task_name}: {why}: {items[number].context[-80:]!r}"
                )
            return list(zip(scored.log_probabilities.tolist(), scored.correct.tolist(), strict=True))

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            """Log-probabilities of whole texts, in nats."""
            texts = [request.args[0] for request in requests]
            scored = score_documents(network, [encode(text) for text in texts], [len(text.encode()) for text in texts])
            return [float(-bits * np.log(2)) for bits in scored.bits]

        def generate_until(self, requests: list[Any]) -> list[str]:
            """Refused: models of these sizes write nothing for a task to judge."""
            raise CommandError(
                f"harness, task {requests[0].task_name}: it asks for written text; models of an experiment answer by "
                "likelihood, choose tasks with choices"
            )

    return Answering()
