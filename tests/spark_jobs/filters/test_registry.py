"""The registry: what a name and version mean never changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.filters.policy_registry import policy_finder, record_policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.run.registry import REGISTRY, entries, record
from spark_jobs.lake.session.catalogue import open_catalogue

RULE = {"rule": "few", "signal": "word_count", "below": 3}


def test_an_entry_is_never_overwritten(tmp_path: Path) -> None:
    """The same content again writes nothing; another content under the name and version says what to do."""
    catalogue = open_catalogue(settings_at(tmp_path))
    policy = resolve({"name": "own", "version": 1, "rules": [RULE]})
    first = record_policy(catalogue, policy)
    assert record_policy(catalogue, policy) == first
    assert len(catalogue.load_table(REGISTRY).snapshots()) == 1
    other = policy.model_copy(update={"rules": (policy.rules[0].with_value(4),)})
    with pytest.raises(InputError, match=r"own@1 is in the registry with another content .*; give it a new version"):
        record_policy(catalogue, other)
    record_policy(catalogue, other.model_copy(update={"version": "2"}))
    record(catalogue, "model", "own", "1", b"weights")
    assert [one.label for one in entries(catalogue, "policy")] == ["own@1", "own@2"]
    assert [one.content for one in entries(catalogue, "model")] == [b"weights"]


def test_reasons_may_be_written_anew(tmp_path: Path) -> None:
    """A policy with the same rules is the same, whatever its `why` says."""
    catalogue = open_catalogue(settings_at(tmp_path))
    first, again = (
        record_policy(catalogue, resolve({"name": "own", "rules": [{**RULE, "why": why}]})) for why in ("a", "b")
    )
    assert first == again


def test_policies_are_found_by_name_version_and_hash(tmp_path: Path) -> None:
    """Without a version the newest; those that headrace brings need no lake."""
    catalogue = open_catalogue(settings_at(tmp_path))
    find = policy_finder(lambda: catalogue)
    made = [resolve({"name": "own", "version": n, "rules": [{**RULE, "below": n}]}) for n in (1, 2)]
    for policy in made:
        record_policy(catalogue, policy)
    assert resolve("own", find) == resolve("own@2", find) == resolve(made[1].content_hash[:12], find) == made[1]
    child = resolve({"extends": ["own@1", "gopher"], "set": {"few": 9}}, find)
    assert (child.rules[0].below, len(child.rules)) == (9, 11)
    with pytest.raises(ConfigError, match=r"policy own@3: there is none; did you mean 'own@2'\?"):
        resolve("own@3", find)
    record_policy(catalogue, resolve({"name": "own", "rules": [RULE]}))  # its version is a hash: what a dataset wrote
    assert resolve("own", find) == made[1]
    unread = policy_finder(lambda: pytest.fail("the lake was opened"))
    assert resolve("gopher", unread).name == "gopher"
