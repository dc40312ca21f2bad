"""Where the lake is: PyIceberg's settings, and Spark's derived from them, so that both always open the same lake.

The catalogue is named `lake`. Its settings are PyIceberg's (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__LAKE__URI` and
friends); without any, SQLite and Parquet files in `warehouse`, here or in the folder of the project. What Spark needs
is computed from the same properties:

    uri sqlite:////srv/lake/catalog.db        -> jdbc:sqlite:file:///srv/lake/catalog.db?journal_mode=WAL&busy_timeout=30000
    uri postgresql+psycopg2://u:p@host/db     -> jdbc:postgresql://host/db, jdbc.user, jdbc.password
    type rest                                 -> type=rest, uri as it is
    warehouse s3://..., s3.*                  -> S3FileIO with the same endpoint and keys
"""

from __future__ import annotations

import getpass
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark_jobs.exceptions import CatalogueError

CATALOGUE = "lake"
WAREHOUSE, DATABASE = "warehouse", "catalog.db"
"""Folder of an embedded lake in that of its project, and the file of its catalogue."""
# How long SQLite waits for a lock. The drivers' defaults, 3 s in Java and 5 s in Python, fail on a lock held for 12 s.
_BUSY_SECONDS = 30
# SQL states of connections that a Postgres server ends when it stops; on these Iceberg opens another connection.
_POSTGRES_STOPS = "57P01,57P02,57P03"
# A store that is gone for a minute fails no run. Spark waits at random, up to 2 s at first and up to 20 s in the end.
_SPARK_RETRIES = {"s3.retry.num-retries": "12"}
_ARROW_RETRIES = "spark_jobs.lake.session.object_store.patient_retries"
# PyIceberg's names of what opens an object store, and those of Spark's catalogue for the same.
FILE_PROPERTIES: Mapping[str, str] = {
    "s3.endpoint": "s3.endpoint",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "s3.session-token": "s3.session-token",
    "s3.region": "client.region",
}


@dataclass(frozen=True)
class LakeSettings:
    """All of PyIceberg's properties of the catalogue `lake`.

    Attributes:
        properties: as given to `pyiceberg.catalog.load_catalog`.
        embedded: whether this is the built-in default in `./warehouse`.
    """

    properties: Mapping[str, str]
    embedded: bool

    @property
    def warehouse(self) -> str:
        """Root of all files: an absolute path, or a URI such as `s3://bucket/lake`."""
        return self.properties["warehouse"].removeprefix("file://").rstrip("/")

    @property
    def home(self) -> Path:
        """Local folder for what is not data: the Dagster instance, logs, scratch files."""
        local = "://" not in self.warehouse
        return Path(self.warehouse) if local else Path.cwd() / "warehouse"

    @property
    def database(self) -> Path | None:
        """The file of an embedded catalogue; None where a server has it."""
        from sqlalchemy import make_url  # it takes a second to load, which workers are spared

        uri = self.properties.get("uri", "")
        path = make_url(uri).database if uri.startswith("sqlite:") else None
        return Path(path) if path else None

    @property
    def is_there(self) -> bool:
        """Whether the lake was made already; one whose catalogue is on a server always counts as there."""
        return self.database is None or self.database.is_file()

    def jar_purposes(self) -> frozenset[str]:
        """Which groups of jars Spark needs: core, and postgres or s3 where the settings say so."""
        wanted = {"core"}
        if self.properties.get("uri", "").startswith("postgresql"):
            wanted.add("postgres")
        if self.warehouse.startswith("s3://"):
            wanted.add("s3")
        return frozenset(wanted)

    def spark_properties(self) -> dict[str, str]:
        """Spark's settings for the same catalogue.

        Raises:
            CatalogueError: a catalogue type or address that Spark's Iceberg does not support.
        """
        prefix = f"spark.sql.catalog.{CATALOGUE}"
        values = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.warehouse": self.warehouse,
            f"{prefix}.cache-enabled": "false",
        }
        for key, value in {**self._catalogue_properties(), **self._file_properties()}.items():
            values[f"{prefix}.{key}"] = value
        return values

    def _catalogue_properties(self) -> dict[str, str]:
        kind = self.properties.get("type", "sql")
        uri = self.properties.get("uri", "")
        if kind == "rest":
            passed = ("uri", "credential", "token", "oauth2-server-uri", "scope")
            return {"type": "rest", **{k: v for k, v in self.properties.items() if k in passed}}
        if kind != "sql":
            raise CatalogueError(f"catalogue lake: type {kind!r} is not supported; use sql (SQLite, Postgres) or rest")
        if self.database is not None:
            address = self.database.absolute().as_uri()  # which may have a `?`, unlike a path
            jdbc = f"jdbc:sqlite:{address}?journal_mode=WAL&busy_timeout={_BUSY_SECONDS * 1000}"
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

    def _file_properties(self) -> dict[str, str]:
        if not self.warehouse.startswith("s3://"):
            return {}
        values = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_SPARK_RETRIES}
        values |= {key: self.properties[name] for name, key in FILE_PROPERTIES.items() if name in self.properties}
        if "s3.endpoint" in self.properties:
            values["s3.path-style-access"] = "true"
        return values


