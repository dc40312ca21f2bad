"""Policies that a command line or a page refers to: a name, NAME@VERSION, a file, or `.` for the declared one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError
from dagster_project.project.declared import dataset_file
from dagster_project.project.diagnosis import read_yaml

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from spark_jobs.filters.policy import Policy

DECLARED = "."


def usable_policy(catalogue: Catalog, reference: str, dataset: str, changed: tuple[str, ...] = ()) -> Policy:
    """Find a policy and change thresholds of it; refuse it where a run would.

    Raises:
        CommandError: a setting is no RULE=VALUE.
        ConfigError: the policy cannot be used.
        InputError: the registry has other rules under its name and version.
    """
    from spark_jobs.filters.policy_registry import refuse_other_policy

    policy = find_policy(catalogue, reference, dataset, changed)
    refuse_other_policy(catalogue, policy)
    return policy


def find_policy(catalogue: Catalog, reference: str, dataset: str = "", changed: tuple[str, ...] = ()) -> Policy:
    """The policy behind a reference of the command line.

    Raises:
        CommandError: a setting is no RULE=VALUE.
        ConfigError: the policy cannot be used.
    """
    from spark_jobs.filters.policy_files import located
    from spark_jobs.filters.policy_registry import policy_finder
    from spark_jobs.filters.policy_resolution import DEFAULT, resolve

    values: dict[str, Any] = {}
    for setting in changed:
        rule, equals, value = setting.partition("=")
        if not equals:
            raise CommandError(f"--set {setting}: write RULE=VALUE, or RULE=off")
        try:
            values[rule] = float(value)
        except ValueError:
            values[rule] = {"true": True, "false": False}.get(value, value)
    source: Any = reference
    if reference == DECLARED and dataset:
        file = dataset_file(dataset)
        source = located(read_yaml(file)["attributes"].get("policy", DEFAULT), file.parent)
    return resolve(source, policy_finder(lambda: catalogue), values, default_name=dataset or "inline")
