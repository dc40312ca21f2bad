"""Make the assets of a corpus: from the texts of its datasets to packed windows, as tables in its namespace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.assets.decontamination import OFF, REQUIRED, searched_evals, upkeep_of_packed
from dagster_project.assets.deduplication import Deduplication, deduplication_chain
from dagster_project.assets.parts import part
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link, Presentation, Upkeep, step_asset
from headrace.tables.quarantine import is_quarantine
from spark_jobs.code.ordered import ordered
from spark_jobs.dedup.membership.members import members
from spark_jobs.dedup.membership.revisions import revisions
from spark_jobs.dedup.passages.anchors import anchors
from spark_jobs.dedup.passages.passages import passages
from spark_jobs.dedup.passages.trimmed import TrimmedConfig, trimmed
from spark_jobs.exceptions import did_you_mean
from spark_jobs.filters.contamination.decontaminated import PresentEvals, decontaminated
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source, tables_of
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.supersede import excise_superseded, is_pending, reinstate
from spark_jobs.shape.rates import ShapeConfig
from spark_jobs.shape.shape import shape, shape_histogram
from spark_jobs.tokens.token_statistics import token_statistics
from spark_jobs.tokens.tokenizer import tokenizer
from spark_jobs.tokens.tokens import tokens

_LOSSES = "cluster_losses"  # table of the losses of clusters
DRIVING_TABLE = "increments"  # table whose increments every step of the corpus follows
_MEMBERS = (increments, members, revisions)
_STAGES = {"dedup": "2_duplicates", "clusters": "3_selection", "filters": "3_selection", "code": "4_tokens"}


@dataclass(frozen=True)
class CorpusDeclaration:
    """A corpus as a user declares it.

    Attributes:
        name: its namespace.
        datasets: its datasets; of duplicates in two of them, the one in the dataset listed first is kept.
        revisions: by dataset, `latest` (the default) or `all`, which keeps older revisions of a document.
        variants: by dataset, the variant (`assets/datasets.py`) whose verdicts count; else those of its policy.
        superseded: `excise` (the default) or `keep` packed documents after a newer revision of them arrived.
        on_delete: the same for documents whose file is gone.
        deduplication: levels and thresholds; by default exact and near-duplicates are removed.
        decontaminate: `required` (the default): items of the registry's benchmarks are searched for, and nothing that
            holds one is packed; settings of the search (`DecontaminatedConfig`) in its place; or `off`.
        clusters: `{coarse: .., fine: ..}` (`CentroidsConfig`), by which each survivor is in a cluster; None for none.
        cluster_losses: `{model: NAME@VERSION, ..}` (`ClusterLossesConfig`), or `{proxy: {..}, ..}` with the settings of
            a small model of the corpus's own (`ProxyModelConfig`), by which clusters are measured; None for none.
        passages: `{}` finds spans of 50 words that documents share, `{cut: true, ..}` (`TrimmedConfig`) cuts the later
            ones; None for neither.
        shape: rules (`ShapeConfig`) by which survivors go on, `{losses: {table: ..}}` among them; None for all.
        tokenizer: `{file: path}`, or `{train: {vocabulary_size: .., sample_bytes: ..}}`.
        window_tokens: lengths of windows; every dataset gets a packed table for each.
        steps: config of other steps, by step.
        samples: which sample rows the UI shows.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: who may see its rows; nobody who may not see those of its datasets.
    """

    name: str
    datasets: tuple[str, ...]
    revisions: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    superseded: str = "excise"
    on_delete: str = "excise"
    deduplication: Deduplication = field(default_factory=Deduplication)
    decontaminate: str | Mapping[str, Any] = REQUIRED
    clusters: Mapping[str, Any] | None = None
    cluster_losses: Mapping[str, Any] | None = None
    shape: Mapping[str, Any] | None = None
    passages: Mapping[str, Any] | None = None
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    window_tokens: tuple[int, ...] = (2048,)
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    samples: Samples = Samples.IDS
    owners: tuple[str, ...] = ()
    visibility: Visibility = PUBLIC


def corpus_assets(declared: CorpusDeclaration) -> list[dg.AssetsDefinition]:
    """The assets of a corpus, from increments and members to tokens and packed tables.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    if not declared.datasets:
        raise DefinitionError(f"corpus {declared.name}: datasets is empty; name at least one")
    name = declared.name
    if is_quarantine(name):
        raise DefinitionError(f"corpus {name}: names that end in _quarantine are those of what waits; choose another")
    for dataset in declared.variants:
        if dataset not in declared.datasets:
            near = did_you_mean(dataset, declared.datasets)
            raise DefinitionError(f"corpus {name}: variants: there is no dataset {dataset!r}{near}")

    def own(table: str) -> str:
        return f"{name}.{table}"

    def each(table: str) -> tuple[str, ...]:
        return tuple(f"{dataset}.{table}" for dataset in declared.datasets)

    order = {"datasets": list(declared.datasets)}
    shaped = own("survivors" if declared.shape is None else "shaped")
    repeats = list(_repeated(declared, own, shaped, each("texts")))
    going_on, cut = (own("trimmed"), {"cut_texts": own("cut_texts")}) if _is_cut(declared) else (shaped, {})
    latest = [name for name in declared.datasets if declared.revisions.get(name, "latest") == "latest"]
    evals, search = searched_evals(name, declared.decontaminate)
    kept = own("decontaminated") if evals.labels else going_on
    searched: dict[str, Source] = {"survivors": going_on, "documents": each("documents")}
    searching: list[Link] = [(decontaminated, searched, search, "filters")] if evals.labels else []
    chain: list[Link] = [
        (increments, {"arrivals": each("arrivals")}, {}, "lake"),
        (
            members,
            {
                **{name: each(name) for name in ("documents", "texts", "repositories", "arrivals")},
                "verdicts": tuple(_verdicts(declared, dataset) for dataset in declared.datasets),
            },
            {
                **order,
                "revisions": dict(declared.revisions),
                "on_delete": declared.on_delete,
                **declared.deduplication.members,
            },
            "dedup",
        ),
        (
            revisions,
            {"documents": each("documents"), "arrivals": each("arrivals"), "members": own("members")},
            {"latest": latest, "superseded": declared.superseded, "on_delete": declared.on_delete},
            "dedup",
        ),
        *deduplication_chain(declared.deduplication, own, each, latest, declared.steps.get("pairs", {})),
        *_clustered(declared, own, each("texts")),
        *_shaped(declared, own),
        *repeats,
        *searching,
        (
            ordered,
            {"survivors": kept, "members": own("members"), "dependencies": each("dependencies")},
            {},
            "code",
        ),
        (tokenizer, {"survivors": going_on, "texts": each("texts"), **cut}, _tokenizer_config(declared), "packing"),
        (
            tokens,
            {
                "survivors": kept,
                "texts": each("texts"),
                **cut,
                **{name: own(name) for name in ("tokenizer", "tokenizer_certificate")},
            },
            {},
            "packing",
        ),
        (
            token_statistics,
            {"tokens": own("tokens"), "texts": each("texts"), "tokenizer": own("tokenizer"), **cut},
            {},
            "packing",
        ),
    ]
    packing = {name: own(name) for name in ("tokens", "ordered", "tokenizer", "members")}
    for dataset in declared.datasets:
        for length in declared.window_tokens:
            config = {"dataset": dataset, "window_tokens": length, **declared.steps.get("packed", {})}
            chain.append((packed_step(dataset, length), packing, config, "packing"))
    _refuse_unknown(declared, {made.name for made, *_ in chain} | {"packed"})
    read = {one for _, inputs, *_ in chain for one in tables_of(*inputs.values())}
    return [
        step_asset(
            made,
            name,
            inputs,
            bind_config(made.config, f"{name}/{made.name}", {**config, **declared.steps.get(made.name, {})}),
            driving_table=own(DRIVING_TABLE),
            presentation=Presentation(
                group=f"{name}_{_stage(made, domain, any(own(table.name) in read for table in made.tables))}",
                owners=declared.owners,
                domain=domain,
                samples=declared.samples,
                visibility=declared.visibility,
            ),
            upkeep=_upkeep(declared, own(made.name), evals) if made.numbered else None,
        )
        for made, inputs, config, domain in chain
    ]


