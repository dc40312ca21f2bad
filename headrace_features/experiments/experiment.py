"""Run an experiment: list its runs, find the known ones, and do the others one after the other.

A run is identified by what decides its weights: the digest of its rows, model, budget, rate, seeds,
code. So a variant without a change is not trained again, a killed experiment goes on where it was, and
another set to measure by trains nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyiceberg.catalog import Catalog

from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError
from headrace.tables.settings import LakeSettings
from headrace.tables.window_facts import WindowFacts
from headrace_features.experiments.declaration import ExperimentDeclaration, Variant
from headrace_features.experiments.harness import harness_digest
from headrace_features.experiments.held_out import HeldOutSet, datasets_of, excluded_documents, read_sets
from headrace_features.experiments.reading import VariantContents, blend_of, rows_of
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.run.evaluations import known_rows, record
from spark_jobs.lake.run.provenance import git_commit
from spark_jobs.progress import tell

VERSION: Final = "1"  # of what trains and measures; changed whenever weights or scores change
_ROOM: Final = 0.95  # share of an epoch that all samples may fill; seeds read a few rows more or less than the first
_PROCESS: Final = "headrace_features.experiments.process"


@dataclass(frozen=True)
class Run:
    """A run to be done, as plain values for its process.

    Attributes:
        variant: name.
        seed: number of weights, order and sample.
        learning_rate: its highest.
        blend: id.
        start: offset in it.
        rows_digest: of its rows.
        tokens: that it trains on.
        thinned: share of the rows of each source that it reads.
    """

    variant: str
    seed: int
    learning_rate: float
    blend: str
    start: int
    rows_digest: str
    tokens: int
    thinned: float = 1


class LakeExperiment:
    """An experiment on a lake.

    Raises:
        CommandError: variants differ in what has to be equal, or a set has no text.
    """

    def __init__(
        self,
        declared: ExperimentDeclaration,
        catalogue: Catalog,
        settings: LakeSettings,
        variants: Mapping[str, Variant] | None = None,
    ) -> None:
        """Use `variants` in place of the declared ones, if given."""
        self.declared, self.catalogue, self.settings = declared, catalogue, settings
        self.variants = declared.variants if variants is None else variants
        self._blender = Blender(catalogue)
        self._blends: dict[tuple[str, int], str] = {}
        self._budgets: dict[str, int] = {}
        self._contents: dict[tuple[str, int], VariantContents] = {}

    def of(self, variants: Mapping[str, Variant]) -> LakeExperiment:
        """The same experiment with other variants, of which no more is left out."""
        other = LakeExperiment(self.declared, self.catalogue, self.settings, variants)
        other.sets, other.excluded = self.sets, self.excluded
        return other

    @cached_property
    def sets(self) -> list[HeldOutSet]:
        """The held-out sets."""
        return read_sets(self.catalogue, self.declared.held_out)

    @cached_property
    def excluded(self) -> dict[str, str]:
        """The documents kept out of all variants' training, with the reason."""
        tables = {
            pin.table for name in self.variants for pin in self._blender.head(self.blend(name, 0)).pins().values()
        }
        datasets = datasets_of(self.catalogue, tables)
        return excluded_documents(self.catalogue, self.sets, datasets, self.declared.near_share)

    def blend(self, name: str, seed: int) -> str:
        """The id of the blend of a variant under a seed: one for all seeds where their samples are disjoint."""
        if seed and self.disjoint:
            return self.blend(name, 0)
        if (name, seed) not in self._blends:
            self._blends[name, seed] = blend_of(self._blender, name, self.variants[name], seed)
        return self._blends[name, seed]

    def window(self, name: str) -> WindowFacts:
        """Window and tokenizer of a variant."""
        return self._blender.config(self.blend(name, 0)).window

    def check(self) -> None:
        """Refuse variants differing in more than their data.

        Raises:
            CommandError: another window, or another tokenizer without a budget in bytes.
        """
        windows = {name: self.window(name) for name in self.variants}
        first = next(iter(windows))
        for name, window in windows.items():
            where = f"experiment {self.declared.name}: variants {first} and {name}"
            if window.window_tokens != windows[first].window_tokens:
                raise CommandError(
                    f"{where} have windows of {windows[first].window_tokens} and {window.window_tokens} tokens; "
                    "give both the same"
                )
            if window.tokenizer_sha256 != windows[first].tokenizer_sha256 and self.declared.budget_bytes is None:
                raise CommandError(f"{where} have different tokenizers; give budget_bytes in place of budget_tokens")

    def budget(self, name: str) -> int:
        """Tokens of a run of a variant."""
        if name not in self._budgets:
            self._budgets[name] = self.declared.budget_tokens or self._tokens_of_bytes(name)
        return self._budgets[name]

    def _tokens_of_bytes(self, name: str) -> int:
        """A budget in bytes, turned into tokens by the held-out texts."""
        assert self.declared.budget_bytes is not None
        from dagster_project.inspect.documents.blend_rows import tokenizer_of

        table = next(iter(self._blender.head(self.blend(name, 0)).pins().values())).table
        tokenizer = tokenizer_of(self.catalogue, table, self.window(name).tokenizer_sha256)
        texts = [text for texts_of_set in self.sets for _, text in texts_of_set.documents]
        if tokenizer is None or not texts:
            raise CommandError(f"experiment {self.declared.name}: budget_bytes needs a held-out set and the tokenizer")
        tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))
        return round(self.declared.budget_bytes * tokens / sum(len(text.encode()) for text in texts))

    def contents(self, name: str, seed: int) -> VariantContents:
        """What a variant consists of under a seed; its rows are read once."""
        if (name, seed) not in self._contents:
            tell(f"reading variant {name}, seed {seed}")
            contents = VariantContents()
            blend, start = self.blend(name, seed), self.start(name, seed)
            read = (self.excluded, self.budget(name), seed, contents, start, self.variants[name].thinned)
            for _ in rows_of(self.catalogue, blend, *read):
                pass
            self._contents[name, seed] = contents
        return self._contents[name, seed]

    @cached_property
    def disjoint(self) -> bool:
        """Whether an epoch of every source of all variants has room for all seeds, one behind the other."""
        if self.declared.command:
            return False
        first = [self.contents(name, 0) for name in self.variants]
        epochs = [
            max(contents.epochs.values(), default=1.0) * contents.offsets / max(contents.rows, 1) for contents in first
        ]
        return max(epochs) * self.declared.seeds <= _ROOM

    def start(self, name: str, seed: int) -> int:
        """The offset of a variant's sample in its blend: where that of the seed before ends, or 0."""
        return self.start(name, seed - 1) + self.contents(name, seed - 1).offsets if seed and self.disjoint else 0

    def facts(self) -> dict[str, Any]:
        """The contents of each variant's first sample, for people."""
        return {name: self.line(name) for name in self.variants} if not self.declared.command else {}

    def line(self, name: str) -> str:
        """What a variant consists of, in one line."""
        contents = self.contents(name, 0)
        epochs = ", ".join(f"{source} {count:.2f}" for source, count in sorted(contents.epochs.items()))
        left_out = ", ".join(f"{reason} {count:,}" for reason, count in sorted(contents.left_out.items())) or "none"
        return (
            f"{contents.tokens:,} tokens of {len(contents.documents):,} documents; epochs {epochs}; "
            f"left out for held-out sets: {left_out}"
        )

    def read_share(self, first: str, second: str) -> float:
        """Of the data read by a run of either variant, the share missing in the other; the larger of the two shares.

        A source read for an epoch or more counts once in full. Disjoint samples count 0: they differ as much as
        another set of data like this one would.
        """
        if self.disjoint:
            return 0.0
        left, other = self.contents(first, 0), self.contents(second, 0)
        both = len(np.intersect1d(left.documents, other.documents, assume_unique=True))
        shares = []
        for contents in (left, other):
            read = sum(min(1.0, contents.epochs.get(name, 1.0)) * count for name, count in contents.sources.items())
            shares.append(read / max(contents.tokens, 1) * (1 - both / max(len(contents.documents), 1)))
        return max(shares)

    def digest(self, measured: bool) -> str:
        """SHA-256 of the keys of all runs, as Dagster's data version: of scores if `measured`, else of weights."""
        keys = [self.key(run) if measured else self.run_key(run) for run in self.runs()]
        return hashlib.sha256("".join(keys).encode()).hexdigest()

    def runs(self) -> Iterator[Run]:
        """All runs, in their order: every seed of all variants before the next seed."""
        for seed in range(self.declared.seeds):
            for rate in self.declared.learning_rates:
                for name in self.variants:
                    if self.declared.command:
                        yield Run(name, seed, rate, self.blend(name, seed), 0, "", self.budget(name))
                    else:
                        contents = self.contents(name, seed)
                        blend, start = self.blend(name, seed), self.start(name, seed)
                        thinned = self.variants[name].thinned
                        yield Run(name, seed, rate, blend, start, contents.digest, contents.tokens, thinned)

    def run_key(self, run: Run) -> str:
        """SHA-256 of all that decides the weights of a run."""
        trained = self.declared.command or self.declared.model_size
        what: dict[str, Any] = {"by": trained, "rows": run.rows_digest or run.blend, "tokens": run.tokens}
        what |= {"seed": run.seed, "rate": run.learning_rate, "version": VERSION}
        return hashlib.sha256(canonical_json(what).encode()).hexdigest()

    def key(self, run: Run) -> str:
        """SHA-256 of all that decides the scores of a run."""
        return hashlib.sha256(canonical_json({"run": self.run_key(run), **self.measures}).encode()).hexdigest()

    @cached_property
    def measures(self) -> dict[str, dict[str, str]]:
        """Digests of the sets and files measuring runs."""
        files = self.declared.questions.items()
        tasks = {"harness": {"tasks": harness_digest(self.declared.harness)}} if self.declared.harness else {}
        return {
            **tasks,
            "sets": {held_out.name: held_out.digest for held_out in self.sets},
            "questions": {name: hashlib.sha256(questions.file.read_bytes()).hexdigest() for name, questions in files},
        }

    def missing(self) -> list[Run]:
        """The runs without a row."""
        done = {(row["key"], row["variant"], row["seed"]) for row in known_rows(self.catalogue, self.declared.name)}
        return [run for run in self.runs() if (self.key(run), run.variant, run.seed) not in done]

    def do(self, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
        """Do runs, and record each as it ends; equal ones are done once.

        Raises:
            CommandError: the training failed; what was done before it stays.
        """
        scored = {row["key"]: row for row in known_rows(self.catalogue)}
        waiting: dict[str, list[Run]] = {}
        for run in runs:
            if (key := self.key(run)) in scored:
                yield self._record(run, scored[key])
            else:
                waiting.setdefault(key, []).append(run)
        for key, result in self._trained({key: equal[0] for key, equal in waiting.items()}):
            for run in waiting[key]:
                yield self._record(run, result)

    def _record(self, run: Run, result: Mapping[str, Any]) -> dict[str, Any]:
        contents = self._contents.get((run.variant, run.seed), VariantContents())
        pins = self._blender.head(run.blend).pins().values()
        sources = {
            name: {"tokens": contents.sources[name], "epochs": contents.epochs.get(name)} for name in contents.sources
        }
        measured = {name: result[name] for name in ("losses", "scores", "seconds", "device", "tokens")}
        row = {
            "key": self.key(run),
            "run": self.run_key(run),
            "experiment": self.declared.name,
            "variant": run.variant,
            "seed": run.seed,
            "learning_rate": run.learning_rate,
            "model": " ".join(self.declared.command) or self.declared.model_size,
            "blend": run.blend,
            "snapshots": sorted(f"{pin.table}@{pin.snapshot_id}" for pin in pins),
            "rows_digest": run.rows_digest,
            "sources": json.dumps(sources),
            "left_out": json.dumps(dict(contents.left_out)),
            "document_count": len(contents.documents),
            "commit": git_commit() or "",
            **measured,
        }
        return record(self.catalogue, row)

    def train(self) -> int:
        """Train the runs with neither scores nor weights on this machine; gives how many."""
        if self.declared.command:
            return 0
        waiting = {self.run_key(run): run for run in self.missing()}
        waiting = {key: run for key, run in waiting.items() if not (self._folder / f"{key}.json").exists()}
        return sum(1 for _ in self._processed({key: (key, run) for key, run in waiting.items()}, measured=False))

    def _trained(self, waiting: Mapping[str, Run]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The results of runs by their keys."""
        if self.declared.command:
            yield from ((key, self._of_command(run)) for key, run in waiting.items())
        else:
            yield from self._processed({key: (self.run_key(run), run) for key, run in waiting.items()}, measured=True)

    @property
    def _folder(self) -> Path:
        """Where weights and checkpoints lie."""
        return self.settings.home / "experiments"

    def _processed(
        self, waiting: Mapping[str, tuple[str, Run]], measured: bool
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Train, and measure, in a process of its own, so that this one need not import torch."""
        if not waiting:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        task = {
            "model": self.declared.model_size,
            "folder": str(self._folder),
            "measured": measured,
            "left_out": self.excluded,
            "sets": {held_out.name: [text for _, text in held_out.documents] for held_out in self.sets},
            "questions": {name: str(questions.file) for name, questions in self.declared.questions.items()},
            "harness": self.declared.harness.model_dump(mode="json") if self.declared.harness is not None else None,
            "runs": [
                {**asdict(run), "key": key, "run": run_key, "budget": self.budget(run.variant)}
                for key, (run_key, run) in waiting.items()
            ],
        }
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(task, file)
            file.flush()
            command = [sys.executable, "-m", _PROCESS, file.name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    result = json.loads(line)
                    yield result["key"], result
        if process.returncode:
            raise CommandError(
                f"experiment {self.declared.name}: training ended with status {process.returncode}, see above; what "
                "was done stays, run it again to go on"
            )

    def _of_command(self, run: Run) -> dict[str, Any]:
        """The scores of a run by the command of the declaration."""
        filled = {"{blend}": run.blend, "{run}": self.run_key(run)[:12], "{seed}": str(run.seed)}
        filled |= {"{rate}": str(run.learning_rate), "{tokens}": str(run.tokens)}
        command = [functools.reduce(lambda w, p: w.replace(*p), filled.items(), word) for word in self.declared.command]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        try:
            measures = (
                {str(name): float(value) for name, value in json.loads(last).items()} if not done.returncode else None
            )
        except (ValueError, AttributeError, TypeError):
            measures = None
        if not measures:
            raise CommandError(
                f"experiment {self.declared.name}: {' '.join(command)} ended with status {done.returncode}; its last "
                f"line must be a JSON object of measures by name, and is {last[:200]!r}"
            )
        scores = [{"set": name, "measure": "value", "value": value, "chance": None} for name, value in measures.items()]
        return {"losses": [], "scores": scores, "seconds": 0.0, "device": "", "tokens": run.tokens}
