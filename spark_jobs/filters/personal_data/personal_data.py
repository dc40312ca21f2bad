"""The scorer `personal_data`: what was found in each text, span by span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.filters.personal_data.rules import KINDS
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa


class PersonalDataConfig(BaseModel):
    """What is reported."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_confidence: float = Field(0.5, ge=0, le=1, description="findings below it are left out")


@scorer(
    name="personal_data",
    version="1",
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
    from spark_jobs.filters.personal_data.find import score

    return score(content, config.min_confidence)
