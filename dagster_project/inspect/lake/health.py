"""What this machine and the lake lack for a run: Java, jars, disk, memory, ports, catalogue, store, clock, cluster.

Each finding is a value; `headrace doctor` prints them. Nothing is changed, but for one small object that is written to
the warehouse, read, and removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headrace.process.memory_limit import memory_limit
from headrace.tables.catalogue import metadata_locations
from headrace.tables.exceptions import WrongLakeError
from headrace.tables.identity import require_lake, require_newest
from headrace.tables.settings import LakeSettings
from spark_jobs.exceptions import SetupError, SparkJobsError
from spark_jobs.lake.engine.choice import ENGINE, SAIL, SAIL_VERSION, Choice, Needs, choice, require_settings
from spark_jobs.lake.engine.embedded import require_sail
from spark_jobs.lake.engine.memory import BESIDE_HEAP, SPARK_MEMORY, embedded_memory, spark_fits, spark_heap
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.session.catalogue import connect, open_catalogue, require_folder, require_writable
from spark_jobs.lake.session.cluster import is_local
from spark_jobs.lake.session.jars import archive_path, jar_paths, missing_jars, require_spark
from spark_jobs.lake.session.java import java_home, java_version
from spark_jobs.lake.session.object_store import require_store
from spark_jobs.lake.session.spark_settings import jar_purposes

_GIB = 1024**3
_LEAST_FREE_DISK, _ENOUGH_FREE_DISK = 1 * _GIB, 10 * _GIB
_MOST_CLOCK_SECONDS = 5.0  # leases end after minutes; an S3 store refuses requests 15 minutes off
_CONNECT_SECONDS = 3.0
_OF_SPARK = ("java", "jars", "spark")
PORTS = {"headrace ui": 3000, "headrace serve": 7170}


@dataclass(frozen=True)
class HealthFinding:
    """The result of one look.

    Attributes:
        subject: what was looked at.
        state: `ok`, `warning` (runs work, or some of them) or `fault` (runs do not work).
        text: what was found, with the mend where there is something to mend.
    """

    subject: str
    state: str
    text: str


def examine(settings: LakeSettings) -> Iterator[HealthFinding]:
    """Look at everything in turn, what others need first."""
    looks: dict[str, Callable[[LakeSettings], tuple[str, str]]] = {
        "engine": _engine,
        "java": _java,
        "jars": _jars,
        "memory": _memory,
        "disk": _disk,
        "spark": _spark,
        "catalogue": _catalogue,
        "store": _store,
        "lake": _lake,
    }
    skipped = _OF_SPARK if os.environ.get(ENGINE) == SAIL else ()
    for subject, look in looks.items():
        if subject in skipped:
            continue
        try:
            yield HealthFinding(subject, *look(settings))
        except (SparkJobsError, OSError) as error:
            text = " ".join(str(error).split()).removeprefix(f"{subject}: ")
            if subject == "store" and not isinstance(error, SparkJobsError):
                text += "; check PYICEBERG_CATALOG__LAKE__WAREHOUSE and the settings S3__.. beside it"
            spared = subject in _OF_SPARK and _takes_sail(settings)
            yield HealthFinding(subject, "warning" if spared else "fault", text)
    for program, port in PORTS.items():
        yield _port(program, port)


def _engine(settings: LakeSettings) -> tuple[str, str]:
    if os.environ.get(ENGINE) == SAIL:
        require_sail()
    require_settings()
    if not _takes_sail(settings):
        return "ok", f"Spark: {_small_run(settings).reason}"
    larger = ", and Spark for larger runs and what only Spark does"
    return "ok", f"Sail {SAIL_VERSION}{larger if os.environ.get(ENGINE) != SAIL else ''}"


def _takes_sail(settings: LakeSettings) -> bool:
    """Whether small runs take Sail, so that they need nothing of Spark."""
    with contextlib.suppress(SetupError):  # of the settings, which the engine's finding tells
        return _small_run(settings).engine == SAIL
    return False


def _small_run(settings: LakeSettings) -> Choice:
    return choice(settings.warehouse, lambda: Needs(0))


def _java(settings: LakeSettings) -> tuple[str, str]:
    home = java_home()
    return "ok", f"{java_version(home) or 21} in {home}"


def _jars(settings: LakeSettings) -> tuple[str, str]:
    require_spark()
    purposes = sorted(jar_purposes(settings))
    python = Path(sys.executable).name
    if missing := missing_jars(jar_purposes(settings)):
        names, mend = ", ".join(jar.file_name for jar in missing), f"{python} -m spark_jobs.lake.session.jars"
        text = f"the first run on Spark will fetch {names}; beforehand: {mend} {' '.join(purposes)}"
        return "ok" if _takes_sail(settings) else "warning", text
    paths = jar_paths(jar_purposes(settings))
    text = f"{len(paths)} jars for {', '.join(purposes)} in {paths[0].parent}"
    if archive_path(jar_purposes(settings)).is_file():
        return "ok", text
    mend = f"{python} -m spark_jobs.lake.session.class_archive {' '.join(purposes)}"
    return "ok", f"{text}; Spark starts some seconds sooner with an archive of their classes: {mend}"


def _memory(settings: LakeSettings) -> tuple[str, str]:
    """What is free for both engines; a Spark on this machine may be told to take more than that."""
    memory, heap = memory_limit(), spark_heap()
    wanted = _bytes_of(heap) + BESIDE_HEAP
    text = f"{memory.free / _GIB:.1f} GiB are free, by {memory.source}; a run on Sail takes up to "
    text += f"{embedded_memory() / _GIB:.1f}, Spark on this machine {wanted / _GIB:.1f}"
    if is_local(_master()) and not spark_fits():
        text += "; that is little for Spark, so runs take Sail whatever they read"
    if memory.free >= wanted or not is_local(_master()):
        return "ok", text
    return "warning", f"{text}; end other programs, or set {SPARK_MEMORY} to less (now {heap})"


def _bytes_of(size: str) -> int:
    """Bytes of a size as Spark writes it: 512m, 3g; without a unit it is MiB."""
    unit = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}.get(size[-1:].lower())
    number = size[:-1] if unit else size
    if not number.isdigit():
        raise SparkJobsError(f"memory: HEADRACE_SPARK_MEMORY is {size!r}; write e.g. 512m or 3g")
    return int(number) * (unit or 2**20)


def _disk(settings: LakeSettings) -> tuple[str, str]:
    # A folder that does not exist yet will be made on the disk of the nearest one above it that does.
    folder = next(place for place in (settings.home, *settings.home.absolute().parents) if place.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / _GIB:.1f} GiB are free in {folder}"
    if free >= _ENOUGH_FREE_DISK:
        return "ok", text
    mend = "free some space, or name another warehouse in PYICEBERG_CATALOG__LAKE__WAREHOUSE"
    return ("warning" if free >= _LEAST_FREE_DISK else "fault"), f"{text}; {mend}"


def _spark(settings: LakeSettings) -> tuple[str, str]:
    master = _master()
    address = urlsplit(master)
    if address.scheme != "spark":
        return "ok", f"{master}"
    first = address.netloc.split(",")[0]
    host, _, port = first.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return "fault", f"{master} does not answer ({error}); start the master, or correct HEADRACE_SPARK_MASTER"
    return "ok", f"{master} answers"


def _master() -> str:
    return os.environ.get("HEADRACE_SPARK_MASTER", "local[*]")


def _catalogue(settings: LakeSettings) -> tuple[str, str]:
    require_writable(settings)
    if not settings.is_there:
        require_folder(settings)
        return "ok", f"{settings.database} is not there yet; the first run makes it"
    started = time.monotonic()
    names = open_catalogue(settings, look_at_store=False).list_namespaces()
    address = settings.properties.get("uri", "").rsplit("@", 1)[-1].split("?")[0]
    return "ok", f"{address}, {len(names)} namespaces, {1000 * (time.monotonic() - started):.0f} ms"


def _store(settings: LakeSettings) -> tuple[str, str]:
    """Write, read and remove an object, and compare the time that the store gives it with the clock of this machine."""
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import PyArrowFileIO

    require_store(settings)
    try:
        if settings.is_there:
            require_lake(connect(settings))
    except WrongLakeError:
        return "warning", f"{settings.warehouse} answers; nothing is written there, for it is another lake's"
    except SparkJobsError:  # of the catalogue, which has a line of its own
        pass
    folder = settings.warehouse
    if "://" not in folder:  # one that is not there yet will be made on the disk of the nearest above it that is
        folder = str(next(above for above in (Path(folder), *Path(folder).absolute().parents) if above.is_dir()))
    place = f"{folder}/.doctor-{uuid.uuid4().hex}"
    files = load_file_io({**settings.properties, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}, place)
    assert isinstance(files, PyArrowFileIO)
    started, now = time.monotonic(), time.time()
    output = files.new_output(place)
    with output.create() as stream:
        stream.write(b"headrace")
    try:
        with files.new_input(place).open() as stream:
            if stream.read() != b"headrace":
                return "fault", f"{settings.warehouse} gives other bytes back than were written; use another store"
        seconds = time.monotonic() - started
        written = output._filesystem.get_file_info(output._path).mtime_ns
    finally:
        files.delete(place)
    text = f"{settings.warehouse}, written and read in {1000 * seconds:.0f} ms"
    off = (written or now * 1e9) / 1e9 - now - seconds / 2
    if abs(off) > _MOST_CLOCK_SECONDS + seconds:
        return "fault", f"{text}; its clock and that of this machine differ by {off:.0f} s: set both by NTP"
    return "ok", f"{text}, its clock agrees with this machine's"


def _lake(settings: LakeSettings) -> tuple[str, str]:
    """Compare the identities of catalogue and warehouse, and open a table: its metadata, and a data file's footer."""
    import pyarrow.parquet as pq

    from spark_jobs.lake.files.storage import open_input

    if not settings.is_there:
        return "ok", f"{settings.warehouse} has no table yet"
    catalogue = connect(settings)
    require_newest(catalogue)
    tables = metadata_locations(catalogue)
    if not tables:
        return "ok", f"{settings.warehouse} has no table yet"
    name = LEDGER if LEDGER in tables else next(iter(tables))
    try:
        table = catalogue.load_table(name)
        files = [task.file.file_path for task in table.scan().plan_files()][:1]
        for path in files:
            with open_input(path, settings.properties) as stream:
                pq.read_metadata(stream)
    except FileNotFoundError as error:
        restore = "restore the files of its warehouse; a lake that was moved is relocated: headrace relocate --help"
        return "fault", f"{name} cannot be opened: {' '.join(str(error).split())}; {restore}"
    return "ok", f"{len(tables)} tables in {settings.warehouse}, {name} opens"


def _port(program: str, port: int) -> HealthFinding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return HealthFinding(f"port {port}", "warning", f"{error.strerror}; start `{program}` with another --port")
    return HealthFinding(f"port {port}", "ok", f"free for `{program}`")
