"""Rows that peers read under the settings of docs/feed/from_peers.md, from sources of 1,000, 100 and 10 rows.

    python benchmarks/peers/moving.py datasets|streaming|litdata|grain|energon

runs in the peer's environment, with its packages alone (datasets 5.2.0, mosaicml-streaming 0.13.0, litdata 0.2.76,
grain 0.2.18, megatron-energon 7.4.1), and prints for each setting the rows of one pass by source, how many of them come
again, and how many never come. headrace's rows of the same settings are made by tests/packaging/test_from_peers.py.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from in_environment import SEED, SIZES, WEIGHTS, Row, datasets_blend, rows_of

MOST_ROWS = 5000  # more than any pass: what gives as many has no end, and its first 1,110 are told
Rows = Iterable[Row]


def told(rows: Rows) -> str:
    """Rows by source; how many came before, and how many never came."""
    read = list(itertools.islice(rows, MOST_ROWS))
    is_endless = len(read) == MOST_ROWS
    read = read[: sum(SIZES)] if is_endless else read
    by_source = Counter(source for source, _ in read)
    distinct = {tuple(row) for row in read}
    counts = " + ".join(str(by_source[source]) for source in range(len(SIZES)))
    ends = "no end" if is_endless else f"{len(read)} rows"
    return f"{ends}: {counts}; {len(read) - len(distinct)} again, {sum(SIZES) - len(distinct)} never"


def of_datasets() -> Iterator[tuple[str, Rows]]:
    """`interleave_datasets` with each strategy, with and without probabilities."""
    from datasets import Dataset, interleave_datasets

    for strategy in ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement"):
        yield f"probabilities, {strategy}", next(datasets_blend(strategy))[0]
        parts = [Dataset.from_dict({"row": rows_of(source)}) for source in range(len(SIZES))]
        yield (
            f"no probabilities, {strategy}",
            (row["row"] for row in interleave_datasets(parts, stopping_strategy=strategy)),
        )


def of_streaming() -> Iterator[tuple[str, Rows]]:
    """MDS: streams without weights, by proportion, by choose, by repeat."""
    from streaming import MDSWriter, Stream, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    folder = Path(tempfile.mkdtemp())
    for source in range(len(SIZES)):
        with MDSWriter(out=str(folder / str(source)), columns={"source": "int", "row": "int"}) as out:
            for _, row in rows_of(source):
                out.write({"source": source, "row": row})
    settings: dict[str, list[dict[str, Any]]] = {
        "no weights": [{} for _ in SIZES],
        "proportion": [{"proportion": weight} for weight in WEIGHTS],
        "choose 500, 200, 10": [{"choose": count} for count in (500, 200, 10)],
        "repeat 1, 3, 5": [{"repeat": times} for times in (1, 3, 5)],
        "repeat .5, 1, 1": [{"repeat": times} for times in (0.5, 1, 1)],
    }
    for name, kinds in settings.items():
        clean_stale_shared_memory()
        streams = [Stream(local=str(folder / str(source)), **kind) for source, kind in enumerate(kinds)]
        blend = StreamingDataset(streams=streams, batch_size=1, shuffle=True, shuffle_seed=SEED)
        yield name, ([int(row["source"]), int(row["row"])] for row in blend)


def _row(value: Row) -> dict[str, int]:
    return {"source": value[0], "row": value[1]}


def of_litdata() -> Iterator[tuple[str, Rows]]:
    """`CombinedStreamingDataset` with and without weights, until the first or until all have ended."""
    from litdata import CombinedStreamingDataset, StreamingDataset, optimize

    folder = Path(tempfile.mkdtemp())
    for source in range(len(SIZES)):
        optimize(
            fn=_row, inputs=rows_of(source), output_dir=str(folder / str(source)), chunk_bytes=1 << 16, num_workers=1
        )
    for weights, over_all in ((None, True), (list(WEIGHTS), False), (None, False)):
        parts = [StreamingDataset(str(folder / str(source)), shuffle=True, seed=SEED) for source in range(len(SIZES))]
        blend = CombinedStreamingDataset(parts, seed=SEED, weights=weights, iterate_over_all=over_all)
        name = f"weights {'given' if weights else 'left out'}, iterate_over_all={over_all}"
        yield name, ([int(row["source"]), int(row["row"])] for row in blend)


def of_grain() -> Iterator[tuple[str, Rows]]:
    """Mixes of maps and of iterators, and with repeated parts."""
    import grain

    sources = [grain.MapDataset.source(rows_of(source)) for source in range(len(SIZES))]
    yield "MapDataset.mix", iter(grain.MapDataset.mix(sources, WEIGHTS))
    yield "IterDataset.mix", iter(grain.IterDataset.mix([source.to_iter_dataset() for source in sources], WEIGHTS))
    repeated = [sources[0], sources[1].repeat(3), sources[2].repeat()]
    yield "MapDataset.mix, repeat 1, 3, without end", iter(grain.MapDataset.mix(repeated, WEIGHTS))


def of_energon() -> Iterator[tuple[str, Rows]]:
    """Metadatasets with `blend` and `blend_epochized`."""
    import subprocess

    import webdataset
    from megatron.energon import WorkerConfig, get_loader, get_train_dataset

    folder = Path(tempfile.mkdtemp())
    for source in range(len(SIZES)):
        (folder / str(source)).mkdir()
        with webdataset.TarWriter(str(folder / str(source) / "shard-0.tar")) as out:
            for _, row in rows_of(source):
                out.write({"__key__": f"{source}-{row}", "json": {"source": source, "row": row}})
        words = ["prepare", "--non-interactive", "--num-workers", "1", "--split-parts", "train:.*"]
        energon = Path(sys.executable).with_name("energon")
        subprocess.run([energon, *words, str(folder / str(source))], check=True, stdout=subprocess.DEVNULL)
        (folder / str(source) / ".nv-meta" / "dataset.yaml").write_text(
            "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
        )
    for name, field, values in (
        ("blend", "weight", WEIGHTS),
        ("blend_epochized", "repetitions", (1, 3, 5)),
        ("blend_epochized, .5", "repetitions", (0.5, 1, 1)),
    ):
        parts = [{"path": f"./{source}", field: value} for source, value in enumerate(values)]
        file = folder / f"{len(list(folder.iterdir()))}.yaml"
        split = {"train": {name.partition(",")[0]: parts}}
        about = {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
        file.write_text(json.dumps({**about, "splits": split}))  # JSON is YAML
        config = WorkerConfig(rank=0, world_size=1, num_workers=0)
        data = get_train_dataset(
            str(file),
            worker_config=config,
            batch_size=1,
            shuffle_buffer_size=None,
            max_samples_per_sequence=None,
            repeat="epochized" not in name,
            task_encoder=_energon_encoder(),
        )
        yield name, (json.loads(batch.text[0]) for batch in get_loader(data))


def _energon_encoder() -> Any:
    from megatron.energon import Cooker, DefaultTaskEncoder, TextSample, basic_sample_keys, stateless

    @stateless
    def cook(sample: dict[str, Any]) -> Any:
        row = sample["json"]
        return TextSample(**basic_sample_keys(sample), text=json.dumps([int(row["source"]), int(row["row"])]))

    class Encoder(DefaultTaskEncoder):
        cookers: ClassVar[list[Any]] = [Cooker(cook)]

    return Encoder()


PEERS: dict[str, Callable[[], Iterator[tuple[str, Rows]]]] = {
    "datasets": of_datasets,
    "streaming": of_streaming,
    "litdata": of_litdata,
    "grain": of_grain,
    "energon": of_energon,
}

if __name__ == "__main__":
    for setting, rows in PEERS[sys.argv[1]]():
        print(f"{setting}: {told(rows)}", flush=True)
