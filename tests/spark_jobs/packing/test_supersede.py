"""Which documents leave packed tables when their source has replaced them, and which come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from headrace_features.models.semantic.removals import SEMANTIC_REMOVALS
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.membership.revisions import REVISIONS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.excisions import SUPERSEDE_PREFIX, excised_documents, record_excisions
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.supersede import Superseded, _decided, excise_superseded, reinstate

if TYPE_CHECKING:
    from tests.conftest import LakeAt

PACKED = "main.packed_notes_64"


def fill(catalogue: Catalog, declared: Table, rows: list[dict[str, Any]]) -> None:
    """A table of the corpus with these rows; other columns are null, or nothing where they may not be."""
    table = ensure_table(catalogue, f"main.{declared.name}", declared, {})
    schema = table.schema().as_arrow()
    nothing = {pa.string(): "", pa.large_string(): "", pa.int32(): 0, pa.int64(): 0, pa.float64(): 0.0}
    empty = {field.name: None if field.nullable else nothing.get(field.type) for field in schema}
    table.append(pa.Table.from_pylist([{**empty, **row} for row in rows], schema=schema))


def revised(increment: int, doc_id: str, standing: str, path: str, leaves: bool = False) -> dict[str, Any]:
    """A row of `revisions`."""
    return {"increment": increment, "doc_id": doc_id, "standing": standing, "path_id": path, "leaves": leaves}


def no_spark() -> NoReturn:
    """What must not be asked for a session."""
    raise AssertionError("a session was started")


def test_superseded_documents_leave_but_for_those_that_stand_for_a_present_text(
    lake_at: LakeAt, tmp_path: Path
) -> None:
    """Witnesses of what is still there stay, at the applied threshold and through another one; so does what is held.

    The threshold is that of the kind of the document that went.
    """
    lake = lake_at(tmp_path)
    names = ["plain", "exact", "near", "below", "coded", "chain", "stale", "back"]
    rows = [revised(1, name, "superseded", name) for name in names]
    rows += [revised(1, f"new-{name}", "latest", name) for name in names]
    rows += [revised(0, "back", "latest", "back"), revised(2, "old-copy", "gone", "other")]
    rows += [revised(1, "again", "superseded", "again"), revised(2, "again", "latest", "again")]
    fill(lake.catalogue, REVISIONS, rows)
    copies = [("copy", "exact"), ("old-copy", "stale"), ("far-copy", "between")]
    fill(lake.catalogue, EXACT_DUPLICATES, [{"doc_id": one, "witness_doc_id": other} for one, other in copies])
    near = [
        (0.8, "like", "near"),
        (0.7, "little-like", "below"),
        (0.7, "code-like", "coded"),
        (0.8, "between", "chain"),
    ]
    fill(
        lake.catalogue,
        REMOVALS,
        [{"threshold": at, "doc_id": one, "witness_doc_id": other} for at, one, other in near],
    )
    kinds = [{"doc_id": one, "kind": "code" if one == "code-like" else "prose"} for _, one, _ in near]
    fill(lake.catalogue, MEMBERS, kinds)
    applied = KindThreshold(code=0.7)
    leaving, staying = _decided(lake, "main", [*names, "again"], ["new-back"], applied, ("superseded",))
    assert leaving == ["below", "plain", "stale"]
    assert staying == ("back", "chain", "coded", "exact", "near")
    assert _decided(lake, "main", names, [], applied, ()) == ([], ())


def test_a_witness_of_what_means_the_same_stays_through_all_levels(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of one that goes for a similar one, which goes for one that means the same: where the level counts."""
    lake = lake_at(tmp_path)
    names = ["similar", "meant"]
    fill(lake.catalogue, REVISIONS, [revised(1, name, "superseded", name) for name in names])
    fill(lake.catalogue, EXACT_DUPLICATES, [{"doc_id": "copy", "witness_doc_id": "first"}])
    fill(lake.catalogue, REMOVALS, [{"threshold": 0.8, "doc_id": "first", "witness_doc_id": "similar"}])
    fill(lake.catalogue, SEMANTIC_REMOVALS, [{"threshold": 0.9, "doc_id": "similar", "witness_doc_id": "meant"}])
    fill(lake.catalogue, MEMBERS, [{"doc_id": "first", "kind": "prose"}])
    assert _decided(lake, "main", names, [], KindThreshold(), ("superseded",)) == (["meant"], ("similar",))
    monkeypatch.setattr("spark_jobs.packing.supersede._selections_of_duplicates", lambda *_: [SEMANTIC_REMOVALS.name])
    assert _decided(lake, "main", names, [], KindThreshold(), ("superseded",)) == ([], ("meant", "similar"))


def test_a_table_that_is_not_there_loses_nothing(tmp_path: Path) -> None:
    """Before anything was packed, no session is started."""
    catalogue = open_catalogue(settings_at(tmp_path))
    lake = Lake(catalogue, Ledger(catalogue), no_spark)
    found = excise_superseded(lake, PACKED, KindThreshold())
    assert isinstance(found, Superseded) and found.excised.new_snapshot_id is None
    reinstate(lake, PACKED)


def test_a_corpus_without_revisions_says_what_to_run(tmp_path: Path) -> None:
    """A lake of an earlier version has packed tables and nothing that tells what was replaced: that is not nothing."""
    catalogue = open_catalogue(settings_at(tmp_path))
    packed = replace(packed_step("notes", 64).table, properties={"headrace.window-tokens": "64"})
    fill(catalogue, packed, [{"ordinal": 0, "input_ids": [0], "segments": []}])
    with pytest.raises(
        InputError, match=r"main\.revisions, .* has not been materialized; run `headrace run main` first"
    ):
        excise_superseded(Lake(catalogue, Ledger(catalogue), no_spark), PACKED, KindThreshold())


@pytest.mark.parametrize("run_prefix", [SUPERSEDE_PREFIX, ""])
def test_a_new_generation_lets_in_what_is_the_latest_again(tmp_path: Path, run_prefix: str) -> None:
    """Not what is superseded still, is no member, or was excised by name."""
    catalogue = open_catalogue(settings_at(tmp_path))
    lake = Lake(catalogue, Ledger(catalogue), no_spark)
    record_excisions(catalogue, PACKED, {"back", "superseded", "replaced"}, f"{run_prefix}run")
    record_excisions(catalogue, "main.packed_notes_128", {"back"}, f"{run_prefix}run")
    record_excisions(catalogue, None, {"by-name"}, "run")
    fill(catalogue, MEMBERS, [{"doc_id": name} for name in ("back", "superseded", "by-name")])
    fill(catalogue, REVISIONS, [revised(1, "superseded", "superseded", "path")])
    reinstate(lake, PACKED)
    stays = {"superseded", "replaced", "by-name"}
    assert excised_documents(catalogue, PACKED) == (stays if run_prefix else stays | {"back"})
    assert excised_documents(catalogue, "main.packed_notes_128") == {"back", "by-name"}
