"""Declare datasets, corpora and blends in a few lines of YAML, as Dagster components.

type: headrace.Dataset
attributes:
  name: notes
  source: {kind: files, path: /data/notes, text_column: body}
  policy: {extends: [headrace], set: {prose.too_few_words: 20}}

type: headrace.Corpus
attributes:
  name: main
  datasets: [python_code, notes]
  deduplication: {levels: [exact, near], thresholds: [0.7, 0.8, 0.9], apply: 0.8}
  tokenizer: {train: {vocabulary_size: 32768}}
  window_tokens: [2048, 8192]

type: headrace.Blend
attributes:
  name: mix
  sources:
    - {table: main.packed_python_code_2048, name: code, weight: 0.7}
    - {table: main.packed_notes_2048, name: notes, weight: 0.3, max_epochs: 0}
  schedule:
    - {from_offset: 1000000, weights: {code: 0.5, notes: 0.5}}
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import dagster as dg
from pydantic import Field

from dagster_project.asset_options import PACE_SECONDS
from dagster_project.assets.blends import blend_asset, declare_blend
from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.assets.deduplication import Deduplication
from dagster_project.assets.parts import Intake, part
from dagster_project.assets.prewarming import prewarmed_asset
from dagster_project.assets.selections import FORMER, instead
from dagster_project.keeping import keeping_of
from dagster_project.metadata import Samples
from dagster_project.restrictions import parse_visibility
from dagster_project.run_config import bind_config
from spark_jobs.filters.policy_files import located

_KEEPING = {"landing", "freeze_after", "retention"}
_Declaration = TypeVar("_Declaration")
NAME = r"^[a-z][a-z0-9_]{0,40}$"


class Dataset(dg.Component, dg.Model, dg.Resolvable):
    """A dataset: its source, and how its documents are read and judged."""

    name: str = Field(pattern=NAME, description="its namespace in the lake")
    source: dict[str, Any] = Field(
        description="kind (files, iceberg, git, packages, api, stream, python_code, python_docs, or one that a package "
        "brings) and its fields"
    )
    shards: int = Field(1, description="parts that joins and packing plans work on; a power of two")
    max_document_bytes: int = Field(100_000_000, description="larger documents are refused, with a reason")
    allow_empty: bool = Field(False, description="whether no files means that all were deleted, not an error")
    landing: Literal["reference", "copy"] = Field("reference", description="copy keeps the bytes of every file")
    provenance: dict[str, str] = Field(
        default_factory=dict, description="licence, licence_evidence and collected_by, for its table provenance"
    )
    scorers: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict, description="further measures: config by name or package.module:function; {} for none"
    )
    quality: dict[str, Any] = Field(
        default_factory=dict,
        description="{weights: {SIGNAL: .., ..}, ranges: {SIGNAL: [.., ..]}}: a weighted sum of signals",
    )
    judged: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="by name: {rubric: .., scores: [0, 5], endpoint: {url: .., model: ..}, sample: 5000, ..}: a judge "
        "that scores a sample",
    )
    policy: str | dict[str, Any] = Field(
        "headrace",
        description="what texts are judged by: NAME, NAME@VERSION, a hash, a YAML file, or the policy itself",
    )
    variants: dict[str, str | dict[str, Any]] = Field(
        default_factory=dict, description="further policies by name, judged side by side as verdicts_NAME"
    )
    redact: dict[str, str] = Field(
        default_factory=dict, description="keep, replace or drop (the document), by kind of personal data"
    )
    steps: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="settings of other steps, by step, such as texts"
    )
    samples: Literal["none", "ids", "text"] = Field("ids", description="which sample rows the UI shows")
    owners: list[str] = Field(default_factory=list, description="team:NAME or e-mail addresses")
    visibility: Any = Field(
        "public", description="who may see its rows: public, on_device, or {restricted: [TEAM, ..]}"
    )
    environment: Literal["production", "test"] = Field(
        "production", description="test: no corpus of production reads it"
    )
    trust: Literal["trusted", "quarantine"] = Field(
        "trusted", description="quarantine: increments wait until they are released"
    )
    release: dict[str, Any] = Field(
        default_factory=dict, description="{policy: {malware: 0, ..}}: rules that release by themselves"
    )
    scans: dict[str, Any] = Field(default_factory=dict, description="{yara_rules: .., licences_allowed: [..], ..}")

    freeze_after: dict[str, Any] = Field(
        default_factory=dict, description="{days: 90, to: s3://..}: older kept bytes move there"
    )
    retention: dict[str, Any] = Field(default_factory=dict, description="{days: 365, then: report | delete}")
    seconds_between_runs: int = Field(
        PACE_SECONDS,
        ge=0,
        description="least time between two runs by its sensor; files of that time land together",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The dataset's assets."""
        declared = _declared(
            DatasetDeclaration,
            self,
            scorers={name: config or {} for name, config in self.scorers.items()},
            policy=located(self.policy, context.path),
            variants={name: located(policy, context.path) for name, policy in self.variants.items()},
            samples=Samples(self.samples),
            visibility=parse_visibility(f"dataset {self.name}", self.visibility, self.environment),
            quarantine=self._quarantine(context.path),
            keeping=keeping_of(self.name, self.model_dump(include=_KEEPING)),
        )
        return dg.Definitions(assets=dataset_assets(declared))

    def _quarantine(self, folder: Path) -> Intake | None:
        """How it waits until it is released; None where it is trusted."""
        if self.trust == "trusted" and not self.release and not self.scans:
            return None
        where = f"dataset {self.name}"
        intake: Intake | None = part("quarantine", where)(self.name, self.trust, self.release, self.scans, folder)
        return intake


