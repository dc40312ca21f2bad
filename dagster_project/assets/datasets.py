"""Make the assets of a dataset: from its source to verdicts and dependencies, as tables in its namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.asset_options import PACE_SECONDS
from dagster_project.assets.parts import AddedAssets, Intake, RewrittenTexts, part
from dagster_project.exceptions import DefinitionError
from dagster_project.keeping import Keeping
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link, Presentation, Upkeep, step_asset
from headrace.tables.quarantine import is_quarantine
from headrace.tables.settings import load_settings
from spark_jobs.code.dependencies import dependencies
from spark_jobs.exceptions import SparkJobsError, did_you_mean
from spark_jobs.filters.policy import LANGUAGES, Columns, Policy, check_signals, signal_columns
from spark_jobs.filters.policy_registry import policy_finder, record_policy, refuse_other_policy
from spark_jobs.filters.policy_resolution import DEFAULT, resolve
from spark_jobs.filters.scorer import Scorer
from spark_jobs.filters.verdicts import verdicts_step
from spark_jobs.lake.declare.step import Step, renamed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_to_read
from spark_jobs.plugins import attribute
from spark_jobs.registry import find_scorer
from spark_jobs.sources.documents import documents
from spark_jobs.sources.kinds import kind_named
from spark_jobs.text.signals import signals
from spark_jobs.text.texts import texts

DRIVING_TABLE = "arrivals"  # table whose increments every step of the dataset follows
POLICY_SOURCES = ("documents", "metadata", "config")  # names that rules and steps have for something else
_OWN_TABLES = (
    DRIVING_TABLE,
    "provenance",
    "repositories",
    "ocr_report",
    "schema_changes",
    "texts",
    "raw_texts",
    "signals",
    "dependencies",
    "reviews",
)
RAW_TEXTS = "raw_texts"
PERSONAL_DATA = "personal_data"


@dataclass(frozen=True)
class DatasetDeclaration:
    """A dataset as a user declares it.

    Attributes:
        name: its namespace.
        source: where its documents come from (`spark_jobs.sources.config.source_config`), as plain values.
        shards: parts for joins and packing plans, a power of two; 1 for small data.
        max_document_bytes: larger documents are refused, with a row in `arrivals`.
        allow_empty: whether a source without files means that all were deleted; else it is an error.
        landing: `copy` keeps the bytes of every file read; `reference` leaves them where they are.
        provenance: licence, licence_evidence and collected_by, for the table of that name.
        scorers: measures of texts beside `signals`: config by name, or by `package.module:function`.
        quality: `{weights: .., ranges: ..}` of the weighted sum `quality.score`; none where empty.
        judged: by name, the rubric, endpoint and sample of a judge, as plain values.
        policy: what documents are judged by: a name, `name@version`, a hash, a path, or the policy itself.
        variants: further policies by name, each with verdicts of its own, `verdicts_NAME`.
        redact: keep, replace or drop (the document), by kind of personal data; what is not named is kept.
        steps: config of `texts`, `signals`, `verdicts` and `dependencies`, by step.
        samples: the sample rows in the UI.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: who may see its rows, and whether they are test data.
        quarantine: how it is scanned and released, where it is not trusted.
        keeping: how long its bytes and increments are kept.
        seconds_between_runs: least time between two runs of its sensor.
    """

    name: str
    source: Mapping[str, Any]
    shards: int = 1
    max_document_bytes: int = 100_000_000
    allow_empty: bool = False
    landing: str = "reference"
    provenance: Mapping[str, str] = field(default_factory=dict)
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)
    judged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: str | Mapping[str, Any] = DEFAULT
    variants: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    redact: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    samples: Samples = Samples.IDS
    owners: tuple[str, ...] = ()
    visibility: Visibility = PUBLIC
    quarantine: Intake | None = None
    keeping: Keeping = field(default_factory=Keeping)
    seconds_between_runs: int = PACE_SECONDS


def dataset_assets(declared: DatasetDeclaration) -> list[dg.AssetsDefinition]:
    """The assets of a dataset: arrivals, documents, repositories, texts, signals and scores, verdicts, dependencies.

    Where the source configures `ocr` there is `ocr_report` too. With `redact` there are `raw_texts` and
    `personal_data` before `texts`, read by everything else.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    name, kind = declared.name, kind_named(str(declared.source.get("kind")))
    intake = {
        "dataset": name,
        "shards": declared.shards,
        "max_document_bytes": declared.max_document_bytes,
        "allow_empty": declared.allow_empty,
        "landing": declared.landing,
        "provenance": dict(declared.provenance),
        "source": dict(declared.source),
    }
    try:
        scored = [_scorer(declared, reference, config) for reference, config in declared.scorers.items()]
        rewritten = _rewritten(declared)
        audited = {one.table.name for one in rewritten.measures}
        scored = [(scorer, config) for scorer, config in scored if scorer.name not in audited]
        measured = [*rewritten.measures, *(scorer for scorer, _ in scored)]
        weighed = list(_weighing(declared, measured))
        scorers: list[Step] = [*measured, *(link for link, *_ in weighed)]
        _check_names(declared, scorers)
        policies = {variant: _policy(declared, variant, value, scorers) for variant, value in _policies(declared)}
    except SparkJobsError as error:
        raise DefinitionError(f"dataset {name}: {error}") from error
    if is_quarantine(name):
        raise DefinitionError(f"dataset {name}: names that end in _quarantine are those of what waits; choose another")
    landing: list[dg.AssetsDefinition] = []
    if declared.quarantine is not None:
        shown = Presentation(
            owners=declared.owners, visibility=declared.visibility, pace_seconds=declared.seconds_between_runs
        )
        landing = declared.quarantine.assets(name, intake, shown, declared.keeping)
    chain: list[Link] = [
        *([] if landing else [(documents, {}, intake, "sources")]),
        *_recognised(declared),
        *((attribute(path), {"arrivals": f"{name}.{DRIVING_TABLE}"}, intake, "sources") for path in kind.steps),
        *_texts(declared, rewritten),
        (signals, {"texts": f"{name}.texts"}, {}, "text"),
        *(link for scorer, config in scored for link in _scoring(name, scorer, config)),
        *weighed,
        *(_judging(declared, variant, policy, scorers, rewritten.judged) for variant, policy in policies.items()),
        (dependencies, {"documents": f"{name}.documents", "texts": f"{name}.texts"}, {}, "code"),
    ]
    unknown = set(declared.steps) - {link.table.name for link, *_ in chain if link.table.name != RAW_TEXTS}
    if unknown:
        listed = [link.table.name for link, *_ in chain if link is not documents and link.table.name != RAW_TEXTS]
        first = min(unknown)
        raise DefinitionError(f"dataset {name}: steps: there is no step {first!r}{did_you_mean(first, listed)}")
    for step, config in declared.steps.items():
        if "policy" in config and step.partition("_")[0] == "verdicts":
            place = f"variants: {{{step.partition('_')[2]}: ..}}" if "_" in step else "policy:"
            raise DefinitionError(f"dataset {name}: steps: {step}: a policy stands beside steps; write {place} there")
    upkeep = {
        f"verdicts_{variant}" if variant else "verdicts": _entering(policy) for variant, policy in policies.items()
    }
    upkeep |= {} if landing else {documents.name: Upkeep(keeping=declared.keeping)}
    shown = Presentation(owners=declared.owners, samples=declared.samples, visibility=declared.visibility)
    labels = _labels(declared)
    scored_tables = {scorer.table.name for scorer in scorers}
    label_assets = () if labels is None else labels.assets(name, declared.judged, scored_tables, shown)
    return [*landing, *label_assets] + [
        step_asset(
            link,
            name,
            inputs,
            bind_config(
                link.config, f"{name}/{link.table.name}", {**config, **declared.steps.get(link.table.name, {})}
            ),
            driving_table=f"{name}.{DRIVING_TABLE}",
            presentation=Presentation(
                owners=declared.owners,
                domain=domain,
                samples=_shown(declared, link, bool(rewritten.links)),
                visibility=declared.visibility,
                pace_seconds=declared.seconds_between_runs,
                facts=partial(kind.facts, declared.source, name) if link is documents else None,
            ),
            upkeep=upkeep.get(link.name),
        )
        for link, inputs, config, domain in chain
    ]


