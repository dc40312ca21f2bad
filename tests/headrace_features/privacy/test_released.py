"""Over real Spark and Iceberg: what is released equals what a trusted dataset has, in whatever order it is released."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headrace.tables.catalogue import load_table
from headrace_features.privacy.released import released
from headrace_features.privacy.scans.scans import ScansConfig, scans
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.decisions import RELEASE, decide, increments_of
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from tests.conftest import LakeAt

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
TABLES = ("documents", "repositories", "provenance", "arrivals")
EICAR = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"


def landing(space: str, source: Path) -> Binding:
    """The step that lands files, into a namespace; doc_ids are those of `web` in any."""
    config = DocumentsConfig.model_validate(
        {"dataset": "web", "source": {"kind": "files", "path": str(source)}, "landing": "copy", "shards": 2}
    )
    return Binding(documents, space, {}, config, driving_table=f"{space}.arrivals")


def scanning() -> Binding:
    """The scans of `web`."""
    inputs = {table: f"web_quarantine.{table}" for table in ("documents", "repositories", "provenance")}
    config = ScansConfig(licences_allowed=("MIT", "Apache-2.0"), source_trust=0.5)
    return Binding(scans, "web_quarantine", inputs, config, driving_table="web_quarantine.arrivals")


def carrying(step: Step = released) -> Binding:
    """The step that carries over what is released."""
    names = dict(zip(("landed", *(f"landed_{table}" for table in TABLES[1:])), TABLES, strict=True))
    inputs = {name: f"web_quarantine.{table}" for name, table in names.items()}
    return Binding(step, "web", inputs, step.config(), driving_table="web_quarantine.scans")


def versions(lake: Lake) -> dict[str, dict[int, str]]:
    """Data versions of `web`, by table and increment."""
    lake.ledger.refresh()
    return {
        table: {number: str(row.data_version) for number, row in lake.ledger.increments(f"web.{table}").items()}
        for table in TABLES
    }


def test_what_is_released_equals_what_is_trusted(tmp_path: Path, lake_at: LakeAt) -> None:
    """All four tables, increment by increment; the last first, one never, and its documents are nowhere.

    Arrivals name where bytes are kept, so they are compared but for the folder of the lake.
    """
    source = tmp_path / "web"
    source.mkdir()
    trusted, waiting = lake_at(tmp_path / "trusted"), lake_at(tmp_path / "waiting")
    for number, text in enumerate(("one", EICAR, "three")):
        (source / f"{number}.txt").write_text(text)
        materialize(trusted, landing("web", source))
        materialize(waiting, landing("web_quarantine", source))
    (outcome,) = materialize(waiting, scanning())
    assert outcome.computed == ("0", "1", "2")
    found = {row["increment"]: row for row in waiting.session().table("lake.web_quarantine.scans").collect()}
    assert [found[n]["malware_count"] for n in range(3)] == [0, 1, 0]
    assert {(row["licence_allowed"], row["source_trust"]) for row in found.values()} == {(False, 0.5)}

    materialize(waiting, carrying())
    assert versions(waiting) == {table: {} for table in TABLES}, "nothing is released yet, the tables are there"
    decide(waiting.catalogue, "web", [2], RELEASE, "looked at")
    materialize(waiting, carrying())
    decide(waiting.catalogue, "web", [0], RELEASE, "looked at")
    main = materialize(waiting, carrying())[0]
    assert (main.computed, main.unchanged) == (("0",), ("2",))

    expected = versions(trusted)
    for table in TABLES[:3]:
        assert versions(waiting)[table] == {number: expected[table][number] for number in (0, 2)}, table
    rows = {}
    for name, lake in (("trusted", trusted), ("waiting", waiting)):
        table = load_table(lake.catalogue, "web.arrivals")
        assert table is not None
        arrived = [row for row in table.scan().to_arrow().to_pylist() if row["increment"] != 1]
        rows[name] = sorted(
            ({**row, "object": row["object"] and row["object"].removeprefix(lake.ledger.warehouse)} for row in arrived),
            key=str,
        )
        kept = [row["object"] for row in rows[name] if row["status"] == "landed"]
        assert all(one.startswith("/web/landed/") for one in kept) and len(kept) == 2
    assert rows["trusted"] == rows["waiting"]
    assert [one.carried for one in increments_of(waiting.ledger, "web")] == [True, False, True]

    # A change of the code copies again, and comes out the same; a decision that is older than the rows says nothing.
    again = materialize(waiting, carrying(dataclasses.replace(released, version="2")))[0]
    assert again.computed == ("0", "2") and versions(waiting)["documents"].keys() == {0, 2}