class Corpus(dg.Component, dg.Model, dg.Resolvable):
    """A corpus: datasets that are deduplicated, tokenized and packed together."""

    former: ClassVar[tuple[Any, ...]] = (FORMER, instead)
    name: str = Field(pattern=NAME, description="its namespace in the lake")
    datasets: list[str] = Field(
        description="its datasets; of duplicates in two of them, the one in the first listed is kept"
    )
    revisions: dict[str, Literal["latest", "all"]] = Field(
        default_factory=dict,
        description="by dataset: latest (the default), or all to keep older revisions too",
    )
    variants: dict[str, str] = Field(
        default_factory=dict, description="by dataset, the variant whose verdicts count; else those of its policy"
    )
    superseded: Literal["keep", "excise"] = Field(
        "excise", description="excise or keep packed documents that have a newer revision"
    )
    on_delete: Literal["keep", "excise"] = Field(
        "excise", description="excise or keep packed documents whose file is gone"
    )
    tokenizer: dict[str, Any] = Field(
        default_factory=dict, description="{file: PATH} or {train: {vocabulary_size: ..}}"
    )
    conversations: dict[str, Any] | None = Field(
        None, description="{template: NAME@VERSION, train: assistant, ..}: documents with messages are rendered"
    )
    objectives: dict[str, Any] | None = Field(
        None, description="{code: {fim: {rate: 0.5, cut: syntax}}}: how documents of a kind (or all) are laid out"
    )
    window_tokens: list[int] = Field(default_factory=lambda: [2048], description="lengths of windows, in tokens")
    cells: dict[str, Any] | None = Field(
        None, description="{by: {topic: clusters.coarse, quality: {column: .., quantiles: 20}}}: no window mixes cells"
    )
    deduplication: dict[str, Any] = Field(
        default_factory=dict, description="{levels: [exact, near], thresholds: [0.7, 0.8, 0.9], apply: 0.8, ..}"
    )
    clusters: dict[str, Any] | None = Field(
        None, description="{coarse: 16, fine: 256, ..} assigns survivors to clusters; {} for these, none: no clusters"
    )
    cluster_losses: dict[str, Any] | None = Field(
        None,
        description="{} trains a small model on the corpus and measures its loss on each cluster; none: not measured",
    )
    losses: dict[str, Any] | None = Field(
        None, description="{run: NAME}: a training run's losses by document, for selections and cells; of: NAMESPACE"
    )
    select: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="selections in their order, each a name or {name: settings}: semantic, shape, passages, one that a "
        "package brings, or package.module:NAME; decontaminate is the last, named or not, unless it is off",
    )
    steps: dict[str, dict[str, Any]] = Field(default_factory=dict, description="settings of other steps, by step")
    samples: Literal["none", "ids", "text"] = Field("ids", description="which sample rows the UI shows")
    owners: list[str] = Field(default_factory=list, description="team:NAME or e-mail addresses")
    visibility: Any = Field(
        "public", description="who may see its rows: public, on_device, or {restricted: [TEAM, ..]}"
    )
    environment: Literal["production", "test"] = Field("production", description="test: it may hold test datasets")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The corpus's assets."""
        declared = _declared(
            CorpusDeclaration,
            self,
            deduplication=bind_config(Deduplication, f"corpus {self.name}: deduplication", self.deduplication),
            samples=Samples(self.samples),
            visibility=parse_visibility(f"corpus {self.name}", self.visibility, self.environment),
        )
        return dg.Definitions(assets=corpus_assets(declared))


