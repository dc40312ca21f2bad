"""The declaration of an experiment in YAML.

type: headrace.Experiment
attributes:
  name: filtering
  variants:
    raw: {sources: {raw.packed_notes_256: 1}}
    filtered: {sources: {main.packed_notes_256: 1}}
  budget_tokens: 1_000_000
  held_out: {notes: {dataset: notes, share: 0.02}, essays: {file: essays.jsonl}}
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace.tables.cells import split_table
from headrace_features import require
from spark_jobs.exceptions import did_you_mean

_NAME = r"^[a-z][a-z0-9_]{0,40}$"


class _ExperimentPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Variant(_ExperimentPart):
    """One composition of the data: an existing blend, or packed tables with weights."""

    blend: str | None = Field(None, description="name or id of a blend, whose sample all runs then read")
    sources: dict[str, float | str] = Field(
        default_factory=dict, description="packed tables (namespace.table) with their weights; read round without end"
    )
    thinned: float = Field(
        1, gt=0, le=1, description="share of the rows of each source that is read, so that they come again as often"
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Variant:
        """Refuse a variant with neither a blend nor sources, or with both."""
        if (self.blend is None) == (not self.sources):
            raise ValueError("give a blend or sources, one of them")
        if self.blend is not None and self.thinned < 1:
            raise ValueError("thinned: a blend is read as it is; give sources")
        return self


class HeldOut(_ExperimentPart):
    """Documents to evaluate models on and train none."""

    dataset: str | None = Field(None, pattern=_NAME, description="a dataset, of which a share of families is held out")
    share: float = Field(0.02, gt=0, le=1, description="share of the dataset's families, by a hash of their roots")
    verdict: Literal["any", "kept", "rejected"] = Field(
        "any", description="only documents that the dataset's policy keeps, or rejects: a set from that side"
    )
    file: Path | None = Field(None, description="instead: JSONL with a text a line, relative to the declaration")
    text: str = Field("text", description="field of the text in the file")

    @model_validator(mode="after")
    def _one_of_them(self) -> HeldOut:
        """Refuse a set with neither a dataset nor a file, or with both."""
        if (self.dataset is None) == (self.file is None):
            raise ValueError("give a dataset or a file, one of them")
        return self


class Questions(_ExperimentPart):
    """Questions with choices, or texts with an answer to complete."""

    file: Path = Field(description="JSONL: {context, choices: [..], answer: NUMBER}, or {context, answer: TEXT}")


class Harness(_ExperimentPart):
    """Tasks of lm-evaluation-harness (the extra `harness`), answered by likelihood."""

    tasks: tuple[str, ...] = Field(min_length=1, description="names of tasks")
    folder: Path | None = Field(None, description="folder of YAML files of your own tasks, each named after its task")
    limit: int | None = Field(None, ge=1, description="most documents of a task; all by default")


class Mixes(_ExperimentPart):
    """Sources for a search of their best mix by small runs, in place of variants."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    sources: dict[str, str] = Field(
        min_length=2, description="packed table (namespace.table, or some of its cells) by name of the source"
    )
    runs: int | None = Field(None, ge=1, description="mixes that are tried; 3 (m + 1) of m sources by default")
    max_epochs: float = Field(4, gt=0, description="most passes over a source that the proposed mix makes")
    least: dict[str, float] = Field(default_factory=dict, description="least share of a source, by its name")
    aims: dict[str, float] = Field(
        default_factory=dict, description="weight of each held-out set in the choice; equal by default, 0 if left out"
    )
    target_tokens: int | None = Field(
        None, ge=1000, description="tokens of the run that the mix is for: small runs repeat each source as often"
    )
    former: str | None = Field(
        None, alias="from", description="an earlier experiment with mixes, of whose sources some are as they were"
    )

    @model_validator(mode="after")
    def _of_its_sources(self) -> Mixes:
        """Refuse least shares of unknown sources, and such as add up to more than 1."""
        if unknown := sorted(self.least.keys() - self.sources.keys()):
            raise ValueError(f"least: {unknown[0]} is no source{did_you_mean(unknown[0], self.sources)}")
        if sum(self.least.values()) > 1 or min(self.least.values(), default=0) < 0:
            raise ValueError(f"least: shares add up to {sum(self.least.values()):g}; they are 0 to 1 together")
        if self.aims and (min(self.aims.values()) < 0 or not sum(self.aims.values())):
            raise ValueError("aims: weights are 0 or more, and one is above 0")
        return self


