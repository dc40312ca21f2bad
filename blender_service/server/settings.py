"""Settings of a server: allowed callers, how much at once, what is logged. None of them changes a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from blender_service.auth.tls import TlsFiles

COMPRESSION: Final = "grpc.compression_enabled_algorithms_bitset"


class OperationConfig(BaseModel):
    """Settings of a server; the options of `headrace serve` are made of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Path | None = Field(None, description="file of bearer tokens, a principal and its token a line")
    rules: Path | None = Field(
        None, description="TOML file of rules; once it has one, what none of them allows is denied"
    )
    certificate: Path | None = Field(None, description="PEM file: certificate to serve TLS with")
    key: Path | None = Field(None, description="PEM file: key of the certificate, without a passphrase")
    client_authority: Path | None = Field(
        None, description="PEM file: authority that must have signed clients' certificates (mTLS)"
    )
    # A core feeds 200 nodes and more of 8 ranks; half of the streams are for one caller, whose job may have as many.
    max_streams: int = Field(4096, ge=1, le=1 << 15, description="streams at once; each takes a thread while it runs")
    max_streams_per_principal: int | None = Field(
        None, ge=1, description="streams at once of one caller; without it half of max-streams"
    )
    stall_seconds: float = Field(600.0, gt=0, description="end a stream whose reader takes nothing for so long")
    request_seconds: float = Field(10.0, gt=0, description="end a call whose request has not come for so long")
    max_request_bytes: int = Field(256 << 10, ge=1 << 10, le=1 << 30, description="longest request")
    max_response_bytes: int = Field(1 << 30, ge=1 << 20, le=(1 << 31) - 1, description="longest answer")
    grpc_options: str = Field(
        "",
        description="gRPC's own options: NAME=VALUE with commas between, such as grpc.max_connection_age_ms=3600000",
    )
    drain_seconds: float = Field(5.0, ge=0, description="how long streams continue after the server was told to stop")
    audit: Path | None = Field(None, description="file of JSON lines that records who read what")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics, which name blends of every namespace")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="port of Prometheus metrics, 0 for any")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> OperationConfig:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; give both")
        if self.client_authority is not None and self.certificate is None:
            raise ValueError("client_authority needs certificate and key; give all three")
        return self

    @field_validator("grpc_options")
    @classmethod
    def _options_have_values(cls, text: str) -> str:
        for option in filter(None, text.split(",")):
            if not re.fullmatch(r"grpc\.[a-z0-9_.]+=[^=]+", option):
                raise ValueError(f"{option!r} is no option; give grpc.NAME=VALUE, as gRPC's documentation names them")
            if option.startswith(f"{COMPRESSION}="):
                raise ValueError(f"{COMPRESSION} is set: what a compressed request becomes is not bounded; leave it")
        return text

    @property
    def grpc_arguments(self) -> list[tuple[str, int | str]]:
        """The options of gRPC as name and value."""
        pairs = (option.split("=") for option in filter(None, self.grpc_options.split(",")))
        return [(name, int(value) if value.isdecimal() else value) for name, value in pairs]

    @property
    def streams_per_principal(self) -> int:
        """Streams at once of one caller: below the total, so that one cannot take all."""
        return self.max_streams_per_principal or max(1, self.max_streams // 2)

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS, None to serve without."""
        if self.certificate is None or self.key is None:
            return None
        return TlsFiles(self.certificate, self.key, self.client_authority)
