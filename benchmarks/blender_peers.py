"""Other streaming loaders beside Blender: each gives the same rows, as uint16, to a torch loop in a process of its own.

    uv venv peers
    uv pip install --python peers/bin/python mosaicml-streaming==0.13.0 litdata==0.2.76 torchvision
    python benchmarks/bench_blender.py --part served --peers peers/bin/python

What they read was written by their own writers to local disk; Blender's rows come through gRPC. As a program it does
one part (`blender_peers.py mds-write ROWS.npy FOLDER`) and prints the bytes it read and the seconds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_ROWS = 256
ROUNDS = 3
PASSES = 6  # over the rows, of which the first is not counted


def bench_peers(python: str, folder: Path, rows: NDArray[np.uint16], address: str, blend: str) -> None:
    """Print MB/s of each loader, in turns, and Blender's ratio to it; one that does not run is named with the reason.

    Args:
        python: interpreter that has the other loaders.
        folder: for what they write.
        rows: (R, L) the rows that they get.
        address: of a Blender server.
        blend: that gives the same rows, without end.
    """
    np.save(folder / "rows.npy", rows)
    loaders: dict[str, tuple[str, list[str]]] = {"Blender": (sys.executable, [address, blend, str(rows.size * 2)])}
    for name in ("mds", "litdata"):
        try:
            _part(python, f"{name}-write", str(folder / "rows.npy"), str(folder / name))
        except subprocess.CalledProcessError as error:
            print(f"{name}: left out: {(error.stderr or 'no message').strip().splitlines()[-1]}")
        else:
            loaders[name] = (python, [str(folder / name), str(rows.shape[1])])
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(ROUNDS):
        for name, (interpreter, arguments) in loaders.items():
            byte_count, seconds = _part(interpreter, f"{name.lower()}-read", *arguments).split()[-2:]
            speeds[name].append(int(byte_count) / float(seconds) / 1e6)
    print(f"\n{'input_ids as uint16 into a torch loop':44} {'MB/s':>8} {'Blender / it':>13}")
    for name, values in speeds.items():
        ratio = np.median(speeds["Blender"]) / np.median(values)
        print(f"{name:44} {np.median(values):8.0f} {ratio:13.2f}")
    for name in ("mds", "litdata"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _part(python: str, *arguments: str) -> str:
    command = [python, __file__, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def write_mds(rows: NDArray[np.uint16], folder: str) -> None:
    """Write rows as MosaicML Streaming does."""
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"input_ids": f"ndarray:uint16:{rows.shape[1]}"}) as writer:
        for row in rows:
            writer.write({"input_ids": row})


def read_mds(folder: str) -> Iterator[Any]:
    """Give batches as MosaicML Streaming reads them, in order."""
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=folder, shuffle=False, batch_size=BATCH_ROWS)
    for _ in range(PASSES):
        yield from (batch["input_ids"] for batch in DataLoader(dataset, batch_size=BATCH_ROWS))


def tokens_of(path: str) -> Iterator[Any]:
    """Give the tokens of rows, one row after the other, to litData's writer."""
    import torch

    yield from torch.from_numpy(np.load(path))


def write_litdata(path: str, folder: str, window_tokens: int) -> None:
    """Write rows as litData does for language models."""
    import litdata

    loader = litdata.TokensLoader(block_size=window_tokens)
    litdata.optimize(tokens_of, [path], folder, chunk_size=8192 * window_tokens, num_workers=1, item_loader=loader)


def read_litdata(folder: str, window_tokens: int) -> Iterator[Any]:
    """Give batches as litData reads them, in order."""
    import litdata

    loader = litdata.TokensLoader(block_size=window_tokens)
    dataset = litdata.StreamingDataset(folder, item_loader=loader, shuffle=False)
    for _ in range(PASSES):
        yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH_ROWS)


def read_blender(address: str, blend: str, pass_bytes: int) -> Iterator[Any]:
    """Give batches of Blender."""
    import torch

    from blender_service.client import connect

    left = pass_bytes * PASSES
    with connect(address) as client, client.read(blend, 0) as stream:
        for batch in stream:
            yield torch.from_numpy(batch.input_ids)
            left -= batch.input_ids.nbytes
            if left <= 0:
                return


def loop(batches: Iterable[Any], pass_bytes: int) -> None:
    """Touch every batch as a training loop does; print bytes and seconds after the first pass."""
    read, began = 0, 0.0
    for batch in batches:
        assert batch.element_size() == 2, batch.dtype
        batch.contiguous()
        read += batch.nbytes
        if not began and read >= pass_bytes:
            read, began = 0, time.perf_counter()
    print(read, time.perf_counter() - began)


def main() -> None:
    """Do one part."""
    part, *arguments = sys.argv[1:]
    if part == "mds-write":
        write_mds(np.load(arguments[0]), arguments[1])
    elif part == "litdata-write":
        write_litdata(*arguments, np.load(arguments[0]).shape[1])
    elif part == "blender-read":
        loop(read_blender(arguments[0], arguments[1], int(arguments[2])), int(arguments[2]))
    else:
        pass_bytes = np.load(Path(arguments[0]).parent / "rows.npy", mmap_mode="r").nbytes
        batches = read_mds(arguments[0]) if part == "mds-read" else read_litdata(arguments[0], int(arguments[1]))
        loop(batches, pass_bytes)


if __name__ == "__main__":
    main()
