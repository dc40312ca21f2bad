"""Make the steps for a dataset's redaction: a search of its texts, then texts with replacements.

redact: {mail: replace, secret: drop}
scorers: {personal_data: {min_confidence: 0.8, names: {model: people@1}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagster_project.assets.parts import RewrittenTexts
from dagster_project.run_config import bind_config
from headrace_features.privacy.personal_data.names import NamesConfig
from headrace_features.privacy.personal_data.names import located as located_names
from headrace_features.privacy.personal_data.personal_data import checked_actions, personal_data_audit
from headrace_features.privacy.personal_data.redacted_texts import redacted_texts
from spark_jobs.lake.declare.step import renamed
from spark_jobs.text.texts import texts

_TABLE: Final = "personal_data"


def redaction(name: str, redact: Mapping[str, str], searched: Mapping[str, Any]) -> RewrittenTexts:
    """The steps to redact a dataset's texts; none where it keeps all kinds.

    Args:
        name: the dataset.
        redact: keep, replace or drop, by kind.
        searched: config of the scorer `personal_data`, with a model of names or without.

    Raises:
        ConfigError: a kind or an action is unknown, or the model of names is for nothing.
    """
    names = None
    if searched.get("names") is not None:
        where = f"dataset {name}: scorers: {_TABLE}: names"
        names = located_names(bind_config(NamesConfig, where, searched["names"]))
    actions = checked_actions(redact, names)
    if not actions:
        return RewrittenTexts()
    config = {**searched, "actions": actions} | ({} if names is None else {"names": names.model_dump()})
    audit, raw = renamed(personal_data_audit, _TABLE), f"{name}.raw_texts"
    return RewrittenTexts(
        (audit,),
        (
            (audit, {"texts": raw}, config, "filters"),
            (
                renamed(redacted_texts, texts.name),
                {"raw_texts": raw, "personal_data": f"{name}.{_TABLE}"},
                {},
                "filters",
            ),
        ),
        frozenset({_TABLE} if "drop" in actions.values() else ()),
    )
