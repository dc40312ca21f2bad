"""Several places of one table's files: the quickest is read, another where it fails, and no row changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.exceptions import PackedTableError, ServerStartError
from blender_service.server.blender import Blender
from blender_service.tables.mirrors import PASSED_OVER_SECONDS, PROBE_EVERY, VARIABLE, Mirrors
from tests.blender_service.packed_tables import PackedFixture


def files_of(lake: Catalog, table: str) -> list[Path]:
    """Its data files."""
    return [Path(task.file.file_path.removeprefix("file://")) for task in lake.load_table(table).scan().plan_files()]


def rows_of(lake: Catalog, code: PackedFixture) -> tuple[list[bytes], Blender]:
    """All rows of a blend of the table, read by a server that has just started."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(code.identifier),)))
    return [batch.input_ids.tobytes() for batch in blender.open(config.blend_id).read(0)], blender


def test_a_row_comes_from_whatever_place_has_it(
    lake: Catalog, code: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are gone, cut, damaged or of other rows at either place; at both the error names the file."""
    expected, _ = rows_of(lake, code)
    files = files_of(lake, code.identifier)
    home, copy = str(files[0].parents[3]), tmp_path / "copy"
    location = lake.load_table(code.identifier).location()
    home = location[: location.index(home) + len(home)]
    shutil.copytree(files[0].parents[3], copy)
    monkeypatch.setenv(VARIABLE, f"{home}={copy}")
    copies = [copy / file.relative_to(files[0].parents[3]) for file in files]
    whole = files[0].read_bytes()
    damages = {
        "gone": lambda path: path.unlink(),
        "cut": lambda path: path.write_bytes(whole[: len(whole) // 2]),
        "damaged": lambda path: path.write_bytes(whole[:200] + bytes(60) + whole[260:]),
        "of other rows": lambda path: path.write_bytes(files[-1].read_bytes()) if len(files) > 1 else path.unlink(),
    }
    for damage in damages.values():
        for path in (files[0], copies[0]):
            damage(path)
            assert rows_of(lake, code)[0] == expected
            path.write_bytes(whole)
    files[0].unlink()
    copies[0].unlink()
    with pytest.raises(PackedTableError, match=files[0].name):
        rows_of(lake, code)


def test_the_quickest_place_is_read_and_others_are_tried_now_and_then() -> None:
    """By what reads took; a place that failed is passed over for a minute, also by the tries."""
    now = [0.0]
    mirrors = Mirrors({"s3://lake": ["/near", "/far"]}, lambda: now[0])
    seconds = {"s3://lake": 1.0, "/near": 0.1, "/far": 5.0}

    def read() -> str:
        now[0] += 1
        root, path = mirrors.of("s3://lake/a/b.parquet")[0]
        assert path == f"{root}/a/b.parquet"
        mirrors.took(root, seconds[root], 1 << 20)
        return root

    assert {read() for _ in range(3)} == set(seconds)
    chosen = [read() for _ in range(10 * PROBE_EVERY)]
    assert chosen.count("/near") >= len(chosen) - 11
    assert {"s3://lake", "/far"} <= set(chosen)
    mirrors.failed("/near", "/near/a/b.parquet", OSError("gone"))
    assert "/near" not in {read() for _ in range(int(PASSED_OVER_SECONDS) - 1)}
    now[0] += 2
    assert read() == "/near"
    seconds.update({"/near": 10.0})
    assert [read() for _ in range(30)][-1] == "s3://lake"
    assert mirrors.of("s3://other/c.parquet") == [("", "s3://other/c.parquet")]


@pytest.mark.parametrize("given", ["s3://a", "s3://a=", "=x", "s3://a=s3://a"])
def test_a_malformed_list_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a line that names the variable."""
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ServerStartError, match=f"{VARIABLE}: '"):
        Mirrors.of_environment()
