"""Experiments that the project declares."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dagster_project.project.declared import EXPERIMENT, declaration, declarations
from dagster_project.project.loading import lake_catalogue, load_definitions
from headrace.tables.settings import load_settings

if TYPE_CHECKING:
    from dagster_project.experiments.declaration import ExperimentDeclaration
    from dagster_project.experiments.experiment import Experiment
    from dagster_project.experiments.report import Report


def experiments_among(names: Collection[str]) -> list[str]:
    """Experiments with variants among some names; of a mix, the variants are only known when it runs."""
    return [one["name"] for _, one in declarations(EXPERIMENT) if one["name"] in names and one.get("mixes") is None]


def declared_report(name: str) -> Report:
    """The results of an experiment that the project declares.

    Raises:
        CommandError: none is declared so, or none of its runs was done.
    """
    from dagster_project.experiments.report import report_of

    return report_of(open_experiment(name))


def open_experiment(name: str) -> Experiment:
    """An experiment on the lake."""
    from dagster_project.experiments.experiment import Experiment

    return Experiment(_declared(name), lake_catalogue(), load_settings())


def _declared(name: str) -> ExperimentDeclaration:
    """The declaration of an experiment.

    Raises:
        CommandError: none is declared so.
    """
    import dagster as dg

    from dagster_project.components import Experiment
    from dagster_project.experiments.declaration import declare_experiment

    file, attributes = declaration(EXPERIMENT, name)
    if "{{" not in file.read_text():
        return declare_experiment({key: value for key, value in attributes.items() if key != "owners"}, file.parent)
    load_definitions()  # explains what cannot be loaded
    tree = dg.ComponentTree.for_project(file)  # fills in templates such as {{ project_root }}
    return next(one for one in tree.get_all_components(Experiment) if one.name == name).declaration(file.parent)
