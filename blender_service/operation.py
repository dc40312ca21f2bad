"""How a server is run: who may call, how much at once, what is written down. Nothing here changes a row."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from blender_service.tls import TlsFiles


class OperationConfig(BaseModel):
    """Settings of a server; the flags of `headrace serve` and `python -m blender_service` are made of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Path | None = Field(None, description="file of bearer tokens, a principal and its token a line")
    rules: Path | None = Field(None, description="TOML file of namespace rules; as soon as one exists, others may not")
    certificate: Path | None = Field(None, description="PEM file: serve with TLS")
    key: Path | None = Field(None, description="PEM file: key of the certificate, without a passphrase")
    client_authority: Path | None = Field(
        None, description="PEM file: clients must show a certificate it signed (mTLS)"
    )
    cache_folder: Path | None = Field(
        None, description="folder of block files, kept and shared by processes (default: a temporary one each)"
    )
    max_streams: int = Field(256, ge=1, le=4096, description="streams at once; each takes a thread")
    max_streams_per_principal: int = Field(256, ge=1, description="streams at once of one caller")
    max_request_bytes: int = Field(4 << 20, ge=1 << 10, le=1 << 30, description="longest request")
    max_response_bytes: int = Field(1 << 30, ge=1 << 20, le=(1 << 31) - 1, description="longest answer")
    drain_seconds: float = Field(5.0, ge=0, description="how long streams go on when the server is told to stop")
    audit: Path | None = Field(None, description="file of JSON lines: who read what")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics; they name blends of every namespace")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Prometheus metrics over HTTP, 0 for any port")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> OperationConfig:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; give both")
        if self.client_authority is not None and self.certificate is None:
            raise ValueError("client_authority needs certificate and key; give all three")
        return self

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS, None without."""
        if self.certificate is None or self.key is None:
            return None
        return TlsFiles(self.certificate, self.key, self.client_authority)