def _stage(made: Step, domain: str, is_read: bool) -> str:
    """The asset group of a step in the UI; `measures` for tables that no other step reads."""
    if made in _MEMBERS:
        return "1_members"
    if made.numbered:
        return "5_packed"
    return _STAGES.get(domain, "4_tokens") if is_read else "measures"


def _clustered(declared: CorpusDeclaration, own: Callable[[str], str], texts: tuple[str, ...]) -> Iterable[Link]:
    """The steps that assign survivors to clusters and measure those, where the corpus has any."""
    if declared.clusters is None and declared.cluster_losses is None:
        return ()
    make = part("clusters", f"corpus {declared.name}")
    links: Iterable[Link] = make(declared.name, declared.clusters, declared.cluster_losses, own, texts)
    return links


def _shaped(declared: CorpusDeclaration, own: Callable[[str], str]) -> Iterator[Link]:
    """The steps that decide which survivors go on, where the corpus has a shape."""
    if declared.shape is None:
        return
    rules = dict(declared.shape)
    read: dict[str, Source] = {name: own(name) for name in ("survivors", "members")}
    if declared.clusters is not None:
        read["clusters"] = own("clusters")
    measured: dict[str, Source] = {}
    if isinstance(rules.get("losses"), Mapping):
        rules["losses"] = losses = dict(rules["losses"])
        table = losses.pop("table", None if declared.cluster_losses is None else _LOSSES)
        if table == _LOSSES and declared.cluster_losses is None:
            raise DefinitionError(
                f"corpus {declared.name}: shape reads cluster_losses; declare cluster_losses: {{}} too"
            )
        measured = {} if table is None else {"losses": own(table) if table == _LOSSES else table}
    config = bind_config(ShapeConfig, f"corpus {declared.name}: shape", rules)
    if config.needs_clusters and declared.clusters is None:
        raise DefinitionError(f"corpus {declared.name}: shape has rules on clusters; declare clusters: {{}} beside it")
    if config.losses is not None and not measured:
        raise DefinitionError(
            f"corpus {declared.name}: shape: losses names no table; declare cluster_losses: {{}}, "
            "or add table: NAMESPACE.TABLE"
        )
    yield shape_histogram, read, {}, "clusters"
    yield shape, {**read, **measured, "shape_histogram": own("shape_histogram")}, rules, "clusters"


