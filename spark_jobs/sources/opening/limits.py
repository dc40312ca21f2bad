"""How much of an archive is unpacked."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ArchiveLimits(BaseModel):
    """How much of an archive is unpacked: the rest is refused as decompression_bomb, and what came before it lands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_ratio: int = Field(
        200,
        ge=1,
        le=100_000,
        description="most bytes that a packed byte may become, for each packed stream or member above 16 MB",
    )
    max_members: int = Field(
        200_000, ge=1, le=1_000_000, description="most members, those of archives in the archive included"
    )
    max_depth: int = Field(3, ge=1, le=8, description="archives in archives; 1 refuses every archive in another")
    max_unpacked_bytes: int = Field(
        1 << 36, ge=1, le=1 << 44, description="most bytes unpacked of one archive, at all depths together"
    )
    max_memory_mb: int = Field(
        2304,
        ge=1,
        le=1 << 16,
        description="memory for unpacking one file, MB, each task that reads one: the default takes zstd windows of "
        "2 GB (--long=31) and xz dictionaries of 1.5 GB; files with smaller ones, which are nearly all, take 8 to 128",
    )
    max_temporary_bytes: int = Field(
        1 << 30,
        ge=1,
        le=1 << 40,
        description="largest zip or Parquet file inside of an archive, which is copied to a temporary file",
    )
