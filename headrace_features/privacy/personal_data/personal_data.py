"""The scorer `personal_data`: what was found in each text, span by span; where a dataset redacts, what is done too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pydantic import Field

from headrace_features.privacy.personal_data.names import NamesConfig, model_file, named_spans, read
from headrace_features.privacy.personal_data.rules import KINDS
from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_features.models.registered import ModelFile


class PersonalDataConfig(ConfigModel):
    """What is reported."""

    min_confidence: float = Field(0.5, ge=0, le=1, description="least confidence of a finding to be kept")


@scorer(
    name="personal_data",
    version="4",
    columns=(
        Column(
            "spans!",
            "list<struct<start!: long, end!: long, kind!: string, rule!: string, confidence!: double>!>",
            "findings by start, none overlapping: first byte and byte after the last in the text's UTF-8, what it is, "
            "what found it, how sure that is (a judgement, no frequency)",
        ),
        *(Column(f"{kind}_count!", "long", f"findings of kind {kind}") for kind in KINDS),
    ),
    config=PersonalDataConfig,
    checks=(
        Check("spans_hold_bytes", "forall(spans, s -> s.start >= 0 and s.end > s.start)", "every span holds a byte"),
    ),
)
def personal_data(content: pa.Array, config: PersonalDataConfig) -> dict[str, pa.Array]:
    """Mail addresses, numbers and secrets of people, by patterns with checksums."""
    from headrace_features.privacy.personal_data.find import score

    return score(content, config.min_confidence)


Action = Literal["keep", "replace", "drop"]


class AuditConfig(PersonalDataConfig):
    """What is reported, and what is done about it."""

    actions: dict[str, Action] = Field(
        default_factory=dict, description="keep (the default), replace or drop (the document), by kind"
    )
    names: NamesConfig | None = Field(
        None, description="{model: .., labels: ..}: a model of spaCy or GLiNER that finds further kinds"
    )


class SearchSettings(NamedTuple):
    """What texts are searched for: the config; of its model of names the file and the kinds by label."""

    config: AuditConfig
    file: ModelFile | None = None
    kinds: dict[str, str] | None = None


def with_model(config: AuditConfig) -> SearchSettings:
    """Give the config with its named model; the labels are looked at once on the driver."""
    from headrace_features.models.name_model import kinds_of

    if config.names is None:
        return SearchSettings(config)
    file = model_file(config.names)
    return SearchSettings(config, file, kinds_of(read(config.names, file), config.names.labels, config.names.model))


def checked_actions(redact: Mapping[str, str], names: NamesConfig | None = None) -> dict[str, Action]:
    """What a dataset does about kinds of personal data, the kept ones left out.

    Raises:
        ConfigError: a kind or an action is unknown (the message names the nearest), or the model is for nothing.
    """
    action_names, kinds, nobody = get_args(Action), list(KINDS), "no rule finds"
    if names is not None:
        kinds, nobody = [*KINDS, *names.kinds], f"neither a rule nor {names.model} finds"
    for kind, action in redact.items():
        if kind not in kinds:
            raise ConfigError(f"redact: {nobody} {kind!r}{did_you_mean(kind, kinds)}")
        if action not in action_names:
            raise ConfigError(f"redact: {kind}: there is no action {action!r}{did_you_mean(str(action), action_names)}")
    actions = {kind: action for kind, action in redact.items() if action != "keep"}
    if names is not None and not actions:
        raise ConfigError(f"personal_data: names: {names.model} is of use where kinds are redacted; write redact too")
    return actions  # type: ignore[return-value]


@scorer(
    name="personal_data_audit",
    version="4",
    columns=(
        Column(
            "spans!",
            "list<struct<start!: long, end!: long, kind!: string, rule!: string, confidence!: double, "
            "action!: string>!>",
            "findings by start, none overlapping: first byte and byte after the last in the UTF-8 of `raw_texts`, what "
            "it is, what found it, how sure that is (a judgement, no frequency), and keep, replace or drop; what a "
            "document is dropped for is replaced too",
        ),
        *(Column(f"{kind}_count!", "long", f"findings of kind {kind}") for kind in KINDS),
        Column("drop_count!", "long", "findings that the document is dropped for"),
    ),
    config=AuditConfig,
    prepare=with_model,
    checks=(
        *personal_data.table.checks,
        Check("actions_are_known", "forall(spans, s -> s.action in ('keep', 'replace', 'drop'))", "no other action"),
    ),
)
def personal_data_audit(content: pa.Array, wanted: SearchSettings) -> dict[str, pa.Array]:
    """Mail addresses, numbers and secrets of people, and whether they are kept, replaced or a reason to drop the text.

    A dataset with `redact` has this as its table `personal_data`.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from headrace_features.privacy.personal_data.find import found_spans, resolve, spans_with_counts

    config, spans_of_texts = wanted.config, found_spans(content, wanted.config.min_confidence)
    if config.names is not None and wanted.kinds:
        model = read(config.names, wanted.file)
        named = named_spans(content, model, wanted.kinds, config.min_confidence)
        spans_of_texts = [spans + names for spans, names in zip(spans_of_texts, named, strict=True)]
    columns = spans_with_counts([resolve(text_spans) for text_spans in spans_of_texts])
    spans = columns["spans"]
    flat = spans.flatten()
    kinds = pc.struct_field(flat, "kind").to_pylist()
    actions = pa.array([config.actions.get(kind, "keep") for kind in kinds], pa.string())
    acted = pa.StructArray.from_arrays([*flat.flatten(), actions], [*(field.name for field in flat.type), "action"])
    dropping = pc.list_parent_indices(spans).filter(pc.equal(actions, "drop")).to_numpy()
    return {
        **columns,
        "spans": pa.ListArray.from_arrays(spans.offsets, acted),
        "drop_count": pa.array(np.bincount(dropping, minlength=len(content))),
    }