def _recognised(declared: DatasetDeclaration) -> list[Link]:
    """The step about pages of recognised text, where the source configures it."""
    if "ocr" not in declared.source:
        return []
    return [(part("ocr", f"dataset {declared.name}"), {"documents": f"{declared.name}.documents"}, {}, "sources")]


def _labels(declared: DatasetDeclaration) -> AddedAssets | None:
    """What makes the assets of judges; None where none is declared."""
    return part("judged", f"dataset {declared.name}") if declared.judged else None


def _check_names(declared: DatasetDeclaration, scorers: Iterable[Step]) -> None:
    """Refuse two tables of one name, and variants unfit for the name of a table.

    Raises:
        DefinitionError: names the first.
    """
    labels = _labels(declared)
    label_tables = (table for name in declared.judged for table in labels.tables(name)) if labels is not None else ()
    taken = dict.fromkeys((*_OWN_TABLES, *POLICY_SOURCES, *label_tables), "headrace's own")
    for table in (scorer.table.name for scorer in scorers):
        if table in taken or table.partition("_")[0] == "verdicts":
            other = taken.get(table, "headrace's own")
            raise DefinitionError(
                f"dataset {declared.name}: scorers: the table {table} of a scorer is {other}; rename the scorer"
            )
        taken[table] = "that of another one too"
    for variant in declared.variants:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", variant):
            raise DefinitionError(
                f"dataset {declared.name}: variants: {variant!r} cannot be part of a table's name; write up to 31 of "
                "a-z, 0-9 and _, a letter first"
            )


