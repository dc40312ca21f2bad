"""Spark's settings, from those of the catalogue, so that Spark opens the same lake as PyIceberg.

uri sqlite:////srv/lake/catalog.db        -> jdbc:sqlite:file:///srv/lake/catalog.db?journal_mode=WAL&busy_timeout=30000
uri postgresql+psycopg2://u:p@host/db     -> jdbc:postgresql://host/db, jdbc.user, jdbc.password
type rest                                 -> type=rest, uri as it is
warehouse s3://..., s3.*                  -> S3FileIO with the same endpoint and keys
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import BUSY_SECONDS, CATALOGUE, LakeSettings

# SQL states of connections that a Postgres server ends when it stops; on these Iceberg opens another connection.
_POSTGRES_STOPS = "57P01,57P02,57P03"
# A store that is gone for a minute fails no run. Spark waits at random, up to 2 s at first and up to 20 s in the end.
_SPARK_RETRIES = {"s3.retry.num-retries": "12"}
# PyIceberg's names of what opens an object store, and those of Spark's catalogue for the same.
FILE_PROPERTIES: Mapping[str, str] = {
    "s3.endpoint": "s3.endpoint",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "s3.session-token": "s3.session-token",
    "s3.region": "client.region",
}


def jar_purposes(settings: LakeSettings) -> frozenset[str]:
    """Which groups of jars Spark needs: core, and postgres or s3 where the settings say so."""
    wanted = {"core"}
    if settings.properties.get("uri", "").startswith("postgresql"):
        wanted.add("postgres")
    if settings.warehouse.startswith("s3://"):
        wanted.add("s3")
    return frozenset(wanted)


def spark_properties(settings: LakeSettings) -> dict[str, str]:
    """Spark's settings for the same catalogue.

    Raises:
        CatalogueError: a catalogue type or address that Spark's Iceberg does not support.
    """
    prefix = f"spark.sql.catalog.{CATALOGUE}"
    values = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.warehouse": settings.warehouse,
        f"{prefix}.cache-enabled": "false",
    }
    for key, value in {**_catalogue_properties(settings), **_file_properties(settings)}.items():
        values[f"{prefix}.{key}"] = value
    return values


def _catalogue_properties(settings: LakeSettings) -> dict[str, str]:
    kind = settings.properties.get("type", "sql")
    uri = settings.properties.get("uri", "")
    if kind == "rest":
        passed = ("uri", "credential", "token", "oauth2-server-uri", "scope")
        return {"type": "rest", **{k: v for k, v in settings.properties.items() if k in passed}}
    if kind != "sql":
        raise CatalogueError(f"catalogue lake: type {kind!r} is not supported; use sql (SQLite, Postgres) or rest")
    if settings.database is not None:
        address = settings.database.absolute().as_uri()  # which may have a `?`, unlike a path
        jdbc = f"jdbc:sqlite:{address}?journal_mode=WAL&busy_timeout={BUSY_SECONDS * 1000}"
        return {"type": "jdbc", "jdbc.schema-version": "V1", "uri": jdbc}
    parts = urlsplit(uri)
    if not parts.scheme.startswith("postgresql") or not parts.hostname:
        raise CatalogueError(
            f"catalogue lake: uri {uri.split('@')[-1]!r} is neither sqlite:///PATH nor postgresql+psycopg2://USER@HOST/DB"
        )
    port = f":{parts.port}" if parts.port else ""
    values = {
        "type": "jdbc",
        "jdbc.schema-version": "V1",
        "uri": f"jdbc:postgresql://{parts.hostname}{port}{parts.path}",
        "retryable_status_codes": _POSTGRES_STOPS,
    }
    if parts.username:
        values["jdbc.user"] = unquote(parts.username)
    if parts.password:
        values["jdbc.password"] = unquote(parts.password)
    return values


def _file_properties(settings: LakeSettings) -> dict[str, str]:
    if not settings.warehouse.startswith("s3://"):
        return {}
    values = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_SPARK_RETRIES}
    values |= {key: settings.properties[name] for name, key in FILE_PROPERTIES.items() if name in settings.properties}
    if "s3.endpoint" in settings.properties:
        values["s3.path-style-access"] = "true"
    return values