def _repeated(
    declared: CorpusDeclaration, own: Callable[[str], str], survivors: str, texts: tuple[str, ...]
) -> Iterator[Link]:
    """The steps that find passages of several documents, and cut them, where the corpus says so."""
    if declared.passages is None:
        return
    rules = {name: value for name, value in declared.passages.items() if name != "cut"}
    if rules and not _is_cut(declared):
        raise DefinitionError(f"corpus {declared.name}: passages: {min(rules)} is of cutting; write cut: true too")
    read: dict[str, Source] = {"survivors": survivors, "texts": texts}
    yield anchors, {**read, "members": own("members")}, {}, "dedup"
    found: dict[str, Source] = {"anchors": own("anchors"), "texts": texts, "revisions": own("revisions")}
    if not _is_cut(declared):
        yield passages, found, {}, "dedup"
    else:
        config = bind_config(TrimmedConfig, f"corpus {declared.name}: passages", rules)
        yield passages, found, {"cut_from": config.min_words}, "dedup"
        yield trimmed, {**read, "passages": own("passages")}, rules, "dedup"


def _is_cut(declared: CorpusDeclaration) -> bool:
    """Whether passages are cut, not only found."""
    cut = (declared.passages or {}).get("cut", False)
    if not isinstance(cut, bool):
        raise DefinitionError(f"corpus {declared.name}: passages: cut is {cut!r}; write true or false")
    return cut


def _verdicts(declared: CorpusDeclaration, dataset: str) -> str:
    """The table of the verdicts that count for a dataset."""
    variant = declared.variants.get(dataset)
    return f"{dataset}.verdicts_{variant}" if variant else f"{dataset}.verdicts"


def _upkeep(declared: CorpusDeclaration, identifier: str, evals: PresentEvals) -> Upkeep:
    """The work around packing: excised documents stay out, superseded and deleted ones go, benchmarks are stated."""
    before = functools.partial(reinstate, identifier=identifier)
    threshold = declared.deduplication.apply if "near" in declared.deduplication.levels else None

    def excise(lake: Lake) -> bool:
        return excise_superseded(lake, identifier, threshold).excised.new_snapshot_id is not None

    excises = "excise" in (declared.superseded, declared.on_delete)
    pending = functools.partial(is_pending, identifier=identifier)
    around = Upkeep(before, excise, pending=pending) if excises else Upkeep(before)
    off = declared.decontaminate == OFF
    return upkeep_of_packed(declared.name, identifier, evals, off=off, around=around)


def _tokenizer_config(declared: CorpusDeclaration) -> dict[str, Any]:
    """`{file: ..}` or `{train: {..}}` as the step's config."""
    given = dict(declared.tokenizer)
    trained = given.pop("train", None) or {}
    if not isinstance(trained, Mapping):
        raise DefinitionError(f"corpus {declared.name}: tokenizer: train is {trained!r}; write {{vocabulary_size: ..}}")
    if "file" in given and trained:
        raise DefinitionError(f"corpus {declared.name}: tokenizer has both file and train; give one of them")
    return {**given, **trained}


def _refuse_unknown(declared: CorpusDeclaration, known: set[str]) -> None:
    unknown = set(declared.steps) - known
    if unknown:
        first = min(unknown)
        near = did_you_mean(first, sorted(known))
        raise DefinitionError(f"corpus {declared.name}: steps: there is no step {first!r}{near}")
