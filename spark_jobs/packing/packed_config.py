"""The config of packing."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_FILE_TOKENS = 1 << 26


class PackedConfig(BaseModel):
    """Which documents become windows of which length, what is kept together, and in which order they are taken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(description="dataset whose documents are packed")
    window_tokens: int = Field(ge=2, le=1 << 20, description="tokens in a window, specials included")
    affinity: Literal["document", "repository"] | None = Field(
        None,
        description="what is kept together: a document, or neighbouring documents of a repository too; default: "
        "repository where most documents of the increment are code, else document. With plan best_fit alone",
    )
    target_utilisation: float = Field(
        0.998,
        ge=0,
        le=1,
        description="least share of the windows' positions that hold a token; affinity repository keeps as many "
        "neighbours together as this allows",
    )
    cut: Literal["exact", "line"] = Field(
        "exact",
        description="where documents longer than a window are cut: exactly at its end, or where a line ends while "
        "that makes no more pieces",
    )
    beginning_of_document: str | None = Field(
        None, description="text of the token put before every document; default: none is"
    )
    plan: Literal["best_fit", "next_fit", "concat_and_slice"] = Field(
        "best_fit",
        description="best_fit is best-fit decreasing; for comparison, next_fit fills windows in order and "
        "concat_and_slice cuts the string of all documents every L tokens (cut and affinity have no effect then)",
    )
    shards: int = Field(
        1,
        ge=1,
        le=4096,
        description="number of independent plans, each of a share of the repositories; each wastes about one window",
    )
    order_buckets: int = Field(
        64,
        ge=1,
        le=4096,
        description="hash buckets of repositories, which tasks work on; bounds parallelism, not size",
    )
    seed: int = Field(0, ge=0, description="chooses the order of the windows at rest, with table name and increment")
    rows_per_file: int | None = Field(
        None,
        ge=1,
        description="windows in a data file; default 2^26 tokens' worth, 128-256 MB. Decides no row",
        json_schema_extra={"affects_rows": False},
    )

    @model_validator(mode="after")
    def _shards_are_of_whole_buckets(self) -> PackedConfig:
        """Refuse more shards than buckets, since some shards would have none."""
        if self.shards > self.order_buckets:
            raise ValueError(
                f"shards is {self.shards}, order_buckets {self.order_buckets}; a shard needs a bucket: give no more "
                "shards than order_buckets"
            )
        return self

    @property
    def file_rows(self) -> int:
        """Windows in a data file."""
        return self.rows_per_file or max(1, _FILE_TOKENS // self.window_tokens)

    @property
    def bucket_count(self) -> int:
        """Parts of the metadata order that tasks work on; the comparison plans are made shard by shard."""
        return self.order_buckets if self.plan == "best_fit" else self.shards
