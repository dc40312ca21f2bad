"""Rules by which an increment leaves quarantine without a person: shares of its documents with findings of scans.

    release: {policy: {malware: 0, secrets: 0.001, licences: 0, source_trust: 0.5}}

What is not named is not asked; `{}` releases whatever comes. A person may still release what the rules hold back, and
what a person refused the rules never release.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.lake.declare.step import ConfigModel

_COLUMNS: Mapping[str, str] = {
    "malware": "malware_count",
    "secrets": "secret_count",
    "personal_data": "personal_data_count",
    "fixtures": "fixture_count",
}


class ReleaseRules(ConfigModel):
    """The largest shares of documents with findings, and the least trust, with which an increment is released."""

    malware: float | None = Field(None, ge=0, le=1, description="most documents with malware, as a share of all")
    secrets: float | None = Field(None, ge=0, le=1, description="most with keys, tokens or passwords, as a share")
    personal_data: float | None = Field(None, ge=0, le=1, description="most with personal data, as a share")
    fixtures: float | None = Field(None, ge=0, le=1, description="most with signs of test data, as a share")
    licences: float | None = Field(None, ge=0, le=1, description="most without an allowed licence, as a share")
    source_trust: float | None = Field(None, ge=0, le=1, description="least declared trust in the source, 0 to 1")

    def judge(self, scans: pa.Table) -> tuple[bool, str]:
        """Whether the rules release an increment, and what they found, in one line."""
        reasons: list[str] = []
        notes: list[str] = []
        total = max(scans.num_rows, 1)
        for name, column in _COLUMNS.items():
            limit = getattr(self, name)
            if limit is not None:
                count = int(pc.sum(pc.greater(scans[column], 0)).as_py() or 0)
                (reasons if count / total > limit else notes).append(f"{name} in {count:,} of {scans.num_rows:,}")
        if self.licences is not None:
            count = scans.num_rows - int(pc.sum(scans["licence_allowed"]).as_py() or 0)
            line = f"no allowed licence in {count:,} of {scans.num_rows:,}"
            (reasons if count / total > self.licences else notes).append(line)
        if self.source_trust is not None:
            least = pc.min(scans["source_trust"]).as_py() if scans.num_rows else 1.0
            line = f"source trust {'not declared' if least is None else least}"
            (reasons if least is None or least < self.source_trust else notes).append(line)
        return not reasons, "; ".join(reasons or notes or ["no rule asks anything"])
