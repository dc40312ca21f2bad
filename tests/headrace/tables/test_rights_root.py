"""Snapshots say the root of the opt-out register, at the cost of one look-up in a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from headrace.tables import rights_root
from headrace.tables.rights_root import OPT_OUTS, ROOT_PROPERTY
from tests.blender_service.packed_tables import create_packed, open_lake


def stated(table: Table) -> list[str | None]:
    """The roots of its snapshots, the oldest first."""
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    return [None if summary is None else summary.additional_properties.get(ROOT_PROPERTY) for summary in summaries]


def test_a_root_is_looked_up_once_for_many_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after each commit to the register; a lake that is only looked at writes none."""
    lake = open_lake(tmp_path)
    packed = create_packed(lake, "main.packed_notes_16").append(2, 1)
    lookups = []
    look_up = rights_root.current_root
    monkeypatch.setattr(rights_root, "current_root", lambda catalogue: lookups.append(1) or look_up(catalogue))
    lake.is_guarded = True  # type: ignore[attr-defined]
    for _ in range(5):
        packed.append(1, 2)
    assert len(lookups) == 1 and stated(packed.table) == [None] * 6
    lake.create_namespace_if_not_exists("system")
    register = lake.create_table(OPT_OUTS, packed.table.schema())
    for count in (1, 2):
        register.transaction().set_properties({ROOT_PROPERTY: f"{count}:ab"}).commit_transaction()
        for _ in range(3):
            packed.append(1, 3)
    assert len(lookups) == 3 and stated(packed.table)[6:] == ["1:ab"] * 3 + ["2:ab"] * 3
    assert stated(lake.load_table(OPT_OUTS)) == []
    lake.is_guarded = False  # type: ignore[attr-defined]
    packed.append(1, 4)
    assert stated(packed.table)[-1] is None


def test_a_look_at_a_lake_writes_the_root_too(tmp_path: Path) -> None:
    """Commits go through the catalogue that it looks at."""
    lake = open_lake(tmp_path)
    packed = create_packed(lake, "main.packed_notes_16")
    lake.create_namespace_if_not_exists("system")
    lake.create_table(OPT_OUTS, packed.table.schema(), properties={ROOT_PROPERTY: "7:cd"})
    lake.is_guarded = True  # type: ignore[attr-defined]
    look = lake.at_one_look()  # type: ignore[attr-defined]
    packed.catalogue = look
    packed.append(1, 1)
    assert stated(lake.load_table("main.packed_notes_16")) == ["7:cd"]
