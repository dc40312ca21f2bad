"""Make the assets of a declared experiment: `<name>/trained`, `<name>/evaluated` and `<name>/compared`.

They are no part of a run without a selection, as they would train; `headrace run <name>` does all of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from dagster_project.asset_options import APART
from dagster_project.exceptions import CommandError
from headrace.tables.settings import load_settings
from headrace_features.experiments.declaration import ExperimentDeclaration
from spark_jobs.exceptions import SparkJobsError

EXPERIMENTS = "experiments"  # their group
_TRAINED, _EVALUATED, _COMPARED, _MIX = "trained", "evaluated", "compared", "mix"
_ABOUT = {
    _TRAINED: "Models of every variant, seed and learning rate, trained on the same number of tokens.",
    _EVALUATED: "A row of system.evaluations for each of them: its data, losses and scores.",
    _COMPARED: "Which variant makes the better model, how sure that is, and what differs between their data.",
    _MIX: "A law of the loss over mixes of the sources, and the mix that it proposes, as a blend.",
}


def experiment_assets(declared: ExperimentDeclaration, owners: Sequence[str] = ()) -> list[dg.AssetsDefinition]:
    """The assets of an experiment, downstream of the packed tables of its variants."""
    if declared.mixes is not None:
        return [_asset(declared, _MIX, declared.tables, owners)]
    return [
        _asset(declared, _TRAINED, declared.tables, owners),
        _asset(declared, _EVALUATED, [f"{declared.name}.{_TRAINED}"], owners),
        _asset(declared, _COMPARED, [f"{declared.name}.{_EVALUATED}"], owners),
    ]


def _asset(
    declared: ExperimentDeclaration, name: str, upstream: Sequence[str], owners: Sequence[str]
) -> dg.AssetsDefinition:
    def compute(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        from blender_service.exceptions import BlenderError
        from headrace_features.experiments.experiment import LakeExperiment
        from headrace_features.experiments.mixes import fit_mix
        from headrace_features.experiments.report import report_of

        started = time.monotonic()
        try:
            experiment = LakeExperiment(
                declared, context.resources.lake.open(context.run.run_id).catalogue, load_settings()
            )
            if name == _MIX:
                fitted = fit_mix(experiment)
                shown, version, detail, count = fitted.metadata(), fitted.blend, str(fitted), fitted.trained
            elif name == _COMPARED:
                report = report_of(experiment)
                shown, version, detail, count = report.metadata(), report.digest, report.line(), len(report.rows)
            else:
                experiment.check()
                count = experiment.train() if name == _TRAINED else sum(1 for _ in experiment.do(experiment.missing()))
                shown, version = experiment.facts(), experiment.digest(name == _EVALUATED)
                detail = f"{count} runs" if count else "all runs are known"
        except (CommandError, BlenderError, SparkJobsError) as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        seconds = time.monotonic() - started
        yield dg.MaterializeResult(
            metadata={**shown, "dagster/row_count": count, "detail": detail, "skipped": not count, "seconds": seconds},
            data_version=dg.DataVersion(version),
        )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    compute.__annotations__["context"] = dg.AssetExecutionContext
    decorate = dg.multi_asset(
        name=f"{declared.name}__{name}",
        specs=[
            dg.AssetSpec(
                [declared.name, name],
                deps=[dg.AssetDep(dg.AssetKey(table.split("."))) for table in upstream],
                description=_ABOUT[name],
                group_name=EXPERIMENTS,
                code_version=hashlib.sha256(declared.model_dump_json().encode()).hexdigest()[:12],
                owners=list(owners),
                kinds=set() if name == _COMPARED else {"pytorch"},
                tags={"headrace/domain": EXPERIMENTS, APART: "true"},
            )
        ],
        required_resource_keys={"lake"},
    )
    return decorate(compute)
