"""The jars that Spark loads are the locked ones or none."""

import hashlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from dagster_project.cli.output import progress_shown
from headrace.tables.settings import settings_at
from spark_jobs.exceptions import SetupError
from spark_jobs.lake.session import jars, session
from spark_jobs.lake.session.session import require_installation
from tests.tiers import needs_spark

CONTENT = b"not really a jar"
FAKE = jars.Jar("org.example", "fake", "1.0", hashlib.sha256(CONTENT).hexdigest(), "core")


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty jar directory, and a lock of one fake jar."""
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# comment\norg.example:fake:1.0 {FAKE.sha256} core\n", "utf-8")
    monkeypatch.setattr(jars, "_LOCK", lock)
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


def _download(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Replace Ivy by a program that "downloads" this content."""

    def command(jar: jars.Jar, scratch: Path) -> list[str]:
        program = f"import pathlib; pathlib.Path({str(scratch / jar.file_name)!r}).write_bytes({content!r})"
        return [sys.executable, "-c", program]

    monkeypatch.setattr(jars, "_ivy_command", command)


def test_every_jar_is_pinned_by_version_and_hash() -> None:
    """No ranges, no snapshots, full SHA-256, and a purpose that a lake can have."""
    for jar in jars.locked_jars():
        assert re.fullmatch(r"\d+(\.\d+)+", jar.version)
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.purpose in {"core", "postgres", "s3", "kafka"}
    assert len(jars.locked_jars(["core"])) == 2


def test_fetch_puts_the_checked_jar_in_place(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """After a fetch the jar is there, alone; a second fetch has nothing to do."""
    _download(monkeypatch, CONTENT)
    assert jars.fetch() == [directory / "fake-1.0.jar"]
    assert jars.jar_paths() == [directory / "fake-1.0.jar"]
    assert [path.name for path in directory.iterdir()] == ["fake-1.0.jar"]
    assert jars.fetch() == []


def test_fetched_jar_of_another_content_is_refused(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A repository that serves something else gets nothing into the directory."""
    _download(monkeypatch, b"evil")
    with pytest.raises(SetupError, match=r"fake-1.0.jar has SHA-256 .* wants") as raised:
        jars.fetch()
    assert "\n" not in str(raised.value)
    assert list(directory.iterdir()) == []


def test_tampered_jar_is_refused_at_every_session_start(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A jar that changed after it was fetched never reaches Spark, even with the old size and time."""
    _download(monkeypatch, CONTENT)
    [path] = jars.fetch()
    path.write_bytes(CONTENT[::-1])
    with pytest.raises(SetupError, match="remove the file and fetch again"):
        jars.jar_paths()


def test_a_session_fetches_what_is_missing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line as it begins, where progress is shown; who only looks is told the command that fetches."""
    _download(monkeypatch, CONTENT)
    with pytest.raises(SetupError, match=r"fake-1.0.jar is not in .*-m spark_jobs.lake.session.jars core"):
        jars.jar_paths()
    with progress_shown(True):
        assert jars.installed_jars() == [directory / "fake-1.0.jar"]
        assert jars.installed_jars() == [directory / "fake-1.0.jar"]
    assert capfd.readouterr() == ("", f"fetching fake-1.0.jar (1 of 1) into {directory}\n")


@needs_spark
def test_a_run_without_a_jar_that_can_be_had_is_a_mistake_found_before_any_step(
    monkeypatch: pytest.MonkeyPatch, directory: Path, tmp_path: Path
) -> None:
    """A missing installation is status 2, not a failed step, and the line says how to mend it."""
    monkeypatch.setattr(jars, "_ivy_command", lambda *_: [sys.executable, "-c", "print('error: UnknownHost')"])
    with (
        progress_shown(False),
        pytest.raises(SetupError, match=r"cannot fetch fake-1.0.jar: error: UnknownHost; check"),
    ):
        require_installation(settings_at(tmp_path))


def test_unreachable_repository_is_one_line_with_three_ways_out(
    monkeypatch: pytest.MonkeyPatch, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ivy's report of fifty lines becomes the one that tells, and the command ends with status 2."""
    report = "resolving\\n:::: ERRORS\\n\\tServer access error at url somewhere (UnknownHostException)\\n:: USE VERBOSE"
    monkeypatch.setattr(jars, "_ivy_command", lambda *_: [sys.executable, "-c", f"print('{report}')"])
    monkeypatch.setattr(sys, "argv", ["jars"])
    assert jars.main() == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "Server access error at url somewhere" in message
    assert "HEADRACE_IVY_SETTINGS" in message
    assert str(directory) in message


def test_unwritable_directory_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file where the directory should be is reported with the variable that names another."""
    blocker = tmp_path / "file"
    blocker.write_text("", "utf-8")
    monkeypatch.setenv("HEADRACE_JARS", str(blocker / "jars"))
    with pytest.raises(SetupError, match=r"cannot write to .*; set HEADRACE_JARS"):
        jars.fetch()


def test_unknown_purpose_is_refused() -> None:
    """A typing error does not silently mean no jar."""
    with pytest.raises(SetupError, match="nothing is for postgre; choose among core, kafka, postgres, s3"):
        jars.locked_jars(["postgre"])


def test_proxy_of_the_environment_reaches_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java gets as options what other programs read from the environment."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert jars._proxy_options() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
    monkeypatch.delenv("https_proxy")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    assert jars._proxy_options() == []


def test_a_users_installation_has_no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PySpark without its jars, as `make setup-user` leaves it: no way is left to Spark, and the mend is named."""
    monkeypatch.setattr(jars, "java_home", lambda: tmp_path)
    assert jars.has_spark()
    (tmp_path / "__init__.py").write_text("")
    spec = importlib.util.spec_from_file_location("pyspark", tmp_path / "__init__.py")
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: spec)
    assert not jars.has_spark()
    monkeypatch.setenv("HEADRACE_ENGINE", "spark")
    monkeypatch.setattr(session, "java_home", lambda: tmp_path)
    with pytest.raises(SetupError, match="run: make setup-spark"):
        session.require_installation(settings_at(tmp_path))


def test_jar_comes_from_a_mirror_by_the_real_ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With HEADRACE_IVY_SETTINGS the Ivy inside pyspark asks that mirror (here: a directory) and nobody else."""
    [_, sqlite] = jars.locked_jars(["core"])
    source = jars.jar_directory()
    if not (source / sqlite.file_name).exists():
        pytest.skip("the jars are not fetched yet; run: make setup")
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / sqlite.file_name).symlink_to(source / sqlite.file_name)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{mirror}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>',
        "utf-8",
    )
    monkeypatch.setenv("HEADRACE_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "locked_jars", lambda _=None: [sqlite])
    assert jars.fetch() == [tmp_path / "jars" / sqlite.file_name]
