"""Objects: named by what they hold, kept once, complete or not there."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_jobs.lake.files.objects import ObjectFolder, sha256_of


def test_bytes_are_kept_once_under_their_hash(tmp_path: Path) -> None:
    """Of any size, the empty one too; what is kept is never written again."""
    folder = ObjectFolder(str(tmp_path / "landed"))
    for data in (b"", b"a", os.urandom(5 << 20)):
        kept = folder.keep(io.BytesIO(data))
        name = hashlib.sha256(data).hexdigest()
        assert kept == (f"{tmp_path}/landed/{name[:2]}/{name}", name, len(data))
        before = os.stat(kept.location).st_mtime_ns
        assert folder.keep(io.BytesIO(data)) == kept and os.stat(kept.location).st_mtime_ns == before
        with folder.open(kept.location) as stream:
            assert sha256_of(stream) == name
    assert not list((tmp_path / "landed").glob(".part-*"))


def test_a_stream_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """Neither an object nor a part of one."""

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        ObjectFolder(str(tmp_path / "landed")).keep(Broken())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_frozen_objects_are_read_from_where_they_are(tmp_path: Path) -> None:
    """Old ones move and are opened by the same location; new ones stay; a damaged one stays, and stops no other."""
    folder, cold = ObjectFolder(str(tmp_path / "lake" / "web" / "landed")), str(tmp_path / "cold")
    old, new = folder.keep(io.BytesIO(b"old")), folder.keep(io.BytesIO(b"new"))
    os.utime(old.location, (1000, 1000))
    assert (folder.freeze(cold, 2000), folder.freeze(cold, 2000)) == (1, 0)
    assert not os.path.exists(old.location) and os.path.exists(new.location)
    assert folder.cold_folders() == [f"{cold}/web"]
    for kept, data in ((old, b"old"), (new, b"new")):
        with folder.open(kept.location) as stream:
            assert stream.read() == data
    damaged = folder.keep(io.BytesIO(b"damaged"))
    os.chmod(damaged.location, 0o644)
    Path(damaged.location).write_bytes(b"DAMAGED")
    os.utime(damaged.location, (1000, 1000))
    os.utime(new.location, (1000, 1000))
    with pytest.raises(OSError, match="1 of 2 objects are damaged here and stay"):
        folder.freeze(cold, 2000)
    assert os.path.exists(damaged.location) and not os.path.exists(new.location)
    with pytest.raises(FileNotFoundError):
        folder.open(f"{folder.root}/ab/{'ab' * 32}")


def test_a_cold_folder_that_cannot_be_written_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since nothing could be deleted or come back then; one is noted by its whole path, wherever it was named."""
    folder = ObjectFolder(str(tmp_path / "lake" / "web" / "landed"))
    kept = folder.keep(io.BytesIO(b"one"))
    with pytest.raises(OSError, match="Unrecognized"), pytest.warns(UserWarning, match="s4"):
        folder.freeze("s4://cold", float("inf"))
    with pytest.raises(NotADirectoryError):
        folder.freeze(f"{kept.location}/cold", float("inf"))
    monkeypatch.chdir(tmp_path)
    assert folder.cold_folders() == [] and folder.freeze("cold", float("inf")) == 1
    monkeypatch.chdir("/")
    with folder.open(kept.location) as stream:
        assert stream.read() == b"one"
    assert folder.delete(kept.sha256) and [file for file in (tmp_path / "cold").rglob("*") if file.is_file()] == []


def test_frozen_objects_come_back(tmp_path: Path) -> None:
    """All but a damaged one, which stays cold; also where it was in both places; a deleted one is in neither."""
    folder, cold = ObjectFolder(str(tmp_path / "lake" / "web" / "landed")), tmp_path / "cold"
    kept = [folder.keep(io.BytesIO(data)) for data in (b"one", b"two", b"three", b"gone")]
    assert folder.freeze(str(cold), float("inf")) == 4 and folder.older(float("inf")) == []
    assert folder.delete(kept[3].sha256) and not folder.delete(kept[3].sha256)
    folder.keep(io.BytesIO(b"two"))
    frozen = next(file for file in cold.rglob(kept[0].sha256))
    frozen.write_bytes(b"ONE")
    with pytest.raises(OSError, match="1 objects are damaged and stay cold, first"):
        folder.thaw()
    assert [file for file in cold.rglob("*") if file.is_file()] == [frozen]
    assert {Path(path).read_bytes() for path in folder.older(float("inf"))} == {b"two", b"three"}
    frozen.write_bytes(b"one")
    assert (folder.thaw(), folder.thaw(), folder.cold_folders()) == (1, 0, [])
    assert Path(kept[0].location).read_bytes() == b"one"


@pytest.mark.nightly
def test_a_writer_that_is_killed_leaves_no_object_that_lies(tmp_path: Path) -> None:
    """Whatever the moment: each object that is there has the hash of its name."""
    code = (
        "import io, sys; from spark_jobs.lake.files.objects import ObjectFolder\n"
        "f = ObjectFolder(sys.argv[1]); n = 0\n"
        "while True: n += 1; f.keep(io.BytesIO(str(n).encode() * 100_000))"
    )
    for number in range(100):
        writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
        time.sleep(0.6 + 0.004 * number)
        writer.kill()
        writer.wait()
    objects = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".part-")]
    assert objects and all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in objects)


def test_a_result_is_kept_under_the_key_of_what_decides_it(tmp_path: Path) -> None:
    """Beside what landed, complete or not there; what was kept first stays."""
    folder = ObjectFolder(str(tmp_path / "landed"))
    key = hashlib.sha256(b"text, model, config").hexdigest()
    assert folder.result(key) is None
    folder.keep_result(key, b"0.5")
    folder.keep_result(key, b"0.7")
    assert folder.result(key) == b"0.5"
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(key)] == [f"results/{key[:2]}/{key}"]
    assert not list(tmp_path.rglob(".part-*"))