def _declared(kind: type[_Declaration], component: dg.Model, **others: Any) -> _Declaration:
    """The declaration of a component: its fields by name, replaced by `others` where given."""
    named = {declared_field.name for declared_field in fields(kind)} & type(component).model_fields.keys()  # type: ignore[arg-type]
    values = {name: getattr(component, name) for name in named} | others
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


class Blend(dg.Component, dg.Model, dg.Resolvable):
    """A weighted blend of packed tables, created when its asset is materialized; see `blends`."""

    name: str = Field(pattern=NAME, description="name; the blends that it makes are NAME.1, NAME.2, ..")
    sources: list[dict[str, Any]] = Field(
        default_factory=list,
        description="[{table: .., weight: .., name: .., snapshot: .., max_epochs: .., on_exhausted: .., live: ..}, ..]",
    )
    parent: str = Field("", description="blend that this one updates, in place of sources: its id or name")
    schedule: list[dict[str, Any]] = Field(
        default_factory=list,
        description="[{from_offset: .., weights: {..}, changes: [..], align: .., window_tokens: ..}, ..]",
    )
    seed: int = Field(0, description="seed of every shuffle")
    block_rows: int = Field(2048, description="consecutive rows that are read together")
    group_blocks: int = Field(16, description="blocks whose rows are shuffled together")
    turn_rows: int = Field(1, description="consecutive rows of one source, those of a step of one length class")
    allow_repeat: bool = Field(False, description="whether one table may be two sources, so that its rows repeat")
    evals: Literal["", "required"] = Field(
        "", description="required: all sources must have been searched for the benchmarks that the registry holds"
    )
    texts: dict[str, Any] | None = Field(
        None,
        description="where sources are tables of text: {tokenizer: <corpus>.tokenizer, window_tokens: .., "
        "group_documents: .., whole: .., text: .., doc_id: .., trainable: .., template: ..}",
    )
    prewarm: dict[str, Any] | None = Field(
        None, description="{servers: [HOST:PORT, ..], offset: .., rows: ..}: makes the asset blends/<name>_prewarmed"
    )
    owners: list[str] = Field(default_factory=list, description="team:NAME or e-mail addresses")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The blend's asset, and that of prewarmed servers."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "owners"}
        declared = declare_blend(values)
        prewarmed = [prewarmed_asset(declared)] if declared.prewarm is not None else []
        return dg.Definitions(assets=[blend_asset(declared, self.owners), *prewarmed])
