"""Where the lake is: PyIceberg's settings, read in one way, so that all open the same lake.

The catalogue is named `lake`. Its settings are PyIceberg's (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__LAKE__URI` and
friends); without any, SQLite and Parquet files in `warehouse`, here or in the folder of the project.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.tables.exceptions import CatalogueError

CATALOGUE = "lake"
WAREHOUSE, DATABASE = "warehouse", "catalog.db"
"""Folder of an embedded lake in that of its project, and the file of its catalogue."""
BUSY_SECONDS = 30
"""How long SQLite waits for a lock. The drivers' defaults, 3 s in Java and 5 s in Python, fail on a lock of 12 s."""


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
        """Whether the lake was made already; one with its catalogue on a server always counts as there."""
        return self.database is None or self.database.is_file()


def load_settings() -> LakeSettings:
    """Read PyIceberg's settings of the catalogue `lake`, or make the embedded default.

    Raises:
        CatalogueError: there are settings, but none of the warehouse or the address.
    """
    from pyiceberg.utils.config import Config  # it takes a fifth of a second to load

    values = Config().get_catalog_config(CATALOGUE) or {}
    configured = {
        str(key): str(value) for key, value in values.items() if value != ""
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
        configured["uri"] += ("&" if "?" in configured["uri"] else "?") + f"timeout={BUSY_SECONDS}"
    if configured["uri"].startswith("postgresql"):  # a connection that the server ended is not used again
        configured.setdefault("pool_pre_ping", "true")
    return LakeSettings(configured, embedded=False)


def default_root() -> Path:
    """The folder `warehouse` here, or of the project around the working directory, where here is no lake."""
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

    uri = URL.create("sqlite", database=str(root / DATABASE), query={"timeout": str(BUSY_SECONDS)})
    return {
        "type": "sql",
        "uri": str(uri),
        "warehouse": str(root),
    }


def settings_at(root: Path) -> LakeSettings:
    """Settings of an embedded lake in the folder `root`."""
    return LakeSettings(_embedded(root.resolve()), embedded=True)
