"""Make the assets of an untrusted dataset: it lands, is scanned and waits in a namespace of its own.

    web_quarantine.arrivals, documents, repositories, provenance    what came
    web_quarantine.scans                                            what was found in it
    web.documents, repositories, provenance, arrivals               what was released, as a trusted dataset has it

Rules, where the dataset declares some, decide as soon as an increment is scanned; people decide by `headrace
quarantine`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import DefinitionError
from dagster_project.keeping import Keeping
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Presentation, Upkeep, step_asset
from headrace.tables.quarantine import quarantine_of
from headrace_features.privacy.released import released
from headrace_features.privacy.scans.release_rules import ReleaseRules
from headrace_features.privacy.scans.scans import ScansConfig, scans
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.acts import note_act
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.decisions import RELEASE, increments_of
from spark_jobs.sources.documents import documents

_NAME_LENGTH = 30  # so that the quarantine's is a name too
_JUDGED = ("malware_count", "secret_count", "personal_data_count", "fixture_count", "licence_allowed", "source_trust")


@dataclass(frozen=True)
class Quarantine:
    """How an untrusted dataset is scanned and released.

    Attributes:
        scans: what is looked for.
        rules: release an increment without a person; None: people decide alone.
    """

    scans: ScansConfig = dataclasses.field(default_factory=ScansConfig)
    rules: ReleaseRules | None = None

    def assets(
        self, name: str, intake: Mapping[str, Any], presentation: Presentation, keeping: Keeping
    ) -> list[dg.AssetsDefinition]:
        """The assets to land, scan and release a dataset."""
        held = quarantine_of(name)
        shown = functools.partial(dataclasses.replace, presentation)
        landed = {table: f"{held}.{table}" for table in ("documents", "repositories", "provenance", "arrivals")}
        carried = dataclasses.replace(released, gate="person" if self.rules is None else "policy")
        inputs = {f"landed_{table}".removesuffix("_documents"): source for table, source in landed.items()}
        apply, rules = None, self.rules
        if rules is not None:
            apply = Upkeep(
                published=lambda lake: apply_rules(lake.catalogue, name, rules),
                planned=lambda catalogue: apply_rules(catalogue, name, rules),
            )
        return [
            step_asset(
                documents,
                held,
                {},
                bind_config(documents.config, f"{name}/documents", intake),
                driving_table=landed["arrivals"],
                presentation=shown(domain="sources"),
                upkeep=Upkeep(keeping=keeping),
            ),
            step_asset(
                scans,
                held,
                {table: landed[table] for table in ("documents", "repositories", "provenance")},
                self.scans,
                driving_table=landed["arrivals"],
                presentation=shown(domain="filters"),
                upkeep=apply,
            ),
            step_asset(
                carried,
                name,
                inputs,
                released.config(),
                driving_table=f"{held}.{scans.table.name}",
                presentation=shown(domain="sources"),
            ),
        ]


def quarantine_of_yaml(
    name: str, trust: str, release: Mapping[str, Any], scanning: Mapping[str, Any], folder: Path
) -> Quarantine | None:
    """The declared quarantine of a dataset; None for a trusted dataset.

    Args:
        name: the dataset.
        trust: `trusted` or `quarantine`.
        release: `{policy: {..}}`, or nothing.
        scanning: config of the scans.
        folder: that paths are relative to.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    if trust == "trusted":
        if release or scanning:
            raise DefinitionError(
                f"dataset {name}: {'release' if release else 'scans'} is for what waits; declare `trust: quarantine`"
            )
        return None
    if len(name) > _NAME_LENGTH:
        raise DefinitionError(
            f"dataset {name}: {len(name)} characters; with `trust: quarantine` a name has {_NAME_LENGTH} at most"
        )
    if set(release) - {"policy"}:
        raise DefinitionError(f"dataset {name}: release: {min(set(release) - {'policy'})}? Write {{policy: {{..}}}}")
    values = dict(scanning)
    if rules := values.get("yara_rules"):
        file = Path(folder, rules)
        if not file.is_file():
            raise DefinitionError(f"dataset {name}: scans.yara_rules: {file} is no file; correct the path")
        values |= {"yara_rules": str(file), "yara_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    policy = bind_config(ReleaseRules, f"dataset {name}: release", release.get("policy") or {})
    declared = Quarantine(
        bind_config(ScansConfig, f"dataset {name}: scans", values), policy if "policy" in release else None
    )
    if policy.licences is not None and not declared.scans.licences_allowed:
        raise DefinitionError(f"dataset {name}: release.policy.licences needs scans: {{licences_allowed: [..]}}")
    if policy.source_trust is not None and declared.scans.source_trust is None:
        raise DefinitionError(f"dataset {name}: release.policy.source_trust needs scans: {{source_trust: ..}}")
    return declared


def passing(catalogue: Catalog, dataset: str, rules: ReleaseRules) -> dict[int, tuple[str, str]]:
    """Scanned increments without a decision, to be released by rules, with data version and what the rules found."""
    ledger = Ledger.fresh(catalogue)
    table = f"{quarantine_of(dataset)}.{scans.table.name}"
    scanned = ledger.increments(table)
    judged = {}
    for increment in increments_of(ledger, dataset):
        if increment.state == "waits" and increment.increment in scanned:
            rows = read_columns(catalogue, table, _JUDGED, EqualTo("increment", increment.increment))
            passes, findings = rules.judge(rows) if rows is not None else (False, "")
            if passes:
                judged[increment.increment] = (increment.version, findings)
    return judged


def apply_rules(catalogue: Catalog, dataset: str, rules: ReleaseRules) -> None:
    """Release, with a row of `system.audit` each, the increments released by a dataset's rules.

    Called after the scans, and before a run from the terminal is planned, since rules may have changed.
    """
    if not passing(catalogue, dataset, rules):
        return
    with table_leases(catalogue, [f"{dataset}.documents"]):  # a person may decide meanwhile, so look once more
        for increment, (version, findings) in passing(catalogue, dataset, rules).items():
            why = f"rules: {findings}"
            note_act(catalogue, RELEASE, dataset, increment=increment, version=version, who="policy", why=why)
