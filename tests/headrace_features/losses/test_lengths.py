"""Losses of steps by length classes, whose sequences are parts of a blend's rows: each segment is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from blender_service.client import connect
from blender_service.client.identity import Identity
from blender_service.server.server import start
from headrace_features.losses.service import add_losses
from headrace_features.losses.tables import counting
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.blender_service.test_length_classes import TURN, made, sources
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_cells import celled, written
from tests.spark_jobs.packing.test_length_classes import TABLE, pack
from tests.spark_jobs.packing.test_packed import Corpus

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from blender_service.torch import DENSE, BlendDataset, LossWriter  # noqa: E402 (needs torch)

assert made  # a fixture
RUN = "by-length"


def test_sequences_of_a_class_are_segments_of_rows(lake_at: LakeAt, tmp_path: Path, made: Corpus) -> None:
    """Row, number, document, tokens and sum of each segment are those that the plain client's rows give."""
    lake = lake_at(tmp_path / "lake")
    pack(lake, written(tmp_path, made, celled(made, 5)), rows_per_file=200)
    with start(lake.catalogue, add_services=[add_losses]) as server:
        with connect(server.address) as client:
            blend = client.create_blend(sources({16: 1, 8: 1, 4: 1}), name="mix", turn_rows=TURN)
            read = list(client.read(blend.blend_id, 0, 6 * TURN))
        dataset = BlendDataset(
            server.address, "mix", TURN, length_classes=True, tensors=(*DENSE, "segment_documents"),
            identity=Identity(run=RUN),
        )  # fmt: skip
        with LossWriter(server.address, RUN, every=1) as writer:
            widths = set()
            for _, batch in zip(range(6), dataset, strict=False):
                widths.add(batch["labels"].shape[1])
                writer.add(batch["offset"], batch["labels"].clamp(min=0) / 128, batch)
            assert writer.flush() == 0 and len(widths) > 1
    namespace = TABLE.partition(".")[0]
    rows = counting(lake.catalogue.load_table(f"{namespace}.losses").scan().to_arrow()).to_pylist()
    found = {(row["offset"], row["segment"]): (row["doc_id"], row["tokens"], row["sum"]) for row in rows}
    wanted = {
        (batch.offset + at, number): (doc_id, count - 1, sum(row.input_ids[start + 1 : start + count]) / 128)
        for batch in read
        for at, row in enumerate(rows_of(batch))
        for number, (doc_id, _, count, start) in enumerate(row.segments)
        if count > 1
    }
    assert found == wanted