def load_settings() -> LakeSettings:
    """Read PyIceberg's settings of the catalogue `lake`, or make the embedded default.

    Raises:
        CatalogueError: there are settings, but none of the warehouse or the address.
    """
    from pyiceberg.utils.config import Config  # it takes a fifth of a second to load

    found = Config().get_catalog_config(CATALOGUE) or {}
    configured = {
        str(key): str(value) for key, value in found.items() if value != ""
    }  # CI sets a missing secret to the empty text
    if not configured:
        return LakeSettings(_embedded(default_root()), embedded=True)
    for key in ("uri", "warehouse"):
        if key not in configured:
            raise CatalogueError(
                f"catalogue lake: {key} is not set; set PYICEBERG_CATALOG__LAKE__{key.upper()} "
                "or remove the other settings"
            )
    configured.setdefault("type", "rest" if configured["uri"].startswith("http") else "sql")
    if configured["uri"].startswith("sqlite:") and "timeout=" not in configured["uri"]:
        configured["uri"] += ("&" if "?" in configured["uri"] else "?") + f"timeout={_BUSY_SECONDS}"
    if configured["uri"].startswith("postgresql"):  # a connection that the server ended is not used again
        configured.setdefault("pool_pre_ping", "true")
    if configured["warehouse"].startswith("s3://"):
        configured.setdefault("s3.retry-strategy-impl", _ARROW_RETRIES)
    return LakeSettings(configured, embedded=False)


def default_root() -> Path:
    """The folder `warehouse` here, or of the project that the working directory lies in, where here is no lake."""
    here = Path.cwd()
    if not (here / WAREHOUSE / DATABASE).is_file():
        here = next((folder for folder in (here, *here.parents) if holds_project(folder)), here)
    return here / WAREHOUSE


def holds_project(folder: Path) -> bool:
    """Whether a folder is that of a project: its pyproject.toml has `[tool.dg.project]`."""
    file = folder / "pyproject.toml"
    try:
        return file.is_file() and "project" in tomllib.loads(file.read_text()).get("tool", {}).get("dg", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):  # whoever loads the project says what is wrong
        return False


def _embedded(root: Path) -> dict[str, str]:
    """SQLite and local files under `root`."""
    from sqlalchemy import URL

    uri = URL.create("sqlite", database=str(root / DATABASE), query={"timeout": str(_BUSY_SECONDS)})
    return {
        "type": "sql",
        "uri": str(uri),
        "warehouse": str(root),
    }


def settings_at(root: Path) -> LakeSettings:
    """Settings of an embedded lake in the folder `root`."""
    return LakeSettings(_embedded(root.resolve()), embedded=True)


def user_name() -> str:
    """Name of the user who runs this process, for records of who did what."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "an unknown user"
