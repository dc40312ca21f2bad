"""Policies in the registry (`spark_jobs.lake.run.registry`): what a name, a version or a hash means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.filters.policy import Policy
from spark_jobs.filters.policy_files import Find, find_in_files, is_file, shipped
from spark_jobs.lake.run.registry import Entry, entries, known, record

_HASH: Final = re.compile(r"[0-9a-f]{8,64}")
_BY_RULES: Final = re.compile(r"[0-9a-f]{12}|.*\+[0-9a-f]{12}")
"""Versions that are hashes of rules: of policies that a dataset writes in place, which a bare name does not mean."""


def refuse_other_policy(catalogue: Catalog, policy: Policy) -> None:
    """Refuse a policy that `record_policy` would refuse.

    Raises:
        InputError: its name and version are entered with other rules.
    """
    known(catalogue, "policy", policy.name, policy.version, policy.content, _same_rules)


def record_policy(catalogue: Catalog, policy: Policy) -> Entry:
    """Enter a policy; an existing entry stays where only reasons (`why`) differ.

    Raises:
        InputError: its name and version are entered with other rules.
    """
    return record(catalogue, "policy", policy.name, policy.version, policy.content, _same_rules)


def _same_rules(first: bytes, second: bytes) -> bool:
    """Whether two policies decide alike, whatever their reasons say."""
    rules, other = (Policy.model_validate_json(content).model_dump() for content in (first, second))
    return rules == other


def policy_finder(catalogue: Callable[[], Catalog]) -> Find:
    """A function to find a policy by name, version, hash or path: headrace's own first, then the registry's.

    Args:
        catalogue: opens the lake; called where a name is none of headrace's own.
    """

    def find(reference: str) -> Mapping[str, Any]:
        name, _, version = reference.partition("@")
        try:
            return find_in_files(reference)
        except ConfigError:
            if is_file(reference):
                raise
        there = entries(catalogue(), "policy")
        named = [entry for entry in there if entry.name == name]
        matching = [
            entry
            for entry in named
            if version == entry.version or (not version and not _BY_RULES.fullmatch(entry.version))
        ]
        if not matching and _HASH.fullmatch(reference):
            matching = [entry for entry in there if entry.content_hash.startswith(reference)]
        if not matching:
            names = [*shipped(), *dict.fromkeys(label for entry in there for label in (entry.name, entry.label))]
            raise ConfigError(
                f"policy {reference}: there is none{did_you_mean(reference, names)}; headrace policy add FILE adds one"
            )
        content: Mapping[str, Any] = json.loads(matching[-1].content)
        return content

    return find
