"""What users' code imports: declarations of tables, steps, scorers, selections; a lake for reading; batches to train.

    from headrace import Check, Column, Table, table_asset        a table of one's own
    from headrace import BlendDataset                              batches of a blend in torch
    import headrace; headrace.connect().table("notes.texts")       a lake's tables as Arrow
    headrace.deduplicate(frame, "text").rows                       data in hand, without a lake
    headrace.run("notes", "mine")                                  the command `headrace run`

YAML names the components here too: `type: headrace.Dataset`. A name is imported when it is asked for, so a training job
needs gRPC, protobuf, NumPy and torch alone; whatever else a name needs is in the extra `platform`.
Names of features come by their table (`headrace_features/features.toml`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blender_service.client import Identity
    from blender_service.client import connect as connect_blender
    from blender_service.client.window_layout import WindowLayout
    from blender_service.exceptions import BlenderError
    from blender_service.torch import DENSE, Batch, BlendDataset, LossWriter, attention_mask, block_mask
    from dagster_project.cli.run.called import run
    from dagster_project.components import Blend, Corpus, Dataset
    from dagster_project.definitions import load_project
    from dagster_project.inspect.opened_lake import OpenedLake, connect
    from dagster_project.pages import PageAnswer, PageRequest, Pages
    from dagster_project.table_asset import table_asset
    from headrace_features.apis.paging import Page
    from headrace_features.conversations.in_hand import render
    from headrace_features.experiments.component import Experiment
    from headrace_features.formats.in_hand import extract
    from headrace_features.models.classifier import read_classifier
    from headrace_features.models.classifier_training import TrainingConfig as ClassifierConfig
    from headrace_features.models.classifier_training import train as train_classifier
    from headrace_features.models.component import Model
    from headrace_features.models.ngram_model import NgramConfig, read_arpa, read_ngram_model
    from headrace_features.models.ngram_training import train as train_ngram_model
    from headrace_features.objectives.masks.rules import MaskedText, mask_rule
    from headrace_features.privacy.personal_data.in_hand import find_personal_data
    from headrace_features.rollouts.writer import Rollout, RolloutWriter
    from spark_jobs.fasttext.model import read_fasttext
    from spark_jobs.filters.contamination.eval_set import read_eval_set
    from spark_jobs.filters.contamination.findings import score as find_evals
    from spark_jobs.filters.contamination.index import index_of as index_evals
    from spark_jobs.filters.scorer import check_scorer, scorer
    from spark_jobs.in_hand.duplicates import deduplicate
    from spark_jobs.in_hand.order import order
    from spark_jobs.in_hand.policies import filter_texts as filter
    from spark_jobs.in_hand.tokens import detect_language, tokenize
    from spark_jobs.in_hand.windows import pack
    from spark_jobs.lake.declare.step import ConfigModel, Output, Plot, Scope, step
    from spark_jobs.lake.declare.tables import Check, Column, Notice, Proof, Table
    from spark_jobs.selection.columns import selection
    from spark_jobs.selection.verdicts import Cut, Failed
    from spark_jobs.sources.config.file_source import FileSource as Source
    from spark_jobs.sources.config.reader import Document, reader
    from spark_jobs.sources.opening.file_trees import FoundFile
    from spark_jobs.sources.refusals import Reason, Refusal

_NAMES = {
    "blender_service.client": "Identity connect_blender",
    "blender_service.client.window_layout": "WindowLayout",
    "blender_service.exceptions": "BlenderError",
    "blender_service.torch": "DENSE Batch BlendDataset LossWriter attention_mask block_mask",
    "dagster_project.cli.run.called": "run",
    "dagster_project.components": "Blend Corpus Dataset",
    "dagster_project.definitions": "load_project",
    "dagster_project.inspect.opened_lake": "OpenedLake connect",
    "dagster_project.pages": "PageAnswer PageRequest Pages",
    "dagster_project.table_asset": "table_asset",
    "spark_jobs.filters.contamination.eval_set": "read_eval_set",
    "spark_jobs.filters.contamination.findings": "find_evals",
    "spark_jobs.filters.contamination.index": "index_evals",
    "spark_jobs.fasttext.model": "read_fasttext",
    "spark_jobs.filters.scorer": "check_scorer scorer",
    "spark_jobs.in_hand.duplicates": "deduplicate",
    "spark_jobs.in_hand.order": "order",
    "spark_jobs.in_hand.policies": "filter",
    "spark_jobs.in_hand.tokens": "detect_language tokenize",
    "spark_jobs.in_hand.windows": "pack",
    "spark_jobs.lake.declare.step": "ConfigModel Output Plot Scope step",
    "spark_jobs.lake.declare.tables": "Check Column Notice Proof Table",
    "spark_jobs.selection.columns": "selection",
    "spark_jobs.selection.verdicts": "Cut Failed",
    "spark_jobs.sources.config.file_source": "Source",
    "spark_jobs.sources.opening.file_trees": "FoundFile",
    "spark_jobs.sources.config.reader": "Document reader",
    "spark_jobs.sources.refusals": "Reason Refusal",
}
_RENAMED = {  # what it is called here: there
    "connect_blender": "connect",
    "filter": "filter_texts",
    "find_evals": "score",
    "index_evals": "index_of",
    "Source": "FileSource",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "DENSE",
    "Batch",
    "Blend",
    "BlendDataset",
    "BlenderError",
    "Check",
    "ClassifierConfig",
    "Column",
    "ConfigModel",
    "Corpus",
    "Cut",
    "Dataset",
    "Document",
    "Experiment",
    "Failed",
    "FoundFile",
    "Identity",
    "LossWriter",
    "MaskedText",
    "Model",
    "NgramConfig",
    "Notice",
    "OpenedLake",
    "Output",
    "Page",
    "PageAnswer",
    "PageRequest",
    "Pages",
    "Plot",
    "Proof",
    "Reason",
    "Refusal",
    "Rollout",
    "RolloutWriter",
    "Scope",
    "Source",
    "Table",
    "WindowLayout",
    "attention_mask",
    "block_mask",
    "check_scorer",
    "connect",
    "connect_blender",
    "deduplicate",
    "detect_language",
    "extract",
    "filter",
    "find_evals",
    "find_personal_data",
    "index_evals",
    "load_project",
    "mask_rule",
    "order",
    "pack",
    "read_arpa",
    "read_classifier",
    "read_eval_set",
    "read_fasttext",
    "read_ngram_model",
    "reader",
    "render",
    "run",
    "scorer",
    "selection",
    "step",
    "table_asset",
    "tokenize",
    "train_classifier",
    "train_ngram_model",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for."""
    module, attribute = _MODULES.get(name, ""), _RENAMED.get(name, name)
    if not module:
        module, attribute = _of_feature(name)
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def _of_feature(name: str) -> tuple[str, str]:
    """The module and attribute of a feature's name.

    Raises:
        AttributeError: no feature does, or it is not installed.
    """
    from spark_jobs.features import brought, missing

    if feature := missing("names").get(name):
        raise AttributeError(f"headrace.{name} is of the feature {feature}, which is not installed here")
    if name not in brought("names"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = brought("names")[name].partition(":")
    return module, attribute


def __dir__() -> list[str]:
    """All names, imported or not; none of this module's imports."""
    return __all__
