"""The table `personal_data` of a dataset that redacts: what was found, and what is done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field

from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.filters.personal_data.personal_data import PersonalDataConfig, personal_data
from spark_jobs.filters.personal_data.rules import KINDS
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

Action = Literal["keep", "replace", "drop"]


class AuditConfig(PersonalDataConfig):
    """What is reported, and what is done about it."""

    actions: dict[str, Action] = Field(
        default_factory=dict, description="keep (the default), replace or drop (the document), by kind"
    )


def checked_actions(redact: Mapping[str, str]) -> dict[str, Action]:
    """What a dataset does about kinds of personal data, those left out that it keeps.

    Raises:
        ConfigError: a kind or an action is unknown; the message names the nearest.
    """
    known = get_args(Action)
    for kind, action in redact.items():
        if kind not in KINDS:
            raise ConfigError(f"redact: no rule finds {kind!r}{did_you_mean(kind, KINDS)}")
        if action not in known:
            raise ConfigError(f"redact: {kind}: there is no action {action!r}{did_you_mean(str(action), known)}")
    return {kind: action for kind, action in redact.items() if action != "keep"}  # type: ignore[misc]


@scorer(
    name="personal_data_audit",
    version="1",
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
    checks=(
        *personal_data.table.checks,
        Check("actions_are_known", "forall(spans, s -> s.action in ('keep', 'replace', 'drop'))", "no other action"),
    ),
)
def personal_data_audit(content: pa.Array, config: AuditConfig) -> dict[str, pa.Array]:
    """Mail addresses, numbers and secrets of people, and whether they are kept, replaced or a reason to drop the text.

    A dataset with `redact` has this as its table `personal_data`.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from spark_jobs.filters.personal_data.find import score

    found = score(content, config.min_confidence)
    spans = found["spans"]
    flat = spans.flatten()
    actions = pa.array([config.actions.get(kind, "keep") for kind in KINDS])
    taken = actions.take(pc.index_in(pc.struct_field(flat, "kind"), pa.array(KINDS)))
    acted = pa.StructArray.from_arrays([*flat.flatten(), taken], names=[*(field.name for field in flat.type), "action"])
    dropping = pc.list_parent_indices(spans).filter(pc.equal(taken, "drop")).to_numpy()
    return {
        **found,
        "spans": pa.ListArray.from_arrays(spans.offsets, acted),
        "drop_count": pa.array(np.bincount(dropping, minlength=len(content))),
    }