class ExperimentDeclaration(_ExperimentPart):
    """An experiment as a user declares it."""

    name: str = Field(pattern=_NAME, description="its assets are NAME/trained, NAME/evaluated and NAME/compared")
    variants: dict[str, Variant] = Field(default_factory=dict, description="by name; others are compared to the first")
    mixes: Mixes | None = Field(None, description="in place of variants: sources of which the best mix is looked for")
    budget_tokens: int | None = Field(None, ge=1000, description="tokens of a run, padding left out")
    budget_bytes: int | None = Field(
        None, ge=1000, description="instead, bytes of text: needed where tokenizers differ"
    )
    seeds: int = Field(
        5, ge=1, le=100, description="runs of each variant and rate, each with its own weights, order and sample"
    )
    learning_rates: tuple[float, ...] = Field(
        (3e-3, 3e-4), min_length=1, description="peak learning rates: two, one of them small"
    )
    model_size: Literal["proxy_1m", "proxy_15m", "proxy_125m"] = Field("proxy_1m", description="size of the model")
    command: tuple[str, ...] = Field(
        (),
        description="instead of model_size: a program of one's own; {blend}, {run}, {seed}, {rate} and {tokens} are "
        "filled in, and its last line is a JSON object of measures by name",
    )
    held_out: dict[str, HeldOut] = Field(default_factory=dict, description="sets of documents by name")
    questions: dict[str, Questions] = Field(default_factory=dict, description="sets of questions by name")
    harness: Harness | None = Field(None, description="tasks of lm-evaluation-harness")
    near_share: float = Field(
        0.5, gt=0, le=1, description="share of a held-out text in a document, from which the document is left out"
    )

    @model_validator(mode="after")
    def _can_be_run(self) -> ExperimentDeclaration:
        """Refuse what leaves nothing to compare or to measure by."""
        if (self.mixes is None) == (not self.variants):
            raise ValueError("give variants or mixes, one of them")
        if self.variants and len(self.variants) < 2:
            raise ValueError("variants: one alone is compared with nothing; give two or more")
        if (self.budget_tokens is None) == (self.budget_bytes is None):
            raise ValueError("give budget_tokens or budget_bytes, one of them")
        if not self.command and not self.held_out and not self.questions and self.harness is None:
            raise ValueError("held_out, questions and harness are empty; give a set to measure by")
        if self.command and self.harness is not None:
            raise ValueError("harness: a command reports its own measures; leave one of the two out")
        if len(set(self.learning_rates)) < len(self.learning_rates):
            raise ValueError("learning_rates: one of them is there twice")
        if self.mixes is not None:
            self._check_mixes(self.mixes)
        names = Counter([*self.held_out, *self.questions, *(self.harness.tasks if self.harness is not None else ())])
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise ValueError(f"{twice[0]} is the name of two sets of held_out, questions and harness; rename one")
        return self

    def _check_mixes(self, mixes: Mixes) -> None:
        """Refuse aims that are not measured, and a target that runs cannot stand for."""
        if unknown := sorted(mixes.aims.keys() - self.held_out.keys()):
            raise ValueError(f"mixes: aims: {unknown[0]} is no held-out set{did_you_mean(unknown[0], self.held_out)}")
        if mixes.former == self.name:
            raise ValueError("mixes: from: an experiment goes on from an earlier one, not from itself")
        if mixes.target_tokens is not None and (self.budget_tokens is None or self.budget_tokens > mixes.target_tokens):
            raise ValueError("mixes: target_tokens: give budget_tokens too, not above it")

    @property
    def tables(self) -> list[str]:
        """All packed tables named in it, sorted."""
        named = [table for variant in self.variants.values() for table in variant.sources]
        named += self.mixes.sources.values() if self.mixes is not None else ()
        return sorted({split_table(table)[0] for table in named})


def declare_experiment(values: dict[str, Any], folder: Path) -> ExperimentDeclaration:
    """Check a declaration; its files are relative to the folder of its YAML.

    Raises:
        DefinitionError: a value cannot be used, or a file is not there; the message names it.
        ConfigError: the feature of the trained network is not there.
    """
    require("models", f"experiment {values.get('name')}")
    declared = bind_config(ExperimentDeclaration, f"experiment {values.get('name')}", values)
    held_out = {name: _located(declared.name, texts, folder) for name, texts in declared.held_out.items()}
    questions = {name: _located(declared.name, items, folder) for name, items in declared.questions.items()}
    harness = declared.harness
    if harness is not None and harness.folder is not None:
        tasks = (folder / harness.folder).resolve()
        if not tasks.is_dir():
            raise DefinitionError(f"experiment {declared.name}: {tasks} is no folder; correct harness.folder")
        harness = harness.model_copy(update={"folder": tasks})
    return declared.model_copy(update={"held_out": held_out, "questions": questions, "harness": harness})


def _located(experiment: str, declared: Any, folder: Path) -> Any:
    """A set with the absolute path of its file."""
    if declared.file is None:
        return declared
    file = (folder / declared.file).resolve()
    if not file.is_file():
        raise DefinitionError(f"experiment {experiment}: {file} is not there; correct the path of the set")
    return declared.model_copy(update={"file": file})
