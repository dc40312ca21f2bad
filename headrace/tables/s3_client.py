"""A client of S3 by boto3, for what PyArrow and Iceberg cannot ask of a store: to write if nothing came between."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any


def s3_client(properties: Mapping[str, str], attempts: int | None = None) -> Any:
    """Connect as PyIceberg does by `s3.*`; what these leave out boto3 finds where the AWS tools do.

    Args:
        properties: of a catalogue.
        attempts: how often a request is sent to a silent store; None for boto3's default.

    Raises:
        ImportError: boto3 is not installed; it is in the extra `s3`.
    """

    def setting(name: str) -> str | None:
        return properties.get(f"s3.{name}") or properties.get(f"client.{name}")

    names = ("endpoint", "region", "access-key-id", "secret-access-key", "session-token")
    return _client(attempts, *(setting(name) for name in names))


@functools.lru_cache(8)  # to make a client takes a fifth of a second; threads may share it
def _client(
    attempts: int | None,
    endpoint: str | None,
    region: str | None,
    key: str | None,
    secret: str | None,
    token: str | None,
) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        config=None if attempts is None else Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
    )


def status_of(error: Exception) -> int | None:
    """Status of HTTP of a store's refusal to boto3; None where it did not answer."""
    status: int | None = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status
