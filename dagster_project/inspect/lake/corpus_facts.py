"""Read from the lake which datasets and corpora it has, and with which config they were last computed.

Declarations may have changed since. Questions about rows need the config that the rows were computed with, so it is
read from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from headrace.tables.quarantine import is_quarantine
from spark_jobs.corpus_stages import stages_of
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, KindThresholds
from spark_jobs.dedup.removal.survivors import distinct
from spark_jobs.exceptions import nearest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.selection.stages import SURVIVORS, SelectionStage


@dataclass(frozen=True)
class CorpusFacts:
    """A corpus as its tables were computed.

    Attributes:
        name: its namespace.
        tables: names of the tables that it has.
        datasets: its datasets, those first whose documents are kept first.
        compared: similarities of the comparison of near-duplicates, by kind; None without the level near.
        applied: the threshold of removal, by kind; None without the level near.
        verdicts: by dataset, the table of the verdicts on its members.
        keep_first: by what it is decided which of two duplicates is kept, the most important first.
        base: table of what the levels of deduplication leave.
        stages: which of these go on, in order.
    """

    name: str
    tables: frozenset[str]
    datasets: tuple[str, ...]
    compared: KindThresholds | None
    applied: KindThreshold | None
    verdicts: Mapping[str, str] = field(default_factory=dict)
    keep_first: tuple[str, ...] = ()
    base: str = SURVIVORS
    stages: tuple[SelectionStage, ...] = ()

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of all kinds, ascending; none without the level near."""
        return self.compared.together if self.compared is not None else ()

    @property
    def going_on(self) -> str:
        """Table of the documents to tokenize."""
        return self.stages[-1].table if self.stages else self.base

    @property
    def repeating(self) -> tuple[SelectionStage, ...]:
        """The stages whose documents stay behind because a kept one says the same."""
        return tuple(stage for stage in self.stages if stage.repeats)

    @property
    def goes_from(self) -> str:
        """From which similarity on near-duplicates go, in words; empty where they stay."""
        return f"near-duplicates go from J = {self.applied} on" if self.applied is not None else ""

    def own(self, table: str) -> str:
        """Identifier of one of its tables."""
        return f"{self.name}.{table}"


def namespaces_with(catalogue: Catalog, table: str) -> list[str]:
    """Namespaces that have a table of this name, sorted: datasets have `documents`, corpora have `members`.

    Quarantines are left out: what waits there is looked at by `headrace quarantine` alone.
    """
    spaces = sorted(space[0] for space in catalogue.list_namespaces() if not is_quarantine(space[0]))
    return [space for space in spaces if (space, table) in catalogue.list_tables(space)]


def landed_source(ledger: Ledger, dataset: str) -> dict[str, Any]:
    """Config of a dataset's source without what is unset, as its newest increment was computed; empty without one."""
    increments = ledger.increments(f"{dataset}.documents")
    source = json.loads(increments[max(increments)].config).get("source", {}) if increments else {}
    return {key: value for key, value in source.items() if value not in (None, [], {}, "")}


def corpora(catalogue: Catalog, ledger: Ledger | None = None) -> list[CorpusFacts]:
    """Every corpus of the lake with a run, by name; a ledger that is at hand is read again only if it changed."""
    ledger = ledger or Ledger(catalogue)
    ledger.refresh()
    return [facts_of(ledger, name) for name in namespaces_with(catalogue, "members")]


def find_corpus(catalogue: Catalog, name: str) -> CorpusFacts:
    """One corpus.

    Raises:
        CommandError: it was never run; the message names those with a run.
    """
    known = namespaces_with(catalogue, "members")
    if name not in known:
        there = f"there are {', '.join(known)}" if known else "there is none yet"
        near = nearest(name, known)
        raise CommandError(f"corpus {name} is not in the lake{near}, {there}; fill it: headrace run {name}")
    return facts_of(Ledger.fresh(catalogue), name)


def facts_of(ledger: Ledger, name: str) -> CorpusFacts:
    """Facts of the newest increment of a corpus, from the ledger."""
    tables = frozenset(table for _, table in ledger.catalogue.list_tables(name))

    def newest(table: str) -> tuple[dict[str, Any], set[str]]:
        rows = list(ledger.increments_there(f"{name}.{table}").values()) if table in tables else []
        return (json.loads(rows[-1].config), set(rows[-1].inputs)) if rows else ({}, set())

    base = distinct.name if newest(SURVIVORS)[1] & {f"{name}.{distinct.name}"} else SURVIVORS
    survivors, read = newest(base)
    chosen, members_read = newest("members")
    compared = newest("pairs")[0].get("thresholds")
    return CorpusFacts(
        name=name,
        tables=tables,
        datasets=tuple(chosen.get("datasets", ())),
        compared=KindThresholds.model_validate(compared) if compared is not None else None,
        applied=KindThreshold.model_validate(survivors["threshold"]) if f"{name}.removals" in read else None,
        verdicts={t.split(".")[0]: t for t in members_read if t.split(".")[1].startswith("verdicts")},
        keep_first=tuple(chosen.get("keep_first", ())),
        base=base,
        stages=stages_of(ledger, name),
    )