def _rewritten(declared: DatasetDeclaration) -> RewrittenTexts:
    """How the texts of a dataset are rewritten, where it asks for that."""
    searched = declared.scorers.get(PERSONAL_DATA)
    if not declared.redact and searched is None:
        return RewrittenTexts()
    rewritten: RewrittenTexts = part("redact", f"dataset {declared.name}")(
        declared.name, declared.redact, searched or {}
    )
    return rewritten


def _texts(declared: DatasetDeclaration, rewritten: RewrittenTexts) -> list[Link]:
    """The step for `texts`, or for `raw_texts` and their rewriting."""
    read: dict[str, Source] = {"documents": f"{declared.name}.documents"}
    if not rewritten.links:
        return [(texts, read, {}, "text")]
    return [(renamed(texts, RAW_TEXTS), read, declared.steps.get("texts", {}), "text"), *rewritten.links]


def _shown(declared: DatasetDeclaration, step: Step, redacts: bool) -> Samples:
    """The sample rows of a table in the UI: never the raw texts with personal data."""
    raw = redacts and step.table.name in (documents.table.name, RAW_TEXTS)
    return Samples.IDS if raw and declared.samples is Samples.TEXT else declared.samples


def _scorer(
    declared: DatasetDeclaration, reference: str, values: Mapping[str, Any]
) -> tuple[Scorer, Mapping[str, Any]]:
    """A scorer as its config makes it, and the config."""
    scorer = find_scorer(reference)
    if "dataset" in scorer.config.model_fields:  # what it measures is kept by the name of the dataset
        values = {**values, "dataset": declared.name}
    if scorer.of_config is None:
        return scorer, values
    config = {**values, **declared.steps.get(scorer.name, {})}
    return scorer.configured(bind_config(scorer.config, f"{declared.name}/{scorer.name}", config)), values


def _weighing(declared: DatasetDeclaration, scorers: Iterable[Step]) -> Iterable[Link]:
    """The step of the weighted sum, where one is declared.

    Raises:
        ConfigError: a component is not measured, or is no number.
    """
    settings = {**declared.quality, **declared.steps.get("quality", {})}
    if settings:
        make = part("quality", f"dataset {declared.name}")
        yield make(declared.name, settings, _measured(scorers))


def _measured(scorers: Iterable[Step]) -> Columns:
    """Column types of the dataset's tables open to rules, by table."""
    return signal_columns(
        {scorer.table.name: {column.name: column.type for column in scorer.table.columns} for scorer in scorers}
    )


def _policies(declared: DatasetDeclaration) -> Iterable[tuple[str, str | Mapping[str, Any]]]:
    """The policies by variant, that of the table `verdicts` under the empty name."""
    return [("", declared.policy), *declared.variants.items()]


def _policy(
    declared: DatasetDeclaration, variant: str, reference: str | Mapping[str, Any], scorers: Iterable[Step]
) -> Policy:
    """A policy, resolved and checked against what the dataset measures.

    Raises:
        ConfigError: it cannot be used; the message says why.
    """
    find = policy_finder(lambda: open_to_read(load_settings()))
    policy = resolve(reference, find, default_name=f"{declared.name}_{variant}" if variant else declared.name)
    check_signals(policy, _measured(scorers))
    return policy


def _scoring(dataset: str, scorer: Scorer, config: Mapping[str, Any]) -> Iterable[Link]:
    """The step of a scorer, after that of its frozen input, if there is one."""
    texts: dict[str, Source] = {"texts": f"{dataset}.texts"}
    if scorer.frozen is None:
        return [(scorer, texts, config, "filters")]
    table = scorer.frozen.table.name
    return [(scorer.frozen, texts, config, "filters"), (scorer, {**texts, table: f"{dataset}.{table}"}, {}, "filters")]


def _judging(
    declared: DatasetDeclaration,
    variant: str,
    policy: Policy,
    scorers: Iterable[Step],
    audited: Iterable[str],
) -> Link:
    """The step of a policy, with its inputs and config."""
    wanted = {*policy.tables, *([LANGUAGES] if policy.asks_language else []), *audited}
    read = [scorer.table.name for scorer in scorers if scorer.table.name in wanted]
    inputs: dict[str, Source] = {table: f"{declared.name}.{table}" for table in ("signals", "documents", *read)}
    common = declared.steps.get("verdicts", {}) if variant else {}
    return verdicts_step(read, variant), inputs, {**common, "policy": policy}, "filters"


def _entering(policy: Policy) -> Upkeep:
    """The work around judging: the policy is entered into the registry, for ever."""
    return Upkeep(
        before=lambda lake: _enter(lake, policy), refuse=lambda catalogue: refuse_other_policy(catalogue, policy)
    )


def _enter(lake: Lake, policy: Policy) -> None:
    record_policy(lake.catalogue, policy)
