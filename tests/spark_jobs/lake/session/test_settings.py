"""Settings: Spark's are PyIceberg's in other words; what cannot be used is one line."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from headrace.tables.catalogue import again_if_disconnected
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import LakeSettings, load_settings, settings_at
from spark_jobs.lake.session import catalogue, session
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.spark_settings import jar_purposes, spark_properties
from tests.tiers import tries

PREFIX = "spark.sql.catalog.lake."


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any setting of a catalogue."""
    import os

    for name in list(os.environ):
        if name.startswith("PYICEBERG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(patch: pytest.MonkeyPatch, **values: str) -> LakeSettings:
    """Settings as the environment gives them; `__` in a name is a point."""
    for key, value in values.items():
        patch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    return load_settings()


def spark_of(settings: LakeSettings) -> dict[str, str]:
    """Spark's settings of the catalogue, without the prefix."""
    return {
        key.removeprefix(PREFIX): value for key, value in spark_properties(settings).items() if key.startswith(PREFIX)
    }


def test_without_settings_the_lake_is_in_the_working_directory(nowhere: Path) -> None:
    """SQLite and Parquet in ./warehouse, with patience for other writers on both sides."""
    settings = load_settings()
    assert settings.embedded
    assert settings.warehouse == str(nowhere / "warehouse")
    assert settings.properties["uri"] == f"sqlite:///{nowhere}/warehouse/catalog.db?timeout=30"
    assert spark_of(settings)["uri"] == (
        f"jdbc:sqlite:file://{nowhere}/warehouse/catalog.db?journal_mode=WAL&busy_timeout=30000"
    )
    assert jar_purposes(settings) == {"core"}


@pytest.mark.parametrize("seed", range(tries(100, default=5)))
def test_a_lake_may_lie_in_a_folder_of_any_name(tmp_path: Path, seed: int) -> None:
    """What means something in an address, a pattern or an escape is a character of the path, for all who open it."""
    root = tmp_path / "".join(random.Random(seed).choices(["%20", "%", *"#?&=+;:*[]{}!~'\" \\", "é", "水"], k=8))
    settings = settings_at(root)
    assert settings.database == root / "catalog.db"
    open_catalogue(settings).create_namespace("demo")
    address, _, options = spark_of(settings)["uri"].removeprefix("jdbc:sqlite:").partition("?")
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM iceberg_namespace_properties").fetchone() == (1,)
    assert options.startswith("journal_mode=WAL&") and [one.name for one in tmp_path.iterdir()] == [root.name]


def test_sqlite_elsewhere(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of the user's gets the same patience."""
    settings = configure(monkeypatch, uri="sqlite:////srv/lake/catalog.db", warehouse="file:///srv/lake")
    assert not settings.embedded
    assert settings.properties["uri"] == "sqlite:////srv/lake/catalog.db?timeout=30"
    assert spark_of(settings)["uri"].startswith("jdbc:sqlite:file:///srv/lake/catalog.db?")
    assert settings.warehouse == "/srv/lake" and settings.home == Path("/srv/lake")


def test_postgres(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host, port, database, user and password (with its escapes) reach the driver, none of them in the address."""
    settings = configure(
        monkeypatch, uri="postgresql+psycopg2://lake:p%40ss@db.local:5433/iceberg", warehouse="/srv/lake"
    )
    spark = spark_of(settings)
    assert spark["type"] == "jdbc"
    assert spark["uri"] == "jdbc:postgresql://db.local:5433/iceberg"
    assert (spark["jdbc.user"], spark["jdbc.password"]) == ("lake", "p@ss")
    assert jar_purposes(settings) == {"core", "postgres"}
    assert settings.properties["pool_pre_ping"] == "true" and "57P01" in spark["retryable_status_codes"]


def test_a_server_that_starts_anew_fails_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that was reached once is asked again for a minute; an error that stays is raised as it is."""

    class Dialect:
        loaded_dbapi = sqlite3
        refusals = 2

        def connect(self, address: str) -> str:
            self.refusals -= 1
            if self.refusals >= 0:
                raise sqlite3.OperationalError("the database system is starting up")
            return f"connected to {address}"

    monkeypatch.setattr(catalogue, "_RECONNECT_PAUSE_SECONDS", 0)
    assert catalogue._connect_again(Dialect(), None, ("here",), {}) == "connected to here"
    monkeypatch.setattr(catalogue, "_RECONNECT_SECONDS", -1)
    with pytest.raises(sqlite3.OperationalError, match="starting up"):
        catalogue._connect_again(Dialect(), None, ("here",), {})


@pytest.mark.parametrize("ended", [True, False])
def test_a_connection_that_the_server_ended_is_tried_once_more(ended: bool) -> None:
    """What else fails in the database is raised at once; so is the second loss."""
    calls = []

    def load(name: str) -> str:
        calls.append(name)
        if len(calls) < 2:
            raise OperationalError("SELECT 1", {}, Exception("closed"), connection_invalidated=ended)
        return name

    if ended:
        assert again_if_disconnected(load, "notes.documents") == "notes.documents"
    else:
        with pytest.raises(OperationalError):
            again_if_disconnected(load, "notes.documents")
    assert len(calls) == 1 + ended


def test_no_secret_is_on_a_command_line(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all settings of a catalogue those that are secret are the ones that the session gets after its start."""
    settings = configure(
        monkeypatch,
        uri="postgresql://lake:pass-1@db/iceberg",
        warehouse="s3://lake",
        s3__access_key_id="key-2",
        s3__secret_access_key="pass-3",
        s3__session_token="pass-4",
        s3__endpoint="http://store",
    )
    values = spark_properties(settings)
    secret = {value for key, value in values.items() if session._is_secret(key)}
    assert secret == {"pass-1", "key-2", "pass-3", "pass-4"}
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__CREDENTIAL", "id:pass-5")
    rest = spark_properties(configure(monkeypatch, uri="http://catalogue", type="rest", token="pass-6"))
    assert {value for key, value in rest.items() if session._is_secret(key)} >= {"id:pass-5", "pass-6"}


def test_rest(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An http address is a REST catalogue; its credentials go on."""
    settings = configure(monkeypatch, uri="http://catalog:8181", warehouse="main", credential="a:b")
    spark = spark_of(settings)
    assert (spark["type"], spark["uri"], spark["credential"]) == ("rest", "http://catalog:8181", "a:b")


def test_s3(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One endpoint and one pair of keys for both; addresses by path, as stand-ins want it."""
    settings = configure(
        monkeypatch,
        uri="sqlite:////srv/catalog.db",
        warehouse="s3://bucket/lake/",
        **{
            "s3__endpoint": "http://127.0.0.1:9",
            "s3__access_key_id": "k",
            "s3__secret_access_key": "s",
            "s3__region": "r",
        },
    )
    spark = spark_of(settings)
    assert settings.warehouse == spark["warehouse"] == "s3://bucket/lake"
    assert spark["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert spark["s3.endpoint"] == "http://127.0.0.1:9" and spark["s3.path-style-access"] == "true"
    assert (spark["s3.access-key-id"], spark["s3.secret-access-key"]) == ("k", "s")
    assert spark["client.region"] == "r"
    assert jar_purposes(settings) == {"core", "s3"}
    assert settings.home == nowhere / "warehouse", "what is not data stays on this machine"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"uri": "sqlite:////srv/catalog.db"}, "warehouse is not set; set PYICEBERG_CATALOG__LAKE__WAREHOUSE"),
        ({"warehouse": "/srv"}, "uri is not set; set PYICEBERG_CATALOG__LAKE__URI"),
        ({"uri": "mysql://a@b/c", "warehouse": "/srv"}, "neither sqlite:///PATH nor postgresql"),
        ({"uri": "postgresql:///c", "warehouse": "/srv"}, "neither sqlite:///PATH nor postgresql"),
        ({"uri": "http://a", "warehouse": "/srv", "type": "glue"}, "type 'glue' is not supported"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, str], message: str
) -> None:
    """The message names the setting and what to write."""
    with pytest.raises(CatalogueError, match=message) as caught:
        spark_properties(configure(monkeypatch, **values))
    assert "\n" not in str(caught.value)


def test_empty_settings_are_none(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI puts nothing in place of a secret that a repository lacks: the lake is that of the working directory."""
    assert configure(monkeypatch, uri="", warehouse="") == settings_at(nowhere / "warehouse")


def test_a_password_is_in_no_message(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of an address that is wrong nor of one that nobody answers at."""
    with pytest.raises(CatalogueError) as caught:
        spark_properties(configure(monkeypatch, uri="mysql://me:secret@host/db", warehouse="/srv"))
    assert "secret" not in str(caught.value)
    settings = configure(monkeypatch, uri="postgresql+psycopg2://me:secret@127.0.0.1:1/db", warehouse="/srv")
    with pytest.raises(CatalogueError) as caught:
        open_catalogue(settings)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_catalogue_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file where the folder should be, a folder where the file should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogueError, match="check PYICEBERG_CATALOG__LAKE__URI"):
        open_catalogue(settings_at(tmp_path / "file" / "lake"))
    (tmp_path / "lake" / "catalog.db").mkdir(parents=True)
    with pytest.raises(CatalogueError, match="check PYICEBERG_CATALOG__LAKE__URI") as caught:
        open_catalogue(settings_at(tmp_path / "lake"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadBucket operation: curlCode: 7", "cannot be reached; check PYICEBERG"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "refuses the keys"),
        ("AWS Error ExpiredToken during PutObject operation: The provided token has expired.", "have expired; renew"),
        (
            "AWS Error UNKNOWN (HTTP status 507) during PutObject operation",
            "answers AWS Error UNKNOWN (HTTP status 507)",
        ),
    ],
)
def test_what_a_store_says_becomes_one_line_with_the_mend(said: str, mend: str) -> None:
    """PyArrow puts the name of AWS's error into the text of an OSError, in several spellings."""
    with pytest.raises(CatalogueError) as raised, catalogue.catalogue_errors():
        raise OSError(f"When getting information for key 'a\nb': {said}")
    assert mend in str(raised.value) and "\n" not in str(raised.value)


def test_other_errors_of_files_stay_what_they_are() -> None:
    """A full disk is told by those who know of disks."""
    with pytest.raises(OSError, match="No space left"), catalogue.catalogue_errors():
        raise OSError(28, "No space left on device")


def test_a_new_lake_keeps_a_write_ahead_log_before_spark_asks_for_it(tmp_path: Path) -> None:
    """A connection that switches later fails at once, with whatever patience, while another one writes."""
    settings = settings_at(tmp_path)
    open_catalogue(settings)
    writer = sqlite3.connect(str(settings.database), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert sqlite3.connect(str(settings.database)).execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    writer.close()
