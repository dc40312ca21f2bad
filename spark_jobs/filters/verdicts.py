"""Verdicts: which documents go on, and every rule failed by the others.

They are computed from the tables of scorers and from facts of documents alone, so a changed threshold costs no new
measurement of texts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.policy import LANGUAGES, Policy
from spark_jobs.filters.policy_resolution import DEFAULT, resolve
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, Step, step, with_inputs
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.sources.languages import EVIDENCE, LOCK_FILE, MANIFEST
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    import pyarrow as pa


class VerdictsConfig(ConfigModel):
    """The policy, and whether manifests and lock files are training text."""

    manifests: Literal["keep", "leave_out"] = Field(
        "keep",
        description="leave_out: files that say what modules and packages are called (go.mod, package.json, ..) serve "
        "`dependencies` alone; those of a kind that the source does not take are left out in any case",
    )
    lock_files: Literal["keep", "leave_out"] = Field(
        "leave_out",
        description="keep: files in which package managers write what they found (package-lock.json, Cargo.lock, "
        "go.sum, ..) are training text",
    )
    policy: Policy = Field(
        default_factory=functools.partial(resolve, DEFAULT),
        description="rules that documents are judged by: the name of a shipped policy, a path, or the policy itself",
    )

    @field_validator("policy", mode="before")
    @classmethod
    def _resolved(cls, policy: Any) -> Any:
        """Read the policy of a name or a path.

        Raises:
            ValueError: it cannot be used.
        """
        if not isinstance(policy, str | Mapping):
            return policy
        try:
            return resolve(policy)
        except ConfigError as error:
            raise ValueError(str(error)) from error


def _draw_failed_rules(table: pa.Table) -> bytes:
    """Documents by failed rule."""
    import pyarrow.compute as pc

    from spark_jobs.lake.declare.pictures import draw_bars

    rules = pc.list_flatten(table.column("failed").combine_chunks())
    counts = pc.value_counts(pc.struct_field(rules, "rule")).to_pylist() if len(rules) else []
    return draw_bars(
        {entry["values"]: entry["counts"] for entry in counts}, f"documents that failed, of {len(table):,}"
    )


VERDICTS = Table(
    name="verdicts",
    comment="One row per text: whether it goes on, and every rule that it failed, with value and threshold.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kept!", "boolean", "whether the document goes on: no rule failed"),
        Column(
            "failed!",
            "list<struct<rule!: string, value: double, threshold: double>!>",
            "every rule that failed, in the order of the policy: its name, the value seen, the threshold (both null "
            "where there is no number, as for `generated` and `lock_file`)",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("kept_fails_nothing", "kept = (size(failed) = 0)", "a document is kept if and only if no rule failed"),
    ),
)


_DDL = "shard int, doc_id string, kept boolean, failed array<struct<rule: string, value: double, threshold: double>>"


def _judge(
    signals: DataFrame, config: VerdictsConfig, documents: DataFrame | None = None, **scores: DataFrame
) -> DataFrame:
    """Judge every document by the rules of its kind and language; one row per document.

    A null signal (nothing to divide by) fails no rule. A document of an unknown kind is an error. Where `personal_data`
    says for how many findings a document is dropped, one such finding is enough, whatever the policy.

    Args:
        signals: rows of the table `signals`.
        config: the policy.
        documents: shard, doc_id, path and metadata of the same documents, and what else the policy reads of them;
            without it no document is a manifest or a lock file.
        scores: rows of the scorers' tables read by the policy, by name of the scorer.
    """
    from spark_jobs.filters.judge import (
        DOCUMENT_LANGUAGE,
        EVIDENCE_RULES,
        PERSONAL_DATA_RULE,
        TEXT_LANGUAGE,
        verdict_batches,
    )

    policy, keys = config.policy, ["shard", "doc_id"]
    rules = list(policy.rules)
    audit, count = PERSONAL_DATA_RULE.source
    if audit in scores and count in scores[audit].columns:
        rules.append(PERSONAL_DATA_RULE)
    wanted: dict[str, dict[str, SparkColumn]] = {}
    for rule in rules:
        table, column = rule.source
        of_documents = F.col("metadata").getItem(column) if table == "metadata" else F.col(column)
        wanted.setdefault("documents" if table == "metadata" else table, {})[rule.signal] = of_documents
    if policy.asks_language:
        wanted.setdefault("documents", {})[DOCUMENT_LANGUAGE] = F.col("language")
        if LANGUAGES in scores:
            wanted.setdefault(LANGUAGES, {})[TEXT_LANGUAGE] = F.col("language")
    names = list(dict.fromkeys([*keys, "kind", *wanted.pop("signals", {})]))
    rows = signals.select(*names)
    for name, columns in wanted.items():
        frame = documents if name == "documents" else scores.get(name)
        if frame is None:
            raise ConfigError(f"policy {policy.label} reads {next(iter(columns))}; bind the input {name}")
        # Spark resolves no names with points in the input of a Python function, so they come back behind it.
        chosen = [column.alias(f"signal_{len(names) + at}") for at, column in enumerate(columns.values())]
        rows = rows.join(frame.select(*keys, *chosen), keys, "left")
        names += columns
    if documents is not None:
        rows = rows.join(_evidence(documents, config), keys, "left")
        names += [rule.signal for rule in EVIDENCE_RULES]
        rules += EVIDENCE_RULES
    return rows.mapInArrow(functools.partial(verdict_batches, names=names, rules=rules), _DDL)


def _evidence(documents: DataFrame, config: VerdictsConfig) -> DataFrame:
    """Shard and doc_id of documents other than training text, with `manifest` and `lock_file`; one is true."""
    path = F.col("path")
    manifest = F.col("metadata").getItem(EVIDENCE).isNotNull()
    if config.manifests == "leave_out":
        manifest |= path.rlike(MANIFEST)
    lock_file = path.rlike(LOCK_FILE) & F.lit(config.lock_files == "leave_out")
    flags = manifest.alias("manifest"), lock_file.alias("lock_file")
    return documents.select("shard", "doc_id", *flags).where("manifest OR lock_file")


def verdicts_step(scorers: Iterable[str] = (), variant: str = "") -> Step:
    """The step to judge by a policy.

    Args:
        scorers: names of the scorers with tables read by the policy beside `signals` and `documents`; they are inputs.
        variant: name of a second policy's verdicts; their table is `verdicts_VARIANT`.
    """
    name = f"{VERDICTS.name}_{variant}" if variant else VERDICTS.name
    declare = step(
        version="3",
        scope=Scope.INCREMENT,
        tables=(dataclasses.replace(VERDICTS, name=name),),
        name=name,
        config=VerdictsConfig,
        plot=Plot("Documents by failed rule", ("failed",), _draw_failed_rules),
    )
    return declare(with_inputs(_judge, scorers))


verdicts = verdicts_step()
