"""Experiments of the project, and the output of `headrace plan` and `headrace run` about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from dagster_project.declared_kinds import DeclaredKind
from dagster_project.project.declared import declaration, declarations
from dagster_project.project.loading import lake_catalogue, load_definitions
from headrace.tables.settings import load_settings

if TYPE_CHECKING:
    from headrace_features.experiments.declaration import ExperimentDeclaration
    from headrace_features.experiments.experiment import LakeExperiment
    from headrace_features.experiments.mix_report import FittedMix
    from headrace_features.experiments.report import Report

COMPONENT: Final = "headrace.Experiment"


def declared_report(name: str) -> Report | FittedMix:
    """The results of an experiment of the project: verdicts on variants, or the law of mixes and the proposed one.

    Raises:
        CommandError: none is declared so, or none of its runs was done; of mixes, if any is missing.
    """
    from headrace_features.experiments.mixes import fit_mix
    from headrace_features.experiments.report import report_of

    experiment = _open_experiment(name)
    return report_of(experiment) if experiment.declared.mixes is None else fit_mix(experiment, train=False)


def _open_experiment(name: str) -> LakeExperiment:
    """An experiment on the lake."""
    from headrace_features.experiments.experiment import LakeExperiment

    return LakeExperiment(declared_experiment(name), lake_catalogue(), load_settings())


def declared_experiment(name: str) -> ExperimentDeclaration:
    """The declaration of an experiment.

    Raises:
        CommandError: none is declared so.
    """
    import dagster as dg

    from headrace_features.experiments.component import Experiment
    from headrace_features.experiments.declaration import declare_experiment

    file, attributes = declaration(COMPONENT, name, "see docs/feed/experiments.md")
    if "{{" not in file.read_text():
        return declare_experiment({key: value for key, value in attributes.items() if key != "owners"}, file.parent)
    load_definitions()  # explains what cannot be loaded
    tree = dg.ComponentTree.for_project(file)  # fills in templates such as {{ project_root }}
    components = tree.get_all_components(Experiment)
    return next(component for component in components if component.name == name).declaration(file.parent)


def _among(names: Collection[str]) -> list[str]:
    """Experiments among some names."""
    return [values["name"] for _, values in declarations(COMPONENT) if values["name"] in names]


def _plan(name: str) -> Iterator[str]:
    """Lines on what the variants of an experiment consist of, and how many of its runs are to be done.

    Raises:
        CommandError: variants differ in what has to be equal, or a table of them is not there.
    """
    experiment = _open_experiment(name)
    if experiment.declared.mixes is not None:
        from headrace_features.experiments.mixes import search_of

        yield from search_of(experiment).lines()
        return
    experiment.check()
    for variant, line in experiment.facts().items():
        yield f"{variant}: {line}"
    missing, total = experiment.missing(), list(experiment.runs())
    tokens = sum(run.tokens for run in missing)
    yield f"{name}: {len(missing)} of {len(total)} runs are to be done, {tokens:,} tokens in all"


EXPERIMENTS: Final = DeclaredKind(_among, _plan, lambda name: declared_report(name).text())
