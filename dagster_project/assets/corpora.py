"""Make the assets of a corpus: from the texts of its datasets to packed windows, as tables in its namespace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.assets.decontamination import searched_evals, upkeep_of_packed
from dagster_project.assets.deduplication import Deduplication, deduplication_chain
from dagster_project.assets.parts import MaskedTokens, part
from dagster_project.assets.selections import LAST, OFF, DeclaredSelection, base_of, chain_of, choose, listed
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link, Presentation, Upkeep, step_asset
from headrace.tables.quarantine import is_quarantine
from spark_jobs.code.ordered import ordered
from spark_jobs.dedup.membership.members import members
from spark_jobs.dedup.membership.revisions import revisions
from spark_jobs.exceptions import did_you_mean
from spark_jobs.filters.contamination.decontaminated import PresentEvals
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source, tables_of
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import MASKED_SETTINGS
from spark_jobs.packing.supersede import excise_superseded, is_pending, reinstate
from spark_jobs.selection.declared import Bound, SelectionPlace
from spark_jobs.tokens.token_statistics import token_statistics
from spark_jobs.tokens.tokenizer import tokenizer
from spark_jobs.tokens.tokens import tokens

_RENDERED = "conversations"  # the selection of documents that a template writes whole
_LOSSES = "cluster_losses"  # table of the losses of clusters
DRIVING_TABLE = "increments"  # table whose increments every step of the corpus follows
_ANY_EVALS = ("any@1",)  # in place of those of a registry that has none
_MEMBERS = (increments, members, revisions)
_STAGES = {"dedup": "duplicates", "clusters": "selection", "selection": "selection", "code": "tokens"}


@dataclass(frozen=True)
class CorpusDeclaration:
    """A corpus as a user declares it.

    Attributes:
        name: its namespace.
        datasets: its datasets; of duplicates in two of them, the one in the dataset listed first is kept.
        revisions: by dataset, `latest` (the default) or `all`, with older revisions of a document.
        variants: by dataset, the variant (`assets/datasets.py`) of the verdicts; else those of its policy.
        superseded: `excise` (the default) or `keep` packed documents after a newer revision of them arrived.
        on_delete: the same for documents without a file any more.
        deduplication: levels and thresholds; by default exact and near-duplicates are removed.
        select: selections in their order, each a name or {name: settings}; decontamination comes last, named or not,
            unless {decontaminate: off} is one of them.
        clusters: `{coarse: .., fine: ..}` (`CentroidsConfig`), a cluster for each survivor; None for none.
        cluster_losses: `{model: NAME@VERSION, ..}` (`ClusterLossesConfig`), or `{proxy: {..}, ..}` with the settings of
            a small model of the corpus's own (`ProxyModelConfig`), to measure clusters by; None for none.
        losses: `{run: NAME, of: NAMESPACE}`, a training run's losses by document, for selections and cells to read.
        tokenizer: `{file: path}`, or `{train: {vocabulary_size: .., sample_bytes: ..}}`.
        conversations: how documents are rendered, and which tokens are trained on; None where texts are, as they are.
        objectives: how documents are laid out, by kind, such as cut to fill in the middle; None where as they are.
        window_tokens: lengths of windows; every dataset gets a packed table for each.
        cells: `{by: {topic: clusters.coarse, ..}}`, by what documents are packed apart; None for nothing.
        steps: config of other steps, by step.
        samples: the sample rows in the UI.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: readers of its rows; all must be readers of its datasets.
    """

    name: str
    datasets: tuple[str, ...]
    revisions: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    superseded: str = "excise"
    on_delete: str = "excise"
    deduplication: Deduplication = field(default_factory=Deduplication)
    select: tuple[str | Mapping[str, Any], ...] = ()
    clusters: Mapping[str, Any] | None = None
    cluster_losses: Mapping[str, Any] | None = None
    losses: Mapping[str, Any] | None = None
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    conversations: Mapping[str, Any] | None = None
    objectives: Mapping[str, Any] | None = None
    window_tokens: tuple[int, ...] = (2048,)
    cells: Mapping[str, Any] | None = None
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
    latest = [name for name in declared.datasets if declared.revisions.get(name, "latest") == "latest"]
    chosen, evals = _chosen(declared)
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
        *deduplication_chain(
            declared.deduplication, base_of(chosen), own, each, latest, declared.steps.get("pairs", {})
        ),
    ]
    measuring = list(_clustered(declared, own, each("texts")))
    if declared.losses is not None:
        measuring += part("losses", f"corpus {name}")(name, declared.losses)
    selections = chain_of(name, declared.datasets, chosen, _tables(chain), _tables(measuring))
    chain += _links(selections.steps(of_duplicates=True), "dedup")
    chain += measuring
    chain += _links(selections.steps(of_duplicates=False), "selection")
    cut = {"cut_texts": selections.cut_texts} if selections.cut_texts is not None else {}
    encoded: dict[str, Source] = {
        "survivors": selections.kept,
        "texts": each("texts"),
        **cut,
        **{name: own(name) for name in ("tokenizer", "tokenizer_certificate")},
    }
    encoding = _tokens(declared, encoded, each)
    chain += [
        (
            ordered,
            {"survivors": selections.kept, "members": own("members"), "dependencies": each("dependencies")},
            {},
            "code",
        ),
        (
            tokenizer,
            {"survivors": selections.before_last, "texts": each("texts"), **cut},
            _tokenizer_config(declared),
            "packing",
        ),
        (*encoding[:3], "packing"),
        (
            token_statistics,
            {"tokens": own("tokens"), "texts": each("texts"), "tokenizer": own("tokenizer"), **cut},
            {},
            "packing",
        ),
    ]
    packing = {name: own(name) for name in ("tokens", "ordered", "tokenizer", "members")}
    if declared.cells is not None:
        place = SelectionPlace(name, declared.datasets, selections.kept, frozenset(_tables(chain)))
        make, threshold = part("cells", f"corpus {name}"), declared.deduplication.apply.model_dump()
        chain += make(place, selections.before_last, declared.cells, threshold)
        packing["cells"] = own("cells")
    for dataset in declared.datasets:
        for length in declared.window_tokens:
            config = {"dataset": dataset, "window_tokens": length, **declared.steps.get("packed", {})}
            of_table = {**config, **declared.steps.get(f"packed_{dataset}_{length}", {})}
            made = packed_step(
                dataset,
                length,
                masked=_masking(declared) is not None,
                celled=declared.cells is not None,
                classed=isinstance(of_table.get("plan"), Mapping),
                rules=encoding.rules,
            )
            chain.append((made, packing, config, "packing"))
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


def _chosen(declared: CorpusDeclaration) -> tuple[tuple[DeclaredSelection, ...], PresentEvals]:
    """The selections of a corpus, and the eval sets searched for by the last one; it is left out where there is none.

    Its settings are checked all the same, so that a mistake does not wait for the first benchmark.
    """
    settings = _listed(declared)
    evals = searched_evals(settings[LAST])
    if settings[LAST] == OFF:
        return choose(declared.name, {name: given for name, given in settings.items() if name != LAST}), evals
    settings[LAST] = {"evals": evals.labels or _ANY_EVALS, **settings[LAST]}
    chosen = choose(declared.name, settings)
    return chosen if evals.labels else chosen[:-1], evals


def _listed(declared: CorpusDeclaration) -> dict[str, Any]:
    """The settings of each selection in order; that of conversations stands before decontamination."""
    settings = listed(declared.name, declared.select)
    if declared.conversations is None:
        return settings
    last = settings.pop(LAST)
    return {**settings, _RENDERED: dict(declared.conversations), LAST: last}


def _links(bound: Iterable[Bound], domain: str) -> list[Link]:
    return [(*one, domain) for one in bound]


def _tables(chain: Iterable[Link]) -> set[str]:
    """Names of the tables of some steps."""
    return {table.name for made, *_ in chain for table in made.tables}


def _stage(made: Step, domain: str, is_read: bool) -> str:
    """The asset group of a step in the UI; `measures` for tables without a reading step."""
    if made in _MEMBERS:
        return "members"
    if made.numbered:
        return "packed"
    return _STAGES.get(domain, "tokens") if is_read else "measures"


def _clustered(declared: CorpusDeclaration, own: Callable[[str], str], texts: tuple[str, ...]) -> Iterable[Link]:
    """The steps to assign survivors to clusters and measure those, where the corpus has any."""
    if declared.clusters is None and declared.cluster_losses is None:
        return ()
    make = part("clusters", f"corpus {declared.name}")
    links: Iterable[Link] = make(declared.name, declared.clusters, declared.cluster_losses, own, texts)
    return links


def _tokens(
    declared: CorpusDeclaration, inputs: Mapping[str, Source], each: Callable[[str], tuple[str, ...]]
) -> MaskedTokens:
    """The step that makes `tokens`; with masks where conversations are rendered, or documents laid out."""
    if (name := _masking(declared)) is None:
        return MaskedTokens(tokens, inputs, {})
    where = f"corpus {declared.name}: {name}"
    packed = declared.steps.get("packed", {})
    for setting, value in MASKED_SETTINGS.items():
        if packed.get(setting, value) != value:
            raise DefinitionError(f"{where}: it says how rows begin and end; leave {setting} of packed out")
    given, shortest = getattr(declared, name), min(declared.window_tokens)
    made: MaskedTokens = part(name, where)(declared.name, given, inputs, each, shortest)
    return made


def _masking(declared: CorpusDeclaration) -> str | None:
    """The part that makes the tokens, with masks; None where the step `tokens` does."""
    if declared.conversations is not None and declared.objectives is not None:
        raise DefinitionError(f"corpus {declared.name}: it has conversations and objectives; declare a corpus for each")
    return next((name for name in ("conversations", "objectives") if getattr(declared, name) is not None), None)


def _verdicts(declared: CorpusDeclaration, dataset: str) -> str:
    """The table of a dataset's valid verdicts."""
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
    off = listed(declared.name, declared.select)[LAST] == OFF
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
