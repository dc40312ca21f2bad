"""The part `objectives` of a corpus: the step that lays out and encodes its documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dagster_project.assets.parts import MaskedTokens
from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace_features.objectives.config import ObjectivesConfig
from headrace_features.objectives.masks.rules import HEADER, find_rules
from headrace_features.objectives.tokens import RULED_OBJECTIVE_TOKENS, objective_tokens
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.tokens.tokens import TOKENS


def objectives_part(
    corpus: str,
    given: Mapping[str, Any],
    inputs: Mapping[str, Source],
    each: Callable[[str], tuple[str, ...]],
    window_tokens: int,
) -> MaskedTokens:
    """The step for the tokens of a corpus with objectives.

    Args:
        corpus: its name.
        given: settings by kind of document, as declared.
        inputs: of the step `tokens`.
        each: names a table of each of its datasets.
        window_tokens: of the shortest window; longer documents that may be cut become several rows.

    Raises:
        DefinitionError: a setting is wrong, or a rule is not known.
    """
    config = bind_config(ObjectivesConfig, f"corpus {corpus}: objectives", {"kinds": dict(given)})
    try:
        rules = find_rules(name for name in config.mask_rules if name != HEADER)
    except ConfigError as error:
        raise DefinitionError(f"corpus {corpus}: objectives: trainable: {error}") from error
    reads = {rule.reads for rule in rules.values()}
    more = {"documents": each("documents")} if config.header_names else {}
    more |= {"template_lines": each("template_lines")} if "template_lines" in reads else {}
    made = replace(objective_tokens, tables=(RULED_OBJECTIVE_TOKENS,)) if config.mask_rules else objective_tokens
    settings = {"max_tokens": window_tokens, "kinds": dict(given)}
    settings |= {"rule_versions": {name: rule.version for name, rule in rules.items()}} if rules else {}
    return MaskedTokens(renamed(made, TOKENS.name), {**inputs, **more}, settings, config.mask_rules)
