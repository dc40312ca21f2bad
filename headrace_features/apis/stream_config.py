"""The config of streams: a growing folder, or a topic of Kafka."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from spark_jobs.sources.config.declared import NO_ROWS, Declared
from spark_jobs.sources.config.paged_source import PagedSource, Variable
from spark_jobs.sources.opening.file_trees import ABOUT_LINKS, Links


class KafkaLogin(Declared):
    """How to log in to Kafka by SASL; user and password are in environment variables."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="SASL mechanism of the brokers")
    user: Variable = Field(description="environment variable of the user's name")
    password: Variable = Field(description="environment variable of the password")


class KafkaSecurity(Declared):
    """How the connection to the brokers is secured: TLS where the protocol says SSL, a login where it says SASL."""

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"] = Field(description="security.protocol of the client")
    ca: str | None = Field(
        None, min_length=1, description="PEM file of the authorities that are trusted; those of Java where left out"
    )
    certificate: str | None = Field(None, min_length=1, description="PEM file of the client's key and certificates")
    key_password: Variable | None = Field(None, description="environment variable of the password of that key")
    login: KafkaLogin | None = Field(None, description="who the follower is: {mechanism: .., user: .., password: ..}")

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> KafkaSecurity:
        """Refuse what the protocol would silently leave unused, or lacks."""
        if self.protocol.startswith("SASL") != (self.login is not None):
            mend = "declare login: {mechanism, user, password}" if self.login is None else "write SASL_SSL"
            raise ValueError(f"security.protocol {self.protocol}: {mend}")
        if self.protocol == "SASL_PLAINTEXT" and (self.ca or self.certificate):
            raise ValueError("security.protocol SASL_PLAINTEXT uses no certificates; write SASL_SSL")
        if self.key_password and not self.certificate:
            raise ValueError("security.key_password is that of a key; name its file in certificate")
        return self


class KafkaTopic(Declared):
    """A topic of Kafka with JSON objects as messages."""

    servers: str = Field(min_length=1, description="bootstrap servers, host:port with commas between them")
    topic: str = Field(min_length=1, description="name of the topic")
    messages: int = Field(10_000, ge=1, description="most messages of a micro-batch")
    security: KafkaSecurity | None = Field(
        None, description="TLS and SASL: {protocol: SASL_SSL, ca: FILE, login: {..}}", json_schema_extra=NO_ROWS
    )


class StreamSource(PagedSource):
    """Records coming one by one: a growing folder, or a topic; docs/prepare/ingest_streams.md."""

    kind: Literal["stream"] = "stream"
    path: str | None = Field(None, min_length=1, description="folder to which files of JSON lines are moved when whole")
    kafka: KafkaTopic | None = Field(None, description="instead of path: a topic")
    links: Links = Field("inside", description=ABOUT_LINKS, json_schema_extra=NO_ROWS)
    seal_records: int = Field(10_000, ge=1, description="how many records make an increment", json_schema_extra=NO_ROWS)
    seal_seconds: float = Field(
        300, gt=0, description="age after which fewer records make one", json_schema_extra=NO_ROWS
    )
    files: int = Field(100, ge=1, description="most files of a micro-batch", json_schema_extra=NO_ROWS)

    @model_validator(mode="after")
    def _one_origin(self) -> StreamSource:
        """Refuse a stream without an origin, or with two."""
        if (self.path is None) == (self.kafka is None):
            raise ValueError("name path or kafka, one of them")
        return self

    @property
    def is_fetched(self) -> bool:
        """Records come while the stream is followed, not at the beginning of a run."""
        return False

    def address(self, endpoint: str) -> str:
        """What the locations of a stream's pages begin with: the folder or the topic."""
        return self.path if self.path is not None else f"kafka://{endpoint}"
