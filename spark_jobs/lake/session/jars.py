"""The jars that Spark needs for a lake: pinned in `jars.lock`, fetched once, checked by SHA-256 every time.

The first Spark session fetches what is missing, and so does `python -m spark_jobs.lake.session.jars [PURPOSE ...]` (by
default what every lake needs: `core`), by the Ivy inside pyspark, which knows the central repository: neither Maven nor
a Spark session is needed. The jars lie in `share/headrace/jars` of the environment, or in `HEADRACE_JARS`. Two ways
without that repository: put the files there by hand, or name a mirror in an Ivy settings file, `HEADRACE_IVY_SETTINGS`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from spark_jobs.exceptions import SetupError
from spark_jobs.lake.session.java import TRUST_STORE_PASSWORD, java_home, system_trust_store
from spark_jobs.progress import tell

CORE: Final = frozenset({"core"})
"""What the embedded lake needs; `postgres` and `s3` come on top for those."""

_LOCK: Final = Path(__file__).with_name("jars.lock")
_FETCH_SECONDS: Final = 600
# A JVM ignores an archive that does not fit it, and logs nothing.
QUIET: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


@dataclass(frozen=True)
class Jar:
    """One line of `jars.lock`."""

    group: str
    artifact: str
    version: str
    sha256: str
    purpose: str

    @property
    def file_name(self) -> str:
        """Its name in the central repository and in the jar directory."""
        return f"{self.artifact}-{self.version}.jar"


def locked_jars(purposes: Iterable[str] | None = None) -> list[Jar]:
    """The jars of these purposes, in the order of `jars.lock`; all of them by default.

    Raises:
        SetupError: no jar has one of the purposes.
    """
    lines = (line.split() for line in _LOCK.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    jars = [_parse(*fields) for fields in lines]
    wanted = {jar.purpose for jar in jars} if purposes is None else set(purposes)
    unknown = wanted - {jar.purpose for jar in jars}
    if unknown:
        purposes_there = ", ".join(sorted({jar.purpose for jar in jars}))
        raise SetupError(f"jars: nothing is for {', '.join(sorted(unknown))}; choose among {purposes_there}")
    return [jar for jar in jars if jar.purpose in wanted]


def jar_directory() -> Path:
    """Where the jars lie: `HEADRACE_JARS`, else inside the Python environment."""
    return Path(os.environ.get("HEADRACE_JARS") or Path(sys.prefix) / "share" / "headrace" / "jars").absolute()


def jar_paths(purposes: frozenset[str] = CORE) -> list[Path]:
    """The local jars of these purposes, after their content was checked (0.1 s for 60 MB).

    Raises:
        SetupError: a jar is missing or not the locked one.
    """
    directory = jar_directory()
    for jar in locked_jars(purposes):
        path = directory / jar.file_name
        if not path.is_file():
            mend = f"{Path(sys.executable).name} -m spark_jobs.lake.session.jars {' '.join(sorted(purposes))}"
            raise SetupError(f"jars: {jar.file_name} is not in {directory}; fetch it with: {mend}")
        _check(jar, path)
    return [directory / jar.file_name for jar in locked_jars(purposes)]


def missing_jars(purposes: frozenset[str] = CORE) -> list[Jar]:
    """The jars of these purposes that are not there."""
    return [jar for jar in locked_jars(purposes) if not (jar_directory() / jar.file_name).is_file()]


def fetch(purposes: frozenset[str] = CORE) -> list[Path]:
    """Get the missing jars of these purposes and return the new ones. A jar appears whole and checked, or not at all.

    Raises:
        SetupError: Java is missing, a jar cannot be had or is not the locked one, or the directory is not writable.
    """
    directory = jar_directory()
    missing = missing_jars(purposes)
    if not missing:
        return []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=directory) as scratch:
            new = []
            for number, jar in enumerate(missing, 1):
                tell(f"fetching {jar.file_name} ({number} of {len(missing)}) into {directory}")
                new.append(_fetch_one(jar, Path(scratch)).replace(directory / jar.file_name))
            return new
    except OSError as error:
        raise SetupError(f"jars: cannot write to {directory}: {error.strerror}; set HEADRACE_JARS") from error


def installed_jars(purposes: frozenset[str] = CORE) -> list[Path]:
    """The local jars of these purposes, checked; those that are missing are fetched.

    Raises:
        SetupError: Java is missing, a jar cannot be had or is not the locked one, or the directory is not writable.
    """
    fetch(purposes)
    return jar_paths(purposes)


def archive_path(purposes: frozenset[str] = CORE) -> Path:
    """The archive of classes (`class_archive`) for this Java, the installed Spark and the jars of some purposes.

    Raises:
        SetupError: Java is missing.
    """
    import pyspark

    java = java_home()
    release = java / "release"
    facts = [str(java.resolve()), release.read_text() if release.is_file() else "", pyspark.__version__]
    facts += [pyspark.__file__, str(jar_directory()), *(jar.sha256 for jar in locked_jars(purposes))]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return jar_directory() / f"classes-{name}.jsa"


def archive_options(purposes: frozenset[str]) -> str:
    """Options of a JVM that uses the archive of classes; empty where there is none.

    The jars must then stand on the JVM's own class path, since only such classes are archived.
    """
    path = archive_path(purposes)
    return " ".join((f"-XX:SharedArchiveFile={path}", *QUIET)) if path.is_file() else ""


def _parse(coordinates: str, sha256: str, purpose: str) -> Jar:
    group, artifact, version = coordinates.split(":")
    return Jar(group, artifact, version, sha256, purpose)


def _check(jar: Jar, path: Path) -> None:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != jar.sha256:
        raise SetupError(
            f"jars: {path} has SHA-256 {digest[:12]}.., {_LOCK.name} wants {jar.sha256[:12]}..; "
            "remove the file and fetch again"
        )


def _fetch_one(jar: Jar, scratch: Path) -> Path:
    """Retrieve one jar, and nothing it depends on, into `scratch`."""
    path = scratch / jar.file_name
    try:
        done = subprocess.run(
            _ivy_command(jar, scratch), capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        output = f"no answer in {_FETCH_SECONDS} s"
    if not path.is_file():
        raise SetupError(
            f"jars: cannot fetch {jar.file_name}: {_reason(output)}; "
            f"check the network, name a mirror in HEADRACE_IVY_SETTINGS, or put the file into {jar_directory()}"
        )
    _check(jar, path)
    return path


def require_spark() -> Path:
    """The jar of Ivy, as one of all that Spark consists of.

    Raises:
        SetupError: they are not here, as after `make setup-user`: Sail needs PySpark's Python alone.
    """
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    ivy = next(home.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise SetupError("jars: Spark itself is not installed here, only its Python; run: make setup-spark")
    return ivy


def has_spark() -> bool:
    """Whether Spark is installed here, with a Java that it runs on."""
    try:
        java_home(), require_spark()
    except SetupError:
        return False
    return True


def _ivy_command(jar: Jar, scratch: Path) -> list[str]:
    ivy = require_spark()
    settings = os.environ.get("HEADRACE_IVY_SETTINGS")
    return [
        str(java_home() / "bin" / "java"),
        *_proxy_options(),
        *_trust_options(scratch),
        *("-cp", str(ivy), "org.apache.ivy.Main"),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(scratch / "ivy")),
        *("-dependency", jar.group, jar.artifact, jar.version),
        *("-retrieve", f"{scratch}/[artifact]-[revision].[ext]", "-notransitive", "-types", "jar"),
    ]


def _proxy_options() -> list[str]:
    """Java's options for the proxy, which it does not take from the environment as other programs do."""
    address = urlsplit(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or "")
    if not address.hostname:
        return []
    return [f"-Dhttps.proxyHost={address.hostname}", f"-Dhttps.proxyPort={address.port or 80}"]


def _trust_options(scratch: Path) -> list[str]:
    store = system_trust_store()
    if store is None:
        return []
    path = scratch / "certificates.jks"
    path.write_bytes(store)
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}",
    ]


def _reason(output: str) -> str:
    """The line of Ivy's report that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() and not line.startswith("::")]
    telling += [line for line in lines if "not found" in line]
    return (telling or lines or ["it said nothing"])[0].strip(": ")[:300]


def main() -> int:
    """Fetch the jars of the purposes on the command line; status 2 and one line where that fails."""
    purposes = frozenset(sys.argv[1:]) or CORE
    try:
        new = fetch(purposes)
        count = len(jar_paths(purposes))
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(f"set-up: {count} jars checked, {len(new)} of them new, in {jar_directory()}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
